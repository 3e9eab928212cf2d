/* Copies of strided regions: merge dimensions, then go row by row, or tile by tile where one side
 * walks another dimension than the other does. */
#include "copying.h"

#include <string.h>

#define TASK_BYTES ((int64_t)1 << 18)
#define MOST_TASKS 64
#define BLOCK 512
/* Rows shorter than this are copied column by column, where there are so many of them. */
#define SHORT_ROW 8
#define MANY_ROWS 32
#define SHORT_BYTES 512
/* Rows and columns of the tile through which a transposing conversion goes. */
#define TILE_ROWS 32
#define TILE_COLUMNS 64
/* Elements of a plane up to which a call of its own would take longer than it does. */
#define SMALL_PLANE 256

typedef struct {
    int ndim;
    int64_t shape[TG_MAX_DIMS], to[TG_MAX_DIMS], from[TG_MAX_DIMS];
} layout;

typedef struct {
    layout at;
    char *to;
    const char *from;
    int to_dtype, from_dtype;   /* of a conversion; unused where bits only move */
    int to_size, from_size;
    int converts;
    int plane;                  /* the dimension along which `from` is packed, or -1 */
    /* Each element is this many, so many bytes apart; they are not in the layout. */
    int64_t columns, column_to, column_from;
    int64_t numel, tasks, bands, band;
} job;

static inline int64_t size_of(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Sort dimensions by the strides of `to`, the largest first, and merge what both sides walk as one. */
static void normalise(layout *at, int ndim, const int64_t *shape, const int64_t *to, const int64_t *from)
{
    int n = 0;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 1)
            continue;
        int j = n++;
        for (; j > 0; j--) {
            int64_t a = size_of(at->to[j - 1]), b = size_of(to[d]);
            if (a > b || (a == b && size_of(at->from[j - 1]) >= size_of(from[d])))
                break;
            at->shape[j] = at->shape[j - 1];
            at->to[j] = at->to[j - 1];
            at->from[j] = at->from[j - 1];
        }
        at->shape[j] = shape[d];
        at->to[j] = to[d];
        at->from[j] = from[d];
    }
    int kept = 0;
    for (int d = 1; d < n; d++) {
        if (at->to[kept] == at->shape[d] * at->to[d] && at->from[kept] == at->shape[d] * at->from[d]) {
            at->shape[kept] *= at->shape[d];
        } else {
            kept++;
            at->shape[kept] = at->shape[d];
        }
        at->to[kept] = at->to[d];
        at->from[kept] = at->from[d];
    }
    at->ndim = n ? kept + 1 : 0;
    if (n == 0) {
        at->ndim = 1;
        at->shape[0] = 1;
        at->to[0] = at->from[0] = 0;
    }
}

/* --- rows -------------------------------------------------------------------------------------- */

#define EACH(S, ts, fs)              \
    for (int64_t i = 0; i < n; i++)  \
        memcpy(to + i * (ts), from + i * (fs), S);

#define STRIDED(S)                                                                                              \
    static void strided##S(char *restrict to, int64_t to_stride, const char *restrict from, int64_t from_stride, \
                           int64_t n)                                                                           \
    {                                                                                                           \
        if (to_stride == S && from_stride == -S) {                                                              \
            EACH(S, S, -S)                                                                                      \
        } else if (to_stride == S && from_stride == 2 * S) {                                                    \
            EACH(S, S, 2 * S)                                                                                   \
        } else if (to_stride == S) {                                                                            \
            EACH(S, S, from_stride)                                                                             \
        } else if (from_stride == S) {                                                                          \
            EACH(S, to_stride, S)                                                                               \
        } else {                                                                                                \
            EACH(S, to_stride, from_stride)                                                                     \
        }                                                                                                       \
    }
STRIDED(1)
STRIDED(2)
STRIDED(4)
STRIDED(8)
STRIDED(16)

#define FILL(S, type)                                                      \
    static void fill##S(char *to, int64_t stride, const void *value, int64_t n) \
    {                                                                      \
        type x;                                                            \
        memcpy(&x, value, S);                                              \
        if (stride == S)                                                   \
            for (int64_t i = 0; i < n; i++)                                \
                memcpy(to + i * S, &x, S);                                 \
        else                                                               \
            for (int64_t i = 0; i < n; i++)                                \
                memcpy(to + i * stride, &x, S);                            \
    }
typedef struct {
    uint64_t low, high;
} pair;
FILL(1, uint8_t)
FILL(2, uint16_t)
FILL(4, uint32_t)
FILL(8, uint64_t)
FILL(16, pair)

void TGC(tgc_fill_row)(char *to, int64_t stride, const void *value, int64_t n, int itemsize)
{
    switch (itemsize) {
    case 1: fill1(to, stride, value, n); return;
    case 2: fill2(to, stride, value, n); return;
    case 4: fill4(to, stride, value, n); return;
    case 8: fill8(to, stride, value, n); return;
    default: fill16(to, stride, value, n);
    }
}

void TGC(tgc_move_row)(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n, int size)
{
    if (to_stride == size && from_stride == size) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    if (from_stride == 0) {
        TGC(tgc_fill_row)(to, to_stride, from, n, size);
        return;
    }
    switch (size) {
    case 1: strided1(to, to_stride, from, from_stride, n); return;
    case 2: strided2(to, to_stride, from, from_stride, n); return;
    case 4: strided4(to, to_stride, from, from_stride, n); return;
    case 8: strided8(to, to_stride, from, from_stride, n); return;
    default: strided16(to, to_stride, from, from_stride, n);
    }
}

static void convert_row(const job *job, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n)
{
    _Alignas(64) char packed[BLOCK * 16], converted[BLOCK * 16];
    int packs = from_stride != job->from_size, unpacks = to_stride != job->to_size;
    if (from_stride == 0) {
        TGC(tgc_convert)(converted, job->to_dtype, from, job->from_dtype, 1);
        TGC(tgc_fill_row)(to, to_stride, converted, n, job->to_size);
        return;
    }
    if (!packs && !unpacks) {
        TGC(tgc_convert)(to, job->to_dtype, from, job->from_dtype, n);
        return;
    }
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t count = n - first < BLOCK ? n - first : BLOCK;
        const char *source = from + first * from_stride;
        char *target = to + first * to_stride;
        if (packs) {
            TGC(tgc_move_row)(packed, job->from_size, source, from_stride, count, job->from_size);
            source = packed;
        }
        TGC(tgc_convert)(unpacks ? converted : target, job->to_dtype, source, job->from_dtype, count);
        if (unpacks)
            TGC(tgc_move_row)(target, to_stride, converted, job->to_size, count, job->to_size);
    }
}

/* Block by block, so that a line of memory stays in the first-level cache for all its columns. */
static void move_columns(const job *job, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n)
{
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t count = n - first < BLOCK ? n - first : BLOCK;
        for (int64_t k = 0; k < job->columns; k++)
            TGC(tgc_move_row)(to + first * to_stride + k * job->column_to, to_stride,
                              from + first * from_stride + k * job->column_from, from_stride, count, job->to_size);
    }
}

static void do_row(const job *job, char *to, const char *from, int64_t n)
{
    int inner = job->at.ndim - 1;
    if (job->columns > 1)
        move_columns(job, to, job->at.to[inner], from, job->at.from[inner], n);
    else if (job->converts)
        convert_row(job, to, job->at.to[inner], from, job->at.from[inner], n);
    else
        TGC(tgc_move_row)(to, job->at.to[inner], from, job->at.from[inner], n, job->to_size);
}

/* A call for each short row would take longer than its bytes. */
static inline __attribute__((always_inline)) void move_short(char *restrict to, const char *restrict from, int64_t bytes)
{
    if (bytes >= 32) {
        for (int64_t i = 0; i + 32 < bytes; i += 32)
            memcpy(to + i, from + i, 32);
        memcpy(to + bytes - 32, from + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else {
        for (int64_t i = 0; i < bytes; i++)
            to[i] = from[i];
    }
}

/* Whole packed rows that are short, one after the other along the dimension before; returns how many. */
static int64_t short_rows(const job *job, char *to, const char *from, int64_t index, int64_t elements)
{
    const layout *at = &job->at;
    const int inner = at->ndim - 1;
    const int64_t bytes = at->shape[inner] * job->to_size, to_step = at->to[inner - 1], from_step = at->from[inner - 1];
    int64_t rows = at->shape[inner - 1] - index;
    rows = rows < elements / at->shape[inner] ? rows : elements / at->shape[inner];
    for (int64_t i = 0; i < rows; i++)
        move_short(to + i * to_step, from + i * from_step, bytes);
    return rows;
}

/* Elements [first, end) in the order of the layout. */
static void do_rows(int64_t task, void *context)
{
    const job *job = context;
    const layout *at = &job->at;
    int64_t first = tgc_begin(job->numel, job->tasks, task, 64), end = tgc_begin(job->numel, job->tasks, task + 1, 64);
    int64_t index[TG_MAX_DIMS], rest = first;
    int inner = at->ndim - 1;
    char *to = job->to;
    const char *from = job->from;
    for (int d = inner; d >= 0; d--) {
        index[d] = rest % at->shape[d];
        rest /= at->shape[d];
        to += index[d] * at->to[d];
        from += index[d] * at->from[d];
    }
    const int is_short = inner > 0 && job->columns == 1 && !job->converts && at->to[inner] == job->to_size
                         && at->from[inner] == job->to_size && at->shape[inner] * job->to_size <= SHORT_BYTES;
    while (first < end) {
        int64_t n = at->shape[inner] - index[inner], rows = 0;
        if (is_short && index[inner] == 0)
            rows = short_rows(job, to, from, index[inner - 1], end - first);
        if (rows > 0) {
            /* The last of them is stepped from below. */
            n = rows * at->shape[inner];
            to += (rows - 1) * at->to[inner - 1];
            from += (rows - 1) * at->from[inner - 1];
            index[inner - 1] += rows - 1;
        } else {
            n = n < end - first ? n : end - first;
            do_row(job, to, from, n);
        }
        first += n;
        to -= index[inner] * at->to[inner];
        from -= index[inner] * at->from[inner];
        index[inner] = 0;
        for (int d = inner - 1; d >= 0; d--) {
            to += at->to[d];
            from += at->from[d];
            if (++index[d] < at->shape[d])
                break;
            to -= at->shape[d] * at->to[d];
            from -= at->shape[d] * at->from[d];
            index[d] = 0;
        }
    }
}

/* --- planes ------------------------------------------------------------------------------------ */

/* Transpose, then convert, tile by tile. */
static void convert_plane(const job *job, char *to, int64_t to_stride, const char *from, int64_t from_stride,
                          int64_t rows, int64_t columns)
{
    _Alignas(64) char tile[TILE_ROWS * TILE_COLUMNS * 16];
    int64_t width = TILE_COLUMNS * job->from_size;
    for (int64_t i = 0; i < rows; i += TILE_ROWS)
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
            int64_t height = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
            int64_t count = columns - j < TILE_COLUMNS ? columns - j : TILE_COLUMNS;
            TGC(tgc_transpose)(tile, width, from + i * job->from_size + j * from_stride, from_stride, height, count,
                               job->from_size);
            for (int64_t k = 0; k < height; k++)
                TGC(tgc_convert)(to + (i + k) * to_stride + j * job->to_size, job->to_dtype, tile + k * width,
                                 job->from_dtype, count);
        }
}

/* The dimension, other than the two of a plane, along which planes follow each other at once; -1 if none. */
static int next_plane(const job *job)
{
    const int d = job->at.ndim - 2;
    return d == job->plane ? d - 1 : d;
}

/* Whole small planes from one band on that lie along one dimension; returns how many. */
static int64_t small_planes(const job *job, char *to, const char *from, int64_t band, int64_t bands)
{
    const layout *at = &job->at;
    const int inner = at->ndim - 1, along = next_plane(job);
    const int64_t rows = at->shape[job->plane], columns = at->shape[inner];
    if (along < 0 || rows > job->band || rows * columns > SMALL_PLANE || job->converts)
        return 0;
    const int64_t left = at->shape[along] - band % at->shape[along], count = left < bands ? left : bands;
    TGC(tgc_transpose_each)(to, at->to[along], from, at->from[along], count, at->to[job->plane], at->from[inner], rows,
                            columns, job->to_size);
    return count;
}

/* Bands of rows of the planes spanned by job->plane and the innermost dimension. */
static void do_planes(int64_t task, void *context)
{
    const job *job = context;
    const layout *at = &job->at;
    int inner = at->ndim - 1;
    int64_t per_plane = (at->shape[job->plane] + job->band - 1) / job->band;
    int64_t first = tgc_begin(job->bands, job->tasks, task, 1), end = tgc_begin(job->bands, job->tasks, task + 1, 1);
    while (first < end) {
        int64_t rest = first / per_plane, row = first % per_plane * job->band;
        int64_t rows = at->shape[job->plane] - row < job->band ? at->shape[job->plane] - row : job->band;
        char *to = job->to + row * at->to[job->plane];
        const char *from = job->from + row * at->from[job->plane];
        for (int d = inner - 1; d >= 0; d--) {
            if (d == job->plane)
                continue;
            to += rest % at->shape[d] * at->to[d];
            from += rest % at->shape[d] * at->from[d];
            rest /= at->shape[d];
        }
        const int64_t done = small_planes(job, to, from, first, end - first);
        first += done > 0 ? done : 1;
        if (done > 0)
            continue;
        if (job->converts)
            convert_plane(job, to, at->to[job->plane], from, at->from[inner], rows, at->shape[inner]);
        else
            TGC(tgc_transpose)(to, at->to[job->plane], from, at->from[inner], rows, at->shape[inner], job->to_size);
    }
}

/* The dimension along which `from` is packed while `to` is packed along the innermost; -1 if none. */
static int find_plane(const job *job)
{
    int inner = job->at.ndim - 1;
    if (job->at.to[inner] != job->to_size || job->at.from[inner] == job->from_size || job->at.from[inner] == 0)
        return -1;
    for (int d = 0; d < inner; d++)
        if (job->at.from[d] == job->from_size && job->at.shape[d] >= 4)
            return d;
    return -1;
}

static void run(job *job)
{
    const layout *at = &job->at;
    int inner = at->ndim - 1;
    job->numel = 1;
    for (int d = 0; d < at->ndim; d++)
        job->numel *= at->shape[d];
    int64_t bytes = job->numel * job->columns * (job->to_size > job->from_size ? job->to_size : job->from_size);
    job->tasks = tgc_tasks(bytes, TASK_BYTES, MOST_TASKS);
    job->plane = find_plane(job);
    if (job->plane < 0) {
        tgc_parallel(job->tasks, do_rows, job);
        return;
    }
    job->band = 64;
    job->bands = (at->shape[job->plane] + job->band - 1) / job->band
                 * (job->numel / (at->shape[job->plane] * at->shape[inner]));
    job->tasks = job->tasks < job->bands ? job->tasks : job->bands;
    tgc_parallel(job->tasks, do_planes, job);
}

static int is_empty(int ndim, const int64_t *shape)
{
    for (int d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return 1;
    return 0;
}

void TGC(tgc_move_region)(int ndim, const int64_t *shape, char *to, const int64_t *to_strides, const char *from,
                          const int64_t *from_strides, int itemsize)
{
    job job = {.to = to, .from = from, .to_size = itemsize, .from_size = itemsize, .columns = 1};
    if (is_empty(ndim, shape))
        return;
    normalise(&job.at, ndim, shape, to_strides, from_strides);
    /* A short packed row is one larger element. */
    layout *at = &job.at;
    int inner = at->ndim - 1;
    int64_t row = at->shape[inner] * itemsize;
    if (inner > 0 && at->to[inner] == itemsize && at->from[inner] == itemsize
        && (row == 2 || row == 4 || row == 8 || row == 16)) {
        at->ndim--;
        job.to_size = job.from_size = (int)row;
    } else if (inner > 0 && at->shape[inner] < SHORT_ROW && at->shape[inner - 1] >= MANY_ROWS && find_plane(&job) < 0) {
        at->ndim--;
        job.columns = at->shape[inner];
        job.column_to = at->to[inner];
        job.column_from = at->from[inner];
    }
    run(&job);
}

void TGC(tgc_copy_region)(int ndim, const int64_t *shape, char *to, const int64_t *to_strides, int to_dtype,
                          const char *from, const int64_t *from_strides, int from_dtype)
{
    if (tgc_same_bits(to_dtype, from_dtype)) {
        TGC(tgc_move_region)(ndim, shape, to, to_strides, from, from_strides, tgc_itemsize[to_dtype]);
        return;
    }
    job job = {.to = to,
               .from = from,
               .to_dtype = to_dtype,
               .from_dtype = from_dtype,
               .to_size = tgc_itemsize[to_dtype],
               .from_size = tgc_itemsize[from_dtype],
               .converts = 1,
               .columns = 1};
    if (is_empty(ndim, shape))
        return;
    normalise(&job.at, ndim, shape, to_strides, from_strides);
    run(&job);
}

/* Convolution whose result has the size of its input: windows one element apart, of one group. The
 * window of a position starts as many elements after that of the position before as the positions
 * lie apart, so that a line of a panel is one piece of memory, of which a mask leaves out what lies
 * in the padding: nothing is copied to be padded, and the positions of all images are one row of
 * panels. Vectors with masks only (AVX-512). */
#include "convolution_job.h"
#include "gemm/simd.h"

#if TGC_VECTOR == 64

#define COLUMNS 32
#define LANES 16
#define LEAST_POSITIONS 16 /* of an image; so a panel lies in three images at most */
#define PIECES 3
#define PANEL (COLUMNS * TGC_LONGEST)
#define MOST_TAPS 64
#define GATHERING_TAPS 9 /* so many read a line that most find it near */
#define BLOCK_PANELS 16
#define MOST_TASKS 16
#define TASK_PRODUCTS (1 << 20)
#define ROW_PANELS 20 /* of weights over a run: about half of a small second-level cache */
/* What the choice of blocks weighs: cycles to gather a line of a panel, and to fetch a weight. */
#define GATHER_CYCLES 12.0
#define FETCH_CYCLES 0.5

typedef struct same_job {
    tgc_convolution *j;
    const tgc_engine *e;
    int64_t all, run; /* positions of all images; the run over taps and channels of one tile */
    int64_t panel_rows; /* the same for all but the last, as a tile of very few takes longer than its products */
    int64_t row_panels, column_panels, row_blocks, column_blocks, panel_bytes;
    int64_t tap_offset[MOST_TAPS];
} same_job;

/* Where a panel's lines come from, and where its columns go. */
typedef struct columns {
    int pieces;
    int64_t first[PIECES + 1]; /* lane */
    int64_t source[PIECES], target[PIECES]; /* as if the piece began at the first lane */
    uint16_t inside[PIECES][MOST_TAPS][2]; /* by vector of lanes */
} columns;

static char *weight_panel(const same_job *s, int64_t panel, int64_t p)
{
    return s->j->packed + (p / s->run * s->row_panels + panel) * s->panel_bytes;
}

static void pack_task(int64_t panel, void *context)
{
    const same_job *s = context;
    const tgc_convolution *j = s->j;
    int64_t i = panel * s->panel_rows;
    for (int64_t p = 0; p < j->rows; p += s->run)
        s->e->pack_a(weight_panel(s, panel, p), j->weight.data + (i * j->rows + p) * j->item,
                     tgc_smaller(j->depth - i, s->panel_rows), tgc_smaller(j->rows - p, s->run), j->rows, 1);
}

/* The taps that see the input from a position, as far as all dimensions but the last tell: of each the first along the
 * last one. */
static uint64_t outer_taps(const tgc_windows *w, const int64_t *index)
{
    uint64_t taps = 1;
    int64_t made = w->kernel[w->ndim - 1];
    for (int d = w->ndim - 2; d >= 0; d--) {
        uint64_t with = 0;
        for (int64_t k = 0; k < w->kernel[d]; k++) {
            int64_t x = index[d] + k * w->dilation[d] - w->padding[d];
            if (x >= 0 && x < w->size[d])
                with |= taps << k * made;
        }
        taps = with;
        made *= w->kernel[d];
    }
    return taps;
}

static uint64_t inner_taps(const tgc_windows *w, int64_t index)
{
    const int last = w->ndim - 1;
    uint64_t taps = 0;
    for (int64_t k = 0; k < w->kernel[last]; k++) {
        int64_t x = index + k * w->dilation[last] - w->padding[last];
        taps |= (uint64_t)(x >= 0 && x < w->size[last]) << k;
    }
    return taps;
}

static void look_at(const same_job *s, int64_t at, int64_t count, columns *c)
{
    const tgc_windows *w = &s->j->w;
    const int last = w->ndim - 1;
    c->pieces = 0;
    for (int64_t lane = 0; lane < count;) {
        int64_t image = (at + lane) / w->positions, position = (at + lane) % w->positions;
        int64_t n = tgc_smaller(count - lane, w->positions - position), index[TG_MAX_DIMS], rest = position;
        int piece = c->pieces++;
        uint64_t seen[COLUMNS] = {0}; /* taps, by lane */
        c->first[piece] = lane;
        c->source[piece] = image * s->j->input.image + position - lane;
        c->target[piece] = image * w->maps * w->positions + position - lane;
        for (int d = last; d >= 0; d--) {
            index[d] = rest % w->size[d];
            rest /= w->size[d];
        }
        uint64_t outer = outer_taps(w, index);
        for (int64_t end = lane + n; lane < end; lane++) {
            seen[lane] = inner_taps(w, index[last]) * outer; /* a copy at each bit of the other */
            if (++index[last] < w->size[last])
                continue;
            index[last] = 0;
            for (int d = last - 1; d >= 0 && ++index[d] == w->size[d]; d--)
                index[d] = 0;
            outer = outer_taps(w, index);
        }
        __m512i eight[COLUMNS / 8];
        for (int i = 0; i < COLUMNS / 8; i++)
            eight[i] = _mm512_loadu_si512(seen + 8 * i);
        for (int64_t t = 0; t < w->taps; t++) {
            const __m512i tap = _mm512_set1_epi64((int64_t)((uint64_t)1 << t));
            for (int half = 0; half < 2; half++)
                c->inside[piece][t][half] = (uint16_t)(_mm512_test_epi64_mask(eight[2 * half], tap) |
                                                       _mm512_test_epi64_mask(eight[2 * half + 1], tap) << 8);
        }
    }
    c->first[c->pieces] = count;
}

/* An address that may lie outside of the tensor: only lanes inside are read. */
static inline void *address(const void *x, int64_t elements)
{
    return (void *)((uintptr_t)x + (uintptr_t)elements * sizeof(float));
}

static inline __attribute__((always_inline)) void gather_pieces(const same_job *s, float *to, const columns *c,
                                                                int64_t p, int64_t k, const int pieces)
{
    const tgc_operand *x = &s->j->input;
    int64_t taps = s->j->w.taps, tap = p % taps, channel = p / taps * x->channel;
    for (int64_t r = 0; r < k; r++, to += COLUMNS) {
        int64_t offset = channel + s->tap_offset[tap];
        __m512 low = _mm512_setzero_ps(), high = low;
#pragma GCC unroll 3
        for (int piece = 0; piece < pieces; piece++) {
            const float *from = address(x->data, offset + c->source[piece]);
            low = _mm512_mask_loadu_ps(low, c->inside[piece][tap][0], from);
            high = _mm512_mask_loadu_ps(high, c->inside[piece][tap][1], address(from, LANES));
        }
        _mm512_store_ps(to, low);
        _mm512_store_ps(to + LANES, high);
        if (++tap == taps) {
            tap = 0;
            channel += x->channel;
        }
    }
}

/* Two neighbouring panels of windows of one element, which lie in one image: each line lies in a page of its own, of
 * which to be found takes longer than to be read. */
static void gather_two(const same_job *s, float *to, const columns *c, int64_t p, int64_t k)
{
    const int64_t apart = s->j->input.channel;
    const float *from = address(s->j->input.data, p * apart + s->tap_offset[0] + c->source[0]);
    const __mmask16 first = c[1].inside[0][0][0], second = c[1].inside[0][0][1];
    for (int64_t r = 0; r < k; r++, to += COLUMNS, from = address(from, apart)) {
        _mm512_store_ps(to, _mm512_loadu_ps(from));
        _mm512_store_ps(to + LANES, _mm512_loadu_ps(address(from, LANES)));
        _mm512_store_ps(to + PANEL, _mm512_maskz_loadu_ps(first, address(from, COLUMNS)));
        _mm512_store_ps(to + PANEL + LANES, _mm512_maskz_loadu_ps(second, address(from, COLUMNS + LANES)));
    }
}

static void gather(const same_job *s, float *to, const columns *c, int64_t p, int64_t k)
{
    if (c->pieces == 1)
        gather_pieces(s, to, c, p, k, 1);
    else if (c->pieces == 2)
        gather_pieces(s, to, c, p, k, 2);
    else
        gather_pieces(s, to, c, p, k, 3);
}

/* The first tile of a panel that lies in one image, which gathers while it multiplies: loads and stores pass beside
 * the products, so that what the other tiles find in the panel costs nothing. It waits for lines that are far, of which
 * a gather alone has more on their way: the taps before have to have read them. Sums are added as the microkernel does. */
static inline __attribute__((always_inline)) void gathering_tile(const int rows, const same_job *s, float *panel,
                                                                 const columns *c, int64_t p, int64_t k,
                                                                 const float *weight, float *out, int add)
{
    const tgc_operand *x = &s->j->input;
    const int64_t taps = s->j->w.taps, row = s->j->w.positions, channels = x->channel;
    const uint32_t lanes = ~0u >> (COLUMNS - c->first[1]);
    const __mmask16 first = (__mmask16)lanes, second = (__mmask16)(lanes >> LANES);
    const float *source = address(x->data, p / taps * channels + c->source[0]);
    int64_t tap = p % taps;
    __m512 low[TGC_ROWS], high[TGC_ROWS];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        low[i] = high[i] = _mm512_setzero_ps();
        __builtin_prefetch(out + i * row, 1);
        __builtin_prefetch(out + i * row + LANES, 1);
    }
    for (int64_t r = 0; r < k; r++, weight += TGC_ROWS, panel += COLUMNS) {
        const float *from = address(source, s->tap_offset[tap]);
        __m512 left = _mm512_maskz_loadu_ps(c->inside[0][tap][0], from);
        __m512 right = _mm512_maskz_loadu_ps(c->inside[0][tap][1], address(from, LANES));
        _mm512_store_ps(panel, left);
        _mm512_store_ps(panel + LANES, right);
        __builtin_prefetch(weight + 32 * TGC_ROWS);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 factor = _mm512_set1_ps(weight[i]);
            low[i] = _mm512_fmadd_ps(factor, left, low[i]);
            high[i] = _mm512_fmadd_ps(factor, right, high[i]);
        }
        if (++tap == taps) {
            tap = 0;
            source = address(source, channels);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *to = address(out, i * row), *then = address(to, LANES);
        if (add) {
            low[i] = _mm512_add_ps(low[i], _mm512_maskz_loadu_ps(first, to));
            high[i] = _mm512_add_ps(high[i], _mm512_maskz_loadu_ps(second, then));
        }
        _mm512_mask_storeu_ps(to, first, low[i]);
        _mm512_mask_storeu_ps(then, second, high[i]);
    }
}

#define CASE(n)                                                              \
    case n:                                                                  \
        gathering_tile(n, s, panel, c, p, k, weight, out, add);              \
        return;

static void multiply_and_gather(int64_t rows, const same_job *s, float *panel, const columns *c, int64_t p, int64_t k,
                                const float *weight, float *out, int add)
{
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
        CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
    }
}

/* A tile whose columns lie in several images. */
static void put(const same_job *s, float *out, const columns *c, int64_t rows, const float *tile, int add)
{
    for (int piece = 0; piece < c->pieces; piece++) {
        uint32_t lanes = ~0u >> (COLUMNS - (c->first[piece + 1] - c->first[piece])) << c->first[piece];
        __mmask16 first = (__mmask16)lanes, second = (__mmask16)(lanes >> LANES);
        for (int64_t i = 0; i < rows; i++) {
            float *to = address(out, c->target[piece] + i * s->j->w.positions);
            float *then = address(to, LANES);
            __m512 low = _mm512_load_ps(tile + i * COLUMNS), high = _mm512_load_ps(tile + i * COLUMNS + LANES);
            if (add) {
                low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(first, to));
                high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(second, then));
            }
            _mm512_mask_storeu_ps(to, first, low);
            _mm512_mask_storeu_ps(then, second, high);
        }
    }
}

/* Where windows have one element, each line of the next panel lies alone in its page, and nothing but
 * a request brings it near in time: four tiles fetch a part of the lines each. */
static tgc_ahead ahead(const same_job *s, const columns *next, int64_t p, int64_t k, int64_t number, const float *panel)
{
    const tgc_operand *x = &s->j->input;
    if (next == NULL || s->j->w.taps > 1 || number >= 2 * COLUMNS / LANES)
        return (tgc_ahead){(const char *)panel, 0};
    int64_t first = (p + number % 2 * (k / 2)) * x->channel + s->tap_offset[0] + next->source[0] + number / 2 * LANES;
    return (tgc_ahead){address(x->data, first), x->channel * (int64_t)sizeof(float)};
}

static void block_task(int64_t task, void *context)
{
    const same_job *s = context;
    const tgc_convolution *j = s->j;
    _Alignas(64) float both[2 * PANEL], tile[COLUMNS * TGC_ROWS];
    columns seen[BLOCK_PANELS];
    int64_t rb = task / s->column_blocks, cb = task % s->column_blocks, positions = j->w.positions;
    int64_t row_begin = s->row_panels * rb / s->row_blocks, row_end = s->row_panels * (rb + 1) / s->row_blocks;
    int64_t begin = s->column_panels * cb / s->column_blocks, end = s->column_panels * (cb + 1) / s->column_blocks;
    for (int64_t at = begin; at < end; at++)
        look_at(s, at * COLUMNS, tgc_smaller(s->all - at * COLUMNS, COLUMNS), &seen[at - begin]);
    for (int64_t p = 0; p < j->rows; p += s->run) {
        int64_t k = tgc_smaller(j->rows - p, s->run);
        const char *weights = weight_panel(s, 0, p);
        int two = 0; /* whether this panel was gathered with the one before */
        for (int64_t at = begin; at < end; at++) {
            const columns *c = &seen[at - begin];
            int64_t cols = c->first[c->pieces];
            const int gathers = c->pieces == 1 && j->w.taps >= GATHERING_TAPS, gathered = two;
            float *panel = both + (gathered ? PANEL : 0);
            two = !gathered && j->w.taps == 1 && at + 1 < end && c->pieces == 1 && c[1].pieces == 1 &&
                  c[1].source[0] == c->source[0] + COLUMNS;
            const int later = two || gathered ? 2 : 1;
            if (two)
                gather_two(s, panel, c, p, k);
            else if (!gathers && !gathered)
                gather(s, panel, c, p, k);
            for (int64_t row = row_begin; row < row_end; row++) {
                int64_t i = row * s->panel_rows, rows = tgc_smaller(j->depth - i, s->panel_rows);
                float *out = (float *)j->out + i * positions;
                const char *weight = weights + row * s->panel_bytes;
                tgc_ahead next = ahead(s, at + later < end ? c + later : NULL, p, k, row - row_begin, panel);
                if (gathers && row == row_begin) {
                    multiply_and_gather(rows, s, panel, c, p, k, (const float *)weight, out + c->target[0], p > 0);
                } else if (c->pieces == 1) {
                    s->e->kernel(rows, cols, k, weight, panel, out + c->target[0], positions, p > 0, &next);
                } else {
                    s->e->kernel(rows, cols, k, weight, panel, tile, COLUMNS, 0, &next);
                    put(s, out, c, rows, tile, p > 0);
                }
                for (int piece = 0; piece < c->pieces && j->bias != NULL && p + k == j->rows; piece++)
                    tgc_add_bias(j, address(out, c->target[piece] + c->first[piece]), i, rows,
                                 c->first[piece + 1] - c->first[piece], positions);
            }
        }
    }
}

/* Enough tasks; of the ways to cut them, that with the least to gather and to fetch again. */
static void choose_blocks(same_job *s)
{
    const tgc_convolution *j = s->j;
    double products = (double)s->all * (double)j->depth * (double)j->rows;
    int64_t wanted = products / TASK_PRODUCTS > MOST_TASKS ? MOST_TASKS : (int64_t)(products / TASK_PRODUCTS) + 1;
    int64_t least = tgc_panels(s->column_panels, BLOCK_PANELS);
    double best = 0;
    for (int64_t rows = tgc_panels(s->row_panels, ROW_PANELS);; rows = tgc_smaller(2 * rows, s->row_panels)) {
        int64_t columns = tgc_panels(wanted, rows);
        columns = tgc_smaller(columns < least ? least : columns, s->column_panels);
        double cost = GATHER_CYCLES * (double)(rows * s->column_panels) + FETCH_CYCLES * (double)(columns * j->depth);
        if (best == 0 || (rows * columns >= wanted && cost < best)) {
            best = rows * columns >= wanted ? cost : 0;
            s->row_blocks = rows;
            s->column_blocks = columns;
        }
        if (rows == s->row_panels)
            return;
    }
}

int TGC(tgc_convolution_same)(tgc_convolution *j, const tg_view *input, const tg_view *out, int *status)
{
    const tgc_windows *w = &j->w;
    if (w->dtype != TGC_FLOAT32 || w->groups != 1 || w->taps > MOST_TAPS || w->positions < LEAST_POSITIONS)
        return 0;
    for (int d = 0; d < w->ndim; d++)
        if (w->stride[d] != 1 || w->out[d] != w->size[d])
            return 0;
    same_job s = {.j = j, .e = j->of->engine, .all = w->images * w->positions};
    *status = -1;
    if (TGC(tgc_operand_take)(&j->input, input, w, 0, 2) < 0 || (j->out = TGC(tgc_result_take)(out, w)) == NULL)
        return 1;
    int64_t runs = tgc_panels(j->rows, TGC_LONGEST);
    s.run = tgc_panels(j->rows, runs);
    s.row_panels = tgc_panels(j->depth, TGC_ROWS);
    s.panel_rows = tgc_panels(j->depth, s.row_panels);
    s.row_panels = tgc_panels(j->depth, s.panel_rows);
    s.column_panels = tgc_panels(s.all, COLUMNS);
    s.panel_bytes = (TGC_ROWS * s.run * (int64_t)sizeof(float) + TGC_PANEL_SLACK + 63) / 64 * 64;
    for (int64_t t = 0; t < w->taps; t++) {
        int64_t rest = t, step = 1;
        for (int d = w->ndim - 1; d >= 0; d--) {
            s.tap_offset[t] += (rest % w->kernel[d] * w->dilation[d] - w->padding[d]) * step;
            rest /= w->kernel[d];
            step *= w->size[d];
        }
    }
    size_t bytes = (size_t)(runs * s.row_panels * s.panel_bytes);
    j->packed = tgc_scratch(bytes);
    if (j->packed == NULL) {
        tgc_no_memory(w->op, bytes);
        return 1;
    }
    tgc_parallel(s.row_panels, pack_task, &s);
    choose_blocks(&s);
    tgc_parallel(s.row_blocks * s.column_blocks, block_task, &s);
    *status = 0;
    return 1;
}

#else

int TGC(tgc_convolution_same)(tgc_convolution *j, const tg_view *input, const tg_view *out, int *status)
{
    (void)j, (void)input, (void)out, (void)status;
    return 0;
}

#endif

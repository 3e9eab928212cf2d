/* Rows of one bag, for one element type. A template: define
 *   B_T (element), B(name)
 * and include. */
typedef B_T B(vector) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(B_T))));

enum { B(lanes) = TGC_VECTOR / sizeof(B_T) };

/* The sums of so many vectors of columns stay in registers over all places, first .. end. The last
 * `rest` columns are the end of a vector that begins before them, among columns that are not written. */
static inline __attribute__((always_inline)) void B(sum_columns)(const job *j, const int vectors, B_T *to,
                                                                 int64_t column, int64_t rest, int64_t first,
                                                                 int64_t end)
{
    const int64_t back = rest ? B(lanes) - rest : 0, last = (vectors - 1) * B(lanes) - back;
    const B_T *table = (const B_T *)j->table->data + column, *factors = j->factors;
    B(vector) sum[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        sum[v] = *(const B(vector) *)(to + column + (v < vectors - 1 ? v * B(lanes) : last));
    for (int64_t place = first; place < end; place++) {
        const B_T *row = table + j->rows[place];
        const B(vector) factor = (factors != NULL ? factors[place] : 1) - (B(vector)){0};
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const B(vector) element = *(const B(vector) *)(row + (v < vectors - 1 ? v * B(lanes) : last));
            sum[v] += factors != NULL ? element * factor : element;
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors - 1; v++)
        *(B(vector) *)(to + column + v * B(lanes)) = sum[v];
    memcpy(to + column + last + back, (const char *)&sum[vectors - 1] + back * (int64_t)sizeof(B_T),
           (size_t)(B(lanes) - back) * sizeof(B_T));
}

/* Add the rows of places first .. end, all of one bag, in the order of the places. */
static void B(sum)(const job *j, void *out, int64_t first, int64_t end)
{
    const int64_t width = j->table->shape[1];
    B_T *to = out;
    int64_t column = 0;
    for (; column + 4 * B(lanes) <= width; column += 4 * B(lanes))
        B(sum_columns)(j, 4, to, column, 0, first, end);
    const int64_t left = width - column, rest = left % B(lanes);
    if (width >= B(lanes)) {
        switch ((left + B(lanes) - 1) / B(lanes)) {
        case 4: B(sum_columns)(j, 4, to, column, rest, first, end); return;
        case 3: B(sum_columns)(j, 3, to, column, rest, first, end); return;
        case 2: B(sum_columns)(j, 2, to, column, rest, first, end); return;
        case 1: B(sum_columns)(j, 1, to, column, rest, first, end); return;
        default: return;
        }
    }
    for (; column < width; column++) {
        const B_T *table = (const B_T *)j->table->data + column, *factors = j->factors;
        B_T sum = to[column];
        for (int64_t place = first; place < end; place++)
            sum += table[j->rows[place]] * (factors != NULL ? factors[place] : 1);
        to[column] = sum;
    }
}

/* Find for some columns the first place of each bag's greatest element; NaN is the greatest. */
static inline __attribute__((always_inline)) void B(greatest_columns)(const job *j, int64_t column, int64_t columns,
                                                                      const int64_t step)
{
    const int64_t places = j->bags->numel, width = j->table->shape[1];
    int64_t *out = (int64_t *)j->out + column;
    const B_T *table = (const B_T *)j->table->data + column * step;
    B_T most[COLUMNS];
    for (int64_t bag = 0; bag < j->count; bag++)
        for (int64_t k = 0; k < columns; k++)
            out[bag * width + k] = -1;
    for (int64_t first = 0, next; first < places; first = next) {
        const int64_t bag = number_at(j->bags, first);
        for (next = first + 1; next < places && number_at(j->bags, next) == bag; next++)
            ;
        if (bag < 0 || bag >= j->count)
            continue;
        int64_t *at = out + bag * width;
        /* A bag may begin anew behind another's places. */
        for (int64_t k = 0; k < columns; k++) {
            const int64_t place = at[k] < 0 ? first : at[k];
            most[k] = table[place * j->table->strides[0] + k * step];
            at[k] = place;
        }
        for (int64_t place = first; place < next; place++) {
            const B_T *row = table + place * j->table->strides[0];
            for (int64_t k = 0; k < columns; k++) {
                const B_T element = row[k * step];
                const int greater = (most[k] == most[k]) & !(element <= most[k]);
                most[k] = greater ? element : most[k];
                at[k] = greater ? place : at[k];
            }
        }
    }
}

static void B(greatest)(const job *j, int64_t column, int64_t columns)
{
    if (j->table->strides[1] == 1)
        B(greatest_columns)(j, column, columns, 1);
    else
        B(greatest_columns)(j, column, columns, j->table->strides[1]);
}

#undef B_T
#undef B

/* The median of all elements, the lower of two: selection among keys whose order is that of the values. */
#include "copies/copying.h"

#include <math.h>
#include <string.h>

#define FEW 32    /* keys that are put in order */
#define SAMPLE 48 /* keys that tell where the k-th is likely to be */
#define MARGIN 6  /* of the sample's ranks */

#define MD_KEY uint32_t
#define MD_T float
#define MD(name) name##_32
#include "median_rows.h"
#define MD_KEY uint64_t
#define MD_T double
#define MD(name) name##_64
#include "median_rows.h"

/* Integers of any width in their order. */
static void of_integers(const tg_view *self, const void *x, uint64_t *keys)
{
    const uint64_t top = (uint64_t)1 << 63;
    const int64_t n = self->numel;
#define WIDEN(type, bits)                                              \
    for (int64_t i = 0; i < n; i++)                                    \
        keys[i] = (uint64_t)(int64_t)((const type *)x)[i] ^ (bits);    \
    break;
    switch (self->dtype) {
    case TGC_UINT8: WIDEN(uint8_t, 0)
    case TGC_INT8: WIDEN(int8_t, top)
    case TGC_UINT16: WIDEN(uint16_t, 0)
    case TGC_INT16: WIDEN(int16_t, top)
    case TGC_UINT32: WIDEN(uint32_t, 0)
    case TGC_INT32: WIDEN(int32_t, top)
    case TGC_UINT64: WIDEN(uint64_t, 0)
    default: WIDEN(int64_t, top)
    }
#undef WIDEN
}

static void from_integer(uint64_t key, int dtype, void *to)
{
    const int is_signed = dtype == TGC_INT8 || dtype == TGC_INT16 || dtype == TGC_INT32 || dtype == TGC_INT64;
    const uint64_t value = is_signed ? key ^ (uint64_t)1 << 63 : key;
    switch (tgc_itemsize[dtype]) {
    case 1: *(uint8_t *)to = (uint8_t)value; break;
    case 2: *(uint16_t *)to = (uint16_t)value; break;
    case 4: *(uint32_t *)to = (uint32_t)value; break;
    default: *(uint64_t *)to = value;
    }
}

/* `context` tells that NaN are left out; else one makes the median NaN. */
static int median(const tg_call *call, void *context)
{
    static const char op[] = "median";
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    const int dtype = self->dtype, skips = context != NULL, half = dtype == TGC_FLOAT16 || dtype == TGC_BFLOAT16;
    const int floating = half || dtype == TGC_FLOAT32 || dtype == TGC_FLOAT64;
    const int64_t n = self->numel, wide = dtype == TGC_FLOAT64 || !floating ? 8 : 4;
    void *ordered = NULL;
    if (n == 0)
        return TG_DECLINED;
    const void *x = tgc_in_order(op, self, &ordered, TGC(tgc_move_region));
    char *memory = x == NULL ? NULL : tgc_scratch((size_t)(n * wide * (half ? 2 : 1)));
    if (x != NULL && memory == NULL)
        tgc_no_memory(op, (size_t)(n * wide * (half ? 2 : 1)));
    if (memory != NULL) {
        int64_t none = 0;
        if (half) {
            TGC(tgc_convert)(memory + n * 4, TGC_FLOAT32, x, dtype, n);
            x = memory + n * 4;
        }
        if (!floating)
            of_integers(self, x, (uint64_t *)memory);
        else
            none = wide == 8 ? of_floats_64(x, (uint64_t *)memory, n) : of_floats_32(x, (uint32_t *)memory, n);
        const int64_t counted = skips ? n - none : n;
        int64_t k = counted > 0 ? (counted - 1) / 2 : 0;
        k = none > 0 && !skips ? n - 1 : k; /* NaN are the last ones */
        if (!floating) {
            from_integer(select_64((uint64_t *)memory, n, k), dtype, out->data);
        } else if (wide == 8) {
            *(double *)out->data = to_float_64(select_64((uint64_t *)memory, n, k));
        } else {
            const float found = to_float_32(select_32((uint32_t *)memory, n, k));
            TGC(tgc_convert)(out->data, dtype, &found, TGC_FLOAT32, 1);
        }
    }
    tgc_scratch_free(memory);
    tgc_scratch_free(ordered);
    return memory == NULL ? -1 : 0;
}

#define FOR_DTYPE(dtype) {"median_all", dtype, TGC_CALL, median, NULL}, {"nanmedian_all", dtype, TGC_CALL, median, ""}

const tgc_kernel TGC(tgc_table_median)[] = {
    FOR_DTYPE("uint8"),  FOR_DTYPE("int8"),   FOR_DTYPE("uint16"),  FOR_DTYPE("int16"),   FOR_DTYPE("uint32"),   FOR_DTYPE("int32"),
    FOR_DTYPE("uint64"), FOR_DTYPE("int64"),  FOR_DTYPE("float16"), FOR_DTYPE("bfloat16"), FOR_DTYPE("float32"), FOR_DTYPE("float64"),
    {0}};

/* Extremes with their indices: argmax, argmin, max and min along a dimension. The definition's
 * combination compares two states with indices; here values alone are compared along a lane, and
 * indices are row numbers of the values' width. */
#include "half.h"
#include "reduction_loop.h"

#define AS_IT_IS(x) (x)
#define IS_NAN(v) ((v) != (v))
#define NEVER(v) 0

/* float32 */
#define EX_ITEM float
#define EX_VALUE float
#define EX_ROW int32_t
#define EX_STEP 512
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN IS_NAN
#define EX_NAME most_float32
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_float32
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* float64 */
#define EX_ITEM double
#define EX_VALUE double
#define EX_ROW int64_t
#define EX_STEP 512
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN IS_NAN
#define EX_NAME most_float64
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_float64
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* float16 */
#define EX_ITEM uint16_t
#define EX_VALUE float
#define EX_ROW int32_t
#define EX_STEP 512
#define EX_LOAD tgc_f16_to_float
#define EX_STORE tgc_float_to_f16
#define EX_NAN IS_NAN
#define EX_NAME most_float16
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_float16
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* bfloat16 */
#define EX_ITEM uint16_t
#define EX_VALUE float
#define EX_ROW int32_t
#define EX_STEP 512
#define EX_LOAD tgc_bf16_to_float
#define EX_STORE tgc_float_to_bf16
#define EX_NAN IS_NAN
#define EX_NAME most_bfloat16
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_bfloat16
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* int8 */
#define EX_ITEM int8_t
#define EX_VALUE int8_t
#define EX_ROW int8_t
#define EX_STEP 128
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN NEVER
#define EX_NAME most_int8
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_int8
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* uint8 */
#define EX_ITEM uint8_t
#define EX_VALUE uint8_t
#define EX_ROW int8_t
#define EX_STEP 128
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN NEVER
#define EX_NAME most_uint8
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_uint8
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* int16 */
#define EX_ITEM int16_t
#define EX_VALUE int16_t
#define EX_ROW int16_t
#define EX_STEP 512
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN NEVER
#define EX_NAME most_int16
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_int16
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* int32 */
#define EX_ITEM int32_t
#define EX_VALUE int32_t
#define EX_ROW int32_t
#define EX_STEP 512
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN NEVER
#define EX_NAME most_int32
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_int32
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

/* int64 */
#define EX_ITEM int64_t
#define EX_VALUE int64_t
#define EX_ROW int64_t
#define EX_STEP 512
#define EX_LOAD AS_IT_IS
#define EX_STORE AS_IT_IS
#define EX_NAN NEVER
#define EX_NAME most_int64
#define EX_WORSE <=
#include "reduction_extremes_fold.h"
#define EX_NAME least_int64
#define EX_WORSE >=
#include "reduction_extremes_fold.h"
#undef EX_ITEM
#undef EX_VALUE
#undef EX_ROW
#undef EX_STEP
#undef EX_LOAD
#undef EX_STORE
#undef EX_NAN

const tgc_kernel TGC(tgc_table_reduction_extremes)[] = {
    {"argmax", "float32", TGC_LOOP, TGC(tgc_reduce), &most_float32_index},
    {"argmin", "float32", TGC_LOOP, TGC(tgc_reduce), &least_float32_index},
    {"max_dim", "float32", TGC_LOOP, TGC(tgc_reduce), &most_float32_both},
    {"min_dim", "float32", TGC_LOOP, TGC(tgc_reduce), &least_float32_both},
    {"argmax", "float64", TGC_LOOP, TGC(tgc_reduce), &most_float64_index},
    {"argmin", "float64", TGC_LOOP, TGC(tgc_reduce), &least_float64_index},
    {"max_dim", "float64", TGC_LOOP, TGC(tgc_reduce), &most_float64_both},
    {"min_dim", "float64", TGC_LOOP, TGC(tgc_reduce), &least_float64_both},
    {"argmax", "float16", TGC_LOOP, TGC(tgc_reduce), &most_float16_index},
    {"argmin", "float16", TGC_LOOP, TGC(tgc_reduce), &least_float16_index},
    {"max_dim", "float16", TGC_LOOP, TGC(tgc_reduce), &most_float16_both},
    {"min_dim", "float16", TGC_LOOP, TGC(tgc_reduce), &least_float16_both},
    {"argmax", "bfloat16", TGC_LOOP, TGC(tgc_reduce), &most_bfloat16_index},
    {"argmin", "bfloat16", TGC_LOOP, TGC(tgc_reduce), &least_bfloat16_index},
    {"max_dim", "bfloat16", TGC_LOOP, TGC(tgc_reduce), &most_bfloat16_both},
    {"min_dim", "bfloat16", TGC_LOOP, TGC(tgc_reduce), &least_bfloat16_both},
    {"argmax", "int8", TGC_LOOP, TGC(tgc_reduce), &most_int8_index},
    {"argmin", "int8", TGC_LOOP, TGC(tgc_reduce), &least_int8_index},
    {"max_dim", "int8", TGC_LOOP, TGC(tgc_reduce), &most_int8_both},
    {"min_dim", "int8", TGC_LOOP, TGC(tgc_reduce), &least_int8_both},
    {"argmax", "uint8", TGC_LOOP, TGC(tgc_reduce), &most_uint8_index},
    {"argmin", "uint8", TGC_LOOP, TGC(tgc_reduce), &least_uint8_index},
    {"max_dim", "uint8", TGC_LOOP, TGC(tgc_reduce), &most_uint8_both},
    {"min_dim", "uint8", TGC_LOOP, TGC(tgc_reduce), &least_uint8_both},
    {"argmax", "int16", TGC_LOOP, TGC(tgc_reduce), &most_int16_index},
    {"argmin", "int16", TGC_LOOP, TGC(tgc_reduce), &least_int16_index},
    {"max_dim", "int16", TGC_LOOP, TGC(tgc_reduce), &most_int16_both},
    {"min_dim", "int16", TGC_LOOP, TGC(tgc_reduce), &least_int16_both},
    {"argmax", "int32", TGC_LOOP, TGC(tgc_reduce), &most_int32_index},
    {"argmin", "int32", TGC_LOOP, TGC(tgc_reduce), &least_int32_index},
    {"max_dim", "int32", TGC_LOOP, TGC(tgc_reduce), &most_int32_both},
    {"min_dim", "int32", TGC_LOOP, TGC(tgc_reduce), &least_int32_both},
    {"argmax", "int64", TGC_LOOP, TGC(tgc_reduce), &most_int64_index},
    {"argmin", "int64", TGC_LOOP, TGC(tgc_reduce), &least_int64_index},
    {"max_dim", "int64", TGC_LOOP, TGC(tgc_reduce), &most_int64_both},
    {"min_dim", "int64", TGC_LOOP, TGC(tgc_reduce), &least_int64_both},
    {0}};

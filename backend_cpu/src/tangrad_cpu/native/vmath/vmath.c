/* The vector versions of the functions declared in vmath_clones.h, and the bounds of arguments. */
#define TGC_VMATH_DEFINES_CLONES
#include "vmath_lanes.h"
#include "vmath_divide.h"
#include "vmath_trig_f32.h"
#include "vmath_trig_f64.h"

const tgc_bounds_f32 TGC_LIMITS_F32 = {
    .exp_low = -104.0f, .exp_high = 89.0f, .exp2_low = -151.0f, .exp2_high = 129.0f,
    .expm1_low = -18.0f, .sigmoid_high = 60.0f, .tanh_high = 9.1f, .erf_high = 3.95f,
    .erfc_high = 10.1f};

#define TGC_FAR_F32 !(__builtin_fabsf(x) <= TGC_TRIG_LIMIT_F32)
#define TGC_FAR_F64 !(__builtin_fabs(x) <= TGC_TRIG_LIMIT_F64)
/* Where the quotient is not far below the number of bits; nan, infinite x and zero y are too. */
#define TGC_UNEVEN_F32 !(__builtin_fabsf(x) < __builtin_fabsf(y) * 0x1p28f)
#define TGC_UNEVEN_F64                                                                             \
    (!(__builtin_fabs(x) < __builtin_fabs(y) * 0x1p50) | (__builtin_fabs(x) > 0x1p1020))

#undef tgc_sin_f32
#undef tgc_cos_f32
#undef tgc_tan_f32
#undef tgc_sin_f64
#undef tgc_cos_f64
#undef tgc_tan_f64
#undef tgc_fmod_f32
#undef tgc_fmod_f64
TGC_FUNCTION_F32(1, v, tgc_sin_f32, tgc_sin_fast_f32, TGC_FAR_F32, sinf)
TGC_FUNCTION_F32(1, v, tgc_cos_f32, tgc_cos_fast_f32, TGC_FAR_F32, cosf)
TGC_FUNCTION_F32(1, v, tgc_tan_f32, tgc_tan_fast_f32, TGC_FAR_F32, tanf)
TGC_FUNCTION_F64(1, v, tgc_sin_f64, tgc_sin_fast_f64, TGC_FAR_F64, sin)
TGC_FUNCTION_F64(1, v, tgc_cos_f64, tgc_cos_fast_f64, TGC_FAR_F64, cos)
TGC_FUNCTION_F64(1, v, tgc_tan_f64, tgc_tan_fast_f64, TGC_FAR_F64, tan)
TGC_FUNCTION_F32(2, vv, tgc_fmod_f32, tgc_fmod_fast_f32, TGC_UNEVEN_F32, fmodf)
TGC_FUNCTION_F64(2, vv, tgc_fmod_f64, tgc_fmod_fast_f64, TGC_UNEVEN_F64, fmod)

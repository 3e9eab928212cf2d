/* Strided copies between host memories with conversion of the element type.
 * The plain path of every device; a backend registers a faster kernel of copy_. */
#ifndef TANGRAD_HOST_COPY_H
#define TANGRAD_HOST_COPY_H
#include <stdint.h>
#include <string.h>

static inline float tg_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023, bits;
    float f;
    if (exponent == 31) {
        bits = sign | 0x7F800000u | (mantissa << 13);
    } else if (exponent) {
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else {
        f = (float)mantissa * 5.9604644775390625e-08f;
        memcpy(&bits, &f, 4);
        bits |= sign;
    }
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint16_t tg_float_to_half(float f)
{
    uint32_t bits, sign, mantissa, rest;
    int32_t exponent;
    int shift;
    memcpy(&bits, &f, 4);
    sign = (bits >> 16) & 0x8000;
    exponent = (int32_t)((bits >> 23) & 255) - 112;
    mantissa = bits & 0x7FFFFF;
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(sign | 0x7E00);
    if (exponent >= 31)
        return (uint16_t)(sign | 0x7C00);
    if (exponent <= 0) {
        if (exponent < -10)
            return (uint16_t)sign;
        mantissa |= 0x800000;
        shift = 14 - exponent;
        rest = mantissa & ((1u << shift) - 1);
        mantissa >>= shift;
        if (rest > (1u << (shift - 1)) || (rest == (1u << (shift - 1)) && (mantissa & 1)))
            mantissa++;
        return (uint16_t)(sign | mantissa);
    }
    rest = mantissa & 0x1FFF;
    mantissa >>= 13;
    bits = ((uint32_t)exponent << 10) | mantissa;
    if (rest > 0x1000 || (rest == 0x1000 && (bits & 1)))
        bits++;
    return (uint16_t)(sign | bits);
}

static inline float tg_bfloat_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint16_t tg_float_to_bfloat(float f)
{
    uint32_t bits;
    if (f != f)
        return 0x7FC0;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/* Every source type as (real part, imaginary part); integers keep 64 bits. */
#define TG_TYPES(X, A) \
    X(A, b, uint8_t, v != 0) X(A, u8, uint8_t, v) X(A, u16, uint16_t, v) X(A, u32, uint32_t, v) X(A, u64, uint64_t, v) \
    X(A, i8, int8_t, v) X(A, i16, int16_t, v) X(A, i32, int32_t, v) X(A, i64, int64_t, v) \
    X(A, f32, float, v) X(A, f64, double, v) X(A, f16, uint16_t, tg_half_to_float(v)) \
    X(A, bf16, uint16_t, tg_bfloat_to_float(v))

typedef struct { float re, im; } tg_c64;
typedef struct { double re, im; } tg_c128;

/* A floating-point number that int32 does not hold becomes its least, as on x86, and an integer keeps its low bits;
 * C leaves the first open. Only int64, uint32 and uint64 are reached through 64 bits. */
#define TG_FLOATING(x) ((__typeof__(x))1 / 2 != 0)
#define TG_INT32(x) (!TG_FLOATING(x) ? (int32_t)(int64_t)(x) \
    : (x) >= -2147483648.0 && (x) < 2147483648.0 ? (int32_t)(x) : INT32_MIN)
#define TG_STORE_b(x) ((x) != 0)
#define TG_STORE_u8(x) ((uint8_t)TG_INT32(x))
#define TG_STORE_u16(x) ((uint16_t)TG_INT32(x))
#define TG_STORE_u32(x) ((uint32_t)(int64_t)(x))
#define TG_STORE_u64(x) ((x) < 0 ? (uint64_t)(int64_t)(x) : (uint64_t)(x))
#define TG_STORE_i8(x) ((int8_t)TG_INT32(x))
#define TG_STORE_i16(x) ((int16_t)TG_INT32(x))
#define TG_STORE_i32(x) TG_INT32(x)
#define TG_STORE_i64(x) ((int64_t)(x))
#define TG_STORE_f32(x) ((float)(x))
#define TG_STORE_f64(x) ((double)(x))
#define TG_STORE_f16(x) tg_float_to_half((float)(x))
#define TG_STORE_bf16(x) tg_float_to_bfloat((float)(x))

typedef void (*tg_copy_loop)(char *, int64_t, const char *, int64_t, int64_t);

#define TG_ONE(D, S, ctype, value) \
    static void tg_copy_##D##_##S(char *d, int64_t ds, const char *s, int64_t ss, int64_t n) \
    { for (int64_t i = 0; i < n; i++, d += ds, s += ss) { \
        ctype v; memcpy(&v, s, sizeof v); tg_ct_##D out = TG_STORE_##D(value); memcpy(d, &out, sizeof out); } }
#define TG_FROM_COMPLEX(D, S, ctype) \
    static void tg_copy_##D##_##S(char *d, int64_t ds, const char *s, int64_t ss, int64_t n) \
    { for (int64_t i = 0; i < n; i++, d += ds, s += ss) { \
        ctype c; memcpy(&c, s, sizeof c); tg_ct_##D out = TG_STORE_##D(c.re); memcpy(d, &out, sizeof out); } }
#define TG_BOOL_FROM_COMPLEX(S, ctype) \
    static void tg_copy_b_##S(char *d, int64_t ds, const char *s, int64_t ss, int64_t n) \
    { for (int64_t i = 0; i < n; i++, d += ds, s += ss) { ctype c; memcpy(&c, s, sizeof c); *(uint8_t *)d = c.re != 0 || c.im != 0; } }
#define TG_TO_COMPLEX(A, S, ctype, value) \
    static void tg_copy_c64_##S(char *d, int64_t ds, const char *s, int64_t ss, int64_t n) \
    { for (int64_t i = 0; i < n; i++, d += ds, s += ss) { \
        ctype v; memcpy(&v, s, sizeof v); tg_c64 out = {(float)(value), 0}; memcpy(d, &out, sizeof out); } } \
    static void tg_copy_c128_##S(char *d, int64_t ds, const char *s, int64_t ss, int64_t n) \
    { for (int64_t i = 0; i < n; i++, d += ds, s += ss) { \
        ctype v; memcpy(&v, s, sizeof v); tg_c128 out = {(double)(value), 0}; memcpy(d, &out, sizeof out); } }
typedef uint8_t tg_ct_b; typedef uint8_t tg_ct_u8; typedef uint16_t tg_ct_u16; typedef uint32_t tg_ct_u32;
typedef uint64_t tg_ct_u64; typedef int8_t tg_ct_i8; typedef int16_t tg_ct_i16; typedef int32_t tg_ct_i32;
typedef int64_t tg_ct_i64; typedef float tg_ct_f32; typedef double tg_ct_f64; typedef uint16_t tg_ct_f16;
typedef uint16_t tg_ct_bf16;
TG_TYPES(TG_ONE, b) TG_TYPES(TG_ONE, u8) TG_TYPES(TG_ONE, u16) TG_TYPES(TG_ONE, u32) TG_TYPES(TG_ONE, u64)
TG_TYPES(TG_ONE, i8) TG_TYPES(TG_ONE, i16) TG_TYPES(TG_ONE, i32) TG_TYPES(TG_ONE, i64)
TG_TYPES(TG_ONE, f32) TG_TYPES(TG_ONE, f64) TG_TYPES(TG_ONE, f16) TG_TYPES(TG_ONE, bf16)
TG_TYPES(TG_TO_COMPLEX, _)
#define TG_COMPLEX_ROW(D) TG_FROM_COMPLEX(D, c64, tg_c64) TG_FROM_COMPLEX(D, c128, tg_c128)
TG_BOOL_FROM_COMPLEX(c64, tg_c64) TG_BOOL_FROM_COMPLEX(c128, tg_c128)
TG_COMPLEX_ROW(u8) TG_COMPLEX_ROW(u16) TG_COMPLEX_ROW(u32) TG_COMPLEX_ROW(u64) TG_COMPLEX_ROW(i8)
TG_COMPLEX_ROW(i16) TG_COMPLEX_ROW(i32) TG_COMPLEX_ROW(i64) TG_COMPLEX_ROW(f32) TG_COMPLEX_ROW(f64)
TG_COMPLEX_ROW(f16) TG_COMPLEX_ROW(bf16)
static void tg_copy_c64_c128(char *d, int64_t ds, const char *s, int64_t ss, int64_t n)
{ for (int64_t i = 0; i < n; i++, d += ds, s += ss) { tg_c128 c; memcpy(&c, s, 16); tg_c64 o = {(float)c.re, (float)c.im}; memcpy(d, &o, 8); } }
static void tg_copy_c128_c64(char *d, int64_t ds, const char *s, int64_t ss, int64_t n)
{ for (int64_t i = 0; i < n; i++, d += ds, s += ss) { tg_c64 c; memcpy(&c, s, 8); tg_c128 o = {c.re, c.im}; memcpy(d, &o, 16); } }

#define TG_NAME(A, S, ctype, value) tg_copy_##A##_##S,
#define TG_ROW(D) {TG_TYPES(TG_NAME, D) tg_copy_##D##_c64, tg_copy_##D##_c128}
/* [destination][source], both in the order of TG_TYPES followed by complex64, complex128 */
static const tg_copy_loop tg_conversions[15][15] = {
    TG_ROW(b), TG_ROW(u8), TG_ROW(u16), TG_ROW(u32), TG_ROW(u64), TG_ROW(i8), TG_ROW(i16), TG_ROW(i32), TG_ROW(i64),
    TG_ROW(f32), TG_ROW(f64), TG_ROW(f16), TG_ROW(bf16),
    {TG_TYPES(TG_NAME, c64) 0, tg_copy_c64_c128}, {TG_TYPES(TG_NAME, c128) tg_copy_c128_c64, 0}};

static void tg_copy_same(char *d, int64_t ds, const char *s, int64_t ss, int64_t n, int size)
{
    int64_t i;
    if (ds == size && ss == size) { memmove(d, s, (size_t)n * (size_t)size); return; }
    switch (size) {
    case 4: for (i = 0; i < n; i++, d += ds, s += ss) memcpy(d, s, 4); return;
    case 8: for (i = 0; i < n; i++, d += ds, s += ss) memcpy(d, s, 8); return;
    case 1: for (i = 0; i < n; i++, d += ds, s += ss) *d = *s; return;
    case 2: for (i = 0; i < n; i++, d += ds, s += ss) memcpy(d, s, 2); return;
    default: for (i = 0; i < n; i++, d += ds, s += ss) memmove(d, s, (size_t)size);
    }
}
#endif

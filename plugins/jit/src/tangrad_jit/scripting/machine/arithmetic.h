/* Arithmetic of scripts: integers wrap at 64 bits, division by zero gives an infinity. */

#ifndef TANGRAD_SCRIPT_ARITHMETIC_H
#define TANGRAD_SCRIPT_ARITHMETIC_H

#include "values.h"

static inline int64_t int_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t int_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t int_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* The floor of a quotient; the divisor is not zero. */
static inline int64_t int_floordiv(int64_t a, int64_t b)
{
    if (b == -1)
        return int_sub(0, a);
    int64_t found = a / b;
    return found - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t int_remainder(int64_t a, int64_t b)
{
    if (b == -1)
        return 0;
    int64_t found = a % b;
    return found != 0 && (found < 0) != (b < 0) ? found + b : found;
}

static inline int64_t int_shift_left(int64_t a, int64_t b) { return (int64_t)((uint64_t)a << (b & 63)); }
static inline int64_t int_shift_right(int64_t a, int64_t b) { return a >> (b & 63); }

static inline int64_t int_of_float(double a)
{
    return a >= -9223372036854775808.0 && a < 9223372036854775808.0 ? (int64_t)a : INT64_MIN;
}

/* The number of elements of a range; the step is not zero. */
static inline int64_t range_length(int64_t low, int64_t high, int64_t step)
{
    if (step > 0 ? low >= high : low <= high)
        return 0;
    uint64_t apart = step > 0 ? (uint64_t)high - (uint64_t)low : (uint64_t)low - (uint64_t)high;
    uint64_t each = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (int64_t)((apart - 1) / each + 1);
}

static double degrees_of(double a) { return a * (180.0 / M_PI); }
static double radians_of(double a) { return a * (M_PI / 180.0); }
static double floordiv_of(double a, double b) { return floor(a / b); }
static double remainder_of(double a, double b) { return fmod(b + fmod(a, b), b); }
static double least_of(double a, double b) { return a < b ? a : b; }
static double greatest_of(double a, double b) { return a > b ? a : b; }
static double log_of(double a, double b) { return log(a) / log(b); }

#define UNARY_FUNCTIONS(X)                                                                         \
    X(sqrt, sqrt) X(exp, exp) X(expm1, expm1) X(log, log) X(log1p, log1p) X(log2, log2)            \
    X(log10, log10) X(sin, sin) X(cos, cos) X(tan, tan) X(asin, asin) X(acos, acos)                \
    X(atan, atan) X(sinh, sinh) X(cosh, cosh) X(tanh, tanh) X(asinh, asinh) X(acosh, acosh)        \
    X(atanh, atanh) X(erf, erf) X(erfc, erfc) X(fabs, fabs) X(abs, fabs) X(round, rint)            \
    X(degrees, degrees_of) X(radians, radians_of)
#define BINARY_FUNCTIONS(X)                                                                        \
    X(floordiv, floordiv_of) X(remainder, remainder_of) X(fmod, fmod) X(pow, pow)                  \
    X(atan2, atan2) X(copysign, copysign) X(hypot, hypot) X(mathremainder, remainder)              \
    X(min, least_of) X(max, greatest_of) X(log, log_of)

#define FUNCTION(name, function) function,
#define NAME(name, function) #name,
static double (*const UNARY[])(double) = {UNARY_FUNCTIONS(FUNCTION)};
static double (*const BINARY[])(double, double) = {BINARY_FUNCTIONS(FUNCTION)};
static const char *const UNARY_NAMES[] = {UNARY_FUNCTIONS(NAME) NULL};
static const char *const BINARY_NAMES[] = {BINARY_FUNCTIONS(NAME) NULL};
#undef FUNCTION
#undef NAME

#endif

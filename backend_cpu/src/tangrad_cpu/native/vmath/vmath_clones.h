/* Functions of vmath that need a branch: sine, cosine, tangent of huge arguments, fmod.
 *
 * A vectorised loop cannot branch, but it can call. These functions are declared with GCC's `simd`
 * attribute, so that a plain loop over tgc_sin_f32(x) calls the vector version of the loop's width,
 * which vmath.c defines under the names of the vector function ABI (_ZGV...): a branch-free path
 * for all lanes and, if any lane is out of its reach, the C library for those. Every level has its
 * own symbols. Other compilers and machines call the scalar versions. */
#ifndef TGC_VMATH_CLONES_H
#define TGC_VMATH_CLONES_H

#include "vmath_bits.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TGC_HAS_CLONES 1
#else
#define TGC_HAS_CLONES 0
#endif
/* Where the scalar version is defined, the attribute would make GCC write vector versions too. */
#if TGC_HAS_CLONES && !defined(TGC_VMATH_DEFINES_CLONES)
#define TGC_CLONED __attribute__((simd("notinbranch"), const, nothrow, visibility("hidden")))
#else
#define TGC_CLONED __attribute__((const, nothrow, visibility("hidden")))
#endif

#define tgc_sin_f32 TGC_VMATH_JOIN(tgc_sin_f32, TGC_LEVEL)
#define tgc_cos_f32 TGC_VMATH_JOIN(tgc_cos_f32, TGC_LEVEL)
#define tgc_sin_f64 TGC_VMATH_JOIN(tgc_sin_f64, TGC_LEVEL)
#define tgc_cos_f64 TGC_VMATH_JOIN(tgc_cos_f64, TGC_LEVEL)
#define tgc_tan_f32 TGC_VMATH_JOIN(tgc_tan_f32, TGC_LEVEL)
#define tgc_tan_f64 TGC_VMATH_JOIN(tgc_tan_f64, TGC_LEVEL)
#define tgc_fmod_f32 TGC_VMATH_JOIN(tgc_fmod_f32, TGC_LEVEL)
#define tgc_fmod_f64 TGC_VMATH_JOIN(tgc_fmod_f64, TGC_LEVEL)

TGC_CLONED float tgc_sin_f32(float x);
TGC_CLONED float tgc_cos_f32(float x);
TGC_CLONED double tgc_sin_f64(double x);
TGC_CLONED double tgc_cos_f64(double x);
TGC_CLONED float tgc_tan_f32(float x);
TGC_CLONED double tgc_tan_f64(double x);
TGC_CLONED float tgc_fmod_f32(float x, float y);
TGC_CLONED double tgc_fmod_f64(double x, double y);

#endif

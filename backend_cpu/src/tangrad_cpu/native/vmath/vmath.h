/* Elementary functions that GCC vectorises inside plain loops: tgc_<name>_<f32 or f64>.
 *
 * Without -ffast-math, at every instruction-set level, with the specials of C99's annex F: nan,
 * infinities, signed zeros and denormals. Errors and speed: docs/cpu.md. */
#ifndef TGC_VMATH_H
#define TGC_VMATH_H

#include "vmath_bits.h"
#include "vmath_clones.h"
#include "vmath_d32.h"
#include "vmath_divide.h"
#include "vmath_f32.h"
#include "vmath_f64.h"
#include "vmath_pow_f64.h"
#include "vmath_represent.h"
#include "vmath_trig_f64.h"

#endif

/* Integers of 8 bits, in panels of 16: the lower half of a product does not see the upper. */
#include "simd.h"

static inline tgc_vu16 widen(const uint8_t *from)
{
    tgc_vu16 wide = {0};
    for (int i = 0; i < TGC_VECTOR / 2; i++)
        wide[i] = from[i];
    return wide;
}

#define IN_NAME i8
#define IN_C uint8_t
#define IN_T uint16_t
#define IN_V tgc_vu16
#define IN_SUFFIX u16
#define IN_SIZE 1
#define IN_BITS 0
#define IN_LOAD widen
#include "integer.h"

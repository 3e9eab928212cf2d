/* Integers of 16 bits. */
#include "simd.h"

#define IN_NAME i16
#define IN_C uint16_t
#define IN_T uint16_t
#define IN_V tgc_vu16
#define IN_SUFFIX u16
#define IN_SIZE 2
#define IN_BITS 0
#define IN_LOAD(p) ((tgc_vu16)*(const tgc_vu16_unaligned *)(p))
#include "integer.h"

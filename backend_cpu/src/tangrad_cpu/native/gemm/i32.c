/* Integers of 32 bits. */
#include "simd.h"

#define IN_NAME i32
#define IN_C uint32_t
#define IN_T uint32_t
#define IN_V tgc_vu32
#define IN_SUFFIX u32
#define IN_SIZE 4
#define IN_BITS 32
#define IN_LOAD(p) ((tgc_vu32)*(const tgc_vu32_unaligned *)(p))
#include "integer.h"

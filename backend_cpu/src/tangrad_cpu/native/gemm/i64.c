/* Integers of 64 bits. */
#include "simd.h"

#define IN_NAME i64
#define IN_C uint64_t
#define IN_T uint64_t
#define IN_V tgc_vu64
#define IN_SUFFIX u64
#define IN_SIZE 8
#define IN_BITS 64
#define IN_LOAD(p) ((tgc_vu64)*(const tgc_vu64_unaligned *)(p))
#include "integer.h"

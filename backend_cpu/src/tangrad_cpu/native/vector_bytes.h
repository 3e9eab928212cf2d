/* The bytes of one vector of the level. */
#ifndef TANGRAD_CPU_VECTOR_BYTES_H
#define TANGRAD_CPU_VECTOR_BYTES_H

#if defined(__AVX512F__)
#define TGC_VECTOR 64
#elif defined(__AVX2__)
#define TGC_VECTOR 32
#else
#define TGC_VECTOR 16
#endif

#endif

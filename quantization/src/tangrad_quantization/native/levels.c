/* The functions of each instruction-set level, and which the machine can run. */

#include "level.h"

#include <string.h>

#define LEVEL(name) scalar_##name
#include "gemm_level.h"
#undef LEVEL

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WITH_AVX2
#define LEVEL(name) avx2_##name
#include "gemm_level.h"
#undef LEVEL
#undef WITH_AVX2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,prefer-vector-width=512")
#define WITH_VNNI
#define LEVEL(name) vnni_##name
#include "gemm_level.h"
#undef LEVEL
#undef WITH_VNNI
#pragma GCC pop_options
#endif

const tq_level *tq_level_in_use = &scalar_table;

const tq_level *tq_level_named(const char *name)
{
    if (strcmp(name, "scalar") == 0)
        return &scalar_table;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &avx2_table;
    if (strcmp(name, "vnni") == 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("fma"))
        return &vnni_table;
#endif
    return NULL;
}

const char *tq_best_level(void)
{
    return tq_level_named("vnni") != NULL ? "vnni" : tq_level_named("avx2") != NULL ? "avx2" : "scalar";
}

/* The functions of each instruction-set level, and which the machine can run. */

#include "level.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8,prefer-vector-width=512")
#define WITH_AMX
#define LEVEL(name) amx_##name
#include "gemm_level.h"
#undef LEVEL
#undef WITH_AMX
#undef WITH_VNNI
#pragma GCC pop_options
#endif

#if defined(__x86_64__)
/* Whether the processor multiplies tiles of bytes, and Linux gives the process their 8 KiB of state,
 * which it does on request only. */
static int has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, TILES = 1 << 24, BYTES = 1 << 25 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (TILES | BYTES)) != (TILES | BYTES))
        return 0;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

static int has_vnni(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}
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
    if (strcmp(name, "vnni") == 0 && has_vnni())
        return &vnni_table;
    if (strcmp(name, "amx") == 0 && has_vnni() && has_amx())
        return &amx_table;
#endif
    return NULL;
}

const char *tq_best_level(void)
{
    static const char *const levels[] = {"amx", "vnni", "avx2"};
    for (int i = 0; i < 3; i++)
        if (tq_level_named(levels[i]) != NULL)
            return levels[i];
    return "scalar";
}

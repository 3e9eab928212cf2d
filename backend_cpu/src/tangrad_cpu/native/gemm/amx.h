/* Products by AMX tiles (Intel Architecture Instruction Set Extensions, "AMX instruction set
 * reference"): 16 rows of 64 bytes, two by two accumulators. In a panel of A, a step over 64 bytes
 * of k is two tiles of 16 lines each; in a panel of B it is two tiles of 16 columns, in which
 * units of 32 bits hold neighbours in k. */
#ifndef TANGRAD_CPU_GEMM_AMX_H
#define TANGRAD_CPU_GEMM_AMX_H

#include "engine.h"
#include "simd.h"

#if TGC_VECTOR == 64
#include <cpuid.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Bits of leaf 7 of cpuid, in edx. */
#define TGC_AMX_BF16 (1u << 22)
#define TGC_AMX_TILE (1u << 24)
#define TGC_AMX_INT8 (1u << 25)

#define TGC_AMX_TARGET __attribute__((target("amx-tile,amx-bf16,amx-int8")))
#define TGC_AMX_STEP 2048 /* bytes of a panel per 64 bytes of k */

/* Linux gives a process the tiles' state when it asks (arch_prctl ARCH_REQ_XCOMP_PERM, feature
 * XTILEDATA); other systems are not asked. */
static int tgc_amx_permitted(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return 0;
#endif
}

static int tgc_amx_usable(unsigned feature)
{
    static _Atomic int known; /* 0: not asked yet; else features | 1 */
    int features = atomic_load_explicit(&known, memory_order_relaxed);
    if (features == 0) {
        unsigned a, b, c, d = 0;
        features = 1;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TGC_AMX_TILE) && tgc_amx_permitted())
            features |= (int)d;
        atomic_store(&known, features);
    }
    return ((unsigned)features & feature) != 0;
}

static TGC_AMX_TARGET void tgc_amx_enter(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shape.bytes[tile] = 64;
        shape.rows[tile] = 16;
    }
    /* GCC 12 believes that the instruction reads eight bytes and drops the stores to the rest. */
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
}

static TGC_AMX_TARGET void tgc_amx_leave(void)
{
    _tile_release();
}

/* The operands' elements have `size` bytes. */
static inline __attribute__((always_inline)) void tgc_amx_pack_a(char *to, const char *from, int64_t count, int64_t k,
                                                                 int64_t stride, int64_t k_stride, const int size)
{
    int64_t step = 64 / size;
    for (int64_t p = 0; p < k; p += step, to += TGC_AMX_STEP) {
        int64_t n = k - p < step ? k - p : step;
        if (count < 32)
            memset(to + count * 64, 0, (size_t)(32 - count) * 64);
        for (int64_t i = 0; i < count; i++) {
            const char *line = from + (i * stride + p * k_stride) * size;
            char *out = to + i * 64;
            if (n == step && k_stride == 1) {
                memcpy(out, line, 64);
                continue;
            }
            memset(out, 0, 64);
            for (int64_t q = 0; q < n; q++)
                memcpy(out + q * size, line + q * k_stride * size, (size_t)size);
        }
    }
}

/* Two tiles of pairs from 32 rows of 32 elements, `row` bytes apart. Interleaving works on 128 bits
 * at a time: what belongs to the first tile lies in the lower halves of both results. */
static inline void tgc_amx_pair_rows(char *to, const char *from, int64_t row)
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (int64_t r = 0; r < 16; r++, from += 2 * row, to += 64) {
        __m512i even = _mm512_loadu_si512(from), odd = _mm512_loadu_si512(from + row);
        __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
        _mm512_storeu_si512(to + TGC_AMX_STEP / 2, _mm512_permutex2var_epi64(low, second, high));
    }
}

static inline __attribute__((always_inline)) void tgc_amx_pack_b(char *to, const char *from, int64_t count, int64_t k,
                                                                 int64_t stride, int64_t k_stride, const int size)
{
    const int group = 4 / size; /* neighbours in k in one unit */
    for (int64_t p = 0; p < k; p += 64 / size, to += TGC_AMX_STEP) {
        if (size == 2 && stride == 1 && count == 32 && k - p >= 32) {
            tgc_amx_pair_rows(to, from + p * k_stride * size, k_stride * size);
            continue;
        }
        for (int64_t half = 0; half < 2; half++) {
            char *tile = to + half * TGC_AMX_STEP / 2;
            int64_t cols = count - 16 * half > 16 ? 16 : count - 16 * half;
            const char *corner = from + (16 * half * stride + p * k_stride) * size;
            int64_t n = k - p < 64 / size ? k - p : 64 / size;
            if (cols == 16 && n == 64 / size && k_stride == 1) {
                tgc_vu32 square[16];
#pragma GCC unroll 16
                for (int j = 0; j < 16; j++)
                    square[j] = (tgc_vu32)*(const tgc_vu32_unaligned *)(corner + j * stride * size);
                tgc_transpose32(square);
                memcpy(tile, square, sizeof square);
                continue;
            }
            if (cols == 16 && stride == 1) {
                for (int64_t r = 0; r * group < n; r++) {
                    __m512i units = _mm512_setzero_si512();
#pragma GCC unroll 4
                    for (int g = group - 1; g >= 0; g--) {
                        const void *line = corner + (r * group + g) * k_stride * size;
                        __m512i wide = _mm512_setzero_si512();
                        if (r * group + g < n)
                            wide = size == 2 ? _mm512_cvtepu16_epi32(_mm256_loadu_si256(line))
                                             : _mm512_cvtepu8_epi32(_mm_loadu_si128(line));
                        units = _mm512_or_si512(_mm512_slli_epi32(units, 8 * size), wide);
                    }
                    _mm512_storeu_si512(tile + r * 64, units);
                }
                int64_t written = (n + group - 1) / group;
                memset(tile + written * 64, 0, (size_t)(16 - written) * 64);
                continue;
            }
            memset(tile, 0, TGC_AMX_STEP / 2);
            for (int64_t j = 0; j < cols; j++)
                for (int64_t q = 0; q < n; q++)
                    memcpy(tile + q / group * 64 + j * 4 + q % group * size, corner + (j * stride + q * k_stride) * size,
                           (size_t)size);
        }
    }
}

/* Panels of B up to this many steps stay in the first-level cache while panels of A pass by it. */
#define TGC_AMX_RESIDENT 16

/* One step of a product of tiles. A is read past the first-level cache (TILELOADDT1), which would
 * otherwise lose B to it. */
#define TGC_AMX_PRODUCTS(product, load_right)                     \
    _tile_stream_loadd(4, left, 64);                              \
    load_right(6, right, 64);                                     \
    product(0, 4, 6);                                             \
    load_right(7, right + TGC_AMX_STEP / 2, 64);                  \
    product(1, 4, 7);                                             \
    _tile_stream_loadd(5, left + TGC_AMX_STEP / 2, 64);           \
    product(2, 5, 6);                                             \
    product(3, 5, 7);

/* The kernel for one of the products of tiles; sums are T. */
#define TGC_AMX_KERNEL(name, T, product, step_elements)                                                          \
    static TGC_AMX_TARGET void name(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, \
                                    int64_t c_row, int accumulate, const tgc_ahead *next)                            \
    {                                                                                                            \
        _Alignas(64) T whole[32 * 32];                                                                           \
        int cut = rows < 32 || cols < 32;                                                                        \
        T *to = cut ? whole : (T *)c;                                                                            \
        (void)next;                                                                                                  \
        int64_t line = cut ? 32 : c_row, steps = (k + step_elements - 1) / step_elements;                        \
        const char *left = a, *right = b, *end = left + steps * TGC_AMX_STEP;                                    \
        if (accumulate && !cut) {                                                                                \
            _tile_loadd(0, to, line * 4);                                                                        \
            _tile_loadd(1, to + 16, line * 4);                                                                   \
            _tile_loadd(2, to + 16 * line, line * 4);                                                            \
            _tile_loadd(3, to + 16 * line + 16, line * 4);                                                       \
        } else {                                                                                                 \
            _tile_zero(0);                                                                                       \
            _tile_zero(1);                                                                                       \
            _tile_zero(2);                                                                                       \
            _tile_zero(3);                                                                                       \
        }                                                                                                        \
        if (steps <= TGC_AMX_RESIDENT)                                                                           \
            for (; left < end; left += TGC_AMX_STEP, right += TGC_AMX_STEP) {                                    \
                TGC_AMX_PRODUCTS(product, _tile_loadd)                                                           \
            }                                                                                                    \
        else                                                                                                     \
            for (; left < end; left += TGC_AMX_STEP, right += TGC_AMX_STEP) {                                    \
                TGC_AMX_PRODUCTS(product, _tile_stream_loadd)                                                    \
            }                                                                                                    \
        _tile_stored(0, to, line * 4);                                                                           \
        _tile_stored(1, to + 16, line * 4);                                                                      \
        _tile_stored(2, to + 16 * line, line * 4);                                                               \
        _tile_stored(3, to + 16 * line + 16, line * 4);                                                          \
        for (int64_t i = 0; cut && i < rows; i++)                                                                \
            for (int64_t j = 0; j < cols; j++)                                                                   \
                ((T *)c)[i * c_row + j] = whole[i * 32 + j] + (accumulate ? ((T *)c)[i * c_row + j] : 0);        \
    }

#endif
#endif

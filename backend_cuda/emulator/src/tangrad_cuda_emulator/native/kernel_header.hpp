// CUDA C++'s built-in names for a kernel that is compiled for the host. It includes nothing of the
// system's, because a header of the standard library takes longer to read than most kernels.

#define __TANGRAD_EMULATOR__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ TANGRAD_CAPABILITY

extern "C" {
tangrad_place tangrad_now;
const tangrad_runtime* tangrad_calls;
alignas(1024) unsigned char tangrad_dynamic_shared[232448];
int printf(const char*, ...);
void* memcpy(void*, const void*, unsigned long);
void* memset(void*, int, unsigned long);
}

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INTPTR_TYPE__ intptr_t;

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) ((void)0)
#define TANGRAD_INLINE static inline __attribute__((always_inline, unused))

// ---- vectors ------------------------------------------------------------------------------------

#define TANGRAD_VECTORS(T, name, a2, a4)                                                            \
    struct name##1 { T x; };                                                                        \
    struct __attribute__((aligned(a2))) name##2 { T x, y; };                                        \
    struct name##3 { T x, y, z; };                                                                  \
    struct __attribute__((aligned(a4))) name##4 { T x, y, z, w; };                                  \
    TANGRAD_INLINE name##1 make_##name##1(T x) { return {x}; }                                      \
    TANGRAD_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                              \
    TANGRAD_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                      \
    TANGRAD_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

TANGRAD_VECTORS(signed char, char, 2, 4)
TANGRAD_VECTORS(unsigned char, uchar, 2, 4)
TANGRAD_VECTORS(short, short, 4, 8)
TANGRAD_VECTORS(unsigned short, ushort, 4, 8)
TANGRAD_VECTORS(int, int, 8, 16)
TANGRAD_VECTORS(unsigned int, uint, 8, 16)
TANGRAD_VECTORS(long, long, 16, 16)
TANGRAD_VECTORS(unsigned long, ulong, 16, 16)
TANGRAD_VECTORS(long long, longlong, 16, 16)
TANGRAD_VECTORS(unsigned long long, ulonglong, 16, 16)
TANGRAD_VECTORS(float, float, 8, 16)
TANGRAD_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define threadIdx (uint3{tangrad_now.thread[0], tangrad_now.thread[1], tangrad_now.thread[2]})
#define blockIdx (uint3{tangrad_now.block[0], tangrad_now.block[1], tangrad_now.block[2]})
#define blockDim (uint3{tangrad_now.block_size[0], tangrad_now.block_size[1], tangrad_now.block_size[2]})
#define gridDim (uint3{tangrad_now.grid_size[0], tangrad_now.grid_size[1], tangrad_now.grid_size[2]})
#define warpSize 32

// ---- what threads do together -------------------------------------------------------------------

static __attribute__((noinline, unused)) int tangrad_barrier(int kind, int predicate) {
    const tangrad_place mine = tangrad_now;
    const int told = tangrad_calls->barrier(kind, predicate);
    tangrad_now = mine;
    asm volatile("" ::: "memory");
    return told;
}

static __attribute__((noinline, unused)) unsigned long long tangrad_collective(
    int kind, unsigned mask, unsigned long long value, int argument, int width) {
    const tangrad_place mine = tangrad_now;
    const unsigned long long told = tangrad_calls->collective(kind, mask, value, argument, width);
    tangrad_now = mine;
    asm volatile("" ::: "memory");
    return told;
}

TANGRAD_INLINE void __syncthreads() { tangrad_barrier(TANGRAD_PLAIN, 0); }
TANGRAD_INLINE int __syncthreads_count(int p) { return tangrad_barrier(TANGRAD_COUNT, p); }
TANGRAD_INLINE int __syncthreads_and(int p) { return tangrad_barrier(TANGRAD_AND, p); }
TANGRAD_INLINE int __syncthreads_or(int p) { return tangrad_barrier(TANGRAD_OR, p); }
TANGRAD_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { tangrad_collective(TANGRAD_SYNC, mask, 0, 0, 32); }
TANGRAD_INLINE void tangrad_lockstep() { tangrad_collective(TANGRAD_LOCKSTEP, 0, 0, 0, 32); }
TANGRAD_INLINE void __threadfence() { asm volatile("" ::: "memory"); }
TANGRAD_INLINE void __threadfence_block() { asm volatile("" ::: "memory"); }
TANGRAD_INLINE void __threadfence_system() { asm volatile("" ::: "memory"); }
TANGRAD_INLINE unsigned __activemask() { return tangrad_calls->active_mask(); }
TANGRAD_INLINE void __trap() { tangrad_calls->trap("__trap()"); }
TANGRAD_INLINE void __nanosleep(unsigned) {}
TANGRAD_INLINE long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
TANGRAD_INLINE int clock() { return (int)__builtin_ia32_rdtsc(); }
#define TANGRAD_TEXT_(x) #x
#define TANGRAD_TEXT(x) TANGRAD_TEXT_(x)
#define assert(condition) \
    ((condition) ? (void)0 : tangrad_calls->trap("assertion failed: " #condition ", line " TANGRAD_TEXT(__LINE__)))

template <class T>
static inline T tangrad_exchange(int kind, unsigned mask, T value, int argument, int width) {
    T told;
    constexpr unsigned words = (sizeof(T) + 7) / 8;
    unsigned long long sent[words] = {}, got[words];
    memcpy(sent, &value, sizeof(T));
    for (unsigned i = 0; i < words; i++) got[i] = tangrad_collective(kind, mask, sent[i], argument, width);
    memcpy(&told, got, sizeof(T));
    return told;
}
template <class T> static inline T __shfl_sync(unsigned m, T v, int lane, int width = 32) { return tangrad_exchange(TANGRAD_IDX, m, v, lane, width); }
template <class T> static inline T __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32) { return tangrad_exchange(TANGRAD_UP, m, v, (int)d, width); }
template <class T> static inline T __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32) { return tangrad_exchange(TANGRAD_DOWN, m, v, (int)d, width); }
template <class T> static inline T __shfl_xor_sync(unsigned m, T v, int d, int width = 32) { return tangrad_exchange(TANGRAD_XOR, m, v, d, width); }

TANGRAD_INLINE unsigned __ballot_sync(unsigned m, int p) { return (unsigned)tangrad_collective(TANGRAD_BALLOT, m, p != 0, 0, 32); }
TANGRAD_INLINE int __any_sync(unsigned m, int p) { return (int)tangrad_collective(TANGRAD_ANY, m, p != 0, 0, 32); }
TANGRAD_INLINE int __all_sync(unsigned m, int p) { return (int)tangrad_collective(TANGRAD_ALL, m, p != 0, 0, 32); }
template <class T> static inline unsigned long long tangrad_bits(T value) {
    unsigned long long bits = 0;
    static_assert(sizeof(T) <= 8, "at most 8 bytes");
    memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T> static inline unsigned __match_any_sync(unsigned m, T v) { return (unsigned)tangrad_collective(TANGRAD_MATCH_ANY, m, tangrad_bits(v), 0, 32); }
template <class T> static inline unsigned __match_all_sync(unsigned m, T v, int* same) {
    const unsigned found = (unsigned)tangrad_collective(TANGRAD_MATCH_ALL, m, tangrad_bits(v), 0, 32);
    *same = found != 0;
    return found;
}
TANGRAD_INLINE unsigned __reduce_add_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_ADD_U32, m, v, 0, 32); }
TANGRAD_INLINE int __reduce_add_sync(unsigned m, int v) { return (int)tangrad_collective(TANGRAD_ADD_U32, m, (unsigned)v, 0, 32); }
TANGRAD_INLINE unsigned __reduce_min_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_MIN_U32, m, v, 0, 32); }
TANGRAD_INLINE unsigned __reduce_max_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_MAX_U32, m, v, 0, 32); }
TANGRAD_INLINE int __reduce_min_sync(unsigned m, int v) { return (int)tangrad_collective(TANGRAD_MIN_S32, m, (unsigned)v, 0, 32); }
TANGRAD_INLINE int __reduce_max_sync(unsigned m, int v) { return (int)tangrad_collective(TANGRAD_MAX_S32, m, (unsigned)v, 0, 32); }
TANGRAD_INLINE unsigned __reduce_and_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_AND_B32, m, v, 0, 32); }
TANGRAD_INLINE unsigned __reduce_or_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_OR_B32, m, v, 0, 32); }
TANGRAD_INLINE unsigned __reduce_xor_sync(unsigned m, unsigned v) { return (unsigned)tangrad_collective(TANGRAD_XOR_B32, m, v, 0, 32); }

// ---- atomics: no other thread runs meanwhile ----------------------------------------------------

template <class T> struct tangrad_same_ { typedef T type; };
template <class T> using tangrad_same = typename tangrad_same_<T>::type;
#define TANGRAD_ATOMIC(name, expression)                                                   \
    template <class T> static inline T name(T* at, tangrad_same<T> v) {                    \
        const T was = *at;                                                                 \
        *at = (T)(expression);                                                             \
        return was;                                                                        \
    }                                                                                      \
    template <class T> static inline T name##_block(T* at, tangrad_same<T> v) { return name(at, v); } \
    template <class T> static inline T name##_system(T* at, tangrad_same<T> v) { return name(at, v); }
TANGRAD_ATOMIC(atomicAdd, was + v)
TANGRAD_ATOMIC(atomicSub, was - v)
TANGRAD_ATOMIC(atomicExch, v)
TANGRAD_ATOMIC(atomicMin, v < was ? v : was)
TANGRAD_ATOMIC(atomicMax, v > was ? v : was)
TANGRAD_ATOMIC(atomicInc, was >= v ? T(0) : was + T(1))
TANGRAD_ATOMIC(atomicDec, was == T(0) || was > v ? v : was - T(1))
TANGRAD_ATOMIC(atomicAnd, was & v)
TANGRAD_ATOMIC(atomicOr, was | v)
TANGRAD_ATOMIC(atomicXor, was ^ v)
template <class T> static inline T atomicCAS(T* at, tangrad_same<T> expected, tangrad_same<T> v) {
    const T was = *at;
    if (was == expected) *at = v;
    return was;
}

// ---- memory -------------------------------------------------------------------------------------

template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldca(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline T __ldcv(const T* p) { return *p; }
template <class T> static inline T __ldlu(const T* p) { return *p; }
template <class T> static inline void __stwb(T* p, tangrad_same<T> v) { *p = v; }
template <class T> static inline void __stcg(T* p, tangrad_same<T> v) { *p = v; }
template <class T> static inline void __stcs(T* p, tangrad_same<T> v) { *p = v; }
template <class T> static inline void __stwt(T* p, tangrad_same<T> v) { *p = v; }

// ---- bits and integers --------------------------------------------------------------------------

template <class To, class From> static inline To tangrad_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "the sizes differ");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
TANGRAD_INLINE int __float_as_int(float x) { return tangrad_cast<int>(x); }
TANGRAD_INLINE unsigned __float_as_uint(float x) { return tangrad_cast<unsigned>(x); }
TANGRAD_INLINE float __int_as_float(int x) { return tangrad_cast<float>(x); }
TANGRAD_INLINE float __uint_as_float(unsigned x) { return tangrad_cast<float>(x); }
TANGRAD_INLINE long long __double_as_longlong(double x) { return tangrad_cast<long long>(x); }
TANGRAD_INLINE double __longlong_as_double(long long x) { return tangrad_cast<double>(x); }
TANGRAD_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
TANGRAD_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
TANGRAD_INLINE double __hiloint2double(int hi, int lo) { return __longlong_as_double(((long long)hi << 32) | (unsigned)lo); }
TANGRAD_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
TANGRAD_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TANGRAD_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
TANGRAD_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
TANGRAD_INLINE int __ffs(int x) { return __builtin_ffs(x); }
TANGRAD_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
TANGRAD_INLINE unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= ((x >> i) & 1u) << (31 - i);
    return r;
}
TANGRAD_INLINE unsigned long long __brevll(unsigned long long x) { return ((unsigned long long)__brev((unsigned)x) << 32) | __brev((unsigned)(x >> 32)); }
TANGRAD_INLINE int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
TANGRAD_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
TANGRAD_INLINE long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
TANGRAD_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
TANGRAD_INLINE int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
TANGRAD_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
TANGRAD_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((((unsigned long long)hi << 32) | lo) << (s & 31)) >> 32); }
TANGRAD_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)((((unsigned long long)hi << 32) | lo) >> (s & 31)); }
TANGRAD_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const unsigned long long both = ((unsigned long long)b << 32) | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)((both >> (8 * ((s >> (4 * i)) & 7))) & 255u) << (8 * i);
    return r;
}
TANGRAD_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}

#define TANGRAD_MIN_MAX(T)                                     \
    TANGRAD_INLINE T min(T a, T b) { return b < a ? b : a; }   \
    TANGRAD_INLINE T max(T a, T b) { return a < b ? b : a; }
TANGRAD_MIN_MAX(int)
TANGRAD_MIN_MAX(unsigned)
TANGRAD_MIN_MAX(long)
TANGRAD_MIN_MAX(unsigned long)
TANGRAD_MIN_MAX(long long)
TANGRAD_MIN_MAX(unsigned long long)
#define TANGRAD_MIN_MAX_MIXED(A, B, T)                                  \
    TANGRAD_INLINE T min(A a, B b) { return min((T)a, (T)b); }          \
    TANGRAD_INLINE T min(B a, A b) { return min((T)a, (T)b); }          \
    TANGRAD_INLINE T max(A a, B b) { return max((T)a, (T)b); }          \
    TANGRAD_INLINE T max(B a, A b) { return max((T)a, (T)b); }
TANGRAD_MIN_MAX_MIXED(int, unsigned, unsigned)
TANGRAD_MIN_MAX_MIXED(long, unsigned long, unsigned long)
TANGRAD_MIN_MAX_MIXED(long long, unsigned long long, unsigned long long)
TANGRAD_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
TANGRAD_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
TANGRAD_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
TANGRAD_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }
TANGRAD_MIN_MAX_MIXED(float, double, double)

// ---- mathematics --------------------------------------------------------------------------------

#define TANGRAD_UNARY(name)                                                     \
    extern "C" float name##f(float) noexcept;                                   \
    extern "C" double name(double) noexcept;                                    \
    TANGRAD_INLINE constexpr float name(float x) { return __builtin_##name##f(x); }
#define TANGRAD_BINARY(name)                                                    \
    extern "C" float name##f(float, float) noexcept;                            \
    extern "C" double name(double, double) noexcept;                            \
    TANGRAD_INLINE constexpr float name(float x, float y) { return __builtin_##name##f(x, y); }
TANGRAD_UNARY(sqrt) TANGRAD_UNARY(cbrt) TANGRAD_UNARY(exp) TANGRAD_UNARY(exp2) TANGRAD_UNARY(expm1)
TANGRAD_UNARY(log) TANGRAD_UNARY(log2) TANGRAD_UNARY(log10) TANGRAD_UNARY(log1p) TANGRAD_UNARY(logb)
TANGRAD_UNARY(sin) TANGRAD_UNARY(cos) TANGRAD_UNARY(tan) TANGRAD_UNARY(asin) TANGRAD_UNARY(acos)
TANGRAD_UNARY(atan) TANGRAD_UNARY(sinh) TANGRAD_UNARY(cosh) TANGRAD_UNARY(tanh) TANGRAD_UNARY(asinh)
TANGRAD_UNARY(acosh) TANGRAD_UNARY(atanh) TANGRAD_UNARY(erf) TANGRAD_UNARY(erfc) TANGRAD_UNARY(lgamma)
TANGRAD_UNARY(tgamma) TANGRAD_UNARY(floor) TANGRAD_UNARY(ceil) TANGRAD_UNARY(trunc) TANGRAD_UNARY(round)
TANGRAD_UNARY(rint) TANGRAD_UNARY(nearbyint) TANGRAD_UNARY(fabs) TANGRAD_UNARY(j0) TANGRAD_UNARY(j1)
TANGRAD_UNARY(y0) TANGRAD_UNARY(y1) TANGRAD_UNARY(exp10)
TANGRAD_BINARY(pow) TANGRAD_BINARY(fmod) TANGRAD_BINARY(remainder) TANGRAD_BINARY(atan2)
TANGRAD_BINARY(hypot) TANGRAD_BINARY(fmin) TANGRAD_BINARY(fmax) TANGRAD_BINARY(fdim)
TANGRAD_BINARY(copysign) TANGRAD_BINARY(nextafter)

extern "C" {
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
float ldexpf(float, int) noexcept;
double ldexp(double, int) noexcept;
float scalbnf(float, int) noexcept;
double scalbn(double, int) noexcept;
float frexpf(float, int*) noexcept;
double frexp(double, int*) noexcept;
float modff(float, float*) noexcept;
double modf(double, double*) noexcept;
int ilogbf(float) noexcept;
int ilogb(double) noexcept;
long lrintf(float) noexcept;
long lrint(double) noexcept;
long long llrintf(float) noexcept;
long long llrint(double) noexcept;
long lroundf(float) noexcept;
long lround(double) noexcept;
long long llroundf(float) noexcept;
long long llround(double) noexcept;
void sincosf(float, float*, float*) noexcept;
void sincos(double, double*, double*) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
TANGRAD_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TANGRAD_INLINE float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
TANGRAD_INLINE float frexp(float x, int* n) { return __builtin_frexpf(x, n); }
TANGRAD_INLINE float modf(float x, float* n) { return __builtin_modff(x, n); }
TANGRAD_INLINE void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
TANGRAD_INLINE float abs(float x) { return __builtin_fabsf(x); }
TANGRAD_INLINE double abs(double x) { return __builtin_fabs(x); }
TANGRAD_INLINE long abs(long x) { return x < 0 ? -x : x; }
TANGRAD_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
TANGRAD_INLINE float rsqrtf(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
TANGRAD_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
TANGRAD_INLINE float rsqrt(float x) { return rsqrtf(x); }
TANGRAD_INLINE float rcbrtf(float x) { return 1.0f / __builtin_cbrtf(x); }
TANGRAD_INLINE double rcbrt(double x) { return 1.0 / __builtin_cbrt(x); }
TANGRAD_INLINE double tangrad_half_turns(double x, int quarter) {
    const double r = __builtin_fmod(x, 2.0), turn = 3.14159265358979323846;
    if (quarter == 0) return r == 0 || r == 1 || r == -1 ? r * 0.0 : __builtin_sin(turn * r);
    return r == 0.5 || r == 1.5 || r == -0.5 || r == -1.5 ? 0.0 : __builtin_cos(turn * r);
}
TANGRAD_INLINE double sinpi(double x) { return tangrad_half_turns(x, 0); }
TANGRAD_INLINE double cospi(double x) { return tangrad_half_turns(x, 1); }
TANGRAD_INLINE float sinpif(float x) { return (float)sinpi((double)x); }
TANGRAD_INLINE float cospif(float x) { return (float)cospi((double)x); }
TANGRAD_INLINE double erfcx(double x) { return __builtin_exp(x * x) * __builtin_erfc(x); }
TANGRAD_INLINE float erfcxf(float x) { return (float)erfcx((double)x); }
TANGRAD_INLINE double normcdf(double x) { return 0.5 * __builtin_erfc(-x * 0.70710678118654752440); }
TANGRAD_INLINE float normcdff(float x) { return (float)normcdf((double)x); }
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#define TANGRAD_CLASS(name)                                               \
    TANGRAD_INLINE bool name(float x) { return __builtin_##name(x); }     \
    TANGRAD_INLINE bool name(double x) { return __builtin_##name(x); }
TANGRAD_CLASS(isnan) TANGRAD_CLASS(isinf) TANGRAD_CLASS(isfinite) TANGRAD_CLASS(signbit)

TANGRAD_INLINE float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
TANGRAD_INLINE float __expf(float x) { return __builtin_expf(x); }
TANGRAD_INLINE float __exp10f(float x) { return __builtin_exp10f(x); }
TANGRAD_INLINE float __logf(float x) { return __builtin_logf(x); }
TANGRAD_INLINE float __log2f(float x) { return __builtin_log2f(x); }
TANGRAD_INLINE float __log10f(float x) { return __builtin_log10f(x); }
TANGRAD_INLINE float __sinf(float x) { return __builtin_sinf(x); }
TANGRAD_INLINE float __cosf(float x) { return __builtin_cosf(x); }
TANGRAD_INLINE float __tanf(float x) { return __builtin_tanf(x); }
TANGRAD_INLINE float __powf(float x, float y) { return __builtin_powf(x, y); }
TANGRAD_INLINE void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
TANGRAD_INLINE float __fdividef(float x, float y) { return x / y; }
TANGRAD_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }
TANGRAD_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TANGRAD_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
#define TANGRAD_NEAREST(p, T, root)                                       \
    TANGRAD_INLINE T __##p##rcp_rn(T x) { return T(1) / x; }              \
    TANGRAD_INLINE T __##p##sqrt_rn(T x) { return root(x); }              \
    TANGRAD_INLINE T __##p##add_rn(T x, T y) { return x + y; }            \
    TANGRAD_INLINE T __##p##sub_rn(T x, T y) { return x - y; }            \
    TANGRAD_INLINE T __##p##mul_rn(T x, T y) { return x * y; }            \
    TANGRAD_INLINE T __##p##div_rn(T x, T y) { return x / y; }
TANGRAD_NEAREST(f, float, __builtin_sqrtf)
TANGRAD_NEAREST(d, double, __builtin_sqrt)

// A GPU's conversion to an integer takes the nearest that there is, and 0 for what is no number.
template <class To> static inline To tangrad_to_integer(double x) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr int bits = 8 * sizeof(To) - is_signed;
    const double above = bits == 64 ? 18446744073709551616.0 : (double)(1ull << (bits & 63));
    if (x != x) return 0;
    if (x >= above) return To(is_signed ? ~(To(1) << (bits & 63)) : To(-1));
    if (x < (is_signed ? -above : 0.0)) return To(is_signed ? To(1) << (bits & 63) : 0);
    return To(x);
}
#define TANGRAD_ROUNDINGS(name, To, T)                                                              \
    TANGRAD_INLINE To name##_rz(T x) { return tangrad_to_integer<To>(__builtin_trunc((double)x)); } \
    TANGRAD_INLINE To name##_rn(T x) { return tangrad_to_integer<To>(__builtin_rint((double)x)); }  \
    TANGRAD_INLINE To name##_rd(T x) { return tangrad_to_integer<To>(__builtin_floor((double)x)); } \
    TANGRAD_INLINE To name##_ru(T x) { return tangrad_to_integer<To>(__builtin_ceil((double)x)); }
TANGRAD_ROUNDINGS(__float2int, int, float)
TANGRAD_ROUNDINGS(__float2uint, unsigned, float)
TANGRAD_ROUNDINGS(__float2ll, long long, float)
TANGRAD_ROUNDINGS(__float2ull, unsigned long long, float)
TANGRAD_ROUNDINGS(__double2int, int, double)
TANGRAD_ROUNDINGS(__double2uint, unsigned, double)
TANGRAD_ROUNDINGS(__double2ll, long long, double)
TANGRAD_ROUNDINGS(__double2ull, unsigned long long, double)
TANGRAD_INLINE float __int2float_rn(int x) { return (float)x; }
TANGRAD_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
TANGRAD_INLINE float __ll2float_rn(long long x) { return (float)x; }
TANGRAD_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
TANGRAD_INLINE double __int2double_rn(int x) { return (double)x; }
TANGRAD_INLINE double __uint2double_rn(unsigned x) { return (double)x; }
TANGRAD_INLINE double __ll2double_rn(long long x) { return (double)x; }
TANGRAD_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
TANGRAD_INLINE float __double2float_rn(double x) { return (float)x; }

// ---- half and bfloat16 --------------------------------------------------------------------------

TANGRAD_INLINE float tangrad_cvt_f32_f16(unsigned short a) { return (float)tangrad_cast<_Float16>(a); }
TANGRAD_INLINE double tangrad_cvt_f64_f16(unsigned short a) { return (double)tangrad_cast<_Float16>(a); }
TANGRAD_INLINE unsigned short tangrad_cvt_rn_f16_f32(float x) { return x != x ? (unsigned short)0x7fff : tangrad_cast<unsigned short>((_Float16)x); }
TANGRAD_INLINE unsigned short tangrad_cvt_rn_f16_f64(double x) { return x != x ? (unsigned short)0x7fff : tangrad_cast<unsigned short>((_Float16)x); }
TANGRAD_INLINE float tangrad_cvt_f32_bf16(unsigned short a) { return __uint_as_float((unsigned)a << 16); }
TANGRAD_INLINE unsigned short tangrad_cvt_rn_bf16_f32(float x) {
    const unsigned bits = __float_as_uint(x);
    return x != x ? (unsigned short)0x7fff : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct __half { unsigned short bits; };
struct __nv_bfloat16 { unsigned short bits; };
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
TANGRAD_INLINE float __half2float(__half a) { return tangrad_cvt_f32_f16(a.bits); }
TANGRAD_INLINE __half __float2half_rn(float x) { return {tangrad_cvt_rn_f16_f32(x)}; }
TANGRAD_INLINE __half __float2half(float x) { return __float2half_rn(x); }
TANGRAD_INLINE __half __double2half(double x) { return {tangrad_cvt_rn_f16_f64(x)}; }
TANGRAD_INLINE unsigned short __half_as_ushort(__half a) { return a.bits; }
TANGRAD_INLINE __half __ushort_as_half(unsigned short a) { return {a}; }
TANGRAD_INLINE float __bfloat162float(__nv_bfloat16 a) { return tangrad_cvt_f32_bf16(a.bits); }
TANGRAD_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return {tangrad_cvt_rn_bf16_f32(x)}; }
TANGRAD_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
TANGRAD_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
TANGRAD_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return {a}; }

// ---- the door by which the emulator comes in ----------------------------------------------------

template <auto F> struct tangrad_door;
template <class... P, void (*F)(P...)> struct tangrad_door<F> {
    static constexpr unsigned count = sizeof...(P);
    static inline const unsigned sizes[] = {(unsigned)sizeof(P)..., 0};
    static inline const unsigned alignments[] = {(unsigned)alignof(P)..., 0};
    template <unsigned... I> struct caller {
        static void run(void** arguments, tangrad_cursor* cursor) {
            const unsigned width = tangrad_now.block_size[0], height = tangrad_now.block_size[1];
            while (cursor->next < cursor->limit) {
                const unsigned id = cursor->next++;
                tangrad_now.id = id;
                tangrad_now.thread[0] = cursor->x;
                tangrad_now.thread[1] = cursor->y;
                tangrad_now.thread[2] = cursor->z;
                if (++cursor->x == width) {
                    cursor->x = 0;
                    if (++cursor->y == height) {
                        cursor->y = 0;
                        cursor->z++;
                    }
                }
                F(*reinterpret_cast<P*>(arguments[I])...);
                cursor->exited[id] = 1;
            }
        }
    };
    template <unsigned... I> struct indices { typedef caller<I...> door; };
    typedef typename indices<__integer_pack(sizeof...(P))...>::door door;
};
#define TANGRAD_KERNEL(name)                                                                        \
    {#name, (void*)&name, &tangrad_door<&name>::door::run, tangrad_door<&name>::count,              \
     tangrad_door<&name>::sizes, tangrad_door<&name>::alignments},

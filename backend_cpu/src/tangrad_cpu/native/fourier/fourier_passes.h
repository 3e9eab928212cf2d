/* One pass of a transform over vectors, each lane of which belongs to another transform: Stockham's
 * form, which needs no reordering (C. Van Loan, Computational Frameworks for the Fast Fourier
 * Transform, 1.7). Element i of a buffer is a vector of real parts and one of imaginary parts.
 *
 * FT_T, FT_V, FT_U: element, vector, vector of unsigned integers of the same width; FT_LANES;
 * FT_FMA(a, b, c) = a b + c; FT_EVEN, FT_ODD, FT_LOW, FT_HIGH: shuffles; FT_TRANSPOSE. */

#define V FT_V
#define T FT_T
#define L FT_LANES
#define INLINE static inline __attribute__((always_inline))
#define C FT(number)

typedef struct C {
    V re, im;
} C;

INLINE V FT(at)(const T *from)
{
    V v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void FT(put)(T *to, V v)
{
    memcpy(to, &v, sizeof v);
}

INLINE C FT(add)(C a, C b)
{
    return (C){a.re + b.re, a.im + b.im};
}

INLINE C FT(sub)(C a, C b)
{
    return (C){a.re - b.re, a.im - b.im};
}

/* -i a */
INLINE C FT(turned)(C a)
{
    return (C){a.im, -a.re};
}

/* a + b x for a real number x */
INLINE C FT(more)(C a, C b, T x)
{
    const V v = x - (V){0};
    return (C){FT_FMA(b.re, v, a.re), FT_FMA(b.im, v, a.im)};
}

INLINE C FT(times)(C a, V re, V im)
{
    return (C){FT_FMA(a.re, re, -(a.im * im)), FT_FMA(a.re, im, a.im * re)};
}

INLINE C FT(times_root)(C a, const T *root)
{
    return FT(times)(a, root[0] - (V){0}, root[1] - (V){0});
}

/* Numbers as they lie in a complex tensor. Where they are exchanged, the imaginary part comes first: a
 * transform of exchanged numbers, exchanged again, is the inverse one. */
INLINE C FT(unpacked)(const T *from, int exchanged)
{
    const V a = FT(at)(from), b = FT(at)(from + L);
    const V even = __builtin_shuffle(a, b, (FT_U)FT_EVEN), odd = __builtin_shuffle(a, b, (FT_U)FT_ODD);
    return exchanged ? (C){odd, even} : (C){even, odd};
}

INLINE void FT(pack)(T *to, C a, int exchanged)
{
    const V first = exchanged ? a.im : a.re, second = exchanged ? a.re : a.im;
    FT(put)(to, __builtin_shuffle(first, second, (FT_U)FT_LOW));
    FT(put)(to + L, __builtin_shuffle(first, second, (FT_U)FT_HIGH));
}

INLINE void FT(dft2)(C *a)
{
    const C b = a[1];
    a[1] = FT(sub)(a[0], b);
    a[0] = FT(add)(a[0], b);
}

INLINE void FT(dft3)(C *a)
{
    const C sum = FT(add)(a[1], a[2]), turned = FT(turned)(FT(sub)(a[1], a[2]));
    const C middle = FT(more)(a[0], sum, (T)-0.5);
    a[0] = FT(add)(a[0], sum);
    a[1] = FT(more)(middle, turned, (T)0.866025403784438646763723170752936183);
    a[2] = FT(more)(middle, turned, (T)-0.866025403784438646763723170752936183);
}

INLINE void FT(dft4)(C *a)
{
    const C p = FT(add)(a[0], a[2]), q = FT(sub)(a[0], a[2]);
    const C r = FT(add)(a[1], a[3]), s = FT(turned)(FT(sub)(a[1], a[3]));
    a[0] = FT(add)(p, r);
    a[1] = FT(add)(q, s);
    a[2] = FT(sub)(p, r);
    a[3] = FT(sub)(q, s);
}

INLINE void FT(dft5)(C *a)
{
    const T c1 = (T)0.309016994374947424102293417182819059, c2 = (T)-0.809016994374947424102293417182819059;
    const T s1 = (T)0.951056516295153572116439333379382143, s2 = (T)0.587785252292473129168705954639072769;
    const C p = FT(add)(a[1], a[4]), q = FT(add)(a[2], a[3]);
    const C r = FT(turned)(FT(sub)(a[1], a[4])), s = FT(turned)(FT(sub)(a[2], a[3]));
    const C none = {{0}, {0}};
    const C m1 = FT(more)(FT(more)(a[0], p, c1), q, c2), m2 = FT(more)(FT(more)(a[0], p, c2), q, c1);
    const C t1 = FT(more)(FT(more)(none, r, s1), s, s2), t2 = FT(more)(FT(more)(none, r, s2), s, -s1);
    a[0] = FT(add)(a[0], FT(add)(p, q));
    a[1] = FT(add)(m1, t1);
    a[4] = FT(sub)(m1, t1);
    a[2] = FT(add)(m2, t2);
    a[3] = FT(sub)(m2, t2);
}

INLINE void FT(dft8)(C *a)
{
    const T half = (T)0.707106781186547524400844362104849039;
    C even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]};
    FT(dft4)(even);
    FT(dft4)(odd);
    /* The eighth of a turn and three of them; multiplied with the last addition. */
    const C one = {odd[1].re + odd[1].im, odd[1].im - odd[1].re};
    const C three = {odd[3].im - odd[3].re, -odd[3].re - odd[3].im};
    const C two = FT(turned)(odd[2]);
    a[0] = FT(add)(even[0], odd[0]);
    a[4] = FT(sub)(even[0], odd[0]);
    a[1] = FT(more)(even[1], one, half);
    a[5] = FT(more)(even[1], one, -half);
    a[2] = FT(add)(even[2], two);
    a[6] = FT(sub)(even[2], two);
    a[3] = FT(more)(even[3], three, half);
    a[7] = FT(more)(even[3], three, -half);
}

/* Where numbers of a pass come from or go to: the buffer; a complex tensor whose innermost dimension is
 * the lanes'; vectors of their own distance, multiplied by roots on the way. */
enum { FT(BUFFER), FT(PACKED), FT(TIMES) };

typedef struct FT(side) {
    T *data;
    int64_t step; /* between elements */
    int exchanged;
    T scale;
    const T *roots; /* a vector of each part for each element */
    int64_t roots_step;
} FT(side);

INLINE C FT(take)(const FT(side) *from, int64_t i, int form)
{
    if (form == FT(PACKED))
        return FT(unpacked)(from->data + i * from->step, from->exchanged);
    return (C){FT(at)(from->data + i * 2 * L), FT(at)(from->data + i * 2 * L + L)};
}

INLINE void FT(give)(const FT(side) *to, int64_t i, C a, int form)
{
    T *at = to->data + i * (form == FT(BUFFER) ? 2 * L : to->step);
    if (form == FT(PACKED)) {
        FT(pack)(at, (C){a.re * to->scale, a.im * to->scale}, to->exchanged);
        return;
    }
    if (form == FT(TIMES)) {
        const T *root = to->roots + i * to->roots_step;
        a = FT(times)(a, FT(at)(root), FT(at)(root + L));
    }
    FT(put)(at, a.re);
    FT(put)(at + L, a.im);
}

/* y[q + s (r p + k)] = root(p k / (m r)) sum over j of x[q + s (p + m j)] root(j k / r). The first pass
 * has s = 1, the last m = 1 and no roots. */
#define FT_PASS(r)                                                                                             \
    INLINE void FT(pass##r)(const FT(side) *x, int in, const FT(side) *y, int out, int64_t m, int64_t s,       \
                            const T *roots)                                                                    \
    {                                                                                                          \
        for (int64_t q = 0; q < s; q++) {                                                                      \
            C a[r];                                                                                            \
            _Pragma("GCC unroll 8") for (int j = 0; j < r; j++) a[j] = FT(take)(x, q + s * m * j, in);         \
            FT(dft##r)(a);                                                                                     \
            _Pragma("GCC unroll 8") for (int k = 0; k < r; k++) FT(give)(y, q + s * k, a[k], out);             \
        }                                                                                                      \
        for (int64_t p = 1; p < m; p++)                                                                        \
            for (int64_t q = 0; q < s; q++) {                                                                  \
                const T *w = roots + p * 2 * (r - 1);                                                          \
                C a[r];                                                                                        \
                _Pragma("GCC unroll 8") for (int j = 0; j < r; j++) a[j] = FT(take)(x, q + s * (p + m * j), in); \
                FT(dft##r)(a);                                                                                 \
                FT(give)(y, q + s * r * p, a[0], out);                                                         \
                _Pragma("GCC unroll 8") for (int k = 1; k < r; k++)                                            \
                    FT(give)(y, q + s * (r * p + k), FT(times_root)(a[k], w + 2 * (k - 1)), out);              \
            }                                                                                                  \
    }                                                                                                          \
    static __attribute__((noinline)) void FT(first##r)(const FT(side) *x, const FT(side) *y, int64_t m, const T *roots) \
    {                                                                                                          \
        FT(pass##r)(x, FT(PACKED), y, FT(BUFFER), m, 1, roots);                                                \
    }                                                                                                          \
    static __attribute__((noinline)) void FT(inner##r)(const FT(side) *x, const FT(side) *y, int64_t m, int64_t s, const T *roots) \
    {                                                                                                          \
        FT(pass##r)(x, FT(BUFFER), y, FT(BUFFER), m, s, roots);                                                \
    }                                                                                                          \
    static __attribute__((noinline)) void FT(last##r)(const FT(side) *x, const FT(side) *y, int64_t s)         \
    {                                                                                                          \
        FT(pass##r)(x, FT(BUFFER), y, FT(PACKED), 1, s, NULL);                                                 \
    }                                                                                                          \
    static __attribute__((noinline)) void FT(times##r)(const FT(side) *x, const FT(side) *y, int64_t s)        \
    {                                                                                                          \
        FT(pass##r)(x, FT(BUFFER), y, FT(TIMES), 1, s, NULL);                                                  \
    }

FT_PASS(2)
FT_PASS(3)
FT_PASS(4)
FT_PASS(5)
FT_PASS(8)

/* A pass of any odd radix: sums and differences of what lies opposite share their products. `circle` has
 * the roots of the radix. */
static void FT(inner_odd)(const FT(side) *x, const FT(side) *y, int r, int64_t m, int64_t s, const T *roots,
                          const T *circle)
{
    for (int64_t p = 0; p < m; p++)
        for (int64_t q = 0; q < s; q++) {
            const T *w = roots + p * 2 * (r - 1);
            C sums[MOST_RADIX / 2 + 1], differences[MOST_RADIX / 2 + 1];
            const C first = FT(take)(x, q + s * p, FT(BUFFER));
            C total = first;
            for (int j = 1; j <= r / 2; j++) {
                const C a = FT(take)(x, q + s * (p + m * j), FT(BUFFER));
                const C b = FT(take)(x, q + s * (p + m * (r - j)), FT(BUFFER));
                sums[j] = FT(add)(a, b);
                differences[j] = FT(turned)(FT(sub)(a, b));
                total = FT(add)(total, sums[j]);
            }
            FT(give)(y, q + s * r * p, total, FT(BUFFER));
            for (int k = 1; k <= r / 2; k++) {
                C even = first, odd = {{0}, {0}};
                for (int j = 1, at = k; j <= r / 2; j++, at = at + k >= r ? at + k - r : at + k) {
                    even = FT(more)(even, sums[j], circle[2 * at]);
                    odd = FT(more)(odd, differences[j], -circle[2 * at + 1]);
                }
                FT(give)(y, q + s * (r * p + k), FT(times_root)(FT(add)(even, odd), w + 2 * (k - 1)), FT(BUFFER));
                FT(give)(y, q + s * (r * p + r - k), FT(times_root)(FT(sub)(even, odd), w + 2 * (r - k - 1)),
                         FT(BUFFER));
            }
        }
}

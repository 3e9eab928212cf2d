/* The loops that vector registers serve, included once for each set of instructions.
 *
 * TARGET stands before each function, and NAMED(x) makes its name. */

/* Make 624 new words (Matsumoto and Nishimura 1998). */
TARGET static void NAMED(refill)(uint32_t *w)
{
    int i;
    for (i = 0; i < 227; i++) {
        uint32_t y = (w[i] & 0x80000000u) | (w[i + 1] & 0x7fffffffu);
        w[i] = w[i + 397] ^ (y >> 1) ^ ((0u - (w[i + 1] & 1u)) & 0x9908b0dfu);
    }
    for (; i < 623; i++) {
        uint32_t y = (w[i] & 0x80000000u) | (w[i + 1] & 0x7fffffffu);
        w[i] = w[i - 227] ^ (y >> 1) ^ ((0u - (w[i + 1] & 1u)) & 0x9908b0dfu);
    }
    {
        uint32_t y = (w[623] & 0x80000000u) | (w[0] & 0x7fffffffu);
        w[623] = w[396] ^ (y >> 1) ^ ((0u - (w[0] & 1u)) & 0x9908b0dfu);
    }
}

TARGET static void NAMED(temper)(const uint32_t *w, uint32_t *restrict out, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t y = w[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        out[i] = y ^ (y >> 18);
    }
}

TARGET static void NAMED(spread)(const uint32_t *w, float *restrict out, size_t n, float range,
                                 float low)
{
    size_t i;
    for (i = 0; i < n; i++) {
        float u = (float)(int32_t)(w[i] & 0xffffffu) * 0x1p-24f;
        out[i] = fmaf(u, range, low);
    }
}

/* log(m) + e log(2) of x = m 2**e, m between the root of a half and that of two. */
TARGET static inline float NAMED(logarithm)(float x)
{
    union { float f; uint32_t u; } bits = {x};
    int32_t exponent = (int32_t)(bits.u >> 23) - 126;
    float m, e, p, square, tail;
    int low;
    bits.u = (bits.u & 0x007fffffu) | 0x3f000000u;
    m = bits.f;
    low = m < 0.70710678118654752f;
    e = (float)(exponent - low);
    m = (m + (low ? m : 0.0f)) - 1.0f;
    p = 7.0376836292e-2f;
    p = fmaf(p, m, -1.1514610310e-1f);
    p = fmaf(p, m, 1.1676998740e-1f);
    p = fmaf(p, m, -1.2420140846e-1f);
    p = fmaf(p, m, 1.4249322787e-1f);
    p = fmaf(p, m, -1.6668057665e-1f);
    p = fmaf(p, m, 2.0000714765e-1f);
    p = fmaf(p, m, -2.4999993993e-1f);
    p = fmaf(p, m, 3.3333331174e-1f);
    square = m * m;
    /* log(2) in two parts, of which the first times a small integer is exact. */
    tail = fmaf(p * m, square, e * -2.12194440e-4f);
    tail = fmaf(square, -0.5f, tail);
    return fmaf(e, 0.693359375f, m + tail);
}

TARGET static void NAMED(blocks)(float *restrict x, size_t n, float mean, float std)
{
    size_t at;
    int i;
    for (at = 0; at < n; at += 16) {
        float *restrict first = x + at, *restrict second = x + at + 8;
        for (i = 0; i < 8; i++) {
            float radius = sqrtf(-2.0f * NAMED(logarithm)(1.0f - first[i]));
            float angle = 6.28318530717958647692f * second[i];
            int32_t octant = ((int32_t)(angle * 1.27323954473516268615f) + 1) & ~1;
            float turns = (float)octant, r, square, even, odd;
            union { float f; uint32_t u; } cosine, sine;
            /* A quarter turn in three parts. */
            r = fmaf(turns, -0.78515625f, angle);
            r = fmaf(turns, -2.4187564849853515625e-4f, r);
            r = fmaf(turns, -3.77489497744594108e-8f, r);
            square = r * r;
            even = fmaf(2.443315711809948e-5f, square, -1.388731625493765e-3f);
            even = fmaf(even, square, 4.166664568298827e-2f);
            even = fmaf(even * square, square, -(square * 0.5f)) + 1.0f;
            odd = fmaf(-1.9515295891e-4f, square, 8.3321608736e-3f);
            odd = fmaf(odd, square, -1.6666654611e-1f);
            odd = fmaf(odd * square, r, r);
            cosine.f = (octant & 2) ? odd : even;
            sine.f = (octant & 2) ? even : odd;
            cosine.u ^= (uint32_t)((octant + 2) & 4) << 29;
            sine.u ^= (uint32_t)(octant & 4) << 29;
            first[i] = fmaf(radius * cosine.f, std, mean);
            second[i] = fmaf(radius * sine.f, std, mean);
        }
    }
}

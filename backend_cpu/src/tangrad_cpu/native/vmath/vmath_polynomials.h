/* Minimax polynomials of vmath: written by render/minimax.py, which documents them. */
#ifndef TGC_VMATH_POLYNOMIALS_H
#define TGC_VMATH_POLYNOMIALS_H

#include "vmath_bits.h"

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE float tgc_poly_exp_f32(float x) {
    float p = 0x1.6a24ee0000000p-10f;
    p = TGC_FMAF(p, x, 0x1.123a6e0000000p-7f);
    p = TGC_FMAF(p, x, 0x1.5558f20000000p-5f);
    p = TGC_FMAF(p, x, 0x1.5554900000000p-3f);
    p = TGC_FMAF(p, x, 0x1.fffffc0000000p-2f);
    return p;
}

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE float tgc_poly_expm1_f32(float x) {
    float z = x * x, p = TGC_FMAF(0x1.a0331e0000000p-13f, x, 0x1.6d72a20000000p-10f);
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.11118a0000000p-7f, x, 0x1.5554b00000000p-5f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.5555540000000p-3f, x, 0x1.0000000000000p-1f));
    return p;
}

/* log(1 + f) = f - f^2 / 2 + f^3 P(f) */
TGC_INLINE float tgc_poly_log_f32(float x) {
    float z = x * x, p = TGC_FMAF(-0x1.38b9cc0000000p-4f, x, 0x1.055cc20000000p-3f);
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.0d851a0000000p-3f, x, 0x1.22d9ec0000000p-3f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.5472420000000p-3f, x, 0x1.99a00a0000000p-3f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.0002280000000p-2f, x, 0x1.5555540000000p-2f));
    return p;
}

/* sin(r) = r + r^3 P(r^2), |r| <= 0.7933 */
TGC_INLINE float tgc_poly_sin_f32(float x) {
    float p = 0x1.6cb8060000000p-19f;
    p = TGC_FMAF(p, x, -0x1.a00f120000000p-13f);
    p = TGC_FMAF(p, x, 0x1.1111080000000p-7f);
    p = TGC_FMAF(p, x, -0x1.5555560000000p-3f);
    return p;
}

/* cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4 */
TGC_INLINE float tgc_poly_cos_f32(float x) {
    float p = 0x1.99cb6a0000000p-16f;
    p = TGC_FMAF(p, x, -0x1.6c0bc40000000p-10f);
    p = TGC_FMAF(p, x, 0x1.55554a0000000p-5f);
    return p;
}

/* tanh(r) = r + r^3 P(r^2), |r| <= 0.626 */
TGC_INLINE float tgc_poly_tanh_f32(float x) {
    float p = -0x1.7561f60000000p-8f;
    p = TGC_FMAF(p, x, 0x1.520b240000000p-6f);
    p = TGC_FMAF(p, x, -0x1.b838560000000p-5f);
    p = TGC_FMAF(p, x, 0x1.11070a0000000p-3f);
    p = TGC_FMAF(p, x, -0x1.5555320000000p-2f);
    return p;
}

/* atan(r) = r + r^3 P(r^2), |r| <= 1.0 */
TGC_INLINE float tgc_poly_atan_f32(float x) {
    float p = -0x1.d62ed20000000p-10f;
    p = TGC_FMAF(p, x, 0x1.65a5820000000p-7f);
    p = TGC_FMAF(p, x, -0x1.fed0580000000p-6f);
    p = TGC_FMAF(p, x, 0x1.dac93c0000000p-5f);
    p = TGC_FMAF(p, x, -0x1.5834540000000p-4f);
    p = TGC_FMAF(p, x, 0x1.c099e60000000p-4f);
    p = TGC_FMAF(p, x, -0x1.2421b20000000p-3f);
    p = TGC_FMAF(p, x, 0x1.9991fc0000000p-3f);
    p = TGC_FMAF(p, x, -0x1.55553e0000000p-2f);
    return p;
}

/* asin(r) = r + r^3 P(r^2), |r| <= 0.501 */
TGC_INLINE float tgc_poly_asin_f32(float x) {
    float p = 0x1.5a67e40000000p-5f;
    p = TGC_FMAF(p, x, 0x1.8b13ae0000000p-6f);
    p = TGC_FMAF(p, x, 0x1.7498460000000p-5f);
    p = TGC_FMAF(p, x, 0x1.3300f20000000p-4f);
    p = TGC_FMAF(p, x, 0x1.5555cc0000000p-3f);
    return p;
}

/* erf(x) = 1 - exp(-x - x P(x)), 0 <= x <= 3.95 */
TGC_INLINE float tgc_poly_erf_f32(float x) {
    float z = x * x, p = -0x1.3663360000000p-17f;
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.ed30b80000000p-14f, x, -0x1.4bae300000000p-11f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.b4e59c0000000p-10f, x, -0x1.4f7ba40000000p-13f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.39ced40000000p-6f, x, 0x1.a4fa720000000p-4f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.45f2fa0000000p-1f, x, 0x1.06eba80000000p-3f));
    return p;
}

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE double tgc_poly_exp_f64(double x) {
    double z = x * x, p = 0x1.1ee80ad4e2fc3p-29;
    p = TGC_FMA(p, z, TGC_FMA(0x1.af5ee80562a10p-26, x, 0x1.27e536b10cbebp-22));
    p = TGC_FMA(p, z, TGC_FMA(0x1.71ddf84236293p-19, x, 0x1.a01a017b6fc2cp-16));
    p = TGC_FMA(p, z, TGC_FMA(0x1.a01a01afe9881p-13, x, 0x1.6c16c16c1f1e1p-10));
    p = TGC_FMA(p, z, TGC_FMA(0x1.111111110f6aap-7, x, 0x1.555555555553ep-5));
    p = TGC_FMA(p, z, TGC_FMA(0x1.5555555555559p-3, x, 0x1.0000000000000p-1));
    return p;
}

/* log(1 + f) = s (2 + s^2 P(s^2)), s = f / (2 + f) */
TGC_INLINE double tgc_poly_log_f64(double x) {
    double p = 0x1.2f0b289ca07dfp-3;
    p = TGC_FMA(p, x, 0x1.39a1341910c78p-3);
    p = TGC_FMA(p, x, 0x1.746643a2ab599p-3);
    p = TGC_FMA(p, x, 0x1.c71c51f4dab1cp-3);
    p = TGC_FMA(p, x, 0x1.24924942070c6p-2);
    p = TGC_FMA(p, x, 0x1.999999997fc6dp-2);
    p = TGC_FMA(p, x, 0x1.5555555555593p-1);
    return p;
}

/* atanh(s) = s + s^3 (1 / 3 + s^2 P(s^2)) */
TGC_INLINE double tgc_poly_log_tail_f64(double x) {
    double z = x * x, p = 0x1.0e47f5bdf734ap-4;
    p = TGC_FMA(p, z, TGC_FMA(0x1.0f7f60a190e8bp-4, x, 0x1.3b1ef185cdbacp-4));
    p = TGC_FMA(p, z, TGC_FMA(0x1.745ce9c742f0ap-4, x, 0x1.c71c722db1647p-4));
    p = TGC_FMA(p, z, TGC_FMA(0x1.2492492457a54p-3, x, 0x1.9999999999b31p-3));
    return p;
}

/* sin(r) = r + r^3 P(r^2), |r| <= 0.7933 */
TGC_INLINE double tgc_poly_sin_f64(double x) {
    double p = -0x1.aa8e6792e254ep-41;
    p = TGC_FMA(p, x, 0x1.6120646494e67p-33);
    p = TGC_FMA(p, x, -0x1.ae64524f37f6ep-26);
    p = TGC_FMA(p, x, 0x1.71de3a5301036p-19);
    p = TGC_FMA(p, x, -0x1.a01a01a018826p-13);
    p = TGC_FMA(p, x, 0x1.111111111110ap-7);
    p = TGC_FMA(p, x, -0x1.5555555555555p-3);
    return p;
}

/* cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4 */
TGC_INLINE double tgc_poly_cos_f64(double x) {
    double p = -0x1.8f9025a9cc9c5p-37;
    p = TGC_FMA(p, x, 0x1.1ee9b0b7a482ap-29);
    p = TGC_FMA(p, x, -0x1.27e4f7b23abd8p-22);
    p = TGC_FMA(p, x, 0x1.a01a019c37477p-16);
    p = TGC_FMA(p, x, -0x1.6c16c16c14c8ap-10);
    p = TGC_FMA(p, x, 0x1.5555555555549p-5);
    return p;
}

/* atan(r) = r + r^3 P(r^2), |r| <= 0.4146 */
TGC_INLINE double tgc_poly_atan_f64(double x) {
    double p = -0x1.a868ac5557273p-7;
    p = TGC_FMA(p, x, 0x1.e4a9ad9684947p-6);
    p = TGC_FMA(p, x, -0x1.4c1423a7b66c4p-5);
    p = TGC_FMA(p, x, 0x1.81739c297f9e9p-5);
    p = TGC_FMA(p, x, -0x1.ae87c49c51babp-5);
    p = TGC_FMA(p, x, 0x1.e1d27b18c7490p-5);
    p = TGC_FMA(p, x, -0x1.11108b33f0c98p-4);
    p = TGC_FMA(p, x, 0x1.3b13aae284c21p-4);
    p = TGC_FMA(p, x, -0x1.745d17119f13dp-4);
    p = TGC_FMA(p, x, 0x1.c71c71c607e61p-4);
    p = TGC_FMA(p, x, -0x1.2492492490984p-3);
    p = TGC_FMA(p, x, 0x1.999999999996fp-3);
    p = TGC_FMA(p, x, -0x1.5555555555555p-2);
    return p;
}

/* asin(r) = r + r^3 P(r^2), |r| <= 0.501 */
TGC_INLINE double tgc_poly_asin_f64(double x) {
    double p = 0x1.0d5f7103d9c15p-5;
    p = TGC_FMA(p, x, -0x1.5e8b3027dc656p-6);
    p = TGC_FMA(p, x, 0x1.6821e881e6bd7p-6);
    p = TGC_FMA(p, x, 0x1.d776a7b9d065ap-9);
    p = TGC_FMA(p, x, 0x1.622bae8c664c5p-7);
    p = TGC_FMA(p, x, 0x1.755c11bb34d07p-7);
    p = TGC_FMA(p, x, 0x1.ca2477f289e12p-7);
    p = TGC_FMA(p, x, 0x1.1c49bd9285f7dp-6);
    p = TGC_FMA(p, x, 0x1.6e8be19a9d295p-6);
    p = TGC_FMA(p, x, 0x1.f1c71a7d1d525p-6);
    p = TGC_FMA(p, x, 0x1.6db6db724f542p-5);
    p = TGC_FMA(p, x, 0x1.333333332dc50p-4);
    p = TGC_FMA(p, x, 0x1.5555555555579p-3);
    return p;
}

/* erf(x) = x + x P(x^2), |x| <= 1 */
TGC_INLINE double tgc_poly_erf_f64(double x) {
    double p = 0x1.3b6eaae3ef2a0p-42;
    p = TGC_FMA(p, x, -0x1.b3cdc101e694ap-38);
    p = TGC_FMA(p, x, 0x1.9a03184347759p-34);
    p = TGC_FMA(p, x, -0x1.517b687141c0ap-30);
    p = TGC_FMA(p, x, 0x1.fcbaf85a63985p-27);
    p = TGC_FMA(p, x, -0x1.5f73c0cba0675p-23);
    p = TGC_FMA(p, x, 0x1.b9e6c35746188p-20);
    p = TGC_FMA(p, x, -0x1.f4d25bf6da31cp-17);
    p = TGC_FMA(p, x, 0x1.f9a326f79260fp-14);
    p = TGC_FMA(p, x, -0x1.c02db400354ffp-11);
    p = TGC_FMA(p, x, 0x1.565bcd0e6a2c6p-8);
    p = TGC_FMA(p, x, -0x1.b82ce31288b47p-6);
    p = TGC_FMA(p, x, 0x1.ce2f21a042be2p-4);
    p = TGC_FMA(p, x, -0x1.812746b0379e7p-2);
    p = TGC_FMA(p, x, 0x1.06eba8214db69p-3);
    return p;
}

/* erfc(x) = exp(-x^2) P(t) / (x + 4), t = (x - 4) / (x + 4), 0.74 <= x <= 27.3 */
TGC_INLINE double tgc_poly_erfc_f64(double x, double *low) {
    double p = -0x1.85456dff1e1bap-27;
    p = TGC_FMA(p, x, 0x1.95d68bddfe096p-31);
    p = TGC_FMA(p, x, 0x1.f934ac5b1d18dp-24);
    p = TGC_FMA(p, x, -0x1.416f935608bfdp-24);
    p = TGC_FMA(p, x, -0x1.c363e72b28d22p-21);
    p = TGC_FMA(p, x, 0x1.7e1870900569ap-20);
    p = TGC_FMA(p, x, 0x1.3adb866cc3158p-18);
    p = TGC_FMA(p, x, -0x1.3c6d090ce0de4p-16);
    p = TGC_FMA(p, x, -0x1.e7cb4eaed339fp-19);
    p = TGC_FMA(p, x, 0x1.72cd95e7fa7b6p-13);
    p = TGC_FMA(p, x, -0x1.dd285149f7bd1p-12);
    p = TGC_FMA(p, x, -0x1.269b5076f7877p-12);
    p = TGC_FMA(p, x, 0x1.908f473c1fdc7p-8);
    p = TGC_FMA(p, x, -0x1.b00c052cf1aa5p-6);
    p = TGC_FMA(p, x, 0x1.38dbd2c8c737ap-4);
    p = TGC_FMA(p, x, -0x1.645fd8a4bab00p-3);
    p = TGC_FMA(p, x, 0x1.52cac2371052ep-2);
    p = TGC_FMA(p, x, -0x1.14eacb1ad0361p-1);
    p = TGC_FMA(p, x, 0x1.8be202d26c6ffp-1);
    p = TGC_FMA(p, x, -0x1.f3fe31ecb49bfp-1);
    double lost, product = tgc_two_product_f64(p, x, &lost);
    p = tgc_two_sum_f64(0x1.18932bf08e154p+0, product, low);
    *low += lost + TGC_FMA(0x1.bd46b485402fcp-58, x, 0x1.10ef7af69c0fap-54);
    return p;
}

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE double tgc_poly_exp_d32(double x) {
    double p = 0x1.9f07d61aeabb9p-13;
    p = TGC_FMA(p, x, 0x1.6d8db3155a7c9p-10);
    p = TGC_FMA(p, x, 0x1.11127224bd9dfp-7);
    p = TGC_FMA(p, x, 0x1.55548d0c91903p-5);
    p = TGC_FMA(p, x, 0x1.55555441a78c8p-3);
    p = TGC_FMA(p, x, 0x1.0000003a74b6ep-1);
    return p;
}

/* log(1 + f) = s (2 + s^2 P(s^2)), s = f / (2 + f) */
TGC_INLINE double tgc_poly_log_d32(double x) {
    double p = 0x1.31e42183b8bf9p-2;
    p = TGC_FMA(p, x, 0x1.995eb3ddfa094p-2);
    p = TGC_FMA(p, x, 0x1.55557a25d5647p-1);
    return p;
}

/* sin(r) = r + r^3 P(r^2), |r| <= 0.7933 */
TGC_INLINE double tgc_poly_sin_d32(double x) {
    double p = 0x1.6cb80579f1e76p-19;
    p = TGC_FMA(p, x, -0x1.a00f11d3c44a4p-13);
    p = TGC_FMA(p, x, 0x1.111107e1c87e4p-7);
    p = TGC_FMA(p, x, -0x1.5555554bb472ep-3);
    return p;
}

/* cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4 */
TGC_INLINE double tgc_poly_cos_d32(double x) {
    double p = 0x1.99cb69e67e209p-16;
    p = TGC_FMA(p, x, -0x1.6c0bc404d79b8p-10);
    p = TGC_FMA(p, x, 0x1.5555495be27d4p-5);
    return p;
}

/* sinh(r) = r + r^3 P(r^2), |r| <= 1.001 */
TGC_INLINE double tgc_poly_sinh_d32(double x) {
    double p = 0x1.7a19faf3cdb4fp-19;
    p = TGC_FMA(p, x, 0x1.9ffe75dcb5ba7p-13);
    p = TGC_FMA(p, x, 0x1.1111353406492p-7);
    p = TGC_FMA(p, x, 0x1.5555551abf00cp-3);
    return p;
}

/* erf(x) = x + x P(x^2), |x| <= 0.75 */
TGC_INLINE float tgc_poly_erf_small_f32(float x) {
    float p = -0x1.61c9a00000000p-11f;
    p = TGC_FMAF(p, x, 0x1.4f291e0000000p-8f);
    p = TGC_FMAF(p, x, -0x1.b7a8320000000p-6f);
    p = TGC_FMAF(p, x, 0x1.ce2ac20000000p-4f);
    p = TGC_FMAF(p, x, -0x1.81273a0000000p-2f);
    p = TGC_FMAF(p, x, 0x1.06eba80000000p-3f);
    return p;
}

/* erfc(x) = exp(-x^2 - 1.25 - P(x - 1.75)), 0.749 <= x <= 3 */
TGC_INLINE float tgc_poly_erfc_near_f32(float x) {
    float p = -0x1.8f17ac0000000p-24f;
    p = TGC_FMAF(p, x, 0x1.f475140000000p-22f);
    p = TGC_FMAF(p, x, -0x1.020f080000000p-20f);
    p = TGC_FMAF(p, x, -0x1.e120c20000000p-21f);
    p = TGC_FMAF(p, x, 0x1.8f9f4c0000000p-16f);
    p = TGC_FMAF(p, x, -0x1.6dedb20000000p-13f);
    p = TGC_FMAF(p, x, 0x1.f972340000000p-11f);
    p = TGC_FMAF(p, x, -0x1.2f19980000000p-8f);
    p = TGC_FMAF(p, x, 0x1.50822c0000000p-6f);
    p = TGC_FMAF(p, x, -0x1.70e2940000000p-4f);
    p = TGC_FMAF(p, x, 0x1.d6a43e0000000p-2f);
    p = TGC_FMAF(p, x, 0x1.5f81060000000p-8f);
    return p;
}

/* erfc(x) = exp(-x^2 - 2.5 - P(x - 6.5)), 3 <= x <= 10.1 */
TGC_INLINE float tgc_poly_erfc_far_f32(float x) {
    float p = 0x1.4d29d80000000p-35f;
    p = TGC_FMAF(p, x, -0x1.874b900000000p-32f);
    p = TGC_FMAF(p, x, 0x1.f9e4000000000p-30f);
    p = TGC_FMAF(p, x, -0x1.164b0a0000000p-26f);
    p = TGC_FMAF(p, x, 0x1.5a96b20000000p-23f);
    p = TGC_FMAF(p, x, -0x1.7cfdf20000000p-20f);
    p = TGC_FMAF(p, x, 0x1.a1c3860000000p-17f);
    p = TGC_FMAF(p, x, -0x1.d80c000000000p-14f);
    p = TGC_FMAF(p, x, 0x1.16c20a0000000p-10f);
    p = TGC_FMAF(p, x, -0x1.6aad640000000p-7f);
    p = TGC_FMAF(p, x, 0x1.3406a40000000p-3f);
    p = TGC_FMAF(p, x, -0x1.6b26560000000p-5f);
    return p;
}

/* lgamma(x) = (x - 1) (x - 2) P(x - 2), 1 <= x <= 3 */
TGC_INLINE double tgc_poly_lgamma_d32(double x) {
    double p = 0x1.471ce8a67f897p-18;
    p = TGC_FMA(p, x, -0x1.44bb52223d06dp-17);
    p = TGC_FMA(p, x, 0x1.2dd3d9afe489ep-19);
    p = TGC_FMA(p, x, -0x1.e8a8686f305ecp-18);
    p = TGC_FMA(p, x, 0x1.6ea2a0d022266p-15);
    p = TGC_FMA(p, x, -0x1.80c3d4b340fc0p-14);
    p = TGC_FMA(p, x, 0x1.7914dffc1c8fdp-13);
    p = TGC_FMA(p, x, -0x1.a5823d4e297f0p-12);
    p = TGC_FMA(p, x, 0x1.e04d5b05e8041p-11);
    p = TGC_FMA(p, x, -0x1.146c57b0daa81p-9);
    p = TGC_FMA(p, x, 0x1.4795b6b0c460ap-8);
    p = TGC_FMA(p, x, -0x1.95cd7cb09046ep-7);
    p = TGC_FMA(p, x, 0x1.0e0ca06494050p-5);
    p = TGC_FMA(p, x, -0x1.9ae6512f66217p-4);
    p = TGC_FMA(p, x, 0x1.b0ee607169cb2p-2);
    return p;
}

/* lgamma(x) = (x - 1 / 2) log(x) - x + log(2 pi) / 2 + P(1 / x^2) / x, x >= 3 */
TGC_INLINE double tgc_poly_stirling_d32(double x) {
    double p = 0x1.09f8441a2f6f4p-11;
    p = TGC_FMA(p, x, -0x1.29b0b14b8049dp-11);
    p = TGC_FMA(p, x, 0x1.9f9447cf246edp-11);
    p = TGC_FMA(p, x, -0x1.6c1651773cda0p-9);
    p = TGC_FMA(p, x, 0x1.55555553702b3p-4);
    return p;
}

/* sin(pi r) / pi = r P(r^2), |r| <= 1 / 2 */
TGC_INLINE double tgc_poly_sin_pi_d32(double x) {
    double p = -0x1.24f95ef1de644p-9;
    p = TGC_FMA(p, x, 0x1.abe3474352fbdp-6);
    p = TGC_FMA(p, x, -0x1.86a6b053ba1bfp-3);
    p = TGC_FMA(p, x, 0x1.9f9cab77092a2p-1);
    p = TGC_FMA(p, x, -0x1.a51a660ca309dp+0);
    p = TGC_FMA(p, x, 0x1.ffffffffd13f8p-1);
    return p;
}

/* 1.0 erfinv(x) / x = c + w P(w - 2.5), w = -log(1 - x^2) <= 5.05 */
TGC_INLINE float tgc_poly_erfinv_f32(float x) {
    float z = x * x, p = -0x1.2ad5800000000p-27f;
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.84569e0000000p-25f, x, 0x1.79f0520000000p-22f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.239a820000000p-18f, x, 0x1.8c3d700000000p-18f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.aaf6a00000000p-13f, x, -0x1.cdd39c0000000p-10f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.dbe5dc0000000p-13f, x, 0x1.f7f51c0000000p-3f));
    return p;
}

/* 1.0 (erfinv(x) / x - u) = P(u - 3), u = sqrt(w), 2.2 <= u <= 4.2 */
TGC_INLINE float tgc_poly_erfinv_tail_f32(float x) {
    float z = x * x, p = TGC_FMAF(0x1.af92200000000p-14f, x, -0x1.3ba6060000000p-12f);
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.0bec080000000p-15f, x, 0x1.81d5d60000000p-10f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.d9a0860000000p-9f, x, 0x1.7517580000000p-8f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.f442920000000p-8f, x, 0x1.357a4e0000000p-7f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.b703840000000p-10f, x, -0x1.5610400000000p-3f));
    return p;
}

/* 1.4142 erfinv(x) / x = c + w P(w - 2.5), w = -log(1 - x^2) <= 5.05 */
TGC_INLINE float tgc_poly_ndtri_f32(float x) {
    float z = x * x, p = TGC_FMAF(0x1.0a424e0000000p-31f, x, -0x1.d09f540000000p-27f);
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.fcdd260000000p-25f, x, 0x1.1194ae0000000p-21f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.9b76720000000p-18f, x, 0x1.1708520000000p-17f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.2de5340000000p-12f, x, -0x1.468e860000000p-9f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.50834a0000000p-12f, x, 0x1.645a0a0000000p-2f));
    return p;
}

/* 1.4142 (erfinv(x) / x - u) = P(u - 3), u = sqrt(w), 2.2 <= u <= 4.2 */
TGC_INLINE float tgc_poly_ndtri_tail_f32(float x) {
    float z = x * x, p = TGC_FMAF(0x1.312aa80000000p-13f, x, -0x1.be64fa0000000p-12f);
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.7ae6200000000p-15f, x, 0x1.10d3a60000000p-9f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.4ee7a80000000p-8f, x, 0x1.07d0b80000000p-7f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.61bcbe0000000p-7f, x, 0x1.b5aaea0000000p-7f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.366eca0000000p-9f, x, -0x1.e3c02c0000000p-3f));
    return p;
}

/* 1.4142 (erfinv(x) / x - u) = P(u - 7), u = sqrt(w), 4.15 <= u <= 10.2 */
TGC_INLINE float tgc_poly_ndtri_far_f32(float x) {
    float z = x * x, p = 0x1.4d9e820000000p-26f;
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.13b3de0000000p-23f, x, 0x1.9ebe460000000p-22f));
    p = TGC_FMAF(p, z, TGC_FMAF(-0x1.fe9f9a0000000p-20f, x, 0x1.268f8a0000000p-17f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.07fecc0000000p-17f, x, -0x1.7c49600000000p-11f));
    p = TGC_FMAF(p, z, TGC_FMAF(0x1.8e5a6e0000000p-7f, x, -0x1.7b5bec0000000p-3f));
    return p;
}

#endif

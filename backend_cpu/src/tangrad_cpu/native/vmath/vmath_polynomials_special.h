/* Minimax polynomials of vmath_special.c: written by render/minimax_special.py. */
#ifndef TGC_VMATH_POLYNOMIALS_SPECIAL_H
#define TGC_VMATH_POLYNOMIALS_SPECIAL_H

#include "vmath_bits.h"

/* J0(x) = (x^2 - z1) (x^2 - z2) P(x^2 / 32 - 1), |x| <= 8 */
TGC_INLINE double tgc_poly_j0_d32(double x) {
    double p = 0x1.56ece06e29147p-33;
    p = TGC_FMA(p, x, -0x1.82b21b171509fp-29);
    p = TGC_FMA(p, x, 0x1.57a60d1ffa01dp-25);
    p = TGC_FMA(p, x, -0x1.f62fe4c14b2d4p-22);
    p = TGC_FMA(p, x, 0x1.250f1250ad809p-18);
    p = TGC_FMA(p, x, -0x1.08db6c7e78f91p-15);
    p = TGC_FMA(p, x, 0x1.6409a7aa6a1c3p-13);
    p = TGC_FMA(p, x, -0x1.5059ea679e199p-11);
    p = TGC_FMA(p, x, 0x1.99e6510241803p-10);
    p = TGC_FMA(p, x, -0x1.15d87e4b83c95p-9);
    p = TGC_FMA(p, x, 0x1.2bc29174e7518p-10);
    return p;
}

/* J1(x) = x (x^2 - z1) (x^2 - z2) P(x^2 / 32 - 1), |x| <= 8 */
TGC_INLINE double tgc_poly_j1_d32(double x) {
    double p = 0x1.aeb488fcd899bp-38;
    p = TGC_FMA(p, x, -0x1.02d295ce4e643p-33);
    p = TGC_FMA(p, x, 0x1.f648c23874df8p-30);
    p = TGC_FMA(p, x, -0x1.9417a32c8534dp-26);
    p = TGC_FMA(p, x, 0x1.06436f0c241bdp-22);
    p = TGC_FMA(p, x, -0x1.0af8bdbd4263fp-19);
    p = TGC_FMA(p, x, 0x1.9ac778dbaa68fp-17);
    p = TGC_FMA(p, x, -0x1.c5a7fc34176b8p-15);
    p = TGC_FMA(p, x, 0x1.4c9bd11b7b0b9p-13);
    p = TGC_FMA(p, x, -0x1.1adb1329f252dp-12);
    p = TGC_FMA(p, x, 0x1.98ec1eee7e9dbp-13);
    return p;
}

/* Y0(x) = 2 / pi (log(x) J0(x)) + P(x^2 / 32 - 1), x <= 8 */
TGC_INLINE double tgc_poly_y0_d32(double x) {
    double p = -0x1.5c766d0501777p-22;
    p = TGC_FMA(p, x, 0x1.68b1c9e6b8642p-18);
    p = TGC_FMA(p, x, -0x1.314f36c0b45e8p-14);
    p = TGC_FMA(p, x, 0x1.a69fcca4b68c9p-11);
    p = TGC_FMA(p, x, -0x1.cc706cc006776p-8);
    p = TGC_FMA(p, x, 0x1.7bd6d4bb9db20p-5);
    p = TGC_FMA(p, x, -0x1.c06cc620ed2edp-3);
    p = TGC_FMA(p, x, 0x1.582797ac924cfp-1);
    p = TGC_FMA(p, x, -0x1.13da2b158c8abp+0);
    p = TGC_FMA(p, x, 0x1.272bb3e85df3dp-3);
    p = TGC_FMA(p, x, 0x1.a5a81d662fec2p+0);
    p = TGC_FMA(p, x, -0x1.a828bfc04fa73p-1);
    p = TGC_FMA(p, x, -0x1.876cb72f1d46fp-2);
    return p;
}

/* Y1(x) = 2 / pi (log(x) J1(x) - 1 / x) + x P(x^2 / 32 - 1), x <= 8 */
TGC_INLINE double tgc_poly_y1_d32(double x) {
    double p = -0x1.c72883b7ce1fap-27;
    p = TGC_FMA(p, x, 0x1.01c34127fc09cp-22);
    p = TGC_FMA(p, x, -0x1.e34ca4bbb0ae8p-19);
    p = TGC_FMA(p, x, 0x1.76bbfd7a475bbp-15);
    p = TGC_FMA(p, x, -0x1.d16056b125ee0p-12);
    p = TGC_FMA(p, x, 0x1.c097c8926b2dcp-9);
    p = TGC_FMA(p, x, -0x1.4198f91f4b509p-6);
    p = TGC_FMA(p, x, 0x1.41bb68f968f41p-4);
    p = TGC_FMA(p, x, -0x1.923952d804faep-3);
    p = TGC_FMA(p, x, 0x1.e16d7a1eec59fp-3);
    p = TGC_FMA(p, x, 0x1.7edab3152c9abp-6);
    p = TGC_FMA(p, x, -0x1.f26fddcec120bp-3);
    p = TGC_FMA(p, x, 0x1.21d516f81ab36p-4);
    return p;
}

/* P of Hankel's expansion of order 0, x >= 8, in 64 / x^2 */
TGC_INLINE double tgc_poly_hankel_p0_d32(double x) {
    double p = 0x1.c1a3301d789cdp-23;
    p = TGC_FMA(p, x, -0x1.1647b6138c403p-19);
    p = TGC_FMA(p, x, 0x1.cac641b28efd3p-16);
    p = TGC_FMA(p, x, -0x1.1fffb8074bf77p-10);
    p = TGC_FMA(p, x, 0x1.ffffffff516fdp-1);
    return p;
}

/* x Q of Hankel's expansion of order 0, x >= 8, in 64 / x^2 */
TGC_INLINE double tgc_poly_hankel_q0_d32(double x) {
    double p = -0x1.9189982d2810fp-21;
    p = TGC_FMA(p, x, 0x1.99261a290c9dfp-18);
    p = TGC_FMA(p, x, -0x1.cfcc770cacac1p-15);
    p = TGC_FMA(p, x, 0x1.2bfec78682f6cp-10);
    p = TGC_FMA(p, x, -0x1.ffffffe88adfcp-4);
    return p;
}

/* P of Hankel's expansion of order 1, x >= 8, in 64 / x^2 */
TGC_INLINE double tgc_poly_hankel_p1_d32(double x) {
    double p = -0x1.020c3345410f5p-22;
    p = TGC_FMA(p, x, 0x1.49d6e2ccbc7a3p-19);
    p = TGC_FMA(p, x, -0x1.26f9fff641dc7p-15);
    p = TGC_FMA(p, x, 0x1.dfffaf65396e1p-10);
    p = TGC_FMA(p, x, 0x1.0000000061d74p+0);
    return p;
}

/* x Q of Hankel's expansion of order 1, x >= 8, in 64 / x^2 */
TGC_INLINE double tgc_poly_hankel_q1_d32(double x) {
    double p = 0x1.c65523d4c5417p-21;
    p = TGC_FMA(p, x, -0x1.d9ab626e08ce8p-18);
    p = TGC_FMA(p, x, 0x1.1b81fc3c76f23p-14);
    p = TGC_FMA(p, x, -0x1.a3fea55f93757p-10);
    p = TGC_FMA(p, x, 0x1.7ffffff97d1ddp-2);
    return p;
}

/* I1(x) = x P(x^2 / 32 - 1), |x| <= 8 */
TGC_INLINE double tgc_poly_i1_d32(double x) {
    double p = 0x1.c2e030f94a0b6p-18;
    p = TGC_FMA(p, x, 0x1.b52b717cfb9d1p-14);
    p = TGC_FMA(p, x, 0x1.45e8b261eab06p-10);
    p = TGC_FMA(p, x, 0x1.8ccedeb617ff9p-7);
    p = TGC_FMA(p, x, 0x1.7ed72e0d83795p-4);
    p = TGC_FMA(p, x, 0x1.1bcb333d85dcep-1);
    p = TGC_FMA(p, x, 0x1.36ebce681e776p+1);
    p = TGC_FMA(p, x, 0x1.dd563dcf7464ep+2);
    p = TGC_FMA(p, x, 0x1.da991ae125946p+3);
    p = TGC_FMA(p, x, 0x1.0b7995af8195ap+4);
    p = TGC_FMA(p, x, 0x1.f8c62328469d6p+2);
    return p;
}

/* I1(x) = exp(x) P(8 / x) / sqrt(x), x >= 8 */
TGC_INLINE double tgc_poly_i1_large_d32(double x) {
    double p = -0x1.34042aa4b6304p-18;
    p = TGC_FMA(p, x, 0x1.13b54099d4ec4p-17);
    p = TGC_FMA(p, x, -0x1.933a4897efecdp-17);
    p = TGC_FMA(p, x, -0x1.4c49d210f7f53p-17);
    p = TGC_FMA(p, x, -0x1.537878c236465p-14);
    p = TGC_FMA(p, x, -0x1.7eeb30399076dp-11);
    p = TGC_FMA(p, x, -0x1.3263449750a00p-6);
    p = TGC_FMA(p, x, 0x1.9884533e00b74p-2);
    return p;
}

/* digamma(x) = (x - root) P(x - 2), 1 <= x <= 3 */
TGC_INLINE double tgc_poly_digamma_d32(double x) {
    double p = 0x1.2b2bfd2f52113p-16;
    p = TGC_FMA(p, x, -0x1.1de0a7a59deb9p-15);
    p = TGC_FMA(p, x, -0x1.007cc01c6078cp-17);
    p = TGC_FMA(p, x, 0x1.2ac61412a2ac7p-17);
    p = TGC_FMA(p, x, 0x1.e265c4949f01dp-14);
    p = TGC_FMA(p, x, -0x1.cd4b6ca8b2304p-13);
    p = TGC_FMA(p, x, 0x1.4cd34067ba398p-12);
    p = TGC_FMA(p, x, -0x1.52b05882be079p-11);
    p = TGC_FMA(p, x, 0x1.65c42452edba9p-10);
    p = TGC_FMA(p, x, -0x1.68483192b8851p-9);
    p = TGC_FMA(p, x, 0x1.6bca0b8311fa3p-8);
    p = TGC_FMA(p, x, -0x1.737d155445a99p-7);
    p = TGC_FMA(p, x, 0x1.8029a59a9e54cp-6);
    p = TGC_FMA(p, x, -0x1.95ec46f945c55p-5);
    p = TGC_FMA(p, x, 0x1.be76b14957f2ap-4);
    p = TGC_FMA(p, x, -0x1.0aff26e4dc5fap-2);
    p = TGC_FMA(p, x, 0x1.9213d4676bffbp-1);
    return p;
}

/* digamma(x) = log(x) - 1 / (2 x) - P(1 / x^2) / x^2, x >= 3 */
TGC_INLINE double tgc_poly_digamma_tail_d32(double x) {
    double p = 0x1.0f52fab05c234p-8;
    p = TGC_FMA(p, x, -0x1.fe339de37465bp-9);
    p = TGC_FMA(p, x, 0x1.036ba470f50c4p-8);
    p = TGC_FMA(p, x, -0x1.1110000b9eb25p-7);
    p = TGC_FMA(p, x, 0x1.55555542fee99p-4);
    return p;
}

/* trigamma(x) = P(x - 2), 1 <= x <= 3 */
TGC_INLINE double tgc_poly_trigamma_d32(double x) {
    double p = 0x1.3b4f4492148b3p-14;
    p = TGC_FMA(p, x, -0x1.36ecbcca9f59dp-13);
    p = TGC_FMA(p, x, -0x1.362711c6b6e53p-14);
    p = TGC_FMA(p, x, 0x1.5a014a05b5f08p-13);
    p = TGC_FMA(p, x, 0x1.9a6f2917886e2p-12);
    p = TGC_FMA(p, x, -0x1.98418aeaefe7dp-11);
    p = TGC_FMA(p, x, 0x1.6a16c491f4f8dp-11);
    p = TGC_FMA(p, x, -0x1.4283375baea93p-10);
    p = TGC_FMA(p, x, 0x1.67f5ed117c99ap-9);
    p = TGC_FMA(p, x, -0x1.4a5776253edd0p-8);
    p = TGC_FMA(p, x, 0x1.250d234115403p-7);
    p = TGC_FMA(p, x, -0x1.06dce3e7b3671p-6);
    p = TGC_FMA(p, x, 0x1.d3a2c1406a4fep-6);
    p = TGC_FMA(p, x, -0x1.9a6861ec0c00fp-5);
    p = TGC_FMA(p, x, 0x1.632f951ed98d3p-4);
    p = TGC_FMA(p, x, -0x1.2e830729a6fa7p-3);
    p = TGC_FMA(p, x, 0x1.f9cb3ffb491edp-3);
    p = TGC_FMA(p, x, -0x1.9dd002a77e4a6p-2);
    p = TGC_FMA(p, x, 0x1.4a34cc4a86e34p-1);
    return p;
}

/* trigamma(x) = 1 / x + 1 / (2 x^2) + P(1 / x^2) / x^3, x >= 3 */
TGC_INLINE double tgc_poly_trigamma_tail_d32(double x) {
    double p = -0x1.597f6dd1d10e6p-4;
    p = TGC_FMA(p, x, 0x1.f04060bd4047bp-5);
    p = TGC_FMA(p, x, -0x1.0b01cfa61a188p-5);
    p = TGC_FMA(p, x, 0x1.85cf99cd63cdcp-6);
    p = TGC_FMA(p, x, -0x1.1110befc5d716p-5);
    p = TGC_FMA(p, x, 0x1.5555554dc0060p-3);
    return p;
}

/* cos(pi r) = P(r^2), |r| <= 1 / 2 */
TGC_INLINE double tgc_poly_cos_pi_d32(double x) {
    double p = -0x1.8fb6bd1493193p-6;
    p = TGC_FMA(p, x, 0x1.e126e63b71cbep-3);
    p = TGC_FMA(p, x, -0x1.55d074bb7c9a0p+0);
    p = TGC_FMA(p, x, 0x1.03c1e412c5a81p+2);
    p = TGC_FMA(p, x, -0x1.3bd3cc57cc4b9p+2);
    p = TGC_FMA(p, x, 0x1.fffffffe1adcdp-1);
    return p;
}

/* (1 + 2 x) exp(x^2) erfc(x) = P((x - 4) / (x + 4)), x >= 0 */
TGC_INLINE double tgc_poly_erfcx_d32(double x) {
    double p = -0x1.3dfa9ad44e795p-17;
    p = TGC_FMA(p, x, -0x1.20c61c97a8e26p-17);
    p = TGC_FMA(p, x, 0x1.3507c04ef1a20p-13);
    p = TGC_FMA(p, x, -0x1.ce573ff60d381p-13);
    p = TGC_FMA(p, x, -0x1.8babd8ef0b290p-11);
    p = TGC_FMA(p, x, 0x1.4ac782a1ae095p-8);
    p = TGC_FMA(p, x, -0x1.0969083af8e4dp-6);
    p = TGC_FMA(p, x, 0x1.306d3617211a8p-5);
    p = TGC_FMA(p, x, -0x1.0faff01142b92p-4);
    p = TGC_FMA(p, x, 0x1.7fef4eb02395ep-4);
    p = TGC_FMA(p, x, -0x1.9ddb35f30b172p-4);
    p = TGC_FMA(p, x, 0x1.16ecd15d5cc3cp-4);
    p = TGC_FMA(p, x, 0x1.f7f5e79567c74p-7);
    p = TGC_FMA(p, x, -0x1.1df1acae761fdp-3);
    p = TGC_FMA(p, x, 0x1.3ba5916e781d2p+0);
    return p;
}

#endif

/* float16, by float32 panels. */
#define HP_TYPE f16
#define HP_ROUND tgc_f32_to_f16
#include "half_product.h"

int TGC(tgc_gemm_f16)(const tgc_gemm *g)
{
    static const char op[] = "product of float16 matrices";
    int handled, status = thin_half(g, op, &handled);
    if (handled)
        return status;
    tgc_engine engine = fitted(&widening, g);
    return TGC(tgc_gemm_engine)(&engine, g, op);
}

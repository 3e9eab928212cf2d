/* complex64. */
#define CX_NAME c64
#define CX_T float
#define CX_V tgc_vf
#define CX_FMA tgc_fma_f
#include "complex.h"

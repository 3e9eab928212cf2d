/* complex128. */
#define CX_NAME c128
#define CX_T double
#define CX_V tgc_vd
#define CX_FMA tgc_fma_d
#include "complex.h"

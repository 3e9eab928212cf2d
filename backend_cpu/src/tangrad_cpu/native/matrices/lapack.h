/* Routines of the LAPACK behind NumPy, whose addresses _kernels.pyx enters, for float32 and float64. */
#ifndef TANGRAD_CPU_LAPACK_H
#define TANGRAD_CPU_LAPACK_H

typedef struct tgc_lapack {
    void *syevd[2], *gesdd[2];
} tgc_lapack;

#endif

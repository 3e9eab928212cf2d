/* Routines of the LAPACK behind NumPy, whose addresses _kernels.pyx enters, for float32 and float64. */
#ifndef TANGRAD_CPU_LAPACK_H
#define TANGRAD_CPU_LAPACK_H

typedef struct tgc_lapack {
    void *syevd[2], *gesdd[2], *geev[2], *gelsy[2], *sytrf[2];
    int (*threads)(void); /* how many the library uses; NULL where it does not tell */
    void (*set_threads)(int);
} tgc_lapack;

#endif

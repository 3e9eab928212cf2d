/* Loops that reach the machine's limits. Each runs for about `seconds` and returns its work per
 * second of the thread's own time, which other programs on the machine do not lengthen. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

enum { LANES = 16, CHAINS = 12, STEPS = 4096, BETWEEN_CLOCKS = 1 << 20 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `x` is aligned to a vector, `count` counts floats. */
double limit_read(const float *x, long count, double seconds) {
  const vector *a = (const vector *)x;
  long vectors = count / LANES, nbytes = vectors * (long)sizeof *a;
  volatile float sink;
  double started = now(), passed, work = 0;
  do {
    for (long done = 0; done < BETWEEN_CLOCKS; done += nbytes) {
      vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
      for (long i = 0; i + 4 <= vectors; i += 4) {
        s0 += a[i], s1 += a[i + 1], s2 += a[i + 2], s3 += a[i + 3];
      }
      s0 += s1 + s2 + s3;
      sink = s0[0];
      __asm__ volatile("" : : "r"(a) : "memory");
      work += (double)nbytes;
    }
    passed = now() - started;
  } while (passed < seconds);
  (void)sink;
  return work / passed;
}

/* Adds the first third of `x` to the second, into the last. */
double limit_add(float *x, long count, double seconds) {
  long third = count / 3 / LANES * LANES;
  float *restrict a = x, *restrict b = x + third, *restrict c = x + 2 * third;
  double nbytes = 3.0 * (double)third * (double)sizeof *x;
  double started = now(), passed, work = 0;
  do {
    for (double done = 0; done < BETWEEN_CLOCKS; done += nbytes) {
      for (long i = 0; i < third; i++) c[i] = a[i] + b[i];
      __asm__ volatile("" : : "r"(c) : "memory");
      work += nbytes;
    }
    passed = now() - started;
  } while (passed < seconds);
  return work / passed;
}

double limit_fma(float *unused, long count, double seconds) {
  vector s[CHAINS], x = {0}, y = {0};
  volatile float sink;
  (void)unused, (void)count;
  for (int k = 0; k < CHAINS; k++) s[k] = x + (float)k;
  x += 0.999f, y += 0.001f;
  double started = now(), passed, work = 0;
  do {
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; k++) s[k] = s[k] * x + y;
    }
    work += 2.0 * LANES * CHAINS * STEPS;
    passed = now() - started;
  } while (passed < seconds);
  for (int k = 1; k < CHAINS; k++) s[0] += s[k];
  sink = s[0][0];
  (void)sink;
  return work / passed;
}

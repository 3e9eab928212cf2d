/* Loops that reach the machine's limits. Each runs for about `seconds` and returns the work done
 * divided by the share of the call's time that the loop took, so that preparation does not count. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>

enum { LANES = 16, CHAINS = 12, STEPS = 4096, BETWEEN_CLOCKS = 1 << 20 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double scaled(double work, double entered, double started) {
  double end = now();
  return work * (end - entered) / (end - started);
}

static float *ones(long count) {
  float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
  for (long i = 0; x && i < count; i++) x[i] = 1;
  return x;
}

double limit_read(long nbytes, double seconds) {
  double entered = now();
  long count = nbytes / (long)sizeof(vector);
  const vector *a = (const vector *)ones(count * LANES);
  volatile float sink;
  double started = now(), work = 0;
  while (a && now() - started < seconds) {
    for (long done = 0; done < BETWEEN_CLOCKS; done += nbytes) {
      vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
      for (long i = 0; i + 4 <= count; i += 4) {
        s0 += a[i], s1 += a[i + 1], s2 += a[i + 2], s3 += a[i + 3];
      }
      s0 += s1 + s2 + s3;
      sink = s0[0];
      __asm__ volatile("" : : "r"(a) : "memory");
      work += (double)nbytes;
    }
  }
  (void)sink;
  work = scaled(work, entered, started);
  free((void *)a);
  return work;
}

double limit_add(long nbytes, double seconds) {
  double entered = now();
  long count = nbytes / 3 / (long)sizeof(float);
  float *restrict a = ones(count), *restrict b = ones(count), *restrict c = ones(count);
  double started = now(), work = 0;
  while (a && b && c && now() - started < seconds) {
    for (long done = 0; done < BETWEEN_CLOCKS; done += nbytes) {
      for (long i = 0; i < count; i++) c[i] = a[i] + b[i];
      __asm__ volatile("" : : "r"(c) : "memory");
      work += 3.0 * (double)count * (double)sizeof(float);
    }
  }
  work = scaled(work, entered, started);
  free(a), free(b), free(c);
  return work;
}

double limit_fma(long unused, double seconds) {
  double entered = now();
  vector s[CHAINS], x = {0}, y = {0};
  volatile float sink;
  (void)unused;
  for (int k = 0; k < CHAINS; k++) s[k] = x + (float)k;
  x += 0.999f, y += 0.001f;
  double started = now(), work = 0;
  while (now() - started < seconds) {
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; k++) s[k] = s[k] * x + y;
    }
    work += 2.0 * LANES * CHAINS * STEPS;
  }
  for (int k = 1; k < CHAINS; k++) s[0] += s[k];
  sink = s[0][0];
  (void)sink;
  return scaled(work, entered, started);
}

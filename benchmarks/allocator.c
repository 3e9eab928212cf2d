/* Times the caching allocator's cached path, alone and while the process has a second thread. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/memory/allocator.h"

enum { ROUNDS = 1000000, REPEATS = 5 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double best_cached(tg_allocator *a, size_t nbytes) {
  double best = 1e30;
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    double start = now();
    for (int i = 0; i < ROUNDS; i++) {
      tg_block *block;
      if (tg_allocate(a, nbytes, 0, &block)) return -1;
      tg_release(a, block);
    }
    double each = (now() - start) / ROUNDS;
    if (each < best) best = each;
  }
  return best;
}

/* A result of many MB, written once: what reuse saves is the page faults. */
static double best_written(tg_allocator *a, size_t nbytes, int cached) {
  double best = 1e30;
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    tg_block *block;
    if (!cached) tg_empty_cache(a);
    double start = now();
    if (tg_allocate(a, nbytes, 0, &block)) return -1;
    memset((void *)(uintptr_t)(block->handle + block->offset), repeat, nbytes);
    tg_release(a, block);
    double each = now() - start;
    if (each < best) best = each;
  }
  return best;
}

static void *sleep_on(void *unused) {
  for (;;) pause();
  return unused;
}

int main(void) {
  static const size_t sizes[] = {64, 4096, 1 << 20, 16 << 20, 256 << 20};
  tg_driver host = tg_host_driver();
  tg_allocator *a = tg_allocator_new(&host, NULL);
  pthread_t thread;
  for (int threads = 1; threads <= 2; threads++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      printf("allocate + release, %10zu bytes, %d thread%s: %6.1f ns\n", sizes[i], threads,
             threads > 1 ? "s" : "", best_cached(a, sizes[i]));
    if (threads == 1 && pthread_create(&thread, NULL, sleep_on, NULL)) return 1;
  }
  for (int cached = 0; cached < 2; cached++)
    printf("allocate + write 64 MiB + release, %s: %8.2f ms\n", cached ? "cached" : "mapped",
           best_written(a, (size_t)64 << 20, cached) / 1e6);
  return 0;
}

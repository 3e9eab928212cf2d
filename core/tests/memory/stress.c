/* Threads on one allocator, whose driver fails now and then: run under a sanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/memory/allocator.h"

enum { THREADS = 4, HELD = 200, ROUNDS = 20000 };

#define REQUIRE(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort(); \
    } \
  } while (0)

static atomic_long calls, segments, events, closed;

static int fails(void) { return atomic_fetch_add(&calls, 1) % 17 == 0; }

/* The allocator's own structures come from here: see the macro in test_allocator_sanitizers.py. */
void *stress_calloc(size_t count, size_t size);

void *stress_calloc(size_t count, size_t size) {
  static atomic_long structures;
  long serial = atomic_fetch_add(&structures, 1);
  if (serial > 10 && serial % 3 == 0) return NULL;
  void *memory = malloc(count * size);
  return memory ? memset(memory, 0, count * size) : NULL;
}

static int allocate(void *ctx, size_t nbytes, tg_handle *out) {
  tg_driver *host = ctx;
  if (fails()) return atomic_load(&calls) % 2 ? TG_ENOMEM : TG_EDRIVER;
  atomic_fetch_add(&segments, 1);
  return host->allocate(host->ctx, nbytes, out);
}

static void release(void *ctx, tg_handle handle, size_t nbytes) {
  tg_driver *host = ctx;
  atomic_fetch_sub(&segments, 1);
  host->release(host->ctx, handle, nbytes);
}

static int record_event(void *ctx, uint64_t stream, uint64_t *event) {
  (void)ctx;
  if (fails()) return TG_EDRIVER;
  atomic_fetch_add(&events, 1);
  *event = stream;
  return TG_OK;
}

static int query_event(void *ctx, uint64_t event) {
  (void)ctx;
  (void)event;
  return fails() ? TG_EDRIVER : atomic_load(&calls) % 3 == 0;
}

static int synchronize_event(void *ctx, uint64_t event) {
  (void)ctx;
  (void)event;
  return fails() ? TG_EDRIVER : TG_OK;
}

static void destroy_event(void *ctx, uint64_t event) {
  (void)ctx;
  (void)event;
  atomic_fetch_sub(&events, 1);
}

static void close_driver(void *ctx) {
  (void)ctx;
  atomic_fetch_add(&closed, 1);
}

typedef struct work {
  tg_allocator *allocator, *other;
  unsigned seed;
} work;

static void release_checked(work *w, tg_block *block) {
  unsigned char *memory = (unsigned char *)(uintptr_t)(block->handle + block->offset);
  REQUIRE(memory[0] == memory[block->requested - 1]);
  REQUIRE(tg_release(w->other, block) == TG_EFOREIGN);
  int rc = tg_release(w->allocator, block);
  REQUIRE(rc == TG_OK || rc == TG_EDRIVER);
}

static tg_block *allocate_marked(work *w) {
  tg_block *block = NULL;
  size_t nbytes = 1 + (size_t)rand_r(&w->seed) % ((size_t)1 << (1 + rand_r(&w->seed) % 22));
  int rc = tg_allocate(w->allocator, nbytes, (uint64_t)rand_r(&w->seed) % 3, &block);
  REQUIRE(rc == TG_OK || rc == TG_ENOMEM || rc == TG_EDRIVER);
  if (rc != TG_OK) return NULL;
  REQUIRE(block->size >= nbytes);
  unsigned char *memory = (unsigned char *)(uintptr_t)(block->handle + block->offset);
  memory[0] = memory[nbytes - 1] = (unsigned char)rand_r(&w->seed);
  tg_set_holder(block, "stress");
  if (rand_r(&w->seed) % 4) return block;
  rc = tg_use_on_stream(w->allocator, block, (uint64_t)rand_r(&w->seed) % 3);
  REQUIRE(rc == TG_OK || rc == TG_ENOMEM);
  return block;
}

static void *run(void *argument) {
  work *w = argument;
  tg_block *held[HELD] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    int i = rand_r(&w->seed) % HELD;
    if (held[i]) release_checked(w, held[i]);
    held[i] = held[i] ? NULL : allocate_marked(w);
    if (round % 5000 == 0) tg_empty_cache(w->allocator);
  }
  for (int i = 0; i < HELD; i++)
    if (held[i]) release_checked(w, held[i]);
  return NULL;
}

static void release_twice(tg_allocator *a) {
  tg_block *block;
  while (tg_allocate(a, 5000000, 0, &block) != TG_OK) {
  }
  REQUIRE(tg_release(a, block) == TG_OK);
  REQUIRE(tg_release(a, block) == TG_ERELEASED);
  REQUIRE(tg_allocate(a, 0, 0, &block) == TG_OK);
  REQUIRE(tg_release(a, block) == TG_OK);
  REQUIRE(tg_release(a, block) == TG_ERELEASED);
}

int main(void) {
  tg_driver host = tg_host_driver();
  tg_driver driver = {&host,       allocate,          release,       record_event,
                      query_event, synchronize_event, destroy_event, close_driver};
  tg_allocator_options options = tg_allocator_default_options();
  options.small_segment = 64 << 10;
  options.large_segment = 1 << 20;
  options.max_cached = 8 << 20;
  options.limit = 512 << 20;
  work works[THREADS];
  pthread_t threads[THREADS];
  tg_allocator *a = tg_allocator_new(&driver, &options);
  tg_allocator *other = tg_allocator_new(&host, NULL);
  REQUIRE(a && other);
  release_twice(a);
  for (unsigned i = 0; i < THREADS; i++) {
    works[i] = (work){a, other, i + 1};
    REQUIRE(!pthread_create(&threads[i], NULL, run, &works[i]));
  }
  char account[2000];
  for (int i = 0; i < 2000; i++) REQUIRE(tg_allocator_account(a, account, sizeof account) > 0);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  tg_statistics stats;
  tg_allocator_stats(a, &stats);
  REQUIRE(stats.pool[TG_POOL_ALL].allocated_bytes.current == 0);
  REQUIRE(stats.pool[TG_POOL_ALL].segment.current == atomic_load(&segments));
  tg_block *last = NULL;
  while (tg_allocate(a, 100, 0, &last) != TG_OK) {
  }
  tg_allocator_destroy(a);
  REQUIRE(atomic_load(&closed) == 0);
  tg_release(last->owner, last);
  REQUIRE(atomic_load(&closed) == 1 && atomic_load(&segments) == 0 && atomic_load(&events) == 0);
  tg_allocator_destroy(other);
  puts("passed");
  return 0;
}

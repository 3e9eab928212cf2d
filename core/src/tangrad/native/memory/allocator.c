/* The caching allocator: segments from the driver, events, limits, and the life of an allocator.
 * See allocator.h for the contract, allocator_blocks.h for how memory is cut and reused.
 */
#include "allocator_blocks.h"

/* ---- segments; the functions from here on drop the mutex while the driver runs ---- */

static int fits_limit(const tg_allocator *a, size_t size) {
  size_t held = a->reserved + a->reserving;
  return held <= a->options.limit && size <= a->options.limit - held;
}

static tg_block *adopt_segment(tg_allocator *a, tg_segment *segment, tg_block *block,
                               tg_pool *pool) {
  segment->serial = ++a->serial;
  segment->first = block;
  ring_init(&segment->idle);
  ring_append(&a->segments, &segment->all);
  a->reserved += segment->size;
  a->cached += segment->size;
  note_segment(a, segment);
  block->handle = segment->handle;
  block->offset = 0;
  block->size = segment->size;
  block->pool = pool;
  block->segment = segment;
  block->previous = block->next = NULL;
  block->kind = segment->kind;
  return block;
}

static int grow(tg_allocator *a, tg_pool *pool, const request *r, size_t size, tg_block **out) {
  if (!fits_limit(a, size)) return TG_ENOMEM;
  tg_segment *segment = calloc(1, sizeof *segment);
  tg_block *block = segment ? block_new(a) : NULL;
  int rc = TG_ENOMEM;
  if (block) {
    a->reserving += size;
    pthread_mutex_unlock(&a->mutex);
    rc = a->driver.allocate(a->driver.ctx, size, &segment->handle);
    pthread_mutex_lock(&a->mutex);
    a->reserving -= size;
  }
  if (rc != TG_OK) {
    if (block) block_discard(a, block);
    free(segment);
    return rc == TG_ENOMEM ? TG_ENOMEM : TG_EDRIVER;
  }
  segment->size = size;
  segment->kind = (uint8_t)r->kind;
  *out = carve(a, adopt_segment(a, segment, block, pool), r);
  return TG_OK;
}

static void forget_segment(tg_allocator *a, tg_segment *segment) {
  withdraw_free(segment->first);
  block_discard(a, segment->first);
  ring_remove(&segment->all);
  a->reserved -= segment->size;
  a->cached -= segment->size;
  tg_counters *own = &a->counters[segment->kind];
  own->segments.out += 1;
  own->reserved.out += (int64_t)segment->size;
}

static void release_segments(tg_allocator *a, tg_link *ring) {
  while (!ring_empty(ring)) {
    tg_segment *segment = TG_ENTRY(ring->next, tg_segment, all);
    ring_remove(&segment->all);
    a->driver.release(a->driver.ctx, segment->handle, segment->size);
    free(segment);
  }
}

/* Gives idle segments back, the longest idle first, until at most `keep` bytes are cached. */
static void shrink_cache(tg_allocator *a, size_t keep) {
  tg_link given_back;
  if (a->cached <= keep) return;
  consolidate_all(a);
  ring_init(&given_back);
  while (a->cached > keep && !ring_empty(&a->idle)) {
    tg_segment *segment = TG_ENTRY(a->idle.next, tg_segment, idle);
    forget_segment(a, segment);
    ring_append(&given_back, &segment->all);
  }
  if (ring_empty(&given_back)) return;
  pthread_mutex_unlock(&a->mutex);
  release_segments(a, &given_back);
  pthread_mutex_lock(&a->mutex);
}

/* ---- events ---- */

static int record(const tg_allocator *a, tg_event *e) {
  if (e->recorded) return TG_OK;
  e->recorded = a->driver.record_event(a->driver.ctx, e->stream, &e->event) == TG_OK;
  return e->recorded ? TG_OK : TG_EDRIVER;
}

/* Returns 1 if the event has passed, 0 if not yet, or an error. */
static int poll_event(const tg_allocator *a, tg_event *e, int wait) {
  if (record(a, e) != TG_OK) return TG_EDRIVER;
  int passed = wait ? a->driver.synchronize_event(a->driver.ctx, e->event) == TG_OK ? 1 : TG_EDRIVER
                    : a->driver.query_event(a->driver.ctx, e->event);
  if (passed > 0 && a->driver.destroy_event) a->driver.destroy_event(a->driver.ctx, e->event);
  return passed;
}

static void append_pending(tg_allocator *a, tg_event *events) {
  *a->pending_end = events;
  while (*a->pending_end) a->pending_end = &(*a->pending_end)->next;
}

static void prepend_pending(tg_allocator *a, tg_event *events) {
  tg_event *later = a->pending;
  a->pending = NULL;
  a->pending_end = &a->pending;
  append_pending(a, events);
  append_pending(a, later);
}

static void finish_event(tg_allocator *a, tg_event *e) {
  tg_block *block = e->block;
  free(e);
  if (--block->events) return;
  note_pending(a, block, -1);
  a->cached += block->size;
  make_free(a, block);
}

typedef struct stream_set { /* streams known not to have passed; beyond its size it forgets */
  uint64_t streams[16];
  int count;
} stream_set;

static int stream_set_has(const stream_set *set, uint64_t stream) {
  for (int i = 0; i < set->count; i++)
    if (set->streams[i] == stream) return 1;
  return 0;
}

static void stream_set_add(stream_set *set, uint64_t stream) {
  if (set->count < 16) set->streams[set->count++] = stream;
}

/* Returns to the pools the blocks whose events have passed, waiting for them if `wait`. The first
 * error is returned, the events it concerns are kept for the next attempt. */
static int process_events(tg_allocator *a, int wait) {
  tg_event *stolen = a->pending, *kept = NULL, **kept_end = &kept, *passed = NULL;
  stream_set stuck = {.count = 0};
  int error = TG_OK;
  if (!stolen) return TG_OK;
  a->pending = NULL;
  a->pending_end = &a->pending;
  pthread_mutex_unlock(&a->mutex);
  while (stolen) {
    tg_event *e = stolen;
    stolen = e->next;
    int state = stream_set_has(&stuck, e->stream) ? 0 : poll_event(a, e, wait);
    if (state > 0) {
      e->next = passed;
      passed = e;
      continue;
    }
    if (state < 0) error = TG_EDRIVER;
    stream_set_add(&stuck, e->stream);
    *kept_end = e;
    kept_end = &e->next;
    e->next = NULL;
  }
  pthread_mutex_lock(&a->mutex);
  if (kept) prepend_pending(a, kept);
  while (passed) {
    tg_event *e = passed;
    passed = e->next;
    finish_event(a, e);
  }
  return error;
}

/* ---- life of an allocator ---- */

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static tg_allocator *registry;
static int64_t made;

/* A child of fork gets every allocator in a consistent state, with its mutex free. */
static void before_fork(void) {
  pthread_mutex_lock(&registry_mutex);
  for (tg_allocator *a = registry; a; a = a->next_allocator) pthread_mutex_lock(&a->mutex);
}

static void after_fork(void) {
  for (tg_allocator *a = registry; a; a = a->next_allocator) pthread_mutex_unlock(&a->mutex);
  pthread_mutex_unlock(&registry_mutex);
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

static void registry_add(tg_allocator *a) {
  pthread_once(&registry_once, watch_forks);
  pthread_mutex_lock(&registry_mutex);
  a->number = ++made;
  a->next_allocator = registry;
  a->previous_allocator = &registry;
  if (registry) registry->previous_allocator = &a->next_allocator;
  registry = a;
  pthread_mutex_unlock(&registry_mutex);
}

static void registry_remove(tg_allocator *a) {
  pthread_mutex_lock(&registry_mutex);
  *a->previous_allocator = a->next_allocator;
  if (a->next_allocator) a->next_allocator->previous_allocator = a->previous_allocator;
  pthread_mutex_unlock(&registry_mutex);
}

static void dispose(tg_allocator *a) {
  registry_remove(a);
  for (tg_event *e = a->pending, *next; e; e = next) {
    next = e->next;
    if (poll_event(a, e, 1) < 0 && e->recorded && a->driver.destroy_event)
      a->driver.destroy_event(a->driver.ctx, e->event);
    free(e);
  }
  release_segments(a, &a->segments);
  if (a->driver.close) a->driver.close(a->driver.ctx);
  for (tg_slab *slab = a->slabs, *next; slab; slab = next) {
    next = slab->next;
    free(slab);
  }
  for (tg_pool *pool = a->pools, *next; pool; pool = next) {
    next = pool->next;
    free(pool);
  }
  pthread_mutex_destroy(&a->mutex);
  free(a);
}

static int needed(const tg_allocator *a) {
  return a->open || a->busy || a->zero_live || current(&a->counters[TG_POOL_SMALL].blocks) ||
         current(&a->counters[TG_POOL_LARGE].blocks);
}

/* Between enter and leave the allocator stays, even if its last block goes meanwhile. What may
 * have been added to the cache beyond its bound is given back on leaving. */
static void enter(tg_allocator *a) { a->busy++; }

static void leave(tg_allocator *a) {
  shrink_cache(a, a->options.max_cached);
  a->busy--;
  int last = !needed(a);
  pthread_mutex_unlock(&a->mutex);
  if (last) dispose(a);
}

tg_allocator_options tg_allocator_default_options(void) {
  return (tg_allocator_options){.alignment = 64,
                                .small_segment = HUGE_PAGE,
                                .large_segment = 32 * MIB,
                                .limit = SIZE_MAX,
                                .max_cached = SIZE_MAX,
                                .max_split = SIZE_MAX};
}

static int sensible(const tg_driver *d, const tg_allocator_options *o) {
  size_t largest = REQUEST_MAX / 4;
  int events = !!d->record_event + !!d->query_event + !!d->synchronize_event;
  return d->allocate && d->release && (events == 0 || events == 3) && o->alignment >= 64 &&
         o->alignment <= FINE_MAX && !(o->alignment & (o->alignment - 1)) && o->small_segment &&
         o->small_segment <= largest && o->large_segment && o->large_segment <= largest &&
         o->max_split >= larger(o->small_segment, o->large_segment);
}

static unsigned log2_of(size_t power) {
  unsigned shift = 0;
  while (power >> (shift + 1)) shift++;
  return shift;
}

static void derive_sizes(tg_allocator *a) {
  tg_allocator_options *o = &a->options;
  a->fine_shift = log2_of(o->alignment);
  a->coarse_shift = log2_of(larger(o->alignment, 512));
  a->fine_bins = (int32_t)(FINE_MAX >> a->fine_shift);
  a->bins = a->fine_bins + (int32_t)((SMALL_MAX - FINE_MAX) >> a->coarse_shift);
  a->large_granule = larger(LARGE_GRANULE, o->alignment);
  o->small_segment = round_up(o->small_segment, larger(o->alignment, 512));
  o->large_segment = round_up(o->large_segment, a->large_granule);
  o->max_split = larger(o->max_split, larger(o->small_segment, o->large_segment));
  a->small_max = smaller(SMALL_MAX, o->small_segment);
}

tg_allocator *tg_allocator_new(const tg_driver *driver, const tg_allocator_options *options) {
  tg_allocator_options defaults = tg_allocator_default_options();
  if (!options) options = &defaults;
  if (!driver || !sensible(driver, options)) return NULL;
  tg_allocator *a = calloc(1, sizeof *a);
  if (!a) return NULL;
  a->options = *options;
  derive_sizes(a);
  if (!pool_get(a, 0) || pthread_mutex_init(&a->mutex, NULL)) {
    free(a->pools);
    free(a);
    return NULL;
  }
  a->driver = *driver;
  ring_init(&a->segments);
  ring_init(&a->idle);
  a->pending_end = &a->pending;
  a->random = 2463534242u;
  a->zero.owner = a;
  a->zero.state = TG_BLOCK_LIVE;
  a->open = 1;
  registry_add(a);
  return a;
}

void tg_allocator_destroy(tg_allocator *a) {
  if (!a) return;
  pthread_mutex_lock(&a->mutex);
  enter(a);
  a->open = 0;
  a->options.max_cached = 0;
  leave(a);
}

int64_t tg_allocator_number(const tg_allocator *a) { return a->number; }

/* ---- watching ---- */

static struct {
  tg_changed changed;
  void *context;
} watches[4];
static int watching; /* how many of them there are; read without the registry's mutex */

static void tell(const tg_allocator *a, int sign, const tg_block *block) {
  int64_t allocated = current(&a->counters[TG_POOL_SMALL].bytes) +
                      current(&a->counters[TG_POOL_LARGE].bytes);
  for (int i = 0; i < 4; i++) {
    tg_changed changed = __atomic_load_n(&watches[i].changed, __ATOMIC_ACQUIRE);
    if (changed) changed(watches[i].context, a, sign, block, allocated);
  }
}

static inline int watched(void) {
  return __builtin_expect(__atomic_load_n(&watching, __ATOMIC_RELAXED), 0);
}

int tg_watch(tg_changed changed, void *context) {
  int rc = TG_ENOMEM;
  pthread_mutex_lock(&registry_mutex);
  for (int i = 0; i < 4 && rc != TG_OK; i++)
    if (!watches[i].changed) {
      watches[i].context = context;
      __atomic_store_n(&watches[i].changed, changed, __ATOMIC_RELEASE);
      __atomic_fetch_add(&watching, 1, __ATOMIC_RELAXED);
      rc = TG_OK;
    }
  pthread_mutex_unlock(&registry_mutex);
  return rc;
}

int tg_unwatch(tg_changed changed, void *context) {
  int rc = TG_EINVAL;
  pthread_mutex_lock(&registry_mutex);
  for (int i = 0; i < 4 && rc != TG_OK; i++)
    if (watches[i].changed == changed && watches[i].context == context) {
      __atomic_store_n(&watches[i].changed, NULL, __ATOMIC_RELEASE);
      __atomic_fetch_sub(&watching, 1, __ATOMIC_RELAXED);
      rc = TG_OK;
    }
  for (tg_allocator *a = registry; a; a = a->next_allocator) { /* until calls have returned */
    pthread_mutex_lock(&a->mutex);
    pthread_mutex_unlock(&a->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
  return rc;
}

/* ---- allocating and releasing ---- */

static int obtain(tg_allocator *a, tg_pool *pool, const request *r, tg_block **out) {
  int rc = process_events(a, 0);
  if (rc != TG_OK) return rc;
  if ((*out = take_cached(a, pool, r))) return TG_OK;
  size_t size = segment_size(a, r);
  rc = grow(a, pool, r, size, out);
  if (rc != TG_ENOMEM) return rc;
  a->retries++;
  int stuck = process_events(a, 1);
  if ((*out = take_cached(a, pool, r))) return TG_OK;
  shrink_cache(a, 0);
  rc = grow(a, pool, r, size, out);
  if (rc == TG_ENOMEM && r->size < size) rc = grow(a, pool, r, r->size, out);
  if (rc != TG_ENOMEM) return rc;
  return stuck != TG_OK ? stuck : TG_ENOMEM;
}

static inline tg_block *make_live(tg_allocator *a, tg_block *block, size_t nbytes) {
  block->state = TG_BLOCK_LIVE;
  block->requested = nbytes;
  tg_set_holder(block, NULL);
  a->cached -= block->size;
  note_live(a, block);
  if (watched()) tell(a, 1, block);
  return block;
}

static int allocate_slowly(tg_allocator *a, size_t nbytes, uint64_t stream, tg_block **out) {
  int rc = TG_ENOMEM;
  tg_block *block = NULL;
  enter(a);
  if (nbytes <= REQUEST_MAX) {
    request r = request_of(a, nbytes);
    tg_pool *pool = pool_get(a, stream);
    if (pool) rc = obtain(a, pool, &r, &block);
  }
  if (rc == TG_OK) *out = make_live(a, block, nbytes);
  if (rc == TG_ENOMEM) a->ooms++;
  leave(a);
  return rc;
}

int tg_allocate(tg_allocator *a, size_t nbytes, uint64_t stream, tg_block **out) {
  if (!a || !out) return TG_EINVAL;
  pthread_mutex_lock(&a->mutex);
  if (!nbytes) {
    a->zero_live++;
    *out = &a->zero;
    pthread_mutex_unlock(&a->mutex);
    return TG_OK;
  }
  if (nbytes <= a->small_max) {
    tg_pool *pool = a->recent->stream == stream ? a->recent : pool_find(a, stream);
    tg_block *block = pool ? unpark(pool, bin_of(a, nbytes)) : NULL;
    if (block) {
      a->recent = pool;
      *out = make_live(a, block, nbytes);
      pthread_mutex_unlock(&a->mutex);
      return TG_OK;
    }
  }
  return allocate_slowly(a, nbytes, stream, out);
}

/* Until its events have passed the block belongs to nobody. */
static int release_after_events(tg_allocator *a, tg_block *block) {
  tg_event *events = block->uses;
  int rc = TG_OK;
  block->uses = NULL;
  block->state = TG_BLOCK_PENDING;
  note_pending(a, block, 1);
  pthread_mutex_unlock(&a->mutex);
  for (tg_event *e = events; e; e = e->next)
    if (record(a, e) != TG_OK) rc = TG_EDRIVER;
  pthread_mutex_lock(&a->mutex);
  append_pending(a, events);
  return rc;
}

static int release_slowly(tg_allocator *a, tg_block *block) {
  int rc = TG_OK;
  enter(a);
  if (block->uses) {
    rc = release_after_events(a, block);
  } else {
    a->cached += block->size;
    make_free(a, block);
  }
  leave(a);
  return rc;
}

static int release_zero(tg_allocator *a) {
  if (!a->zero_live) {
    pthread_mutex_unlock(&a->mutex);
    return TG_ERELEASED;
  }
  enter(a);
  a->zero_live--;
  leave(a);
  return TG_OK;
}

int tg_release(tg_allocator *a, tg_block *block) {
  if (!a || !block) return TG_EINVAL;
  if (block->owner != a) return TG_EFOREIGN;
  pthread_mutex_lock(&a->mutex);
  if (block == &a->zero) return release_zero(a);
  if (block->state != TG_BLOCK_LIVE) {
    pthread_mutex_unlock(&a->mutex);
    return TG_ERELEASED;
  }
  note_dead(a, block);
  if (watched()) tell(a, -1, block);
  if (block->uses || block->bin < 0 || a->cached + block->size > a->options.max_cached)
    return release_slowly(a, block);
  a->cached += block->size;
  park(block);
  pthread_mutex_unlock(&a->mutex);
  return TG_OK;
}

static int add_use(tg_block *block, uint64_t stream) {
  for (tg_event *e = block->uses; e; e = e->next)
    if (e->stream == stream) return TG_OK;
  tg_event *e = calloc(1, sizeof *e);
  if (!e) return TG_ENOMEM;
  e->block = block;
  e->stream = stream;
  e->next = block->uses;
  block->uses = e;
  block->events++;
  return TG_OK;
}

int tg_use_on_stream(tg_allocator *a, tg_block *block, uint64_t stream) {
  if (!a || !block) return TG_EINVAL;
  if (block->owner != a) return TG_EFOREIGN;
  if (block == &a->zero) return TG_OK;
  int rc = TG_OK;
  pthread_mutex_lock(&a->mutex);
  if (block->state != TG_BLOCK_LIVE)
    rc = TG_ERELEASED;
  else if (block->pool->stream != stream)
    rc = a->driver.record_event ? add_use(block, stream) : TG_EINVAL;
  pthread_mutex_unlock(&a->mutex);
  return rc;
}

/* ---- limits ---- */

int tg_empty_cache(tg_allocator *a) {
  if (!a) return TG_EINVAL;
  pthread_mutex_lock(&a->mutex);
  enter(a);
  int rc = process_events(a, 1);
  shrink_cache(a, 0);
  leave(a);
  return rc;
}

int tg_set_limit(tg_allocator *a, size_t bytes) {
  if (!a) return TG_EINVAL;
  pthread_mutex_lock(&a->mutex);
  enter(a);
  a->options.limit = bytes;
  if (a->reserved > bytes) {
    size_t excess = a->reserved - bytes;
    shrink_cache(a, a->cached > excess ? a->cached - excess : 0);
  }
  leave(a);
  return TG_OK;
}

int tg_set_max_cached(tg_allocator *a, size_t bytes) {
  if (!a) return TG_EINVAL;
  pthread_mutex_lock(&a->mutex);
  enter(a);
  a->options.max_cached = bytes;
  leave(a);
  return TG_OK;
}

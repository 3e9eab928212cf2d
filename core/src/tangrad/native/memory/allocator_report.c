/* What the caching allocator tells about itself. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator_private.h"

static int64_t current(const tg_flow *flow) { return flow->in - flow->out; }

static tg_segment *first_segment(const tg_allocator *a) {
  return a->segments.next == &a->segments ? NULL : TG_ENTRY(a->segments.next, tg_segment, all);
}

static tg_segment *next_segment(const tg_allocator *a, const tg_segment *segment) {
  return segment->all.next == &a->segments ? NULL : TG_ENTRY(segment->all.next, tg_segment, all);
}

static tg_block *next_block(const tg_allocator *a, const tg_block *block) {
  if (block->next) return block->next;
  tg_segment *segment = next_segment(a, block->segment);
  return segment ? segment->first : NULL;
}

static tg_block *first_block(const tg_allocator *a) {
  tg_segment *segment = first_segment(a);
  return segment ? segment->first : NULL;
}

static const char *holder_of(const tg_block *block) {
  return __atomic_load_n(&block->holder, __ATOMIC_RELAXED);
}

static int is_free(const tg_block *block) {
  return block->state == TG_BLOCK_FREE || block->state == TG_BLOCK_PARKED;
}

/* ---- statistics ---- */

static tg_statistic of_flow(const tg_flow *flow) {
  return (tg_statistic){current(flow), flow->peak, flow->in, flow->out};
}

static tg_statistic of_active(const tg_flow *flow, int64_t pending, int64_t peak) {
  return (tg_statistic){current(flow) + pending, peak, flow->in, flow->out - pending};
}

static void fill_pool(tg_pool_statistics *out, const tg_counters *c) {
  out->allocation = of_flow(&c->blocks);
  out->allocated_bytes = of_flow(&c->bytes);
  out->requested_bytes = of_flow(&c->requested);
  out->segment = of_flow(&c->segments);
  out->reserved_bytes = of_flow(&c->reserved);
  out->active = of_active(&c->blocks, c->pending_blocks, c->active_peak);
  out->active_bytes = of_active(&c->bytes, c->pending_bytes, c->active_bytes_peak);
}

/* Sums what the pools have; the peaks of the sum are counted on their own. */
static tg_counters total_counters(const tg_allocator *a) {
  tg_counters total = a->counters[TG_POOL_ALL];
  for (int kind = TG_POOL_SMALL; kind <= TG_POOL_LARGE; kind++) {
    const tg_counters *c = &a->counters[kind];
    const tg_flow *from[] = {&c->blocks, &c->bytes, &c->requested, &c->segments, &c->reserved};
    tg_flow *to[] = {&total.blocks, &total.bytes, &total.requested, &total.segments,
                     &total.reserved};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
      to[i]->in += from[i]->in;
      to[i]->out += from[i]->out;
    }
    total.pending_blocks += c->pending_blocks;
    total.pending_bytes += c->pending_bytes;
  }
  return total;
}

static void count_splits(const tg_allocator *a, tg_statistics *out) {
  for (tg_block *block = first_block(a); block; block = next_block(a, block)) {
    if (!is_free(block) || (!block->previous && !block->next)) continue;
    for (int pool = TG_POOL_ALL; pool <= block->kind; pool += block->kind) {
      out->pool[pool].inactive_split++;
      out->pool[pool].inactive_split_bytes += (int64_t)block->size;
    }
  }
}

static void gather(const tg_allocator *a, tg_statistics *out) {
  tg_counters total = total_counters(a);
  *out = (tg_statistics){.num_alloc_retries = a->retries,
                         .num_ooms = a->ooms,
                         .num_device_alloc = total.segments.in,
                         .num_device_free = total.segments.out,
                         .limit = a->options.limit,
                         .max_cached = a->options.max_cached,
                         .max_split = a->options.max_split};
  fill_pool(&out->pool[TG_POOL_ALL], &total);
  fill_pool(&out->pool[TG_POOL_SMALL], &a->counters[TG_POOL_SMALL]);
  fill_pool(&out->pool[TG_POOL_LARGE], &a->counters[TG_POOL_LARGE]);
  count_splits(a, out);
}

void tg_allocator_stats(tg_allocator *a, tg_statistics *out) {
  pthread_mutex_lock(&a->mutex);
  gather(a, out);
  pthread_mutex_unlock(&a->mutex);
}

void tg_reset_peak(tg_allocator *a) {
  pthread_mutex_lock(&a->mutex);
  tg_counters total = total_counters(a);
  tg_counters *now[] = {&total, &a->counters[TG_POOL_SMALL], &a->counters[TG_POOL_LARGE]};
  for (int pool = TG_POOL_ALL; pool < TG_POOL_COUNT; pool++) {
    tg_counters *c = &a->counters[pool];
    c->blocks.peak = current(&now[pool]->blocks);
    c->bytes.peak = current(&now[pool]->bytes);
    c->requested.peak = current(&now[pool]->requested);
    c->segments.peak = current(&now[pool]->segments);
    c->reserved.peak = current(&now[pool]->reserved);
    c->active_peak = c->blocks.peak + now[pool]->pending_blocks;
    c->active_bytes_peak = c->bytes.peak + now[pool]->pending_bytes;
  }
  pthread_mutex_unlock(&a->mutex);
}

/* ---- snapshot ---- */

static tg_snapshot_row row_of(const tg_block *block) {
  int live = block->state == TG_BLOCK_LIVE;
  return (tg_snapshot_row){.handle = block->handle,
                           .segment_size = block->segment->size,
                           .offset = block->offset,
                           .size = block->size,
                           .requested = live ? block->requested : 0,
                           .segment = block->segment->serial,
                           .stream = block->pool->stream,
                           .holder = live ? holder_of(block) : NULL,
                           .state = block->state,
                           .kind = block->kind};
}

int tg_allocator_snapshot(tg_allocator *a, tg_snapshot_row **rows, size_t *count) {
  if (!a || !rows || !count) return TG_EINVAL;
  size_t n = 0;
  pthread_mutex_lock(&a->mutex);
  for (tg_block *block = first_block(a); block; block = next_block(a, block)) n++;
  tg_snapshot_row *row = malloc((n ? n : 1) * sizeof *row);
  *rows = row;
  *count = n;
  if (row)
    for (tg_block *block = first_block(a); block; block = next_block(a, block))
      *row++ = row_of(block);
  pthread_mutex_unlock(&a->mutex);
  return *rows ? TG_OK : TG_ENOMEM;
}

/* ---- account ---- */

typedef struct text { /* grows as snprintf does: what does not fit is counted only */
  char *buffer;
  size_t size, length;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format, ...) {
  va_list arguments;
  size_t room = t->length < t->size ? t->size - t->length : 0;
  va_start(arguments, format);
  int written = vsnprintf(room ? t->buffer + t->length : NULL, room, format, arguments);
  va_end(arguments);
  if (written > 0) t->length += (size_t)written;
}

static void say_bytes(text *t, double bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    unit++;
  }
  say(t, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
}

typedef struct holding { /* the live blocks of one size with one holder */
  const char *holder;
  size_t size, count;
} holding;

enum { HOLDINGS = 64, HOLDINGS_SHOWN = 8 };

typedef struct survey {
  holding holdings[HOLDINGS];
  int count;
  size_t cached, largest_free;
} survey;

static int smallest_holding(const survey *s) {
  int least = 0;
  for (int i = 1; i < s->count; i++)
    if (s->holdings[i].size < s->holdings[least].size) least = i;
  return least;
}

/* There is no memory to be had for this: more than HOLDINGS kinds make room by block size. */
static void survey_live(survey *s, const tg_block *block) {
  const char *holder = holder_of(block);
  int i = 0;
  while (i < s->count &&
         (s->holdings[i].size != block->size || s->holdings[i].holder != holder))
    i++;
  if (i == HOLDINGS) {
    i = smallest_holding(s);
    if (s->holdings[i].size >= block->size) return;
    s->holdings[i] = (holding){holder, block->size, 0};
  } else if (i == s->count) {
    s->holdings[s->count++] = (holding){holder, block->size, 0};
  }
  s->holdings[i].count++;
}

static int by_total(const void *x, const void *y) {
  const holding *p = x, *q = y;
  size_t m = p->size * p->count, n = q->size * q->count;
  return (m < n) - (m > n);
}

static survey survey_blocks(const tg_allocator *a) {
  survey s = {.count = 0};
  for (tg_block *block = first_block(a); block; block = next_block(a, block)) {
    if (block->state == TG_BLOCK_LIVE) survey_live(&s, block);
    if (!is_free(block)) continue;
    s.cached += block->size;
    if (block->size > s.largest_free) s.largest_free = block->size;
  }
  qsort(s.holdings, (size_t)s.count, sizeof *s.holdings, by_total);
  return s;
}

static void say_holdings(text *t, const survey *s) {
  int shown = s->count < HOLDINGS_SHOWN ? s->count : HOLDINGS_SHOWN;
  if (shown) say(t, " Largest holders:");
  for (int i = 0; i < shown; i++) {
    const holding *h = &s->holdings[i];
    say(t, "%s %zu block%s of ", i ? "," : "", h->count, h->count == 1 ? "" : "s");
    say_bytes(t, (double)h->size);
    if (h->holder) say(t, " (%s)", h->holder);
  }
  if (shown) say(t, ".");
}

size_t tg_allocator_account(tg_allocator *a, char *buffer, size_t size) {
  text t = {buffer, size, 0};
  tg_statistics stats;
  if (size) *buffer = 0;
  pthread_mutex_lock(&a->mutex);
  gather(a, &stats);
  survey s = survey_blocks(a);
  const tg_pool_statistics *all = &stats.pool[TG_POOL_ALL];
  int64_t pending = all->active_bytes.current - all->allocated_bytes.current;
  say_bytes(&t, (double)all->allocated_bytes.current);
  say(&t, " allocated in %" PRId64 " blocks, ", all->allocation.current);
  say_bytes(&t, (double)s.cached);
  say(&t, " cached (largest free block ");
  say_bytes(&t, (double)s.largest_free);
  say(&t, ", fragmentation %.0f %%), ",
      s.cached ? 100.0 * (double)(s.cached - s.largest_free) / (double)s.cached : 0.0);
  if (pending) {
    say_bytes(&t, (double)pending);
    say(&t, " waiting for other streams, ");
  }
  say_bytes(&t, (double)all->reserved_bytes.current);
  say(&t, " reserved in %" PRId64 " segments, limit ", all->segment.current);
  if (a->options.limit == SIZE_MAX)
    say(&t, "none");
  else
    say_bytes(&t, (double)a->options.limit);
  say(&t, ".");
  say_holdings(&t, &s);
  pthread_mutex_unlock(&a->mutex);
  return t.length;
}

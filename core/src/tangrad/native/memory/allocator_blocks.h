/* The blocks of the caching allocator: sizes, bins, trees, splitting and coalescing, and the counts
 * that go with them. All under the allocator's mutex, none of it calls the driver. Static, because
 * the cached path is a few nanoseconds when it is inlined; only allocator.c includes it.
 *
 * Released blocks up to 1 MiB are parked, as they are, on a stack per size and stream: the next
 * request of that size costs a pop. When a request finds neither its stack nor a free block, the
 * parked blocks of the stream are coalesced first. Larger blocks coalesce at once. Free blocks are
 * kept in a treap (Seidel and Aragon, "Randomized Search Trees", Algorithmica 16, 1996), from which
 * the best fit with the lowest address is cut.
 */
#ifndef TANGRAD_ALLOCATOR_BLOCKS_H
#define TANGRAD_ALLOCATOR_BLOCKS_H

#include <stdlib.h>

#include "allocator_private.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define FINE_MAX (32 * KIB) /* up to here sizes differ by 64 bytes, up to SMALL_MAX by 512 */
#define SMALL_MAX MIB
#define HUGE_PAGE (2 * MIB)
#define LARGE_GRANULE (4 * KIB)
#define REQUEST_MAX ((size_t)PTRDIFF_MAX - 64 * MIB)
#define STATE_UNUSED 0

typedef struct request {
  size_t nbytes, size;
  int32_t bin;
  int kind;
} request;

/* ---- rings ---- */

static void ring_init(tg_link *ring) { ring->previous = ring->next = ring; }

static void ring_append(tg_link *ring, tg_link *link) {
  link->previous = ring->previous;
  link->next = ring;
  ring->previous->next = link;
  ring->previous = link;
}

static void ring_remove(tg_link *link) {
  link->previous->next = link->next;
  link->next->previous = link->previous;
  ring_init(link);
}

static int ring_empty(const tg_link *ring) { return ring->next == ring; }

/* ---- sizes ---- */

static size_t round_up(size_t n, size_t granule) { return (n + granule - 1) & ~(granule - 1); }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static inline int32_t bin_of(const tg_allocator *a, size_t nbytes) {
  if (nbytes <= FINE_MAX) return (int32_t)((nbytes - 1) >> a->fine_shift);
  return a->fine_bins + (int32_t)((nbytes - 1 - FINE_MAX) >> a->coarse_shift);
}

static size_t bin_size(const tg_allocator *a, int32_t bin) {
  if (bin < a->fine_bins) return (size_t)(bin + 1) << a->fine_shift;
  return FINE_MAX + ((size_t)(bin - a->fine_bins + 1) << a->coarse_shift);
}

static request request_of(const tg_allocator *a, size_t nbytes) {
  if (nbytes > a->small_max)
    return (request){nbytes, round_up(nbytes, a->large_granule), -1, TG_POOL_LARGE};
  int32_t bin = bin_of(a, nbytes);
  return (request){nbytes, bin_size(a, bin), bin, TG_POOL_SMALL};
}

/* Segments for several large blocks grow with what is held: where little is needed little is held
 * for nothing, and where much is, the driver is seldom asked. */
static size_t segment_size(const tg_allocator *a, const request *r) {
  size_t most = a->options.large_segment;
  if (r->kind == TG_POOL_SMALL) return larger(a->options.small_segment, r->size);
  size_t shared = smaller(most, round_up(larger(a->reserved / 8, 4 * MIB), HUGE_PAGE));
  if (r->size <= shared / 2) return shared;
  return most < HUGE_PAGE ? r->size : round_up(r->size, HUGE_PAGE);
}

/* ---- statistics ---- */

static inline void raise_peak(int64_t *peak, int64_t value) {
  if (value > *peak) *peak = value;
}

static inline int64_t current(const tg_flow *flow) { return flow->in - flow->out; }

static inline void flow_in(tg_flow *flow, int64_t amount, int64_t other, tg_flow *all) {
  flow->in += amount;
  int64_t value = current(flow);
  raise_peak(&flow->peak, value);
  raise_peak(&all->peak, value + other);
}

static inline void note_live(tg_allocator *a, const tg_block *block) {
  tg_counters *all = &a->counters[TG_POOL_ALL];
  tg_counters *own = &a->counters[block->kind];
  tg_counters *other = &a->counters[TG_POOL_SMALL + TG_POOL_LARGE - block->kind];
  flow_in(&own->blocks, 1, current(&other->blocks), &all->blocks);
  flow_in(&own->bytes, (int64_t)block->size, current(&other->bytes), &all->bytes);
  flow_in(&own->requested, (int64_t)block->requested, current(&other->requested), &all->requested);
  int64_t blocks = current(&own->blocks) + own->pending_blocks;
  int64_t bytes = current(&own->bytes) + own->pending_bytes;
  raise_peak(&own->active_peak, blocks);
  raise_peak(&own->active_bytes_peak, bytes);
  raise_peak(&all->active_peak, blocks + current(&other->blocks) + other->pending_blocks);
  raise_peak(&all->active_bytes_peak, bytes + current(&other->bytes) + other->pending_bytes);
}

static inline void note_dead(tg_allocator *a, const tg_block *block) {
  tg_counters *own = &a->counters[block->kind];
  own->blocks.out += 1;
  own->bytes.out += (int64_t)block->size;
  own->requested.out += (int64_t)block->requested;
}

static void note_pending(tg_allocator *a, const tg_block *block, int sign) {
  tg_counters *own = &a->counters[block->kind];
  own->pending_blocks += sign;
  own->pending_bytes += sign * (int64_t)block->size;
}

static void note_segment(tg_allocator *a, const tg_segment *segment) {
  tg_counters *all = &a->counters[TG_POOL_ALL];
  tg_counters *own = &a->counters[segment->kind];
  tg_counters *other = &a->counters[TG_POOL_SMALL + TG_POOL_LARGE - segment->kind];
  flow_in(&own->segments, 1, current(&other->segments), &all->segments);
  flow_in(&own->reserved, (int64_t)segment->size, current(&other->reserved), &all->reserved);
}

/* ---- metadata ---- */

static tg_block *block_new(tg_allocator *a) {
  if (!a->unused) {
    tg_slab *slab = calloc(1, sizeof *slab);
    if (!slab) return NULL;
    slab->next = a->slabs;
    a->slabs = slab;
    for (size_t i = 0; i < sizeof slab->blocks / sizeof *slab->blocks; i++) {
      slab->blocks[i].owner = a;
      slab->blocks[i].left = a->unused;
      a->unused = &slab->blocks[i];
    }
  }
  tg_block *block = a->unused;
  a->unused = block->left;
  return block;
}

/* The structure keeps its owner, so that a second release of it is told from a foreign block. */
static void block_discard(tg_allocator *a, tg_block *block) {
  block->state = STATE_UNUSED;
  block->left = a->unused;
  a->unused = block;
}

static tg_pool *pool_find(const tg_allocator *a, uint64_t stream) {
  tg_pool *pool = a->pools;
  while (pool && pool->stream != stream) pool = pool->next;
  return pool;
}

static tg_pool *pool_get(tg_allocator *a, uint64_t stream) {
  tg_pool *pool = pool_find(a, stream);
  if (!pool) {
    pool = calloc(1, sizeof *pool + (size_t)a->bins * sizeof *pool->bins);
    if (!pool) return NULL;
    pool->stream = stream;
    pool->next = a->pools;
    a->pools = pool;
  }
  return a->recent = pool;
}

/* ---- the tree of free blocks ---- */

static int ordered(const tg_block *x, const tg_block *y) {
  if (x->size != y->size) return x->size < y->size;
  if (x->segment != y->segment) return x->segment->serial < y->segment->serial;
  return x->offset < y->offset;
}

static void tree_insert(tg_allocator *a, tg_block *block) {
  tg_block **root = &block->pool->tree[block->kind];
  a->random ^= a->random << 13; /* Marsaglia, "Xorshift RNGs", J. Stat. Software 8, 2003 */
  a->random ^= a->random >> 17;
  a->random ^= a->random << 5;
  block->priority = a->random;
  while (*root && (*root)->priority >= block->priority)
    root = ordered(block, *root) ? &(*root)->left : &(*root)->right;
  tg_block *rest = *root, **below = &block->left, **above = &block->right;
  while (rest) {
    if (ordered(rest, block)) {
      *below = rest;
      below = &rest->right;
      rest = rest->right;
    } else {
      *above = rest;
      above = &rest->left;
      rest = rest->left;
    }
  }
  *below = *above = NULL;
  *root = block;
}

static void tree_remove(tg_block *block) {
  tg_block **root = &block->pool->tree[block->kind];
  while (*root != block) root = ordered(block, *root) ? &(*root)->left : &(*root)->right;
  tg_block *below = block->left, *above = block->right;
  while (below && above) {
    if (below->priority >= above->priority) {
      *root = below;
      root = &below->right;
      below = below->right;
    } else {
      *root = above;
      root = &above->left;
      above = above->left;
    }
  }
  *root = below ? below : above;
}

static tg_block *tree_best_fit(tg_block *root, size_t size) {
  tg_block *best = NULL;
  while (root) {
    if (root->size >= size) {
      best = root;
      root = root->left;
    } else {
      root = root->right;
    }
  }
  return best;
}

/* ---- free blocks: splitting and coalescing ---- */

static void withdraw_free(tg_block *block) {
  tree_remove(block);
  ring_remove(&block->segment->idle);
  block->state = STATE_UNUSED;
}

static void absorb_next(tg_allocator *a, tg_block *block) {
  tg_block *next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (next->next) next->next->previous = block;
  block_discard(a, next);
}

static void make_free(tg_allocator *a, tg_block *block) {
  if (block->next && block->next->state == TG_BLOCK_FREE) {
    withdraw_free(block->next);
    absorb_next(a, block);
  }
  if (block->previous && block->previous->state == TG_BLOCK_FREE) {
    block = block->previous;
    withdraw_free(block);
    absorb_next(a, block);
  }
  block->state = TG_BLOCK_FREE;
  tree_insert(a, block);
  if (!block->previous && !block->next) ring_append(&a->idle, &block->segment->idle);
}

static inline void park(tg_block *block) {
  tg_pool *pool = block->pool;
  block->state = TG_BLOCK_PARKED;
  block->left = pool->bins[block->bin];
  pool->bins[block->bin] = block;
  pool->parked_bytes += block->size;
}

static inline tg_block *unpark(tg_pool *pool, int32_t bin) {
  tg_block *block = pool->bins[bin];
  if (!block) return NULL;
  pool->bins[bin] = block->left;
  pool->parked_bytes -= block->size;
  return block;
}

static void consolidate(tg_allocator *a, tg_pool *pool) {
  tg_block *block;
  for (int32_t bin = 0; bin < a->bins && pool->parked_bytes; bin++)
    while ((block = unpark(pool, bin))) make_free(a, block);
}

static void consolidate_all(tg_allocator *a) {
  for (tg_pool *pool = a->pools; pool; pool = pool->next) consolidate(a, pool);
}

/* Cuts what is not needed off a block that is neither in a tree nor in a bin. Without memory for
 * another block structure the block stays whole. */
static tg_block *carve(tg_allocator *a, tg_block *block, const request *r) {
  size_t spare = block->size - r->size;
  tg_block *rest = spare && block->size <= a->options.max_split ? block_new(a) : NULL;
  if (rest) {
    rest->handle = block->handle;
    rest->pool = block->pool;
    rest->segment = block->segment;
    rest->kind = block->kind;
    rest->offset = block->offset + r->size;
    rest->size = spare;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next) rest->next->previous = rest;
    block->next = rest;
    block->size = r->size;
    make_free(a, rest);
  }
  block->bin = block->size == r->size ? r->bin : -1;
  return block;
}

static int worth_taking(const tg_allocator *a, const tg_block *block, const request *r) {
  if (block->size <= a->options.max_split) return 1;
  return r->size > a->options.max_split && block->size - r->size <= a->options.large_segment;
}

static tg_block *take_cached(tg_allocator *a, tg_pool *pool, const request *r) {
  tg_block *block = r->bin >= 0 ? unpark(pool, r->bin) : NULL;
  if (block) return block;
  block = tree_best_fit(pool->tree[r->kind], r->size);
  if (!block && r->kind == TG_POOL_SMALL && pool->parked_bytes >= r->size) {
    consolidate(a, pool);
    block = tree_best_fit(pool->tree[r->kind], r->size);
  }
  if (!block || !worth_taking(a, block, r)) return NULL;
  withdraw_free(block);
  return carve(a, block, r);
}

#endif

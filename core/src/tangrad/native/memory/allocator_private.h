/* What allocator.c and allocator_report.c share; nobody else includes it. */
#ifndef TANGRAD_ALLOCATOR_PRIVATE_H
#define TANGRAD_ALLOCATOR_PRIVATE_H

#include <pthread.h>

#include "allocator.h"

typedef struct tg_link { /* a ring; an empty one points to itself */
  struct tg_link *previous, *next;
} tg_link;

#define TG_ENTRY(link, type, member) ((type *)((char *)(link) - offsetof(type, member)))

struct tg_segment {
  tg_link all;  /* in tg_allocator.segments */
  tg_link idle; /* in tg_allocator.idle while one free block spans it, oldest first */
  tg_handle handle;
  size_t size;
  uint64_t serial;
  tg_block *first;
  uint8_t kind;
};

struct tg_event {
  tg_event *next;
  tg_block *block;
  uint64_t stream, event;
  int recorded; /* 0 until the driver has accepted record_event */
};

struct tg_pool { /* the free blocks of a stream */
  tg_pool *next;
  uint64_t stream;
  tg_block *tree[TG_POOL_COUNT]; /* by (size, segment, offset): smallest fit, lowest address */
  size_t parked_bytes;
  tg_block *bins[]; /* stacks of parked blocks: of one size, not coalesced */
};

typedef struct tg_flow { /* the current value is in - out */
  int64_t in, out, peak;
} tg_flow;

typedef struct tg_counters {
  tg_flow blocks, bytes, requested, segments, reserved;
  int64_t pending_blocks, pending_bytes; /* released, but waiting for an event */
  int64_t active_peak, active_bytes_peak;
} tg_counters;

typedef struct tg_slab {
  struct tg_slab *next;
  tg_block blocks[127];
} tg_slab;

struct tg_allocator {
  pthread_mutex_t mutex;
  tg_pool *pools, *recent;
  size_t cached; /* reserved bytes which are in no live or pending block */
  size_t reserved, reserving;
  tg_allocator_options options;
  unsigned fine_shift, coarse_shift;
  int32_t fine_bins, bins;
  size_t small_max, large_granule;
  tg_counters counters[TG_POOL_COUNT]; /* of TG_POOL_ALL only the peaks are used */
  int64_t retries, ooms;
  tg_driver driver;
  tg_link segments, idle;
  tg_event *pending, **pending_end;
  tg_block *unused; /* block structures without memory, linked by `left` */
  tg_slab *slabs;
  uint64_t serial;
  uint32_t random;
  tg_block zero; /* what requests of no bytes get */
  int64_t zero_live;
  int64_t busy; /* calls in progress that may have dropped the mutex */
  int open;
  int64_t number;
  tg_allocator *next_allocator, **previous_allocator; /* for fork */
};

#endif

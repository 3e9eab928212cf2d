/* The caching allocator: one implementation of memory reuse for every device.
 *
 * A device brings a raw driver (allocate, release, events). The allocator obtains segments from it,
 * cuts them into blocks, and keeps what is released for the next request of the same stream.
 *
 * Locking: every function may be called from any thread, with or without the GIL. The allocator's
 * mutex is never held while the driver runs, so a driver may take the GIL, and may itself (through
 * Python's garbage collector, say) release or allocate blocks of the same allocator.
 */
#ifndef TANGRAD_ALLOCATOR_H
#define TANGRAD_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_OK 0
#define TG_ENOMEM (-1)    /* no memory left, after pending events and the cache were given up */
#define TG_EDRIVER (-2)   /* a driver call failed for another reason than memory */
#define TG_EINVAL (-3)    /* an argument makes no sense: a null pointer, streams without events */
#define TG_ERELEASED (-4) /* the block is not live: it was released before */
#define TG_EFOREIGN (-5)  /* the block belongs to another allocator */

typedef uint64_t tg_handle; /* opaque; on the CPU a pointer */

typedef struct tg_driver {
  void *ctx;
  /* Returns TG_OK, TG_ENOMEM or TG_EDRIVER. */
  int (*allocate)(void *ctx, size_t nbytes, tg_handle *out);
  void (*release)(void *ctx, tg_handle handle, size_t nbytes);
  /* record_event and query_event are both NULL for a device without streams. */
  int (*record_event)(void *ctx, uint64_t stream, uint64_t *event);
  int (*query_event)(void *ctx, uint64_t event); /* 1 passed, 0 pending, negative: error */
  int (*synchronize_event)(void *ctx, uint64_t event);
  void (*destroy_event)(void *ctx, uint64_t event);
  /* Called once, after the allocator and its last block are gone. May be NULL. */
  void (*close)(void *ctx);
} tg_driver;

typedef struct tg_allocator tg_allocator;
typedef struct tg_segment tg_segment;
typedef struct tg_pool tg_pool;
typedef struct tg_event tg_event;

/* The memory of a block starts at `offset` bytes into `handle`. The fields above the line are for
 * callers to read; `holder` is set with tg_set_holder. */
typedef struct tg_block {
  tg_handle handle;
  size_t offset;
  size_t size;      /* bytes that may be used: at least what was asked for */
  size_t requested; /* bytes that were asked for */
  const char *holder;
  /* ---- private ---- */
  tg_allocator *owner;
  tg_pool *pool;
  tg_segment *segment;
  struct tg_block *previous, *next; /* neighbours in the segment, by address */
  struct tg_block *left, *right;    /* in the tree of free blocks; `left` also links a bin */
  tg_event *uses;                   /* other streams it was used on */
  uint32_t events;                  /* of those, how many have not passed since its release */
  uint32_t priority;                /* of the node in the tree */
  int32_t bin;                      /* where it is parked on release; negative: nowhere */
  uint8_t state;
  uint8_t kind;
} tg_block;

/* Names who holds a block, for the account of an out-of-memory error: a string that outlives the
 * block, such as the name of an op. Other threads may be writing an account. */
static inline void tg_set_holder(tg_block *block, const char *holder) {
  __atomic_store_n(&block->holder, holder, __ATOMIC_RELAXED);
}

typedef struct tg_allocator_options {
  size_t alignment;     /* of every block: a power of two, 64 ... 32768 */
  size_t small_segment; /* bytes asked of the driver for blocks up to 1 MiB */
  size_t large_segment; /* at most, for larger blocks; beyond half of a segment a block has its own */
  size_t limit;         /* of reserved bytes; SIZE_MAX: none */
  size_t max_cached;    /* cached bytes above which idle segments are given back; SIZE_MAX: never */
  size_t max_split;     /* blocks larger than this are not split; SIZE_MAX: all are */
} tg_allocator_options;

enum { TG_POOL_ALL, TG_POOL_SMALL, TG_POOL_LARGE, TG_POOL_COUNT };

typedef struct tg_statistic {
  int64_t current, peak, allocated, freed;
} tg_statistic;

/* What PyTorch's memory_stats() tells, with its names, per pool. */
typedef struct tg_pool_statistics {
  tg_statistic allocation, allocated_bytes, requested_bytes; /* blocks held by callers */
  tg_statistic active, active_bytes;                         /* and those waiting for an event */
  tg_statistic segment, reserved_bytes;                      /* held from the driver */
  int64_t inactive_split, inactive_split_bytes;              /* free parts of segments in use */
} tg_pool_statistics;

typedef struct tg_statistics {
  tg_pool_statistics pool[TG_POOL_COUNT];
  int64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free;
  size_t limit, max_cached, max_split;
} tg_statistics;

enum { TG_BLOCK_FREE = 1, TG_BLOCK_PARKED, TG_BLOCK_LIVE, TG_BLOCK_PENDING };

typedef struct tg_snapshot_row { /* one block; rows of a segment follow each other by address */
  tg_handle handle;
  size_t segment_size, offset, size, requested;
  uint64_t segment, stream; /* `segment` is a serial number */
  const char *holder;
  int state, kind; /* TG_BLOCK_..., TG_POOL_SMALL or TG_POOL_LARGE */
} tg_snapshot_row;

/* Anonymous memory of this process: page aligned, by mmap with huge pages from 2 MiB on. */
tg_driver tg_host_driver(void);
/* A quarter of the memory this process may have: of the machine's, or of its control group's. */
size_t tg_host_cache_bytes(void);

/* 64 byte blocks, segments of 2 and 4 to 32 MiB, everything else unlimited. */
tg_allocator_options tg_allocator_default_options(void);

/* Returns NULL if an option makes no sense or there is no memory for it. NULL options mean the
 * defaults. */
tg_allocator *tg_allocator_new(const tg_driver *driver, const tg_allocator_options *options);

/* Ends the caller's hold. Cached memory goes at once; the allocator itself when its last block
 * is released. Blocks that wait for events are waited for. */
void tg_allocator_destroy(tg_allocator *a);

/* Zero bytes give a shared block of size 0, which is released like any other. */
int tg_allocate(tg_allocator *a, size_t nbytes, uint64_t stream, tg_block **out);

/* TG_EDRIVER means that an event could not be recorded: the block is released all the same, and
 * reused once a later attempt succeeds. */
int tg_release(tg_allocator *a, tg_block *block);

/* Says that `stream`, too, uses the block: after its release it is reused only once that stream has
 * passed the point of the release. */
int tg_use_on_stream(tg_allocator *a, tg_block *block, uint64_t stream);

/* Waits for pending events, then gives every segment without a live block back to the driver. */
int tg_empty_cache(tg_allocator *a);

/* Gives cached memory back if `bytes` demands it; what callers hold is never taken away. */
int tg_set_limit(tg_allocator *a, size_t bytes);
int tg_set_max_cached(tg_allocator *a, size_t bytes);

/* The allocator's number: counted from 1 in the order of their making. */
int64_t tg_allocator_number(const tg_allocator *a);

/* Called, with the mutex held, when a block is handed out (sign 1) or comes back (-1). */
typedef void (*tg_changed)(void *context, const tg_allocator *a, int sign, const tg_block *block,
                           int64_t allocated);

/* Watches every allocator of the process. Returns TG_ENOMEM when four do so already. */
int tg_watch(tg_changed changed, void *context);
/* No call is running when this returns; TG_EINVAL for what does not watch. */
int tg_unwatch(tg_changed changed, void *context);

void tg_allocator_stats(tg_allocator *a, tg_statistics *out);
void tg_reset_peak(tg_allocator *a);

/* Sets *rows to an array of *count rows, to be freed with free(). */
int tg_allocator_snapshot(tg_allocator *a, tg_snapshot_row **rows, size_t *count);

/* Writes who holds what, in sentences, and returns the length like snprintf. */
size_t tg_allocator_account(tg_allocator *a, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif

/* A thread's log: records of a few bytes, appended by the thread itself and read by one other.
 * docs/profiling.md describes the records. */
#ifndef TANGRAD_PROFILER_LOG_H
#define TANGRAD_PROFILER_LOG_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define LOG_CHUNK 65536
#define LOG_LONGEST 96 /* bytes of the longest record, with room to spare */

enum {
    LOG_CLOCK = 1, /* ticks and steps of backward made so far, eight bytes each */
    LOG_OP,        /* time, steps made, name, signature, stack */
    LOG_LEAVE,     /* time, steps made */
    LOG_NODE,      /* time, name, number of the step: 0 for a leaf */
    LOG_RANGE,     /* time, name, kind */
    LOG_MEMORY,    /* time, allocator, address, signed bytes, bytes allocated afterwards */
    LOG_ELSEWHERE, /* time, name, process, beginning and end in signed nanoseconds since the start */
    LOG_MARK,      /* time, allocator, address, bytes, what they are for */
    LOG_KERNEL     /* time, event of this thread, allocator, stream, beginning and end as above */
};

typedef struct log_chunk {
    struct log_chunk *next;
    uint32_t used; /* written with release, read with acquire */
    unsigned char bytes[LOG_CHUNK];
} log_chunk;

typedef struct log_thread {
    struct log_thread *next;
    log_chunk *first, *last;
    uint32_t drained; /* bytes of `first` that were read */
    uint64_t ticks;   /* of the latest record */
    uint64_t steps;
    uint64_t session;
    int64_t ident;
    int64_t depth;
    int64_t made; /* events that were begun */
    int64_t lost; /* records for which there was no memory */
} log_thread;

static __thread log_thread *log_mine = NULL;

static int log_counts_ticks = -1; /* whether the time stamp counter runs evenly */

static inline uint64_t log_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void log_choose_clock(void)
{
    log_counts_ticks = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d))
        log_counts_ticks = d >> 8 & 1;
#endif
}

static inline uint64_t log_now(void)
{
#if defined(__x86_64__)
    if (log_counts_ticks)
        return __builtin_ia32_rdtsc();
#endif
    return log_nanoseconds();
}

static inline unsigned char *log_number(unsigned char *at, uint64_t value)
{
    while (value >= 128) {
        *at++ = (unsigned char)(value | 128);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

static inline uint64_t log_zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static unsigned char *log_grow(log_thread *t, uint64_t now)
{
    log_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
        t->lost++;
        return NULL;
    }
    chunk->next = NULL;
    chunk->bytes[0] = LOG_CLOCK;
    memcpy(chunk->bytes + 1, &now, 8);
    memcpy(chunk->bytes + 9, &t->steps, 8);
    chunk->used = 17;
    t->ticks = now;
    if (t->last == NULL)
        t->first = chunk;
    else
        __atomic_store_n(&t->last->next, chunk, __ATOMIC_RELEASE);
    t->last = chunk;
    return chunk->bytes + 17;
}

/* Where the next record goes, its tag and time written; NULL where there is no memory. */
static inline unsigned char *log_begin(log_thread *t, int tag)
{
    uint64_t now = log_now(), passed;
    log_chunk *chunk = t->last;
    unsigned char *at;
    if (chunk == NULL || chunk->used > LOG_CHUNK - LOG_LONGEST) {
        at = log_grow(t, now);
        if (at == NULL)
            return NULL;
    } else {
        at = chunk->bytes + chunk->used;
    }
    passed = now > t->ticks ? now - t->ticks : 0;
    t->ticks += passed;
    *at++ = (unsigned char)tag;
    return log_number(at, passed);
}

static inline void log_end(log_thread *t, unsigned char *at)
{
    __atomic_store_n(&t->last->used, (uint32_t)(at - t->last->bytes), __ATOMIC_RELEASE);
}

/* What has been written and not yet read, at most `size` bytes of it; a chunk that is full and read
 * is given back. */
static size_t log_drain(log_thread *t, unsigned char *into, size_t size)
{
    size_t copied = 0;
    while (t->first != NULL) {
        log_chunk *chunk = t->first, *next = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE);
        uint32_t used = __atomic_load_n(&chunk->used, __ATOMIC_ACQUIRE);
        size_t there = used - t->drained;
        if (copied + there > size)
            break;
        if (into != NULL)
            memcpy(into + copied, chunk->bytes + t->drained, there);
        copied += there;
        t->drained = used;
        if (next == NULL)
            break;
        t->first = next;
        t->drained = 0;
        free(chunk);
    }
    return copied;
}

static size_t log_waiting(const log_thread *t)
{
    size_t n = 0;
    uint32_t drained = t->drained;
    for (const log_chunk *c = t->first; c != NULL; c = __atomic_load_n(&c->next, __ATOMIC_ACQUIRE)) {
        n += __atomic_load_n(&c->used, __ATOMIC_ACQUIRE) - drained;
        drained = 0;
    }
    return n;
}

static void log_free(log_thread *t)
{
    for (log_chunk *c = t->first, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    t->first = t->last = NULL;
    t->drained = 0;
}
#endif

/* What launches need of each thread, and the two functions of the driver that they call. */
#ifndef TANGRAD_CUDA_LAUNCH_H
#define TANGRAD_CUDA_LAUNCH_H

#include <Python.h>
#include <stdint.h>
#include <stddef.h>

enum { DEVICES = 64, EVENTS = 2048 };

/* Memory that was handed out (sign 1) or came back (-1) while a call was recorded, and how many
 * steps there were before. */
typedef struct memory_event {
    uint64_t address;
    int64_t nbytes;
    int32_t sign;
    int32_t step;
} memory_event;

typedef struct recording {
    int32_t steps;
    int32_t count;
    int32_t spoiled; /* something happened that no replay could do again */
    int32_t reports; /* a kernel may report to the error cell */
    memory_event events[EVENTS];
} recording;

static __thread int this_entered = -1;
static __thread uint64_t this_stream[DEVICES]; /* 0: the default stream, whose number is the device's index */
static __thread recording *this_recording = NULL;

typedef int (*launch_function)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, void *stream, void **parameters, void **extra);
typedef int (*copy_function)(uint64_t target, uint64_t source, size_t nbytes, void *stream);

static launch_function driver_launch;
static copy_function driver_copy;

/* Give a kernel its parameters as one piece of memory. */
static inline int launch_packed(uint64_t function, unsigned blocks, unsigned lanes, uint64_t stream, void *packed,
                                size_t nbytes)
{
    /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END. */
    void *extra[5] = {(void *)(uintptr_t)1, packed, (void *)(uintptr_t)2, &nbytes, NULL};
    return driver_launch((void *)(uintptr_t)function, blocks, 1, 1, lanes, 1, 1, 0, (void *)(uintptr_t)stream, NULL,
                         extra);
}

static inline int copy_bytes(uint64_t target, uint64_t source, size_t nbytes, uint64_t stream)
{
    return driver_copy(target, source, nbytes, (void *)(uintptr_t)stream);
}

/* The allocator's lock is held: nothing but this thread's record is touched. */
static inline void note_memory(int sign, uint64_t address, int64_t nbytes)
{
    recording *r = this_recording;
    if (r == NULL || r->spoiled)
        return;
    if (r->count == EVENTS) {
        r->spoiled = 1;
        return;
    }
    r->events[r->count++] = (memory_event){address, nbytes, sign, r->steps};
}

#endif

// What a compiled kernel and the emulator know of each other.
#pragma once

// Kinds of what the threads of a warp do together.
enum tangrad_collective_kind {
    TANGRAD_SYNC,
    TANGRAD_IDX,
    TANGRAD_UP,
    TANGRAD_DOWN,
    TANGRAD_XOR,
    TANGRAD_BALLOT,
    TANGRAD_ANY,
    TANGRAD_ALL,
    TANGRAD_MATCH_ANY,
    TANGRAD_MATCH_ALL,
    TANGRAD_ADD_U32,
    TANGRAD_MIN_U32,
    TANGRAD_MAX_U32,
    TANGRAD_MIN_S32,
    TANGRAD_MAX_S32,
    TANGRAD_AND_B32,
    TANGRAD_OR_B32,
    TANGRAD_XOR_B32,
    // Whoever of the warp is here goes on when all others wait for something, or have ended.
    TANGRAD_LOCKSTEP,
};

// What a barrier of the block tells beside that it was passed.
enum tangrad_barrier_kind { TANGRAD_PLAIN, TANGRAD_COUNT, TANGRAD_AND, TANGRAD_OR };

struct tangrad_runtime {
    int (*barrier)(int kind, int predicate);
    unsigned long long (*collective)(int kind, unsigned mask, unsigned long long value, int argument,
                                     int width);
    unsigned (*active_mask)(void);
    void (*trap)(const char* why);
};

// The next thread of the block to begin with, and which have ended.
struct tangrad_cursor {
    unsigned next, limit, x, y, z;
    unsigned char* exited;
};

struct tangrad_kernel_info {
    const char* name;
    void* address;
    void (*run)(void** arguments, struct tangrad_cursor* cursor);
    unsigned parameters;
    const unsigned* sizes;
    const unsigned* alignments;
};

struct tangrad_place {
    unsigned thread[3], id, block[3], block_size[3], grid_size[3];
};

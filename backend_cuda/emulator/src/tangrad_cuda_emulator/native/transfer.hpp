// Copies and fills, as work of streams.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace emulator {

// One end of a copy of rows: `slices` planes of `rows` rows, each `pitch` bytes behind the one before.
struct End {
    uintptr_t base;
    bool is_device;
    size_t pitch = 0;
    size_t rows = 0;
};

struct Extent {
    size_t bytes, rows = 1, slices = 1;
};

// Whether the caller waits for the end of the copy, whatever the memory.
enum class Wait { Yes, No };

CUresult transfer(CUstream stream, const End& to, const End& from, const Extent& extent, Wait wait);
CUresult fill(CUstream stream, CUdeviceptr at, size_t pitch, uint32_t value, size_t width, size_t count,
              size_t rows);

}  // namespace emulator

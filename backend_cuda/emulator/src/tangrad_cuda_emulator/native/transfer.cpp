#include "transfer.hpp"

#include <cstring>

#include "graph.hpp"
#include "memory.hpp"
#include "state.hpp"

namespace emulator {
namespace {

uintptr_t row(const End& end, size_t y, size_t z) { return end.base + (z * end.rows + y) * end.pitch; }

// Where memory is what the caller says: a device's is all in one piece, the host's is open.
bool is_there(const End& end, const Extent& extent) {
    Allocation* found = memory().find(end.base);
    if (!end.is_device) return !found || found->kind != Kind::Device;
    const uintptr_t last = row(end, extent.rows - 1, extent.slices - 1) + extent.bytes;
    return found && last <= found->end();
}

// Memory that the driver did not lock may change or vanish as soon as the call returns.
bool is_pageable(const End& end) { return !end.is_device && !memory().find(end.base); }

CUresult copy_rows(const End& to, const End& from, const Extent& extent) {
    for (const End* end : {&to, &from})
        if (Allocation* found = memory().find(end->base)) {
            if (!memory().open(*found)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        } else if (end->is_device) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
    for (size_t z = 0; z < extent.slices; z++)
        for (size_t y = 0; y < extent.rows; y++)
            std::memmove(reinterpret_cast<void*>(row(to, y, z)),
                         reinterpret_cast<const void*>(row(from, y, z)), extent.bytes);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult transfer(CUstream handle, const End& to, const End& from, const Extent& extent, Wait wait) {
    auto stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!extent.bytes || !extent.rows || !extent.slices) return CUDA_SUCCESS;
    if (!is_there(to, extent) || !is_there(from, extent)) return CUDA_ERROR_INVALID_VALUE;
    // A graph would read, or write, what the program has long let go of.
    if (is_pageable(from) || is_pageable(to) || wait == Wait::Yes)
        if (CUresult failed = refuse_in_capture(stream)) return failed;
    CUresult result;
    if (wait == Wait::No && is_pageable(from) && to.is_device) {
        const size_t packed = extent.bytes * extent.rows * extent.slices;
        auto staged = std::make_shared<std::vector<char>>(packed);
        const End inside = {uintptr_t(staged->data()), false, extent.bytes, extent.rows};
        copy_rows(inside, from, extent);
        result = enqueue(stream, [=] { return staged ? copy_rows(to, inside, extent) : CUDA_SUCCESS; });
    } else {
        result = enqueue(stream, [=] { return copy_rows(to, from, extent); });
    }
    if (wait == Wait::Yes || is_pageable(to)) return drain(stream, stream->enqueued);
    return result;
}

CUresult fill(CUstream handle, CUdeviceptr at, size_t pitch, uint32_t value, size_t width, size_t count,
              size_t rows) {
    auto stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!count || !rows) return CUDA_SUCCESS;
    if (at % width || (rows > 1 && (pitch % width || pitch < count * width))) return CUDA_ERROR_INVALID_VALUE;
    const size_t span = (rows - 1) * pitch + count * width;
    if (!memory().find(at, span)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, [=] {
        if (!memory().reach(at, span)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        for (size_t y = 0; y < rows; y++)
            for (size_t i = 0; i < count; i++)
                std::memcpy(reinterpret_cast<char*>(at) + y * pitch + i * width, &value, width);
        return CUDA_SUCCESS;
    });
}

}  // namespace emulator

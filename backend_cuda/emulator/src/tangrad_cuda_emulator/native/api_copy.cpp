// Copies and fills: every form is one of transfer.hpp's two.

#include <cuda.h>

#include "failures.hpp"
#include "memory.hpp"
#include "transfer.hpp"

using namespace emulator;

namespace {

End device(CUdeviceptr at) { return {uintptr_t(at), true}; }
End host(const void* at) { return {uintptr_t(at), false}; }
// An address that may be of either.
End unified(CUdeviceptr at) { return {uintptr_t(at), memory().find(at) != nullptr}; }

bool side(CUmemorytype type, const void* host_at, CUdeviceptr device_at, size_t pitch, size_t rows,
          size_t offset, End& end) {
    if (type == CU_MEMORYTYPE_HOST) end = host(host_at);
    else if (type == CU_MEMORYTYPE_DEVICE) end = device(device_at);
    else if (type == CU_MEMORYTYPE_UNIFIED) end = unified(device_at);
    else return false;
    end.base += offset;
    end.pitch = pitch;
    end.rows = rows;
    return true;
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, Wait wait) {
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    End from, to;
    const size_t from_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    const size_t to_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    if (!side(c->srcMemoryType, c->srcHost, c->srcDevice, from_pitch, c->Height,
              c->srcY * from_pitch + c->srcXInBytes, from) ||
        !side(c->dstMemoryType, c->dstHost, c->dstDevice, to_pitch, c->Height,
              c->dstY * to_pitch + c->dstXInBytes, to))
        return CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE(c->Height <= 1 || (from_pitch >= c->WidthInBytes && to_pitch >= c->WidthInBytes), CUDA_ERROR_INVALID_VALUE);
    return transfer(stream, to, from, {c->WidthInBytes, c->Height, 1}, wait);
}

template <class C> CUresult copy_3d(const C* c, CUstream stream, Wait wait) {
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    End from, to;
    const size_t from_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    const size_t to_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    const size_t from_rows = c->srcHeight ? c->srcHeight : c->Height;
    const size_t to_rows = c->dstHeight ? c->dstHeight : c->Height;
    if (!side(c->srcMemoryType, c->srcHost, c->srcDevice, from_pitch, from_rows,
              (c->srcZ * from_rows + c->srcY) * from_pitch + c->srcXInBytes, from) ||
        !side(c->dstMemoryType, c->dstHost, c->dstDevice, to_pitch, to_rows,
              (c->dstZ * to_rows + c->dstY) * to_pitch + c->dstXInBytes, to))
        return CUDA_ERROR_NOT_SUPPORTED;
    return transfer(stream, to, from, {c->WidthInBytes, c->Height, c->Depth}, wait);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER(Context);
    return transfer(nullptr, unified(to), unified(from), {size}, Wait::Yes);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER(Context);
    return transfer(stream, unified(to), unified(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) {
    ENTER(Context);
    return transfer(nullptr, device(to), host(from), {size}, Wait::Yes);
}
CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) {
    ENTER(Context);
    return transfer(nullptr, host(to), device(from), {size}, Wait::Yes);
}
CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER(Context);
    return transfer(nullptr, device(to), device(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
    ENTER(Context);
    return transfer(stream, device(to), host(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER(Context);
    return transfer(stream, host(to), device(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER(Context);
    return transfer(stream, device(to), device(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size) {
    ENTER(Context);
    return transfer(nullptr, device(to), device(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size, CUstream stream) {
    ENTER(Context);
    return transfer(stream, device(to), device(from), {size}, Wait::No);
}
CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D* copy) {
    ENTER(Context);
    return copy_2d(copy, nullptr, Wait::Yes);
}
CUresult CUDAAPI cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) {
    ENTER(Context);
    return copy_2d(copy, nullptr, Wait::Yes);
}
CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
    ENTER(Context);
    return copy_2d(copy, stream, Wait::No);
}
CUresult CUDAAPI cuMemcpy3D(const CUDA_MEMCPY3D* copy) {
    ENTER(Context);
    return copy_3d(copy, nullptr, Wait::Yes);
}
CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
    ENTER(Context);
    return copy_3d(copy, stream, Wait::No);
}
CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
    ENTER(Context);
    return copy_3d(copy, nullptr, Wait::Yes);
}
CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    ENTER(Context);
    return copy_3d(copy, stream, Wait::No);
}

// Fills of one width: of a row or of several, in the default stream or in another.
#define FILLS(bits, T)                                                                                   \
    CUresult CUDAAPI cuMemsetD##bits(CUdeviceptr at, T value, size_t count) {                            \
        ENTER(Context);                                                                                  \
        return fill(nullptr, at, 0, value, sizeof(T), count, 1);                                         \
    }                                                                                                    \
    CUresult CUDAAPI cuMemsetD##bits##Async(CUdeviceptr at, T value, size_t count, CUstream stream) {    \
        ENTER(Context);                                                                                  \
        return fill(stream, at, 0, value, sizeof(T), count, 1);                                          \
    }                                                                                                    \
    CUresult CUDAAPI cuMemsetD2D##bits(CUdeviceptr at, size_t pitch, T value, size_t width, size_t height) { \
        ENTER(Context);                                                                                  \
        return fill(nullptr, at, pitch, value, sizeof(T), width, height);                                \
    }                                                                                                    \
    CUresult CUDAAPI cuMemsetD2D##bits##Async(CUdeviceptr at, size_t pitch, T value, size_t width,       \
                                              size_t height, CUstream stream) {                          \
        ENTER(Context);                                                                                  \
        return fill(stream, at, pitch, value, sizeof(T), width, height);                                 \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

}  // extern "C"

// Memory: of devices, of the host, managed by both; what is known of an address.

#include <cuda.h>

#include <cstring>

#include "failures.hpp"
#include "graph.hpp"
#include "memory.hpp"
#include "settings.hpp"

using namespace emulator;

namespace {

CUresult allocate(CUdeviceptr* made, size_t size, Kind kind, unsigned flags) {
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    return memory().allocate(current(), size, kind, flags, made);
}

CUresult allocate_host(void** made, size_t size, unsigned flags) {
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr address = 0;
    const CUresult failed = memory().allocate(current(), size, Kind::Pinned, flags, &address);
    if (!failed) *made = reinterpret_cast<void*>(address);
    return failed;
}

// What streams still do with memory comes before it goes.
CUresult release(CUdeviceptr address, std::initializer_list<Kind> kinds) {
    Allocation* found = memory().find(address);
    if (found)
        if (CUresult failed = drain(found->context)) return failed;
    return memory().release(address, kinds);
}

CUmemorytype type_of(const Allocation& allocation) {
    const bool device = allocation.kind == Kind::Device || allocation.kind == Kind::Module ||
                        allocation.kind == Kind::Managed;
    return device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

template <class T> CUresult put(void* target, T value) {
    std::memcpy(target, &value, sizeof value);
    return CUDA_SUCCESS;
}

CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
    const Allocation* found = memory().find(address);
    REQUIRE(found, CUDA_ERROR_INVALID_VALUE);
    switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, reinterpret_cast<CUcontext>(found->context));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(data, unsigned(type_of(*found)));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(data, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            REQUIRE(found->kind != Kind::Device, CUDA_ERROR_INVALID_VALUE);
            return put(data, reinterpret_cast<void*>(address));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, unsigned(found->kind == Kind::Managed));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, int(found->context->device));
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(data, CUdeviceptr(found->base));
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(data, found->size);
        case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 1u);
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetInfo(size_t* available, size_t* total) {
    ENTER(Context);
    REQUIRE(available && total, CUDA_ERROR_INVALID_VALUE);
    *total = settings().memory;
    *available = settings().memory - state().devices[current()->device].used;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* made, size_t size) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    return allocate(made, size, Kind::Device, 0);
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr* made, size_t* pitch, size_t width, size_t height, unsigned int element) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    REQUIRE(pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    *pitch = (width + 511) / 512 * 512;
    return allocate(made, *pitch * height, Kind::Device, 0);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* made, size_t size, unsigned int flags) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
    return allocate(made, size, Kind::Managed, flags);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* made, size_t size, CUstream stream) {
    ENTER(Context);
    REQUIRE(find_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    return allocate(made, size, Kind::Device, 0);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    REQUIRE(address, CUDA_SUCCESS);
    return release(address, {Kind::Device, Kind::Managed});
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    ENTER(Context);
    auto stream = find_stream(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(memory().find(address) && memory().find(address)->base == address, CUDA_ERROR_INVALID_VALUE);
    return enqueue(stream, [=] { return memory().release(address, {Kind::Device}); });
}

CUresult CUDAAPI cuMemAllocHost(void** made, size_t size) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    return allocate_host(made, size, 0);
}

CUresult CUDAAPI cuMemHostAlloc(void** made, size_t size, unsigned int flags) {
    ENTER(Context);
    return allocate_host(made, size, flags);
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
    ENTER(Context);
    if (CUresult failed = refuse_unsafe()) return failed;
    return release(CUdeviceptr(address), {Kind::Pinned});
}

CUresult CUDAAPI cuMemHostRegister(void* address, size_t size, unsigned int flags) {
    ENTER(Context);
    REQUIRE(address && size, CUDA_ERROR_INVALID_VALUE);
    return memory().note(current(), uintptr_t(address), size, Kind::Registered, flags);
}

CUresult CUDAAPI cuMemHostUnregister(void* address) {
    ENTER(Context);
    const Allocation* found = memory().find(uintptr_t(address));
    REQUIRE(found && found->kind == Kind::Registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    return release(CUdeviceptr(address), {Kind::Registered});
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned int flags) {
    ENTER(Context);
    REQUIRE(device && flags == 0, CUDA_ERROR_INVALID_VALUE);
    const Allocation* found = memory().find(uintptr_t(host));
    REQUIRE(found && found->kind != Kind::Device, CUDA_ERROR_INVALID_VALUE);
    *device = CUdeviceptr(host);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* host) {
    ENTER(Context);
    REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    const Allocation* found = memory().find(uintptr_t(host));
    REQUIRE(found && found->kind == Kind::Pinned, CUDA_ERROR_INVALID_VALUE);
    // Where one address space is for all, all of it is mapped.
    *flags = found->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
    ENTER(Context);
    const Allocation* found = memory().find(address);
    REQUIRE(found, CUDA_ERROR_NOT_FOUND);
    if (base) *base = found->base;
    if (size) *size = found->size;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
    ENTER(Context);
    REQUIRE(data, CUDA_ERROR_INVALID_VALUE);
    return attribute(data, which, address);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** data, CUdeviceptr address) {
    ENTER(Context);
    REQUIRE(which && data, CUDA_ERROR_INVALID_VALUE);
    if (!memory().find(address)) return CUDA_SUCCESS;
    for (unsigned i = 0; i < count; i++)
        if (CUresult failed = attribute(data[i], which[i], address)) return failed;
    return CUDA_SUCCESS;
}

}  // extern "C"

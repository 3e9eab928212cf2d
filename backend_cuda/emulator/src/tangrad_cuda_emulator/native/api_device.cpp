// Devices and what they say of themselves.

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "failures.hpp"
#include "settings.hpp"

using namespace emulator;

namespace {

// What a data centre's GPU of compute capability 9.0 says, where a program can use it.
const std::map<int, int>& attributes() {
    static const std::map<int, int> all = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
        {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    };
    return all;
}

bool is_device(CUdevice device) { return device >= 0 && device < settings().devices; }

}  // namespace

extern "C" {

CUresult CUDAAPI cuDeviceGetCount(int* count) {
    ENTER(Initialised);
    return tell(count, settings().devices);
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    ENTER(Initialised);
    REQUIRE(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    return tell(device, ordinal);
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(name && length > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    std::snprintf(name, size_t(length), "tangrad CUDA emulator");
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(uuid, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    std::memset(uuid->bytes, 0, sizeof uuid->bytes);
    std::snprintf(uuid->bytes, sizeof uuid->bytes, "tangrad-%d", device & 127);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    return tell(bytes, settings().memory);
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    auto found = attributes().find(attribute);
    *value = found == attributes().end() ? 0 : found->second;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = settings().capability / 10;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = settings().capability % 10;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = device + 1;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(major && minor, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *major = settings().capability / 10;
    *minor = settings().capability % 10;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* all, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(all, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *all = {1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647, 65536,
            1000000, 512};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(text && length > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    std::snprintf(text, size_t(length), "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    ENTER(Initialised);
    REQUIRE(device && text, CUDA_ERROR_INVALID_VALUE);
    unsigned domain = 0, bus = 0, slot = 0;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) < 3) return CUDA_ERROR_INVALID_VALUE;
    REQUIRE(is_device(int(bus) - 1), CUDA_ERROR_INVALID_DEVICE);
    *device = int(bus) - 1;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    ENTER(Initialised);
    REQUIRE(is_device(device) && is_device(peer), CUDA_ERROR_INVALID_DEVICE);
    return tell(can, int(device != peer));
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice device) {
    ENTER(Initialised);
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    Device& all = state().devices[device];
    if (!all.primary) all.primary = make_context(device, all.flags, true);
    all.retained++;
    *made = reinterpret_cast<CUcontext>(all.primary.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(Initialised);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    Device& all = state().devices[device];
    REQUIRE(all.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--all.retained) return CUDA_SUCCESS;
    drain(all.primary.get());
    destroy_context(all.primary.get());
    all.primary.reset();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
    ENTER(Initialised);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    Device& all = state().devices[device];
    if (!all.primary) return CUDA_SUCCESS;
    destroy_context(all.primary.get());
    all.primary.reset();
    all.retained = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    ENTER(Initialised);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    state().devices[device].flags = flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    ENTER(Initialised);
    REQUIRE(flags && active, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *flags = state().devices[device].flags;
    *active = state().devices[device].primary != nullptr;
    return CUDA_SUCCESS;
}

}  // extern "C"

// Contexts and the stack of them that each thread has.

#include <cuda.h>

#include <algorithm>

#include "failures.hpp"
#include "graph.hpp"
#include "settings.hpp"

using namespace emulator;

namespace {

Context* find_context(CUcontext handle) {
    auto found = state().contexts.find(reinterpret_cast<Context*>(handle));
    return found == state().contexts.end() ? nullptr : found->second.get();
}

CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

CUresult create(CUcontext* made, unsigned flags, CUdevice device) {
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < settings().devices, CUDA_ERROR_INVALID_DEVICE);
    Context* context = make_context(device, flags, false).get();
    stack_of_this_thread().push_back(context);
    *made = handle_of(context);
    return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
    Context* context = find_context(handle);
    REQUIRE(context && !context->primary, CUDA_ERROR_INVALID_CONTEXT);
    drain(context);
    destroy_context(context);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuCtxCreate(CUcontext* made, CUctxCreateParams*, unsigned int flags, CUdevice device) {
    ENTER(Initialised);
    return create(made, flags, device);
}

#undef cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* made, unsigned int flags, CUdevice device) {
    ENTER(Initialised);
    return create(made, flags, device);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    ENTER(Initialised);
    return destroy(context);
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle) {
    ENTER(Initialised);
    Context* context = find_context(handle);
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    stack_of_this_thread().push_back(context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* popped) {
    ENTER(Initialised);
    auto& stack = stack_of_this_thread();
    REQUIRE(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (popped) *popped = handle_of(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
    ENTER(Initialised);
    Context* context = find_context(handle);
    REQUIRE(context || !handle, CUDA_ERROR_INVALID_CONTEXT);
    auto& stack = stack_of_this_thread();
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    ENTER(Initialised);
    return tell(context, handle_of(current()));
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    ENTER(Initialised);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    Context* context = current();
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
    ENTER(Context);
    return tell(flags, current()->flags);
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    ENTER(Context);
    if (CUresult failed = refuse_while_capturing(current())) return failed;
    return drain(current());
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    ENTER(Initialised);
    REQUIRE(handle ? find_context(handle) : current(), CUDA_ERROR_INVALID_CONTEXT);
    return tell(version, 3020u);
}

CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit limit) {
    ENTER(Context);
    auto found = current()->limits.find(limit);
    REQUIRE(found != current()->limits.end(), CUDA_ERROR_UNSUPPORTED_LIMIT);
    return tell(value, found->second);
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
    ENTER(Context);
    REQUIRE(current()->limits.count(limit), CUDA_ERROR_UNSUPPORTED_LIMIT);
    current()->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
    ENTER(Context);
    return tell(config, CU_FUNC_CACHE_PREFER_NONE);
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache) {
    ENTER(Context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    ENTER(Context);
    return tell(config, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig) {
    ENTER(Context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    ENTER(Context);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
    ENTER(Context);
    Context* peer = find_context(handle);
    REQUIRE(peer && peer != current(), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(peer->device != current()->device, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    return current()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext handle) {
    ENTER(Context);
    Context* peer = find_context(handle);
    REQUIRE(peer, CUDA_ERROR_INVALID_CONTEXT);
    return current()->peers.erase(peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult CUDAAPI cuCtxAttach(CUcontext* context, unsigned int flags) {
    ENTER(Context);
    REQUIRE(context && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *context = handle_of(current());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDetach(CUcontext handle) {
    ENTER(Initialised);
    return destroy(handle);
}

}  // extern "C"

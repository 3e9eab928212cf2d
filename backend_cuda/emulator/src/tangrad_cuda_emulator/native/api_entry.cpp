// Initialisation, versions, errors, looking up functions, and what only the emulator has.

#include <cuda.h>
#include <cudaProfiler.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "control.hpp"
#include "failures.hpp"
#include "memory.hpp"
#include "settings.hpp"

using namespace emulator;

namespace {

struct Named {
    CUresult code;
    const char* name;
};

const Named NAMES[] = {
#include "error_names.inc"
};

struct Told {
    CUresult code;
    const char* text;
};

const Told MESSAGES[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"},
    {CUDA_ERROR_ASSERT, "device-side assert triggered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

std::string& fault_text() {
    static auto* text = new std::string;
    return *text;
}

using Counts = std::array<unsigned long long, 6>;

std::map<std::string, Counts>& traffic() {
    static auto* all = new std::map<std::string, Counts>;
    return *all;
}

}  // namespace

namespace emulator {

void note_traffic(const std::string& kernel, unsigned long long loads, unsigned long long load_sectors,
                  unsigned long long load_ideal, unsigned long long stores, unsigned long long store_sectors,
                  unsigned long long store_ideal) {
    Counts& all = traffic()[kernel];
    const Counts more = {loads, load_sectors, load_ideal, stores, store_sectors, store_ideal};
    for (size_t i = 0; i < all.size(); i++) all[i] += more[i];
}

const char* name_of(CUresult result) {
    for (auto& each : NAMES)
        if (each.code == result) return each.name;
    return nullptr;
}

const char* message_of(CUresult result) {
    for (auto& each : MESSAGES)
        if (each.code == result) return each.text;
    return name_of(result);
}

bool& watches_races() {
    static bool watches = settings().races;
    return watches;
}

void note_fault(const std::string& text) {
    fault_text() = text;
    say("%s", text.c_str());
}

}  // namespace emulator

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
    ENTER(Nothing);
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    if (settings().devices < 1) return CUDA_ERROR_NO_DEVICE;
    auto& all = state();
    if (all.initialised) return CUDA_SUCCESS;
    all.devices.resize(size_t(settings().devices));
    all.process = getpid();
    all.initialised = true;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
    ENTER(Nothing);
    return tell(version, CUDA_VERSION);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
    REQUIRE(text, CUDA_ERROR_INVALID_VALUE);
    *text = message_of(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
    REQUIRE(text, CUDA_ERROR_INVALID_VALUE);
    *text = name_of(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int, cuuint64_t,
                                  CUdriverProcAddressQueryResult* status) {
    REQUIRE(symbol && function, CUDA_ERROR_INVALID_VALUE);
    Dl_info own;
    dladdr(reinterpret_cast<void*>(&cuInit), &own);
    void* self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = nullptr;
    for (const char* form : {"_v4", "_v3", "_v2", ""}) {
        *function = dlsym(self, (std::string(symbol) + form).c_str());
        if (*function) break;
    }
    if (self) dlclose(self);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Tables of functions that NVIDIA's libraries have among themselves.
CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
    REQUIRE(table, CUDA_ERROR_INVALID_VALUE);
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuProfilerStart(void) {
    ENTER(Context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStop(void) {
    ENTER(Context);
    return CUDA_SUCCESS;
}

// ---- what only the emulator has: see tangrad_cuda_emulator/control.py --------------------------

int tangrad_emulator_fail(const char* text) {
    std::lock_guard<std::mutex> lock(state().mutex);
    return set_failures(text);
}

unsigned long long tangrad_emulator_calls(const char* function) {
    std::lock_guard<std::mutex> lock(state().mutex);
    return calls_of(function);
}

const char* tangrad_emulator_called(void) {
    static auto* text = new std::string;
    std::lock_guard<std::mutex> lock(state().mutex);
    *text = all_calls();
    return text->c_str();
}

void tangrad_emulator_races(int watch) {
    std::lock_guard<std::mutex> lock(state().mutex);
    watches_races() = watch != 0;
}

unsigned long long tangrad_emulator_allocations(void) {
    std::lock_guard<std::mutex> lock(state().mutex);
    return memory().count();
}

int tangrad_emulator_traffic(const char* kernel, unsigned long long* counts) {
    std::lock_guard<std::mutex> lock(state().mutex);
    auto found = traffic().find(kernel);
    if (found == traffic().end()) return 0;
    std::copy(found->second.begin(), found->second.end(), counts);
    return 1;
}

const char* tangrad_emulator_last_fault(void) { return fault_text().c_str(); }

}  // extern "C"

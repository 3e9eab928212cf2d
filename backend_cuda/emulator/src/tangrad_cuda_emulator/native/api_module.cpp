// Modules, functions and launches.

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "control.hpp"
#include "engine.hpp"
#include "failures.hpp"
#include "memory.hpp"
#include "settings.hpp"

using namespace emulator;

namespace {

constexpr size_t USUAL_SHARED = 49152, MOST_SHARED = 232448;

struct Module;

struct Function {
    Module* module = nullptr;
    Kernel* kernel = nullptr;
    size_t most_dynamic = 0;
    // What cuParamSet and cuFuncSet leave for cuLaunch.
    unsigned block[3] = {1, 1, 1};
    unsigned shared = 0;
    std::vector<unsigned char> staged;
};

struct Module {
    Context* context = nullptr;
    std::unique_ptr<Program> program;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

std::map<Module*, std::unique_ptr<Module>>& modules() {
    static auto* all = new std::map<Module*, std::unique_ptr<Module>>;
    return *all;
}

Module* find_module(CUmodule handle) {
    auto found = modules().find(reinterpret_cast<Module*>(handle));
    return found == modules().end() ? nullptr : found->second.get();
}

Function* find_function(CUfunction handle) {
    for (auto& each : modules())
        for (auto& function : each.second->functions)
            if (function.second.get() == reinterpret_cast<Function*>(handle)) return function.second.get();
    return nullptr;
}

// The logs that a caller gave room for.
void write_logs(unsigned count, CUjit_option* options, void** values, const std::string& log) {
    char* buffer = nullptr;
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            size = reinterpret_cast<size_t>(values[i]);
            values[i] = reinterpret_cast<void*>(std::min(size, log.size()));
        }
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;
    }
    if (buffer && size) std::snprintf(buffer, size, "%s", log.c_str());
}

CUresult load(CUmodule* made, const void* image, size_t size, unsigned count, CUjit_option* options, void** values) {
    REQUIRE(made && image, CUDA_ERROR_INVALID_VALUE);
    std::string log;
    auto program = load_image(image, size, log);
    write_logs(count, options, values, log);
    if (!program) {
        note_fault("the module cannot be loaded: " + log);
        return log.find("neither PTX") == std::string::npos ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    }
    auto module = std::make_unique<Module>();
    module->context = current();
    module->program = std::move(program);
    *made = reinterpret_cast<CUmodule>(module.get());
    modules()[module.get()] = std::move(module);
    return CUDA_SUCCESS;
}

std::string three(const unsigned size[3]) {
    return "(" + std::to_string(size[0]) + ", " + std::to_string(size[1]) + ", " + std::to_string(size[2]) + ")";
}

CUresult check_size(const Function& function, const Launch& launch) {
    const auto& g = launch.grid;
    const auto& b = launch.block;
    if (!g[0] || !g[1] || !g[2] || !b[0] || !b[1] || !b[2]) return CUDA_ERROR_INVALID_VALUE;
    if (g[0] > 2147483647u || g[1] > 65535 || g[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
    if (b[0] > 1024 || b[1] > 1024 || b[2] > 64) return CUDA_ERROR_INVALID_VALUE;
    const size_t threads = size_t(b[0]) * b[1] * b[2];
    if (threads > 1024 || launch.shared > function.most_dynamic) return CUDA_ERROR_INVALID_VALUE;
    if (threads > size_t(function.kernel->most_threads)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_SUCCESS;
}

// Copy what the parameters are at the moment of the launch.
CUresult take_parameters(const Kernel& kernel, void** pointers, void** extra, std::vector<unsigned char>& into) {
    into.assign(std::max<size_t>(kernel.parameter_bytes, 1), 0);
    if (kernel.parameters.empty()) return CUDA_SUCCESS;
    if (pointers) {
        for (size_t i = 0; i < kernel.parameters.size(); i++) {
            REQUIRE(pointers[i], CUDA_ERROR_INVALID_VALUE);
            std::memcpy(&into[kernel.parameters[i].offset], pointers[i], kernel.parameters[i].size);
        }
        return CUDA_SUCCESS;
    }
    const void* buffer = nullptr;
    size_t size = 0;
    for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(extra[i + 1]);
    }
    REQUIRE(buffer && size >= kernel.parameter_bytes, CUDA_ERROR_INVALID_VALUE);
    std::memcpy(into.data(), buffer, kernel.parameter_bytes);
    return CUDA_SUCCESS;
}

CUresult launch(Function* function, Launch what, CUstream handle, void** pointers, void** extra) {
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    auto stream = find_stream(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(function->module->context == stream->context, CUDA_ERROR_INVALID_CONTEXT);
    if (CUresult failed = check_size(*function, what)) return failed;
    auto parameters = std::make_shared<std::vector<unsigned char>>();
    if (CUresult failed = take_parameters(*function->kernel, pointers, extra, *parameters)) return failed;
    what.device = stream->context->device;
    for (auto& each : function->kernel->parameters) what.arguments.push_back(parameters->data() + each.offset);
    return enqueue(stream, [=] {
        (void)parameters;
        std::string why;
        CUresult result = function->kernel->run(what, why);
        memory().close();
        if (!result && memory().take_overrun()) {
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
            why = "it wrote behind the end of an allocation";
        }
        if (result)
            note_fault("kernel " + function->kernel->name + ", grid " + three(what.grid) + ", block " +
                       three(what.block) + ": " + why);
        return result;
    });
}

Launch sizes(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, size_t shared) {
    return {{gx, gy, gz}, {bx, by, bz}, shared, {}, 0};
}

CUresult launch_staged(CUfunction handle, int width, int height, CUstream stream) {
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    size_t size = function->staged.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, function->staged.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    const unsigned* block = function->block;
    return launch(function, sizes(unsigned(width), unsigned(height), 1, block[0], block[1], block[2], function->shared),
                  stream, nullptr, extra);
}

CUresult stage(CUfunction handle, int offset, const void* value, size_t size) {
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(offset >= 0 && value, CUDA_ERROR_INVALID_VALUE);
    function->staged.resize(std::max(function->staged.size(), size_t(offset) + size));
    std::memcpy(&function->staged[size_t(offset)], value, size);
    return CUDA_SUCCESS;
}

int blocks_at_once(const Function& function, int threads, size_t dynamic) {
    if (threads <= 0 || threads > function.kernel->most_threads) return 0;
    const int warps = (threads + 31) / 32;
    const size_t shared = function.kernel->static_shared + dynamic + 1024;
    const int registers = warps * 32 * function.kernel->registers;
    return int(std::min<size_t>({size_t(64 / warps), 32, 233472 / shared, size_t(65536 / registers)}));
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* made, const void* image) {
    ENTER(Context);
    return load(made, image, 0, 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* made, const void* image, unsigned int count, CUjit_option* options, void** values) {
    ENTER(Context);
    return load(made, image, 0, count, options, values);
}

CUresult CUDAAPI cuModuleLoad(CUmodule* made, const char* path) {
    ENTER(Context);
    REQUIRE(path, CUDA_ERROR_INVALID_VALUE);
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file, CUDA_ERROR_FILE_NOT_FOUND);
    std::stringstream all;
    all << file.rdbuf();
    const std::string image = all.str();
    return load(made, image.data(), image.size(), 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
    ENTER(Initialised);
    Module* module = find_module(handle);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    if (state().contexts.count(module->context)) drain(module->context);
    modules().erase(module);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* found, CUmodule handle, const char* name) {
    ENTER(Context);
    REQUIRE(found && name, CUDA_ERROR_INVALID_VALUE);
    Module* module = find_module(handle);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    auto& function = module->functions[name];
    if (!function) {
        Kernel* kernel = module->program->kernel(name);
        if (!kernel) {
            module->functions.erase(name);
            return CUDA_ERROR_NOT_FOUND;
        }
        function = std::make_unique<Function>();
        function->module = module;
        function->kernel = kernel;
        function->most_dynamic = USUAL_SHARED - std::min(USUAL_SHARED, kernel->static_shared);
    }
    *found = reinterpret_cast<CUfunction>(function.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr* address, size_t* size, CUmodule handle, const char* name) {
    ENTER(Context);
    REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    Module* module = find_module(handle);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    const Variable variable = module->program->variable(name);
    REQUIRE(variable.address, CUDA_ERROR_NOT_FOUND);
    if (!memory().find(variable.address))
        memory().note(module->context, variable.address, variable.size, Kind::Module, 0);
    if (address) *address = variable.address;
    if (size) *size = variable.size;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    const std::map<int, int> all = {
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function->kernel->most_threads},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, int(function->kernel->static_shared)},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, function->kernel->registers},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, settings().capability},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, settings().capability},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(function->most_dynamic)},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1},
    };
    auto found = all.find(attribute);
    *value = found == all.end() ? 0 : found->second;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    REQUIRE(attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(value >= 0 && size_t(value) + function->kernel->static_shared <= MOST_SHARED, CUDA_ERROR_INVALID_VALUE);
    function->most_dynamic = size_t(value);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
    ENTER(Context);
    return find_function(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction handle) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    return tell(module, reinterpret_cast<CUmodule>(function->module));
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction handle) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    return tell(name, function->kernel->name.c_str());
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(index < function->kernel->parameters.size(), CUDA_ERROR_INVALID_VALUE);
    if (offset) *offset = function->kernel->parameters[index].offset;
    if (size) *size = function->kernel->parameters[index].size;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void** parameters,
                                void** extra) {
    ENTER(Context);
    return launch(find_function(function), sizes(gx, gy, gz, bx, by, bz, shared), stream, parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** parameters, void** extra) {
    ENTER(Context);
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    return launch(find_function(function),
                  sizes(c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes),
                  c->hStream, parameters, extra);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    return tell(blocks, blocks_at_once(*function, threads, shared));
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                                      size_t shared, unsigned int) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    return tell(blocks, blocks_at_once(*function, threads, shared));
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                                                  size_t shared, int limit) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(grid && block, CUDA_ERROR_INVALID_VALUE);
    int most = 0;
    const int largest = limit > 0 ? std::min(limit, function->kernel->most_threads) : function->kernel->most_threads;
    for (int threads = largest; threads > 0; threads -= 32) {
        const int blocks = blocks_at_once(*function, threads, shared_of ? shared_of(threads) : shared);
        if (blocks * threads <= most) continue;
        most = blocks * threads;
        *block = threads;
        *grid = blocks * 8;
    }
    return CUDA_SUCCESS;
}

// ---- launches in the form that was usual before cuLaunchKernel ----------------------------------

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
    function->block[0] = unsigned(x);
    function->block[1] = unsigned(y);
    function->block[2] = unsigned(z);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    function->shared = bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSetSize(CUfunction handle, unsigned int bytes) {
    ENTER(Context);
    Function* function = find_function(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    function->staged.resize(bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSeti(CUfunction function, int offset, unsigned int value) {
    ENTER(Context);
    return stage(function, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetf(CUfunction function, int offset, float value) {
    ENTER(Context);
    return stage(function, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetv(CUfunction function, int offset, void* value, unsigned int size) {
    ENTER(Context);
    return stage(function, offset, value, size);
}

CUresult CUDAAPI cuLaunch(CUfunction function) {
    ENTER(Context);
    return launch_staged(function, 1, 1, nullptr);
}

CUresult CUDAAPI cuLaunchGrid(CUfunction function, int width, int height) {
    ENTER(Context);
    return launch_staged(function, width, height, nullptr);
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    ENTER(Context);
    return launch_staged(function, width, height, stream);
}

}  // extern "C"

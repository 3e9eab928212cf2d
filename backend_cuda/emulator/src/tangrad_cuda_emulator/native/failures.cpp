#include "failures.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <unordered_map>

#include "settings.hpp"

namespace emulator {
namespace {

struct Failure {
    unsigned long long first = 0;
    bool onwards = false;
    CUresult code = CUDA_SUCCESS;
};

std::unordered_map<std::string, unsigned long long>& counts() {
    static auto* all = new std::unordered_map<std::string, unsigned long long>;
    return *all;
}

std::unordered_map<std::string, Failure>& failures() {
    static auto* all = new std::unordered_map<std::string, Failure>;
    return *all;
}

// cuMemAlloc_v2 is what cuda.h calls cuMemAlloc.
std::string plain(std::string name) {
    const size_t at = name.rfind("_v");
    if (at == std::string::npos || at + 2 == name.size()) return name;
    for (size_t i = at + 2; i < name.size(); i++)
        if (!std::isdigit(static_cast<unsigned char>(name[i]))) return name;
    return name.substr(0, at);
}

bool begins(const std::string& text, const char* start) {
    return text.compare(0, std::strlen(start), start) == 0;
}

CUresult usual_code(const std::string& function) {
    const bool gives_memory = begins(function, "cuMemAlloc") || begins(function, "cuMemHost") ||
                              begins(function, "cuMemCreate") || begins(function, "cuCtxCreate") ||
                              begins(function, "cuDevicePrimaryCtxRetain");
    if (gives_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    if (begins(function, "cuLaunch")) return CUDA_ERROR_LAUNCH_FAILED;
    if (begins(function, "cuModuleLoad")) return CUDA_ERROR_INVALID_IMAGE;
    if (function == "cuInit") return CUDA_ERROR_NO_DEVICE;
    return CUDA_ERROR_UNKNOWN;
}

bool parse(const std::string& part, std::string& function, Failure& failure) {
    std::stringstream fields(part);
    std::string nth, code;
    if (!std::getline(fields, function, ':') || !std::getline(fields, nth, ':')) return false;
    std::getline(fields, code, ':');
    function = plain(function);
    char* end = nullptr;
    failure.first = std::strtoull(nth.c_str(), &end, 10);
    failure.onwards = *end == '+';
    failure.code = code.empty() ? usual_code(function) : CUresult(std::atoi(code.c_str()));
    return failure.first > 0 && failure.code != CUDA_SUCCESS && begins(function, "cu");
}

// After these errors a context is lost, as with a real driver.
bool is_sticky(CUresult code) {
    switch (code) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_EXTERNAL_DEVICE:
            return true;
        default:
            return false;
    }
}

CUresult failure_of(const std::string& function) {
    static const bool was_read = (set_failures(settings().fail), true);
    (void)was_read;
    const unsigned long long nth = ++counts()[function];
    auto found = failures().find(function);
    if (found == failures().end()) return CUDA_SUCCESS;
    const Failure& failure = found->second;
    const bool hit = failure.onwards ? nth >= failure.first : nth == failure.first;
    return hit ? failure.code : CUDA_SUCCESS;
}

// A forked child shares the parent's numbers of handles and none of its device.
bool is_forked_child() { return getpid() != state().process; }

}  // namespace

bool set_failures(const std::string& text) {
    failures().clear();
    counts().clear();
    std::stringstream parts(text);
    std::string part;
    while (std::getline(parts, part, ',')) {
        std::string function;
        Failure failure;
        if (!parse(part, function, failure)) {
            say("cannot read '%s' of the calls that shall fail: write NAME:N, NAME:N+ or NAME:N:CODE",
                part.c_str());
            return false;
        }
        failures()[function] = failure;
    }
    return true;
}

unsigned long long calls_of(const std::string& function) {
    auto found = counts().find(plain(function));
    return found == counts().end() ? 0 : found->second;
}

std::string all_calls() {
    std::string text;
    for (auto& [function, times] : counts()) text += function + " " + std::to_string(times) + "\n";
    return text;
}

Call::Call(const char* function, Needs needs)
    : outer_(lock_of_this_thread()), lock_(state().mutex, std::defer_lock), status_(CUDA_SUCCESS) {
    lock_of_this_thread() = &lock_;
    // The lock, too, may be held for ever in a child by a thread that only its parent has.
    if (state().initialised && is_forked_child()) {
        status_ = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    lock_.lock();
    const CUresult told = failure_of(plain(function));
    Context* context = current();
    if (needs != Needs::Nothing && !state().initialised)
        status_ = CUDA_ERROR_NOT_INITIALIZED;
    else if (needs == Needs::Context && !context)
        status_ = CUDA_ERROR_INVALID_CONTEXT;
    else if (needs == Needs::Context && context->sticky)
        status_ = context->sticky;
    else
        status_ = told;
    if (status_ && status_ == told && context && is_sticky(told)) context->sticky = told;
}

}  // namespace emulator

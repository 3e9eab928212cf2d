// What every function of the driver does first: count itself, and fail when it was told to.
#pragma once

#include <cuda.h>

#include <string>

#include "state.hpp"

namespace emulator {

// Calls that fail, as "cuMemAlloc:3,cuLaunchKernel:1+:700": the third of the first function, and
// from the first on all of the second, with that code. Replaces what was told before.
bool set_failures(const std::string& text);
unsigned long long calls_of(const std::string& function);
// Lines "FUNCTION TIMES".
std::string all_calls();

const char* name_of(CUresult result);
const char* message_of(CUresult result);

// How much of a call has to be in order before the function itself looks at it.
enum class Needs { Nothing, Initialised, Context };

// The lock and the checks of one call.
class Call {
  public:
    Call(const char* function, Needs needs);
    ~Call() { lock_of_this_thread() = outer_; }
    CUresult status() const { return status_; }

  private:
    std::unique_lock<std::mutex>* outer_;
    std::unique_lock<std::mutex> lock_;
    CUresult status_;
};

// Answer by way of a pointer, which the caller may have left out.
template <class T> CUresult tell(T* place, T value) {
    if (!place) return CUDA_ERROR_INVALID_VALUE;
    *place = value;
    return CUDA_SUCCESS;
}

}  // namespace emulator

// First line of a function of the driver.
#define ENTER(needs)                                                  \
    ::emulator::Call call(__func__, ::emulator::Needs::needs);        \
    if (call.status()) return call.status()

#define REQUIRE(condition, otherwise) \
    if (!(condition)) return otherwise

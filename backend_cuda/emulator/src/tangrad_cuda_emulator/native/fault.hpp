// What goes wrong in a kernel that is code of the host: addresses, divisions by zero, traps.
#pragma once

#include <cuda.h>

#include <functional>
#include <string>

namespace emulator {

// Run `work` so that a fault in it ends it with an error in the place of the process. Device memory
// opens to it as it is touched, by devices that may.
CUresult with_faults(int device, std::string& why, const std::function<CUresult()>& work);

// Called by a kernel; does not return.
void fault_in_kernel(const char* why);

}  // namespace emulator

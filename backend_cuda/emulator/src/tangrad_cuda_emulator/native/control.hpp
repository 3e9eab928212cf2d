// What programs may ask of the emulator beside the driver's functions.
#pragma once

#include <string>

namespace emulator {

// Say why a kernel failed, and keep it for who asks.
void note_fault(const std::string& text);

}  // namespace emulator

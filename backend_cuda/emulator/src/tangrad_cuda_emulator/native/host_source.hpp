// From CUDA C++ to a text that a compiler of the host takes.
#pragma once

#include <string>

namespace emulator {

std::string translate_for_host(const std::string& source);

}  // namespace emulator

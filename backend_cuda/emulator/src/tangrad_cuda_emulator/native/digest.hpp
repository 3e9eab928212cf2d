#pragma once

#include <string>

namespace emulator {

// SHA-256 (FIPS 180-4) of a text, in hexadecimal digits.
std::string sha256(const std::string& text);

}  // namespace emulator

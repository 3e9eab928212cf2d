// What programs may ask of the emulator beside the driver's functions.
#pragma once

#include <string>

namespace emulator {

// Add to what the memory requests of a kernel have cost: requests, 32-byte sectors, and the sectors
// that as many bytes would have cost without a gap.
void note_traffic(const std::string& kernel, unsigned long long loads, unsigned long long load_sectors,
                  unsigned long long load_ideal, unsigned long long stores, unsigned long long store_sectors,
                  unsigned long long store_ideal);

// Whether kernels of PTX are watched for races; a program may change it.
bool& watches_races();

// Say why a kernel failed, and keep it for who asks.
void note_fault(const std::string& text);

}  // namespace emulator

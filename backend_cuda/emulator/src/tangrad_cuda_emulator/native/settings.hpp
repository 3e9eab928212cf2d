// What the environment says of the stand-in GPU; read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

struct Settings {
    int devices;            // TANGRAD_CUDA_EMULATOR_DEVICES, 1
    size_t memory;          // TANGRAD_CUDA_EMULATOR_MEMORY, bytes of each device, 8 GiB
    int capability;         // TANGRAD_CUDA_EMULATOR_CAPABILITY, 90 for "9.0"
    bool interpret;         // TANGRAD_CUDA_EMULATOR_ENGINE=ptx: run PTX also where a source is known
    bool races;             // TANGRAD_CUDA_EMULATOR_RACES
    bool eager;             // TANGRAD_CUDA_EMULATOR_EAGER: run work when it is enqueued
    bool protect;           // TANGRAD_CUDA_EMULATOR_PROTECT, 1: hide device memory from the host
    int poison;             // TANGRAD_CUDA_EMULATOR_POISON, byte of fresh memory, 255; -1 for zeros
    std::string sources;    // TANGRAD_CUDA_EMULATOR_SOURCES: folder of <sha256 of image>.cu
    std::string cache;      // TANGRAD_CUDA_EMULATOR_CACHE: folder of compiled kernels
    std::string compiler;   // TANGRAD_CUDA_EMULATOR_CXX, g++
    std::string fail;       // TANGRAD_CUDA_EMULATOR_FAIL: calls that fail (failures.hpp)
};

const Settings& settings();

}  // namespace emulator

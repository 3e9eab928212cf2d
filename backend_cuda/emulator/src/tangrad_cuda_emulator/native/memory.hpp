// Memory of devices, and of the host where the driver made or registered it.
//
// Each piece of device memory is a mapping of its own between two pages that nobody may touch, ends
// close before the second, and is closed to the host except while the driver works.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace emulator {

struct Context;

enum class Kind { Device, Managed, Pinned, Registered, Module };

struct Allocation {
    uintptr_t base = 0;
    size_t size = 0;
    Kind kind = Kind::Device;
    Context* context = nullptr;
    unsigned flags = 0;
    uintptr_t mapping = 0;
    size_t mapped = 0;
    bool open = true;

    uintptr_t end() const { return base + size; }
};

class Memory {
  public:
    // Device and Managed count towards the device's memory.
    CUresult allocate(Context* context, size_t size, Kind kind, unsigned flags, CUdeviceptr* made);
    CUresult release(CUdeviceptr base, std::initializer_list<Kind> kinds);
    CUresult note(Context* context, uintptr_t base, size_t size, Kind kind, unsigned flags);
    void release_all(Context* context);

    // The allocation that an address is in, or null.
    Allocation* find(uintptr_t address);
    // The allocation that a whole range is in, or null.
    Allocation* find(uintptr_t address, size_t size);
    // As above, in memory that devices may use; opened.
    bool reach(uintptr_t address, size_t size);
    bool open(Allocation& allocation);
    // Close what was opened, and say what has been written behind its end.
    void close();
    // Whether something was written behind the end of an allocation, asked once.
    bool take_overrun();

    size_t count() const { return allocations_.size(); }
    // All allocations by address, for engines that look up many.
    const std::map<uintptr_t, Allocation>& all() const { return allocations_; }

  private:
    void check_end(const Allocation& allocation);
    void unmap(const Allocation& allocation);

    std::map<uintptr_t, Allocation> allocations_;
    std::vector<uintptr_t> opened_;
    bool overrun_ = false;
};

Memory& memory();

}  // namespace emulator

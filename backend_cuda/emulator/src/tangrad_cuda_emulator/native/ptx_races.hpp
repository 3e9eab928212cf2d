// Find accesses of one byte by two threads, one a write, that nothing puts in an order.
//
// Between two barriers a block's threads are in no order, nor are a warp's between two instructions
// that they do together, nor are blocks ever. Each byte remembers its last writer and two readers, with
// the counts of barriers at that time. Running in lockstep hides such races; this does not look at
// the order in which the interpreter happens to run.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulator::ptx {

class Races {
  public:
    // With fences, blocks order what they do by atomics, which is not followed here.
    explicit Races(bool fences) : fences_(fences) {}
    void begin_block(unsigned block, unsigned threads, size_t shared);
    void pass_barrier() { barriers_++; }
    void pass_warp(unsigned warp) { warps_[warp]++; }

    // Each says with whom the access collides; "" when with nobody.
    std::string read(bool shared, uint64_t address, size_t size, unsigned thread);
    std::string write(bool shared, uint64_t address, size_t size, unsigned thread);
    std::string update(bool shared, uint64_t address, size_t size, unsigned thread);

  private:
    struct Access {
        uint32_t block = 0, barriers = 0, warp = 0;
        int32_t thread = -1;
        bool atomic = false;
    };
    struct Byte {
        Access writer, readers[2];
    };

    Byte& byte(bool shared, uint64_t address);
    Access mine(unsigned thread, bool atomic) const;
    bool collides(const Access& with, const Access& mine) const;
    std::string touch(bool shared, uint64_t address, size_t size, unsigned thread, bool writes, bool atomic);

    bool fences_;
    uint32_t block_ = 0, barriers_ = 0;
    std::vector<uint32_t> warps_;
    std::vector<Byte> shared_;
    std::unordered_map<uint64_t, Byte> global_;
};

}  // namespace emulator::ptx

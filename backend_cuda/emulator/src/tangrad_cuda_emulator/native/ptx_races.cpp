#include "ptx_races.hpp"

namespace emulator::ptx {

void Races::begin_block(unsigned block, unsigned threads, size_t shared) {
    block_ = block + 1;
    barriers_ = 0;
    warps_.assign((threads + 31) / 32, 0);
    shared_.assign(shared, Byte());
}

Races::Byte& Races::byte(bool shared, uint64_t address) { return shared ? shared_[address] : global_[address]; }

Races::Access Races::mine(unsigned thread, bool atomic) const {
    return {block_, barriers_, warps_[thread / 32], int32_t(thread), atomic};
}

bool Races::collides(const Access& with, const Access& mine) const {
    if (with.thread < 0 || (with.atomic && mine.atomic)) return false;
    if (with.block != mine.block) return !fences_;
    if (with.thread == mine.thread || with.barriers != mine.barriers) return false;
    return with.thread / 32 != mine.thread / 32 || with.warp == mine.warp;
}

std::string Races::touch(bool shared, uint64_t address, size_t size, unsigned thread, bool writes, bool atomic) {
    const Access now = mine(thread, atomic);
    const Access* found = nullptr;
    bool by_reader = false;
    for (size_t i = 0; i < size && !found; i++) {
        Byte& at = byte(shared, address + i);
        if (collides(at.writer, now)) found = &at.writer;
        for (const Access& reader : at.readers)
            if (writes && !found && collides(reader, now)) found = &reader, by_reader = true;
        if (found) break;
        if (writes) {
            at.writer = now;
        } else if (at.readers[0].thread != now.thread || at.readers[0].block != now.block) {
            at.readers[1] = at.readers[0];
            at.readers[0] = now;
        } else {
            at.readers[0] = now;
        }
    }
    if (!found) return "";
    const std::string what = std::string(by_reader ? "read" : "written") + (found->atomic ? " atomically" : "");
    return "race: " + std::to_string(size) + " bytes of " + (shared ? "shared memory at " : "global memory at ") + std::to_string(address) +
           " are " + (writes ? "written" : "read") + " by thread " + std::to_string(thread) + " of block " + std::to_string(block_ - 1) +
           " and " + what + " by thread " + std::to_string(found->thread) + " of block " + std::to_string(found->block - 1) +
           ", in no order";
}

std::string Races::read(bool shared, uint64_t address, size_t size, unsigned thread) { return touch(shared, address, size, thread, false, false); }
std::string Races::write(bool shared, uint64_t address, size_t size, unsigned thread) { return touch(shared, address, size, thread, true, false); }
std::string Races::update(bool shared, uint64_t address, size_t size, unsigned thread) { return touch(shared, address, size, thread, true, true); }

}  // namespace emulator::ptx

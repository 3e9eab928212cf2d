#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "settings.hpp"
#include "state.hpp"

namespace emulator {
namespace {

constexpr size_t PAGE = 4096;
// Address space alone: what a kernel reaches by a wrong index is not the host's.
constexpr size_t GUARD = size_t{16} << 20;
// What cuMemAlloc promises in practice, and libraries rely on.
constexpr size_t ALIGNMENT = 512;
constexpr unsigned char BEHIND = 0xA5;

// Fresh memory is a private view of one file of poison, over and over: what is never written costs
// neither time nor memory.
constexpr size_t PIECE = 4 << 20;

int poison_file() {
    static const int file = [] {
        const int made = memfd_create("poison", MFD_CLOEXEC);
        if (made < 0 || ftruncate(made, PIECE)) return -1;
        const std::vector<char> bytes(PIECE, char(settings().poison));
        return write(made, bytes.data(), PIECE) == ssize_t(PIECE) ? made : -1;
    }();
    return file;
}

bool make_poisoned(char* first, size_t size) {
    for (size_t at = 0; at < size; at += PIECE) {
        void* piece = mmap(first + at, std::min(PIECE, size - at), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file(), 0);
        if (piece == MAP_FAILED) return false;
    }
    return true;
}

bool make_usable(char* first, size_t size, Kind kind) {
    if (kind == Kind::Device && settings().poison >= 0 && poison_file() >= 0)
        return make_poisoned(first, size);
    return mprotect(first, size, PROT_READ | PROT_WRITE) == 0;
}

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

bool is_hidden(Kind kind) { return kind == Kind::Device; }
bool is_counted(Kind kind) { return kind == Kind::Device || kind == Kind::Managed; }

}  // namespace

Memory& memory() {
    static Memory* all = new Memory;
    return *all;
}

CUresult Memory::allocate(Context* context, size_t size, Kind kind, unsigned flags,
                          CUdeviceptr* made) {
    Device& device = state().devices[context->device];
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (is_counted(kind) && (size > settings().memory || device.used > settings().memory - size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t rounded = round_up(size, ALIGNMENT);
    const size_t data = round_up(rounded, PAGE), mapped = data + 2 * GUARD;
    void* mapping = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation all;
    all.mapping = uintptr_t(mapping);
    all.mapped = mapped;
    all.base = all.mapping + GUARD + data - rounded;
    all.size = size;
    all.kind = kind;
    all.context = context;
    all.flags = flags;
    if (!make_usable(static_cast<char*>(mapping) + GUARD, data, kind)) {
        munmap(mapping, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::memset(reinterpret_cast<void*>(all.end()), BEHIND, rounded - size);
    if (is_counted(kind)) device.used += size;
    Allocation& kept = allocations_[all.base] = all;
    opened_.push_back(kept.base);
    close();
    *made = kept.base;
    return CUDA_SUCCESS;
}

CUresult Memory::note(Context* context, uintptr_t base, size_t size, Kind kind, unsigned flags) {
    auto next = allocations_.lower_bound(base);
    if (find(base) || (next != allocations_.end() && next->first < base + size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Allocation all;
    all.base = base;
    all.size = size;
    all.kind = kind;
    all.context = context;
    all.flags = flags;
    allocations_[base] = all;
    return CUDA_SUCCESS;
}

CUresult Memory::release(CUdeviceptr base, std::initializer_list<Kind> kinds) {
    auto found = allocations_.find(base);
    if (found == allocations_.end() ||
        std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end())
        return CUDA_ERROR_INVALID_VALUE;
    unmap(found->second);
    allocations_.erase(found);
    return take_overrun() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

void Memory::release_all(Context* context) {
    for (auto it = allocations_.begin(); it != allocations_.end();) {
        if (it->second.context != context) {
            ++it;
            continue;
        }
        unmap(it->second);
        it = allocations_.erase(it);
    }
}

void Memory::unmap(const Allocation& allocation) {
    if (!allocation.mapping) return;
    if (is_counted(allocation.kind))
        state().devices[allocation.context->device].used -= allocation.size;
    munmap(reinterpret_cast<void*>(allocation.mapping), allocation.mapped);
}

Allocation* Memory::find(uintptr_t address) {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    Allocation& before = std::prev(after)->second;
    return address < before.end() ? &before : nullptr;
}

Allocation* Memory::find(uintptr_t address, size_t size) {
    Allocation* found = find(address);
    return found && size <= found->end() - address ? found : nullptr;
}

bool Memory::reach(uintptr_t address, size_t size) {
    Allocation* found = find(address, size);
    return found && open(*found);
}

bool Memory::open(Allocation& allocation) {
    if (allocation.open) return true;
    void* first = reinterpret_cast<void*>(allocation.mapping + GUARD);
    if (mprotect(first, allocation.mapped - 2 * GUARD, PROT_READ | PROT_WRITE)) return false;
    allocation.open = true;
    opened_.push_back(allocation.base);
    return true;
}

void Memory::close() {
    for (uintptr_t base : opened_) {
        auto found = allocations_.find(base);
        if (found == allocations_.end()) continue;
        Allocation& allocation = found->second;
        if (!allocation.mapping) continue;
        check_end(allocation);
        if (!is_hidden(allocation.kind) || !settings().protect) continue;
        mprotect(reinterpret_cast<void*>(allocation.mapping + GUARD), allocation.mapped - 2 * GUARD,
                 PROT_NONE);
        allocation.open = false;
    }
    opened_.clear();
}

void Memory::check_end(const Allocation& allocation) {
    const uintptr_t stop = allocation.mapping + allocation.mapped - GUARD;
    for (uintptr_t at = allocation.end(); at < stop; at++) {
        if (*reinterpret_cast<unsigned char*>(at) == BEHIND) continue;
        say("byte %zu of an allocation of %zu bytes at %#zx was written", size_t(at - allocation.base),
            allocation.size, size_t(allocation.base));
        *reinterpret_cast<unsigned char*>(at) = BEHIND;
        overrun_ = true;
        return;
    }
}

bool Memory::take_overrun() {
    const bool was = overrun_;
    overrun_ = false;
    return was;
}

}  // namespace emulator

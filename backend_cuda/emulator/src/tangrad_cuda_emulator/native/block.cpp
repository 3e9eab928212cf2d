#include "block.hpp"

#include <algorithm>
#include <cstdint>

#include "fault.hpp"

namespace emulator {
namespace {

constexpr unsigned WARP = 32;

// The block that runs: kernels run one at a time, under the driver's lock.
Block* running_block = nullptr;

bool contains(unsigned mask, unsigned lane) { return mask >> lane & 1; }

// The lane that a shuffle reads from, or its own where that lies outside of its part of the warp.
unsigned source_lane(int kind, unsigned lane, int argument, int width) {
    const int part = width > 0 && width <= 32 ? width : 32;
    const int begin = int(lane) / part * part, inside = int(lane) - begin;
    int from = inside;
    switch (kind) {
        case TANGRAD_IDX: from = argument & (part - 1); break;
        case TANGRAD_UP: from = inside - argument; break;
        case TANGRAD_DOWN: from = inside + argument; break;
        case TANGRAD_XOR: from = inside ^ argument; break;
    }
    // A butterfly may read below its part, never above.
    const bool outside = from >= part || (kind == TANGRAD_UP && from < 0);
    return outside ? lane : unsigned(begin + from) & 31;
}

}  // namespace

const tangrad_runtime* Block::calls() {
    static const tangrad_runtime table = {&Block::barrier, &Block::collective, &Block::active_mask,
                                          &fault_in_kernel};
    return &table;
}

bool Block::run(const tangrad_kernel_info& kernel, void** arguments, tangrad_place& now,
                std::string& why) {
    const unsigned count = now.block_size[0] * now.block_size[1] * now.block_size[2];
    kernel_ = &kernel;
    arguments_ = arguments;
    now_ = &now;
    exited_.assign(count, 0);
    threads_.assign(count, Thread{State::Fresh, nullptr, 0, 0, 0, 0, 0, 0});
    cursor_ = {0, 0, 0, 0, 0, exited_.data()};
    // What a block left that did not end is used again from its beginning.
    spare_.clear();
    for (auto& fiber : fibers_) spare_.push_back(fiber.get());
    running_block = this;
    do {
        for (unsigned first = 0; first < count; first += WARP)
            run_warp(first, std::min(first + WARP, count));
    } while (pass_barrier());
    const bool all = std::all_of(threads_.begin(), threads_.end(),
                                 [](const Thread& each) { return each.state == State::Ended; });
    if (!all) why = describe();
    return all;
}

void Block::run_warp(unsigned first, unsigned last) {
    if (cursor_.next < last) begin_fresh(last);
    note_ends(first, last);
    do {
        for (unsigned thread = first; thread < last; thread++)
            if (threads_[thread].state == State::Runs) go_on(thread);
        note_ends(first, last);
    } while (meet(first, last));
}

void Block::begin_fresh(unsigned last) {
    cursor_.limit = last;
    while (cursor_.next < last) {
        running_ = take_fiber();
        running_->prepare(&Block::work, this);
        running_->enter();
        if (running_->is_finished()) spare_.push_back(running_);
    }
}

void Block::work(void* self) {
    Block* block = static_cast<Block*>(self);
    block->kernel_->run(block->arguments_, &block->cursor_);
}

void Block::go_on(unsigned thread) {
    running_ = threads_[thread].fiber;
    running_->enter();
    if (running_->is_finished()) spare_.push_back(running_);
}

void Block::note_ends(unsigned first, unsigned last) {
    for (unsigned thread = first; thread < last; thread++)
        if (exited_[thread]) threads_[thread].state = State::Ended;
}

Fiber* Block::take_fiber() {
    if (spare_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>());
        return fibers_.back().get();
    }
    Fiber* taken = spare_.back();
    spare_.pop_back();
    return taken;
}

// Leave the fiber of the thread that runs until others have come to what it asks for.
unsigned long long Block::wait(const Thread& asks) {
    Block& block = *running_block;
    Thread& mine = block.threads_[block.now_->id];
    Fiber* fiber = block.running_;
    mine = asks;
    mine.fiber = fiber;
    fiber->leave();
    return mine.told;
}

int Block::barrier(int kind, int predicate) {
    return int(wait({State::AtBarrier, nullptr, kind, 0, 0, 0, predicate != 0, 0}));
}

unsigned long long Block::collective(int kind, unsigned mask, unsigned long long value,
                                     int argument, int width) {
    return wait({State::AtWarp, nullptr, kind, argument, width, mask, value, 0});
}

unsigned Block::active_mask() {
    // Each thread runs by itself, as after a divergence.
    return 1u << (running_block->now_->id % WARP);
}

bool Block::meet(unsigned first, unsigned last) {
    bool met = false;
    for (unsigned thread = first; thread < last; thread++) {
        const Thread& asks = threads_[thread];
        if (asks.state != State::AtWarp) continue;
        if (asks.kind == TANGRAD_LOCKSTEP) {
            threads_[thread].state = State::Runs;
            met = true;
            continue;
        }
        bool all = contains(asks.mask, thread - first);
        for (unsigned other = first; all && other < last; other++) {
            const Thread& with = threads_[other];
            if (!contains(asks.mask, other - first) || with.state == State::Ended) continue;
            all = with.state == State::AtWarp && with.kind == asks.kind && with.mask == asks.mask;
        }
        if (!all) continue;
        tell(first, last, asks.mask);
        met = true;
    }
    return met;
}

// Work out what each thread of a meeting gets, and let them go on.
void Block::tell(unsigned first, unsigned last, unsigned mask) {
    unsigned ballot = 0, there = 0, sum = 0, all_and = ~0u, any_or = 0, all_xor = 0;
    unsigned least = ~0u, most = 0;
    int least_signed = INT32_MAX, most_signed = INT32_MIN;
    unsigned long long shared_value = 0;
    bool same = true;
    for (unsigned thread = first; thread < last; thread++) {
        const Thread& each = threads_[thread];
        if (each.state != State::AtWarp || each.mask != mask) continue;
        const unsigned value = unsigned(each.value), lane = thread - first;
        if (!there) shared_value = each.value;
        same = same && shared_value == each.value;
        there |= 1u << lane;
        ballot |= unsigned(each.value != 0) << lane;
        sum += value;
        all_and &= value;
        any_or |= value;
        all_xor ^= value;
        least = std::min(least, value);
        most = std::max(most, value);
        least_signed = std::min(least_signed, int(value));
        most_signed = std::max(most_signed, int(value));
    }
    for (unsigned thread = first; thread < last; thread++) {
        Thread& each = threads_[thread];
        if (!contains(there, thread - first)) continue;
        switch (each.kind) {
            case TANGRAD_SYNC: break;
            case TANGRAD_BALLOT: each.told = ballot; break;
            case TANGRAD_ANY: each.told = ballot != 0; break;
            case TANGRAD_ALL: each.told = ballot == there; break;
            case TANGRAD_MATCH_ALL: each.told = same ? there : 0; break;
            case TANGRAD_ADD_U32: each.told = sum; break;
            case TANGRAD_MIN_U32: each.told = least; break;
            case TANGRAD_MAX_U32: each.told = most; break;
            case TANGRAD_MIN_S32: each.told = unsigned(least_signed); break;
            case TANGRAD_MAX_S32: each.told = unsigned(most_signed); break;
            case TANGRAD_AND_B32: each.told = all_and; break;
            case TANGRAD_OR_B32: each.told = any_or; break;
            case TANGRAD_XOR_B32: each.told = all_xor; break;
            case TANGRAD_MATCH_ANY: {
                unsigned alike = 0;
                for (unsigned other = first; other < last; other++)
                    if (contains(there, other - first) && threads_[other].value == each.value)
                        alike |= 1u << (other - first);
                each.told = alike;
                break;
            }
            default: {
                const unsigned from = source_lane(each.kind, thread - first, each.argument, each.width);
                // What a thread sends that is not there is not defined; this is what nobody sent.
                each.told = contains(there, from) ? threads_[first + from].value : ~0ull;
            }
        }
    }
    for (unsigned thread = first; thread < last; thread++)
        if (contains(there, thread - first)) threads_[thread].state = State::Runs;
}

bool Block::pass_barrier() {
    unsigned waiting = 0, ended = 0, set = 0;
    for (const Thread& each : threads_) {
        waiting += each.state == State::AtBarrier;
        ended += each.state == State::Ended;
        set += each.state == State::AtBarrier && each.value;
    }
    if (waiting == 0 || waiting + ended < threads_.size()) return false;
    for (Thread& each : threads_) {
        if (each.state != State::AtBarrier) continue;
        each.state = State::Runs;
        each.told = each.kind == TANGRAD_COUNT ? set
                    : each.kind == TANGRAD_AND ? set == waiting
                                               : set != 0;
    }
    return true;
}

std::string Block::describe() const {
    unsigned barrier = 0, warp = 0;
    std::string example;
    for (size_t i = 0; i < threads_.size(); i++) {
        barrier += threads_[i].state == State::AtBarrier;
        if (threads_[i].state != State::AtWarp) continue;
        if (!warp++) example = std::to_string(i);
    }
    std::string said = std::to_string(barrier) + " threads wait at a barrier of the block";
    if (warp)
        said += ", " + std::to_string(warp) + " (the first is thread " + example +
                ") for threads of their warp that the mask names and that never come";
    return said;
}

}  // namespace emulator

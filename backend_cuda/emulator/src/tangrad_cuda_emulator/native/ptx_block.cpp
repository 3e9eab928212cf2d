#include "ptx_block.hpp"

#include <algorithm>

namespace emulator::ptx {

Block::Block(const std::vector<Code>& code, Machine& machine)
    : code_(code), machine_(machine), at_(machine.threads, 0), states_(machine.threads, State::Runs) {}

void Block::run() {
    while (choose() || resolve()) {
        if (group_.empty()) continue;
        together_ = true;
        while (together_ && pc_ < others_) step();
        if (together_)
            for (unsigned thread : group_) at_[thread] = pc_;
    }
}

bool Block::choose() {
    pc_ = others_ = SIZE_MAX;
    group_.clear();
    for (unsigned thread = 0; thread < machine_.threads; thread++) {
        if (states_[thread] != State::Runs) continue;
        const size_t at = at_[thread];
        if (at < pc_) {
            others_ = pc_;
            pc_ = at;
            group_.clear();
        } else if (at > pc_) {
            others_ = std::min(others_, at);
            continue;
        }
        group_.push_back(thread);
    }
    return !group_.empty();
}

void Block::step() {
    if (pc_ >= code_.size()) {
        for (unsigned thread : group_) states_[thread] = State::Ended;
        together_ = false;
        return;
    }
    const Code& code = code_[pc_];
    const std::vector<unsigned>* list = &group_;
    if (code.guard >= 0) {
        const uint64_t* guard = machine_.row(unsigned(code.guard));
        active_.clear();
        for (unsigned thread : group_)
            if (bool(guard[thread]) != code.guard_negated) active_.push_back(thread);
        list = &active_;
    }
    machine_.list = list->data();
    machine_.count = unsigned(list->size());
    machine_.at = code.source;
    if (code.flow == Flow::Next) {
        if (machine_.count) code.run(machine_);
        pc_++;
        return;
    }
    if (!machine_.count) {
        pc_++;
        return;
    }
    if (list == &group_) active_ = group_;
    if (code.flow == Flow::Branch) branch(code);
    else if (code.flow == Flow::Call) call(code);
    else if (code.flow == Flow::Return) come_back(code);
    else if (code.flow == Flow::Warp) together(code);
    else wait(code);
}

// Those that a guard holds back go on behind the instruction; the others are where they were set.
void Block::advance() {
    together_ = false;
    auto next = active_.begin();
    for (unsigned thread : group_) {
        if (next != active_.end() && *next == thread) ++next;
        else at_[thread] = pc_ + 1;
    }
}

void Block::branch(const Code& code) {
    if (active_.size() == group_.size()) {
        pc_ = code.target;
        return;
    }
    for (unsigned thread : active_) at_[thread] = code.target;
    advance();
}

void Block::call(const Code& code) {
    uint64_t* back = machine_.row(code.back);
    for (unsigned thread : active_) back[thread] = pc_ + 1;
    branch(code);
}

void Block::come_back(const Code& code) {
    const uint64_t* back = machine_.row(code.back);
    for (unsigned thread : active_) at_[thread] = back[thread];
    advance();
}

void Block::wait(const Code& code) {
    for (unsigned thread : active_) {
        states_[thread] = code.flow == Flow::Leave ? State::Ended : State::AtBarrier;
        at_[thread] = pc_;
    }
    advance();
}

void Block::together(const Code&) {
    for (unsigned thread : active_) {
        states_[thread] = State::AtWarp;
        at_[thread] = pc_;
    }
    const std::vector<unsigned> arrived = active_;
    advance();
    const size_t pc = pc_;
    for (size_t i = 0; i < arrived.size(); i++)
        if (i == 0 || arrived[i] / WARP != arrived[i - 1] / WARP) meet(pc, arrived[i] / WARP);
}

// Run an instruction of a warp when all lanes that it names have come to it.
bool Block::meet(size_t pc, unsigned warp) {
    const Code& code = code_[pc];
    const unsigned first = warp * WARP, last = std::min(first + WARP, machine_.threads);
    const Values masks = values(machine_, code.mask);
    bool met = false;
    for (unsigned thread = first; thread < last; thread++) {
        if (states_[thread] != State::AtWarp || at_[thread] != pc) continue;
        const uint32_t mask = uint32_t(masks[thread]);
        std::vector<unsigned> lanes;
        bool all = mask >> (thread - first) & 1;
        for (unsigned other = first; all && other < last; other++) {
            if (!(mask >> (other - first) & 1) || states_[other] == State::Ended) continue;
            all = states_[other] == State::AtWarp && at_[other] == pc;
            lanes.push_back(other);
        }
        if (!all) continue;
        machine_.list = lanes.data();
        machine_.count = unsigned(lanes.size());
        machine_.at = code.source;
        code.run(machine_);
        // A shuffle or a vote puts no memory accesses in an order; only this does.
        if (machine_.races && code.source->root == "bar") machine_.races->pass_warp(warp);
        for (unsigned lane : lanes) {
            states_[lane] = State::Runs;
            at_[lane] = pc + 1;
        }
        met = true;
    }
    return met;
}

// No thread goes on by itself: let those go on whose wait is over. False when the block has ended.
bool Block::resolve() {
    unsigned ended = 0, waiting = 0;
    bool met = false;
    for (unsigned thread = 0; thread < machine_.threads; thread++) {
        ended += states_[thread] == State::Ended;
        waiting += states_[thread] == State::AtBarrier;
        if (states_[thread] == State::AtWarp) met = meet(at_[thread], thread / WARP) || met;
    }
    if (ended == machine_.threads) return false;
    if (!met && waiting + ended == machine_.threads) pass_barrier();
    else if (!met) throw Fault{CUDA_ERROR_LAUNCH_TIMEOUT, describe()};
    return true;
}

void Block::pass_barrier() {
    if (machine_.races) machine_.races->pass_barrier();
    unsigned waiting = 0, set = 0;
    for (unsigned thread = 0; thread < machine_.threads; thread++) {
        if (states_[thread] != State::AtBarrier) continue;
        const Code& code = code_[at_[thread]];
        waiting++;
        if (code.predicate >= 0) set += bool(machine_.row(unsigned(code.predicate))[thread]) != code.predicate_negated;
    }
    for (unsigned thread = 0; thread < machine_.threads; thread++) {
        if (states_[thread] != State::AtBarrier) continue;
        const Code& code = code_[at_[thread]];
        const uint64_t told = code.reduction == "popc" ? set : code.reduction == "and" ? set == waiting : set != 0;
        if (code.result >= 0) machine_.row(unsigned(code.result))[thread] = told;
        states_[thread] = State::Runs;
        at_[thread]++;
    }
}

std::string Block::describe() const {
    unsigned barrier = 0, warp = 0;
    std::string where;
    for (unsigned thread = 0; thread < machine_.threads; thread++) {
        barrier += states_[thread] == State::AtBarrier;
        if (states_[thread] != State::AtWarp) continue;
        if (!warp++) where = "thread " + std::to_string(thread) + " in " + code_[at_[thread]].source->text;
    }
    return std::to_string(barrier) + " threads wait at a barrier of the block, " + std::to_string(warp) +
           " (the first is " + where + ") for threads of their warp that the mask names and that never come";
}

}  // namespace emulator::ptx

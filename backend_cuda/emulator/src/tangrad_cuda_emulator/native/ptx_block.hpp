// Run the threads of a block in step: of those that can go on, the ones at the lowest instruction.
#pragma once

#include <string>
#include <vector>

#include "ptx_code.hpp"
#include "ptx_races.hpp"

namespace emulator::ptx {

class Block {
  public:
    Block(const std::vector<Code>& code, Machine& machine);
    // Throws Fault.
    void run();

  private:
    enum class State : unsigned char { Runs, AtBarrier, AtWarp, Ended };

    bool choose();
    void step();
    void advance();
    void branch(const Code& code);
    void call(const Code& code);
    void come_back(const Code& code);
    void wait(const Code& code);
    void together(const Code& code);
    bool meet(size_t pc, unsigned warp);
    bool resolve();
    void pass_barrier();
    std::string describe() const;

    const std::vector<Code>& code_;
    Machine& machine_;
    std::vector<size_t> at_;
    std::vector<State> states_;
    // The threads that are in step, and the lowest instruction of all others.
    std::vector<unsigned> group_, active_;
    size_t pc_ = 0, others_ = 0;
    bool together_ = false;
};

}  // namespace emulator::ptx

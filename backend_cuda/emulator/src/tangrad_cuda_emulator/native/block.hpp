// Run the threads of a block on fibers, until all have ended.
//
// Threads run one after the other, each until it ends or has to wait for others; the first kernel of
// all, which never waits, needs one fiber and a loop. Warps go on as soon as their own threads have
// met, the block when all that have not ended wait at the barrier.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"
#include "runtime.h"

namespace emulator {

class Block {
  public:
    // Run one block; false when threads wait for what never comes. `why` says which.
    bool run(const tangrad_kernel_info& kernel, void** arguments, tangrad_place& now,
             std::string& why);
    static const tangrad_runtime* calls();

  private:
    enum class State : unsigned char { Fresh, Runs, AtBarrier, AtWarp, Ended };
    struct Thread {
        State state;
        Fiber* fiber;
        int kind, argument, width;
        unsigned mask;
        unsigned long long value, told;
    };

    static int barrier(int kind, int predicate);
    static unsigned long long collective(int kind, unsigned mask, unsigned long long value,
                                         int argument, int width);
    static unsigned active_mask();
    static void work(void* self);
    static unsigned long long wait(const Thread& asks);

    void run_warp(unsigned first, unsigned last);
    void begin_fresh(unsigned last);
    void go_on(unsigned thread);
    void note_ends(unsigned first, unsigned last);
    bool meet(unsigned first, unsigned last);
    void tell(unsigned first, unsigned last, unsigned mask);
    bool pass_barrier();
    std::string describe() const;
    Fiber* take_fiber();

    const tangrad_kernel_info* kernel_ = nullptr;
    void** arguments_ = nullptr;
    tangrad_place* now_ = nullptr;
    tangrad_cursor cursor_ = {};
    std::vector<unsigned char> exited_;
    std::vector<Thread> threads_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> spare_;
    Fiber* running_ = nullptr;
};

}  // namespace emulator

// Threads of a block on one thread of the host: a stack each, and a switch between them of a few
// instructions (ucontext's asks the kernel for the signal mask each time, which is 20 times slower).
#pragma once

#include <cstddef>
#include <vector>

namespace emulator {

class Fiber {
  public:
    using Entry = void (*)(void*);

    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Make the fiber begin at `entry` when it is entered next.
    void prepare(Entry entry, void* argument);
    // Run it until it leaves or its entry returns.
    void enter();
    // Go back to who entered; called on the fiber.
    void leave();
    bool is_finished() const { return finished_; }

  private:
    static void begin(Fiber* self);

    char* mapping_;
    void* inside_ = nullptr;
    void* outside_ = nullptr;
    Entry entry_ = nullptr;
    void* argument_ = nullptr;
    bool finished_ = true;
};

}  // namespace emulator

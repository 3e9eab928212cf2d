#include "fault.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

#include "memory.hpp"
#include "state.hpp"

namespace emulator {
namespace {

constexpr size_t ALTERNATE = 64 * 1024;
const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};

struct Watch {
    sigjmp_buf back;
    int device = 0;
    CUresult code = CUDA_SUCCESS;
    char why[256] = "";
    struct sigaction before[3];
    stack_t stack_before;
};

thread_local Watch* watch = nullptr;

// A stack of its own, because the fault may be that of a fiber's stack.
void* alternate_stack() {
    static thread_local void* mine = nullptr;
    if (!mine)
        mine = mmap(nullptr, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mine;
}

bool may_use(int device, const Allocation& allocation) {
    if (allocation.kind != Kind::Device || allocation.context->device == device) return true;
    Context* context = state().devices[device].primary.get();
    if (context && context->peers.count(allocation.context)) return true;
    for (auto& each : state().contexts)
        if (each.second->device == device && each.second->peers.count(allocation.context)) return true;
    return false;
}

[[noreturn]] void leave(CUresult code) {
    watch->code = code;
    siglongjmp(watch->back, 1);
}

void on_signal(int number, siginfo_t* info, void*) {
    if (!watch) {
        signal(number, SIG_DFL);
        return;
    }
    if (number == SIGFPE) {
        std::snprintf(watch->why, sizeof watch->why, "an integer was divided by zero");
        leave(CUDA_ERROR_LAUNCH_FAILED);
    }
    const uintptr_t address = uintptr_t(info->si_addr);
    Allocation* found = memory().find(address);
    if (found && !may_use(watch->device, *found)) {
        std::snprintf(watch->why, sizeof watch->why,
                      "device %d used memory of device %d without access to it", watch->device,
                      found->context->device);
        leave(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if (found && !found->open && memory().open(*found)) return;
    std::snprintf(watch->why, sizeof watch->why, "address %#zx is in no memory of the device",
                  size_t(address));
    leave(CUDA_ERROR_ILLEGAL_ADDRESS);
}

void begin(Watch& mine) {
    stack_t stack = {};
    stack.ss_sp = alternate_stack();
    stack.ss_size = ALTERNATE;
    sigaltstack(&stack, &mine.stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &action, &mine.before[i]);
    watch = &mine;
}

void end(Watch& mine) {
    watch = nullptr;
    for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &mine.before[i], nullptr);
    sigaltstack(&mine.stack_before, nullptr);
}

}  // namespace

CUresult with_faults(int device, std::string& why, const std::function<CUresult()>& work) {
    Watch mine;
    mine.device = device;
    begin(mine);
    CUresult result;
    if (sigsetjmp(mine.back, 1) == 0) {
        result = work();
    } else {
        result = mine.code;
        why = mine.why;
    }
    end(mine);
    return result;
}

void fault_in_kernel(const char* why) {
    std::snprintf(watch->why, sizeof watch->why, "%s", why);
    leave(CUDA_ERROR_ASSERT);
}

}  // namespace emulator

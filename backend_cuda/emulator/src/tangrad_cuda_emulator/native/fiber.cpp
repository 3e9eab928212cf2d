#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64"
#endif

// Save what a called function has to keep, change the stack, and take up what was saved there.
extern "C" void tangrad_switch(void** from, void* to);
asm(R"(
.text
.type tangrad_switch, @function
tangrad_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size tangrad_switch, .-tangrad_switch

.type tangrad_first, @function
tangrad_first:
    movq %r12, %rdi
    callq *%r13
    ud2
.size tangrad_first, .-tangrad_first
)");
extern "C" void tangrad_first();

namespace emulator {
namespace {

constexpr size_t GUARD = 4096;
constexpr size_t STACK = 128 * 1024;

}  // namespace

Fiber::Fiber() {
    void* mapping = mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<char*>(mapping);
    mprotect(mapping_, GUARD, PROT_NONE);
}

Fiber::~Fiber() { munmap(mapping_, GUARD + STACK); }

void Fiber::prepare(Entry entry, void* argument) {
    entry_ = entry;
    argument_ = argument;
    finished_ = false;
    auto* top = reinterpret_cast<uintptr_t*>(mapping_ + GUARD + STACK);
    // r15, r14, r13, r12, rbx, rbp, the address to return to; then the stack is a multiple of 16.
    top -= 9;
    top[0] = top[1] = top[4] = top[5] = 0;
    top[2] = reinterpret_cast<uintptr_t>(&Fiber::begin);
    top[3] = reinterpret_cast<uintptr_t>(this);
    top[6] = reinterpret_cast<uintptr_t>(&tangrad_first);
    top[7] = 0;
    inside_ = top;
}

void Fiber::enter() { tangrad_switch(&outside_, inside_); }

void Fiber::leave() { tangrad_switch(&inside_, outside_); }

void Fiber::begin(Fiber* self) {
    self->entry_(self->argument_);
    self->finished_ = true;
    self->leave();
}

}  // namespace emulator

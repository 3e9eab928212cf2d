// Instructions as the interpreter runs them: each a function that works on many threads at once.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ptx_text.hpp"

namespace emulator::ptx {

// Generic addresses of memory that a block or a thread has for itself.
constexpr uint64_t SHARED_WINDOW = 0x7100000000000000, LOCAL_WINDOW = 0x7200000000000000;
constexpr uint64_t WINDOW_MASK = 0xff00000000000000;
constexpr unsigned WARP = 32;

struct Fault {
    CUresult code;
    std::string why;
};

class Races;

// What memory requests cost: of each warp, the 32-byte sectors that it touched, and those that as
// many bytes without a gap would touch.
struct Traffic {
    uint64_t requests = 0, sectors = 0, ideal = 0;
};

// What a block has, and the threads that the instruction is for.
struct Machine {
    unsigned threads = 0;
    uint64_t* registers = nullptr;
    const unsigned* list = nullptr;
    unsigned count = 0;
    unsigned char* shared = nullptr;
    size_t shared_size = 0;
    unsigned char* local = nullptr;
    size_t local_size = 0;
    const unsigned char* parameters = nullptr;
    int device = 0;
    Races* races = nullptr;
    const Instruction* at = nullptr;
    Traffic loads, stores;

    uint64_t* row(unsigned slot) { return registers + size_t(slot) * threads; }
};

using Run = std::function<void(Machine&)>;

// How an instruction changes which threads go where.
enum class Flow { Next, Branch, Call, Return, Barrier, Warp, Leave };

// A value of each thread, or one for all.
// Where a kernel's parameters lie for code that takes the address of one: no memory is there.
constexpr uint64_t PARAMETERS = 1ull << 62;

struct Source {
    bool is_constant = false;
    uint64_t constant = 0;
    unsigned slot = 0;
};

struct Code {
    const Instruction* source = nullptr;
    Flow flow = Flow::Next;
    Run run;
    size_t target = 0;
    int guard = -1;
    bool guard_negated = false;
    // Of Call and Return: where each thread keeps where it came from.
    unsigned back = 0;
    // Of barriers: what is told behind it, and where.
    std::string reduction;
    int result = -1, predicate = -1;
    bool predicate_negated = false;
    // Of Warp: the lanes that have to be there.
    Source mask;
};

struct Values {
    const uint64_t* at;
    size_t step;
    uint64_t operator[](unsigned thread) const { return at[thread * step]; }
};

// Names of a kernel, and the places that they stand for.
struct Names {
    // What belongs to a function that is called has the function's name before it.
    std::string scope;
    std::map<std::string, unsigned> slots;
    // Addresses in the space of each variable.
    std::map<std::string, uint64_t> addresses;
    // Offsets of the kernel's own parameters; those of calls are in local memory.
    std::map<std::string, size_t> parameters;
    size_t parameter_bytes = 0;
    std::map<std::string, size_t> labels;
    unsigned slot(const std::string& name);
    // The address of a variable, or null.
    const uint64_t* address(const std::string& name) const;
    Source source(const Operand& operand, const std::string& type);
};

inline Values values(Machine& machine, const Source& source) {
    if (source.is_constant) return {&source.constant, 0};
    return {machine.row(source.slot), 1};
}

template <class T> T get(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> uint64_t put(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

// Each of these takes instructions of one kind, and leaves the rest to the others.
bool build_arithmetic(const Instruction& ins, Names& names, Code& code);
bool build_integer(const Instruction& ins, Names& names, Code& code);
bool build_conversion(const Instruction& ins, Names& names, Code& code);
bool build_memory(const Instruction& ins, Names& names, Code& code);
bool build_warp(const Instruction& ins, Names& names, Code& code);
bool build_flow(const Instruction& ins, Names& names, Code& code);

// Throws Fault, with the name, for an instruction that no builder takes.
Code build(const Instruction& ins, Names& names);

// ---- for the builders -----------------------------------------------------------------------------

template <class R, class A, class F> Run map1(unsigned to, Source a, F f) {
    return [=](Machine& m) {
        uint64_t* out = m.row(to);
        const Values x = values(m, a);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            out[t] = put<R>(f(get<A>(x[t])));
        }
    };
}

template <class R, class A, class F> Run map2(unsigned to, Source a, Source b, F f) {
    return [=](Machine& m) {
        uint64_t* out = m.row(to);
        const Values x = values(m, a), y = values(m, b);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            out[t] = put<R>(f(get<A>(x[t]), get<A>(y[t])));
        }
    };
}

template <class R, class A, class F> Run map3(unsigned to, Source a, Source b, Source c, F f) {
    return [=](Machine& m) {
        uint64_t* out = m.row(to);
        const Values x = values(m, a), y = values(m, b), z = values(m, c);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            out[t] = put<R>(f(get<A>(x[t]), get<A>(y[t]), get<R>(z[t])));
        }
    };
}

// Call `f` with a value of the C++ type that a PTX type is; false for a type that is none of these.
template <class F> bool with_integer(const std::string& type, F f) {
    if (type == "s8") f(int8_t());
    else if (type == "u8" || type == "b8") f(uint8_t());
    else if (type == "s16") f(int16_t());
    else if (type == "u16" || type == "b16") f(uint16_t());
    else if (type == "s32") f(int32_t());
    else if (type == "u32" || type == "b32") f(uint32_t());
    else if (type == "s64") f(int64_t());
    else if (type == "u64" || type == "b64") f(uint64_t());
    else return false;
    return true;
}

template <class F> bool with_float(const std::string& type, F f) {
    if (type == "f32") f(float());
    else if (type == "f64") f(double());
    else return false;
    return true;
}

}  // namespace emulator::ptx

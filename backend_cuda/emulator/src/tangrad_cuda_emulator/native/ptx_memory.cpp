// Loads, stores and atomics: where an address leads, whether it may, and what the request costs.

#include <algorithm>
#include <cmath>

#include "memory.hpp"
#include "ptx_code.hpp"
#include "ptx_races.hpp"
#include "state.hpp"

namespace emulator::ptx {
namespace {

struct Where {
    unsigned char* host;
    bool shared;
    bool global;
    uint64_t address;
};

std::string hexadecimal(uint64_t x) {
    char text[32];
    std::snprintf(text, sizeof text, "%#zx", size_t(x));
    return text;
}

[[noreturn]] void fault(const Machine& m, CUresult code, unsigned thread, const std::string& why) {
    throw Fault{code, "thread " + std::to_string(thread) + ", " + m.at->text + ": " + why};
}

bool may_use(int device, const Allocation& memory) {
    if (memory.kind != Kind::Device || memory.context->device == device) return true;
    for (auto& each : state().contexts)
        if (each.second->device == device && each.second->peers.count(memory.context)) return true;
    return false;
}

unsigned char* global(Machine& m, unsigned thread, uint64_t address, size_t size) {
    Allocation* found = memory().find(address, size);
    if (!found) fault(m, CUDA_ERROR_ILLEGAL_ADDRESS, thread, "address " + hexadecimal(address) + " is in no memory of the device");
    if (!may_use(m.device, *found)) fault(m, CUDA_ERROR_ILLEGAL_ADDRESS, thread, "device " + std::to_string(m.device) + " has no access to memory of device " + std::to_string(found->context->device));
    memory().open(*found);
    return reinterpret_cast<unsigned char*>(address);
}

unsigned char* inside(Machine& m, unsigned thread, unsigned char* base, size_t whole, uint64_t address, size_t size, const char* name) {
    if (address > whole || size > whole - address)
        fault(m, CUDA_ERROR_ILLEGAL_ADDRESS, thread, "byte " + std::to_string(address) + " is beyond the " + std::to_string(whole) + " bytes of " + name);
    return base + address;
}

Where find(Machine& m, Space space, unsigned thread, uint64_t address, size_t size) {
    if (address % size) fault(m, CUDA_ERROR_MISALIGNED_ADDRESS, thread, "address " + hexadecimal(address) + " is no multiple of " + std::to_string(size));
    // A generic address says by its first byte where it leads.
    if (space == Space::Global && (address & WINDOW_MASK) == SHARED_WINDOW) space = Space::Shared;
    if (space == Space::Global && (address & WINDOW_MASK) == LOCAL_WINDOW) space = Space::Local;
    const uint64_t offset = address & ~WINDOW_MASK;
    switch (space) {
        case Space::Shared: return {inside(m, thread, m.shared, m.shared_size, uint32_t(offset), size, "the block's shared memory"), true, false, uint32_t(offset)};
        case Space::Local: return {inside(m, thread, m.local + thread * m.local_size, m.local_size, offset, size, "the thread's local memory"), false, false, offset};
        default: return {global(m, thread, address, size), false, true, address};
    }
}

Space space_of(const Instruction& ins) {
    for (auto& word : ins.modifiers) {
        if (word.compare(0, 6, "shared") == 0) return Space::Shared;
        if (word == "local") return Space::Local;
        if (word == "param" || word == "param::entry") return Space::Param;
    }
    return Space::Global;
}

// Count a request of each warp among the threads.
void count(Traffic& traffic, const Machine& m, const std::vector<uint64_t>& addresses, size_t size) {
    std::vector<uint64_t> sectors;
    for (unsigned k = 0; k < m.count;) {
        const unsigned warp = m.list[k] / WARP;
        sectors.clear();
        uint64_t bytes = 0;
        for (; k < m.count && m.list[k] / WARP == warp; k++) {
            if (!addresses[k]) continue;
            for (uint64_t s = addresses[k] / 32; s <= (addresses[k] + size - 1) / 32; s++) sectors.push_back(s);
            bytes += size;
        }
        if (sectors.empty()) continue;
        std::sort(sectors.begin(), sectors.end());
        const size_t touched = size_t(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
        traffic.requests++;
        traffic.sectors += touched;
        // Threads that read the same bytes need them once.
        traffic.ideal += std::min<uint64_t>(touched, (bytes + 31) / 32);
    }
}

void check(Machine& m, const std::string& collision, unsigned thread) {
    if (!collision.empty()) fault(m, CUDA_ERROR_LAUNCH_FAILED, thread, collision);
}

struct Access {
    Space space;
    Source base;
    int64_t offset;
    size_t element, parts;
};

Access access(const Instruction& ins, Names& names, const Operand& at) {
    const size_t parts = ins.has("v2") ? 2 : ins.has("v4") ? 4 : ins.has("v8") ? 8 : 1;
    Operand plain = at;
    plain.kind = at.name.empty() ? Operand::Kind::Number : Operand::Kind::Name;
    plain.offset = 0;
    Space space = space_of(ins);
    // What calls pass is local; a kernel's own parameters are read in another way.
    if (space == Space::Param) space = Space::Local;
    return {space, names.source(plain, "u64"), at.offset, size_of(ins.type()), parts};
}

// Let each thread that is here reach its own place, one after the other, and count the requests.
template <class F>
void request(Machine& m, const Access& at, decltype(&Races::read) touch, Traffic* traffic, F visit) {
    const Values base = values(m, at.base);
    const size_t size = at.element * at.parts;
    std::vector<uint64_t> addresses(m.count);
    for (unsigned k = 0; k < m.count; k++) {
        const unsigned t = m.list[k];
        const Where place = find(m, at.space, t, base[t] + uint64_t(at.offset), size);
        if (place.global) addresses[k] = place.address;
        if (m.races && (place.global || place.shared)) check(m, (m.races->*touch)(place.shared, place.address, size, t), t);
        visit(t, place.host);
    }
    if (traffic) count(*traffic, m, addresses, size);
}

std::vector<int> slots(Names& names, const Operand& operand) {
    std::vector<int> all;
    const auto slot = [&](const Operand& each) { return each.name == "_" ? -1 : int(names.slot(each.name)); };
    if (operand.kind == Operand::Kind::Vector)
        for (auto& part : operand.parts) all.push_back(slot(part));
    else
        all.push_back(slot(operand));
    return all;
}

uint64_t widened(const unsigned char* from, size_t size, bool is_signed) {
    uint64_t bits = 0;
    std::memcpy(&bits, from, size);
    if (is_signed && size < 4 && bits >> (8 * size - 1)) bits |= uint64_t(uint32_t(-1) << (8 * size));
    return bits & (size < 8 ? 0xffffffffull : ~0ull);
}

Run load_parameter(const Instruction& ins, Names& names) {
    const Operand& at = ins.operands[1];
    const size_t element = size_of(ins.type()), offset = size_t(int64_t(names.parameters.at(at.name)) + at.offset);
    const std::vector<int> to = slots(names, ins.operands[0]);
    const bool is_signed = ins.type()[0] == 's';
    return [=](Machine& m) {
        for (size_t i = 0; i < to.size(); i++) {
            const uint64_t bits = widened(m.parameters + offset + i * element, element, is_signed);
            for (unsigned k = 0; k < m.count; k++) m.row(unsigned(to[i]))[m.list[k]] = bits;
        }
    };
}

// The same by an address in a register, which each thread has computed for itself.
Run load_parameter_at(const Instruction& ins, Names& names) {
    const Operand& at = ins.operands[1];
    const size_t element = size_of(ins.type()), bytes = names.parameter_bytes;
    const unsigned base = names.slot(at.name);
    const int64_t offset = at.offset;
    const std::vector<int> to = slots(names, ins.operands[0]);
    const bool is_signed = ins.type()[0] == 's';
    return [=](Machine& m) {
        for (unsigned k = 0; k < m.count; k++) {
            const uint64_t first = m.row(base)[m.list[k]] + uint64_t(offset) - PARAMETERS;
            if (first > bytes || first + element * to.size() > bytes)
                throw Fault{CUDA_ERROR_ILLEGAL_ADDRESS, "a load of parameters goes outside of them"};
            for (size_t i = 0; i < to.size(); i++)
                m.row(unsigned(to[i]))[m.list[k]] = widened(m.parameters + first + i * element, element, is_signed);
        }
    };
}

Run load(const Instruction& ins, Names& names) {
    if (space_of(ins) == Space::Param && names.scope.empty()) {
        if (names.parameters.count(ins.operands[1].name)) return load_parameter(ins, names);
        // What a call returns has a name; an address in a register is of the kernel's own.
        if (ins.operands[1].name[0] == '%') return load_parameter_at(ins, names);
    }
    const Access at = access(ins, names, ins.operands[1]);
    const std::vector<int> to = slots(names, ins.operands[0]);
    const bool is_signed = ins.type()[0] == 's', counts = !ins.has("const");
    return [=](Machine& m) {
        request(m, at, &Races::read, counts ? &m.loads : nullptr, [&](unsigned t, const unsigned char* from) {
            uint64_t told[8];
            for (size_t i = 0; i < at.parts; i++) told[i] = widened(from + i * at.element, at.element, is_signed);
            for (size_t i = 0; i < at.parts; i++)
                if (to[i] >= 0) m.row(unsigned(to[i]))[t] = told[i];
        });
    };
}

Run store(const Instruction& ins, Names& names) {
    const Access at = access(ins, names, ins.operands[0]);
    std::vector<Source> from;
    const Operand& what = ins.operands[1];
    if (what.kind == Operand::Kind::Vector)
        for (auto& part : what.parts) from.push_back(names.source(part, ins.type()));
    else
        from.push_back(names.source(what, ins.type()));
    return [=](Machine& m) {
        request(m, at, &Races::write, &m.stores, [&](unsigned t, unsigned char* to) {
            for (size_t i = 0; i < at.parts; i++) {
                const uint64_t bits = values(m, from[i])[t];
                std::memcpy(to + i * at.element, &bits, at.element);
            }
        });
    };
}

template <class T> bool joined(const std::string& op, T was, T v, T w, T& now) {
    if (op == "add") now = T(was + v);
    else if (op == "exch") now = v;
    else if (op == "min") now = v < was ? v : was;
    else if (op == "max") now = v > was ? v : was;
    else if (op == "cas") now = was == v ? w : was;
    else if constexpr (std::is_integral_v<T>) {
        if (op == "and") now = was & v;
        else if (op == "or") now = was | v;
        else if (op == "xor") now = was ^ v;
        else if (op == "inc") now = was >= v ? T(0) : T(was + 1);
        else if (op == "dec") now = was == 0 || was > v ? v : T(was - 1);
        else return false;
    } else {
        return false;
    }
    return true;
}

// One after the other in the order of their numbers: one of those that a GPU may take.
template <class T> Run update(const Instruction& ins, Names& names, const std::string& op) {
    const bool tells = ins.root == "atom";
    const size_t first = tells ? 1 : 0;
    const Access at = access(ins, names, ins.operands[first]);
    const int to = tells && ins.operands[0].name != "_" ? int(names.slot(ins.operands[0].name)) : -1;
    const Source a = names.source(ins.operands[first + 1], ins.type());
    const Source b = ins.operands.size() > first + 2 ? names.source(ins.operands[first + 2], ins.type()) : a;
    return [=](Machine& m) {
        const Values base = values(m, at.base), x = values(m, a), y = values(m, b);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            const Where where = find(m, at.space, t, base[t] + uint64_t(at.offset), sizeof(T));
            if (m.races) check(m, m.races->update(where.shared, where.address, sizeof(T), t), t);
            T was, now;
            std::memcpy(&was, where.host, sizeof was);
            joined(op, was, get<T>(x[t]), get<T>(y[t]), now);
            std::memcpy(where.host, &now, sizeof now);
            if (to >= 0) m.row(unsigned(to))[t] = put(was);
        }
    };
}

bool build_update(const Instruction& ins, Names& names, Code& code) {
    static const char* const OPS[] = {"add", "exch", "min", "max", "cas", "and", "or", "xor", "inc", "dec"};
    for (const char* op : OPS) {
        if (!ins.has(op)) continue;
        const auto make = [&](auto tag) {
            using T = decltype(tag);
            T now;
            if (joined(op, T(0), T(0), T(0), now)) code.run = update<T>(ins, names, op);
        };
        if (!with_float(ins.type(), make)) with_integer(ins.type(), make);
    }
    return bool(code.run);
}

}  // namespace

bool build_memory(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "ld" || ins.root == "ldu") code.run = load(ins, names);
    else if (ins.root == "st") code.run = store(ins, names);
    else if (ins.root == "atom" || ins.root == "red") return build_update(ins, names, code);
    else if (ins.root == "membar" || ins.root == "fence" || ins.root == "prefetch" || ins.root == "prefetchu") code.run = [](Machine&) {};
    return bool(code.run);
}

}  // namespace emulator::ptx

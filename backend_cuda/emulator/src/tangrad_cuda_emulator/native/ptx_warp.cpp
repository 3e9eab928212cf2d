// What the threads of a warp do together.

#include <algorithm>

#include "ptx_code.hpp"

namespace emulator::ptx {
namespace {

unsigned lane_of(unsigned thread) { return thread % WARP; }

// The lane that a shuffle reads from; `inside` says whether it lies in the part of the warp.
unsigned source_lane(const std::string& mode, unsigned lane, unsigned b, unsigned c, bool& inside) {
    const unsigned segment = c >> 8 & 31, clamp = c & 31, by = b & 31;
    const int least = int(lane & segment), most = int((lane & segment) | (clamp & ~segment & 31));
    int from = 0;
    if (mode == "up") from = int(lane) - int(by);
    else if (mode == "down") from = int(lane + by);
    else if (mode == "bfly") from = int(lane ^ by);
    else from = least | int(by & ~segment);
    inside = mode == "up" ? from >= most : from <= most;
    return inside ? unsigned(from) & 31 : lane;
}

void build_shuffle(const Instruction& ins, Names& names, Code& code) {
    std::string mode = "idx";
    for (const char* each : {"up", "down", "bfly"})
        if (ins.has(each)) mode = each;
    const unsigned to = names.slot(ins.operands[0].name);
    const int told = ins.operands[0].second.empty() ? -1 : int(names.slot(ins.operands[0].second));
    const Source a = names.source(ins.operands[1], "b32"), b = names.source(ins.operands[2], "u32"), c = names.source(ins.operands[3], "u32");
    code.mask = names.source(ins.operands[4], "u32");
    code.run = [=](Machine& m) {
        const Values x = values(m, a), y = values(m, b), z = values(m, c);
        uint64_t sent[WARP], got[WARP];
        bool there[WARP] = {}, inside[WARP];
        for (unsigned k = 0; k < m.count; k++) sent[lane_of(m.list[k])] = x[m.list[k]], there[lane_of(m.list[k])] = true;
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            const unsigned from = source_lane(mode, lane_of(t), unsigned(y[t]), unsigned(z[t]), inside[k]);
            // What a thread sends that is not there is not defined; this is what nobody sent.
            got[k] = there[from] ? sent[from] : 0xffffffff;
        }
        for (unsigned k = 0; k < m.count; k++) {
            m.row(to)[m.list[k]] = got[k];
            if (told >= 0) m.row(unsigned(told))[m.list[k]] = inside[k];
        }
    };
}

void build_vote(const Instruction& ins, Names& names, Code& code) {
    const unsigned to = names.slot(ins.operands[0].name);
    const Source a = names.source(ins.operands[1], "pred");
    const bool negated = ins.operands[1].negated, all = ins.has("all"), any = ins.has("any"), uniform = ins.has("uni");
    code.mask = names.source(ins.operands[2], "u32");
    code.run = [=](Machine& m) {
        const Values x = values(m, a);
        uint32_t ballot = 0, there = 0;
        for (unsigned k = 0; k < m.count; k++) {
            ballot |= uint32_t(bool(x[m.list[k]]) != negated) << lane_of(m.list[k]);
            there |= 1u << lane_of(m.list[k]);
        }
        const uint64_t told = all ? ballot == there : any ? ballot != 0 : uniform ? ballot == there || !ballot : ballot;
        for (unsigned k = 0; k < m.count; k++) m.row(to)[m.list[k]] = told;
    };
}

void build_match(const Instruction& ins, Names& names, Code& code) {
    const unsigned to = names.slot(ins.operands[0].name);
    const int same = ins.operands[0].second.empty() ? -1 : int(names.slot(ins.operands[0].second));
    const Source a = names.source(ins.operands[1], ins.type());
    const bool all = ins.has("all");
    code.mask = names.source(ins.operands[2], "u32");
    code.run = [=](Machine& m) {
        const Values x = values(m, a);
        std::vector<uint32_t> told(m.count, 0);
        for (unsigned k = 0; k < m.count; k++)
            for (unsigned j = 0; j < m.count; j++)
                if (x[m.list[j]] == x[m.list[k]]) told[k] |= 1u << lane_of(m.list[j]);
        const bool alike = unsigned(__builtin_popcount(told[0])) == m.count;
        for (unsigned k = 0; k < m.count; k++) {
            m.row(to)[m.list[k]] = all && !alike ? 0 : told[k];
            if (same >= 0) m.row(unsigned(same))[m.list[k]] = alike;
        }
    };
}

template <class T> T reduced(const std::string& op, T x, T y) {
    if (op == "add") return T(x + y);
    if (op == "min") return std::min(x, y);
    if (op == "max") return std::max(x, y);
    return op == "and" ? T(x & y) : op == "or" ? T(x | y) : T(x ^ y);
}

bool build_reduction(const Instruction& ins, Names& names, Code& code) {
    std::string op;
    for (const char* each : {"add", "min", "max", "and", "or", "xor"})
        if (ins.has(each)) op = each;
    const unsigned to = names.slot(ins.operands[0].name);
    const Source a = names.source(ins.operands[1], ins.type());
    code.mask = names.source(ins.operands[2], "u32");
    return !op.empty() && with_integer(ins.type(), [&](auto tag) {
        using T = decltype(tag);
        code.run = [=](Machine& m) {
            const Values x = values(m, a);
            T told = get<T>(x[m.list[0]]);
            for (unsigned k = 1; k < m.count; k++) told = reduced(op, told, get<T>(x[m.list[k]]));
            for (unsigned k = 0; k < m.count; k++) m.row(to)[m.list[k]] = put(told);
        };
    });
}

void build_active_mask(const Instruction& ins, Names& names, Code& code) {
    const unsigned to = names.slot(ins.operands[0].name);
    code.flow = Flow::Next;
    code.run = [=](Machine& m) {
        std::map<unsigned, uint32_t> masks;
        for (unsigned k = 0; k < m.count; k++) masks[m.list[k] / WARP] |= 1u << lane_of(m.list[k]);
        for (unsigned k = 0; k < m.count; k++) m.row(to)[m.list[k]] = masks[m.list[k] / WARP];
    };
}

}  // namespace

bool build_warp(const Instruction& ins, Names& names, Code& code) {
    code.flow = Flow::Warp;
    if (ins.root == "shfl") build_shuffle(ins, names, code);
    else if (ins.root == "vote") build_vote(ins, names, code);
    else if (ins.root == "match") build_match(ins, names, code);
    else if (ins.root == "redux") return build_reduction(ins, names, code);
    else if (ins.root == "activemask") build_active_mask(ins, names, code);
    else if (ins.root == "bar" && ins.has("warp")) {
        code.mask = names.source(ins.operands[0], "u32");
        code.run = [](Machine&) {};
    } else {
        code.flow = Flow::Next;
        return false;
    }
    return true;
}

}  // namespace emulator::ptx

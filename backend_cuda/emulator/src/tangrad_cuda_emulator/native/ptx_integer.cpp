// Integers, bits, and moves.

#include <algorithm>
#include <set>

#include "ptx_code.hpp"

namespace emulator::ptx {
namespace {

template <class T> using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
template <class T> constexpr unsigned bits_of = 8 * sizeof(T);

template <class T> T high(T x, T y) { return T((Wide<T>(x) * Wide<T>(y)) >> bits_of<T>); }
template <class T> T quotient(T x, T y) { return y == 0 ? T(-1) : std::is_signed_v<T> && y == T(-1) ? T(0 - x) : T(x / y); }
template <class T> T remainder_of(T x, T y) { return y == 0 ? x : std::is_signed_v<T> && y == T(-1) ? T(0) : T(x % y); }
template <class T> T shifted_right(T x, uint32_t n) { return T(x >> std::min<uint32_t>(n, bits_of<T> - 1)) & (n >= bits_of<T> && !std::is_signed_v<T> ? T(0) : T(-1)); }
template <class T> T shifted_left(T x, uint32_t n) { return n >= bits_of<T> ? T(0) : T(std::make_unsigned_t<T>(x) << n); }

template <class T> struct Build {
    const Instruction& ins;
    Names& names;
    std::string type = ins.type();

    unsigned to() { return names.slot(ins.operands[0].name); }
    Source source(size_t i) { return names.source(ins.operands[i], type); }
    template <class F> Run one(F f) { return map1<T, T>(to(), source(1), f); }
    template <class F> Run two(F f) { return map2<T, T>(to(), source(1), source(2), f); }

    // The shift is a number of 32 bits, whatever is shifted.
    template <class F> Run shift(F f) {
        const Source a = source(1), b = names.source(ins.operands[2], "u32");
        const unsigned out = to();
        return [=](Machine& m) {
            const Values x = values(m, a), n = values(m, b);
            for (unsigned k = 0; k < m.count; k++) m.row(out)[m.list[k]] = put<T>(f(get<T>(x[m.list[k]]), uint32_t(n[m.list[k]])));
        };
    }

    template <class R> Run wide() {
        if (ins.root == "mul") return map2<R, T>(to(), source(1), source(2), [](T x, T y) { return R(R(x) * R(y)); });
        const std::string double_type = std::string(1, type[0]) + (sizeof(R) == 8 ? "64" : "32");
        return map3<R, T>(to(), source(1), source(2), names.source(ins.operands[3], double_type),
                          [](T x, T y, R z) { return R(R(x) * R(y) + z); });
    }

    Run multiply() {
        if (ins.has("wide")) {
            if constexpr (sizeof(T) == 4) return wide<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>();
            if constexpr (sizeof(T) == 2) return wide<std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>();
            return nullptr;
        }
        const bool hi = ins.has("hi");
        if (ins.root == "mul") return two([=](T x, T y) { return hi ? high(x, y) : T(uint64_t(x) * uint64_t(y)); });
        return map3<T, T>(to(), source(1), source(2), source(3),
                          [=](T x, T y, T z) { return T((hi ? uint64_t(high(x, y)) : uint64_t(x) * uint64_t(y)) + uint64_t(z)); });
    }

    Run run() {
        const std::string& op = ins.root;
        if (op == "add") return two([](T x, T y) { return T(uint64_t(x) + uint64_t(y)); });
        if (op == "sub") return two([](T x, T y) { return T(uint64_t(x) - uint64_t(y)); });
        if (op == "mul" || op == "mad") return multiply();
        if (op == "div") return two(quotient<T>);
        if (op == "rem") return two(remainder_of<T>);
        if (op == "min") return two([](T x, T y) { return std::min(x, y); });
        if (op == "max") return two([](T x, T y) { return std::max(x, y); });
        if (op == "abs") return one([](T x) { return x < 0 ? T(0 - x) : x; });
        if (op == "neg") return one([](T x) { return T(0 - uint64_t(x)); });
        if (op == "and") return two([](T x, T y) { return T(x & y); });
        if (op == "or") return two([](T x, T y) { return T(x | y); });
        if (op == "xor") return two([](T x, T y) { return T(x ^ y); });
        if (op == "not") return one([](T x) { return T(~x); });
        if (op == "shl") return shift(shifted_left<T>);
        if (op == "shr") return shift(shifted_right<T>);
        if (op == "popc") return map1<uint32_t, T>(to(), source(1), [](T x) { return uint32_t(__builtin_popcountll(std::make_unsigned_t<T>(x))); });
        if (op == "clz") return map1<uint32_t, T>(to(), source(1), [](T x) { return x ? uint32_t(__builtin_clzll(std::make_unsigned_t<T>(x))) - (64 - bits_of<T>) : bits_of<T>; });
        if (op == "brev") return one([](T x) { T r = 0; for (unsigned i = 0; i < bits_of<T>; i++) r = T(r | T((x >> i & 1)) << (bits_of<T> - 1 - i)); return r; });
        if (op == "bfind") return find_bit();
        return op == "bfe" || op == "bfi" ? field() : nullptr;
    }

    // The highest bit that is set, or, below zero, that is not.
    Run find_bit() {
        const bool from_above = ins.has("shiftamt");
        return map1<uint32_t, T>(to(), source(1), [=](T x) -> uint32_t {
            const auto bits = std::make_unsigned_t<T>(x < T(0) ? T(~x) : x);
            if (!bits) return ~0u;
            const uint32_t at = 63 - uint32_t(__builtin_clzll(bits));
            return from_above ? bits_of<T> - 1 - at : at;
        });
    }

    // A field of bits: taken out, with its sign, or put in.
    Run field() {
        const bool insert = ins.root == "bfi";
        const Source a = source(1), b = insert ? source(2) : Source{true, 0, 0};
        const Source p = names.source(ins.operands[insert ? 3 : 2], "u32"), l = names.source(ins.operands[insert ? 4 : 3], "u32");
        const unsigned out = to();
        return [=](Machine& m) {
            const Values x = values(m, a), y = values(m, b), pos = values(m, p), len = values(m, l);
            for (unsigned k = 0; k < m.count; k++) {
                const unsigned t = m.list[k];
                const unsigned at = pos[t] & 255, width = len[t] & 255;
                m.row(out)[t] = put<T>(insert ? inserted(get<T>(x[t]), get<T>(y[t]), at, width) : extracted(get<T>(x[t]), at, width));
            }
        };
    }

    static T extracted(T x, unsigned at, unsigned width) {
        T told = 0;
        const unsigned last = std::min(at + width - 1, bits_of<T> - 1);
        const bool sign = std::is_signed_v<T> && width && (x >> last & 1);
        for (unsigned i = 0; i < bits_of<T>; i++) {
            const bool bit = i < width && at + i < bits_of<T> ? x >> (at + i) & 1 : sign;
            told = T(told | T(bit) << i);
        }
        return told;
    }

    static T inserted(T x, T y, unsigned at, unsigned width) {
        for (unsigned i = 0; i < width && at + i < bits_of<T>; i++)
            y = T((y & ~(T(1) << (at + i))) | T(x >> i & 1) << (at + i));
        return y;
    }
};

uint64_t permuted(uint32_t a, uint32_t b, uint32_t select) {
    const uint64_t both = uint64_t(b) << 32 | a;
    uint32_t told = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned nibble = select >> (4 * i) & 15;
        uint32_t byte = uint32_t(both >> (8 * (nibble & 7))) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        told |= byte << (8 * i);
    }
    return told;
}

uint64_t funnel(bool left, bool clamp, uint32_t lo, uint32_t hi, uint32_t n) {
    n = clamp ? std::min(n, 32u) : n & 31;
    const uint64_t both = uint64_t(hi) << 32 | lo;
    return left ? uint32_t((both << n) >> 32) : uint32_t(both >> n);
}

uint64_t looked_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t told = 0;
    for (int i = 0; i < 32; i++) told |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    return told;
}

// Instructions of three operands of 32 bits.
bool build_three(const Instruction& ins, Names& names, Code& code) {
    const Source a = names.source(ins.operands[1], "b32"), b = names.source(ins.operands[2], "b32"), c = names.source(ins.operands[3], "b32");
    const unsigned to = names.slot(ins.operands[0].name);
    const std::string op = ins.root;
    const bool left = ins.has("l"), clamp = ins.has("clamp");
    const uint32_t table = op == "lop3" ? uint32_t(ins.operands[4].number) : 0;
    code.run = [=](Machine& m) {
        const Values x = values(m, a), y = values(m, b), z = values(m, c);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            const uint32_t u = uint32_t(x[t]), v = uint32_t(y[t]), w = uint32_t(z[t]);
            m.row(to)[t] = op == "prmt" ? permuted(u, v, w) : op == "shf" ? funnel(left, clamp, u, v, w) : looked_up(u, v, w, table);
        }
    };
    return true;
}

// The half of a product that is asked for, without a sign.
uint64_t half_of_product(uint64_t x, uint64_t y, unsigned bits, bool high_half) {
    const unsigned __int128 product = (unsigned __int128)x * y;
    return uint64_t(high_half ? product >> bits : product);
}

// Sums of more than 64 bits, of products too, go by a carry that each thread keeps.
bool build_carry(const Instruction& ins, Names& names, Code& code) {
    const bool multiplies = ins.root[0] == 'm', subtracts = ins.root[0] == 's', high_half = ins.has("hi");
    const bool takes = ins.root.back() == 'c', gives = ins.has("cc");
    if (multiplies && high_half && ins.type()[0] == 's') return false;
    const unsigned to = names.slot(ins.operands[0].name), carry = names.slot("carry flag");
    const Source a = names.source(ins.operands[1], ins.type()), b = names.source(ins.operands[2], ins.type());
    const Source c = multiplies ? names.source(ins.operands[3], ins.type()) : Source();
    const unsigned bits = unsigned(8 * size_of(ins.type()));
    const uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    code.run = [=](Machine& m) {
        const Values x = values(m, a), y = values(m, b), z = values(m, c);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            unsigned __int128 u = x[t] & mask, v = y[t] & mask, was = takes ? m.row(carry)[t] & 1 : 0;
            if (multiplies) u = half_of_product(uint64_t(u), uint64_t(v), bits, high_half) & mask, v = z[t] & mask;
            const unsigned __int128 told = subtracts ? u - v - was : u + v + was;
            m.row(to)[t] = uint64_t(told) & mask;
            if (gives) m.row(carry)[t] = uint64_t(told >> bits) & 1;
        }
    };
    return true;
}

bool build_predicate(const Instruction& ins, Names& names, Code& code) {
    const Source a = names.source(ins.operands[1], "pred");
    const Source b = ins.operands.size() > 2 ? names.source(ins.operands[2], "pred") : a;
    const std::string op = ins.root;
    if (op != "and" && op != "or" && op != "xor" && op != "not" && op != "mov") return false;
    code.run = map2<uint8_t, uint8_t>(names.slot(ins.operands[0].name), a, b, [=](uint8_t x, uint8_t y) -> uint8_t {
        return op == "and" ? x & y : op == "or" ? x | y : op == "xor" ? x ^ y : op == "not" ? !x : x;
    });
    return true;
}

// Moves copy all bits; with braces they part a register, or join several.
bool build_move(const Instruction& ins, Names& names, Code& code) {
    const Operand &to = ins.operands[0], &from = ins.operands[1];
    const size_t whole = size_of(ins.type());
    if (to.kind == Operand::Kind::Vector) {
        const Source a = names.source(from, ins.type());
        std::vector<unsigned> slots;
        for (auto& part : to.parts) slots.push_back(names.slot(part.name));
        const unsigned bits = unsigned(8 * whole / slots.size());
        code.run = [=](Machine& m) {
            const Values x = values(m, a);
            for (unsigned k = 0; k < m.count; k++)
                for (size_t i = 0; i < slots.size(); i++)
                    m.row(slots[i])[m.list[k]] = x[m.list[k]] >> (bits * i) & ((1ull << bits) - 1);
        };
        return true;
    }
    const unsigned out = names.slot(to.name);
    if (from.kind == Operand::Kind::Vector) {
        std::vector<Source> parts;
        const unsigned bits = unsigned(8 * whole / from.parts.size());
        for (auto& part : from.parts) parts.push_back(names.source(part, bits == 32 ? "b32" : "b16"));
        code.run = [=](Machine& m) {
            for (unsigned k = 0; k < m.count; k++) {
                uint64_t all = 0;
                for (size_t i = 0; i < parts.size(); i++)
                    all |= (values(m, parts[i])[m.list[k]] & ((1ull << bits) - 1)) << (bits * i);
                m.row(out)[m.list[k]] = all;
            }
        };
        return true;
    }
    code.run = map1<uint64_t, uint64_t>(out, names.source(from, ins.type()), [](uint64_t x) { return x; });
    return true;
}

}  // namespace

bool build_integer(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "mov") return build_move(ins, names, code);
    if (ins.root == "prmt" || ins.root == "shf" || ins.root == "lop3") return build_three(ins, names, code);
    static const std::set<std::string> with_carry = {"addc", "subc", "madc"}, sums = {"add", "sub", "mad"};
    if (with_carry.count(ins.root) || (ins.has("cc") && sums.count(ins.root))) return build_carry(ins, names, code);
    if (ins.type() == "pred") return build_predicate(ins, names, code);
    if (ins.operands.size() < 2) return false;
    with_integer(ins.type(), [&](auto tag) { code.run = Build<decltype(tag)>{ins, names}.run(); });
    return bool(code.run);
}

}  // namespace emulator::ptx

// cvt and cvta.

#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx_code.hpp"

namespace emulator::ptx {
namespace {

bool is_float(const std::string& type) { return type == "f16" || type == "bf16" || type == "f32" || type == "f64"; }

double read(const std::string& type, uint64_t bits) {
    if (type == "f64") return get<double>(bits);
    if (type == "f32") return get<float>(bits);
    if (type == "bf16") return get<float>(bits << 16);
    return double(get<_Float16>(bits));
}

uint64_t to_bf16(double x) {
    if (std::isnan(x)) return 0x7fff;
    // Through single precision, with an odd last bit where something was lost, to round but once.
    float single = float(x);
    uint32_t bits = uint32_t(put(single));
    if (double(single) != x && !std::isinf(single) && !(bits & 1)) {
        if (std::fabs(double(single)) > std::fabs(x)) bits--;
        bits |= 1;
    }
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint64_t write(const std::string& type, double x) {
    if (type == "f64") return put(x);
    if (type == "f32") return std::isnan(x) ? 0x7fffffffu : put(float(x));
    if (type == "bf16") return to_bf16(x);
    return std::isnan(x) ? 0x7fff : put(_Float16(x));
}

struct Rounding {
    bool to_integer = false;
    int mode = FE_TONEAREST;
};

Rounding rounding(const Instruction& ins) {
    static const std::map<std::string, int> modes = {{"n", FE_TONEAREST}, {"z", FE_TOWARDZERO}, {"m", FE_DOWNWARD}, {"p", FE_UPWARD}};
    for (auto& word : ins.modifiers) {
        const bool integer = word.size() == 3 && word[2] == 'i';
        if (word[0] != 'r' || !(integer || word.size() == 2) || !modes.count(word.substr(1, 1))) continue;
        return {integer, modes.at(word.substr(1, 1))};
    }
    return {};
}

double rounded_to_integer(double x, int mode) {
    return mode == FE_TOWARDZERO ? std::trunc(x) : mode == FE_DOWNWARD ? std::floor(x) : mode == FE_UPWARD ? std::ceil(x) : std::nearbyint(x);
}

// The nearest that there is; what is no number becomes 0, of double precision the sign bit alone.
template <class T> T saturated(double x, bool from_double) {
    using Limits = std::numeric_limits<T>;
    if (std::isnan(x)) return from_double ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
    if (x >= std::ldexp(1.0, Limits::digits)) return Limits::max();
    if (x <= double(Limits::min())) return Limits::min();
    return T(x);
}

template <class T> T clamped(__int128 x) {
    using Limits = std::numeric_limits<T>;
    return x < __int128(Limits::min()) ? Limits::min() : x > __int128(Limits::max()) ? Limits::max() : T(x);
}

double flushed(double x, bool flush) { return flush && std::fabs(x) < 1.1754943508222875e-38 ? std::copysign(0.0, x) : x; }

Run float_to_float(unsigned out, Source a, const std::string& to, const std::string& from, const Instruction& ins) {
    const Rounding how = rounding(ins);
    const bool sat = ins.has("sat"), flush = ins.has("ftz"), relu = ins.has("relu");
    return map1<uint64_t, uint64_t>(out, a, [=](uint64_t bits) {
        double x = flushed(read(from, bits), flush && from == "f32");
        if (how.to_integer) x = rounded_to_integer(x, how.mode);
        if (sat) x = std::isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x;
        if (relu) x = x < 0 ? 0 : x;
        return write(to, flush && to == "f32" ? flushed(double(float(x)), true) : x);
    });
}

template <class T> Run integer_to_float(unsigned out, Source a, const std::string& to) {
    return map1<uint64_t, T>(out, a, [=](T x) -> uint64_t {
        if (to == "f32") return put(float(x));
        return write(to, double(x));
    });
}

// The threads of a warp whose operands are of one type, under another rounding where one is asked.
Run under(int mode, Run run) {
    if (mode == FE_TONEAREST) return run;
    return [=](Machine& m) {
        std::fesetround(mode);
        run(m);
        std::fesetround(FE_TONEAREST);
    };
}

// Two numbers of single precision in one register of two halves, the first above.
Run packed(unsigned out, Source a, Source b, const std::string& half) {
    return map2<uint64_t, float>(out, a, b, [=](float x, float y) { return write(half, x) << 16 | write(half, y); });
}

bool build_convert(const Instruction& ins, Names& names, Code& code) {
    if (ins.operands.size() == 3) {
        const std::string half = ins.has("bf16x2") ? "bf16" : "f16";
        code.run = packed(names.slot(ins.operands[0].name), names.source(ins.operands[1], "f32"), names.source(ins.operands[2], "f32"), half);
        return true;
    }
    const std::string to = ins.type(1), from = ins.type(0);
    const unsigned out = names.slot(ins.operands[0].name);
    const Source a = names.source(ins.operands[1], from);
    const int mode = rounding(ins).mode;
    if (is_float(from) && is_float(to)) {
        // From a wider type the way is through the host's own conversion, under its rounding.
        code.run = under(rounding(ins).to_integer ? FE_TONEAREST : mode, float_to_float(out, a, to, from, ins));
        return true;
    }
    if (is_float(from))
        return with_integer(to, [&](auto tag) {
            using T = decltype(tag);
            const bool flush = ins.has("ftz"), from_double = from == "f64";
            // Registers are wider than the type: what is narrower is extended by its sign.
            code.run = map1<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>, uint64_t>(out, a, [=](uint64_t bits) {
                return saturated<T>(rounded_to_integer(flushed(read(from, bits), flush), mode), from_double);
            });
            if (sizeof(T) >= 4) code.run = map1<T, uint64_t>(out, a, [=](uint64_t bits) {
                return saturated<T>(rounded_to_integer(flushed(read(from, bits), flush), mode), from_double);
            });
        });
    return with_integer(from, [&](auto tag) {
        using F = decltype(tag);
        if (is_float(to)) {
            code.run = under(mode, integer_to_float<F>(out, a, to));
            return;
        }
        const bool sat = ins.has("sat");
        with_integer(to, [&](auto other) {
            using T = decltype(other);
            using Kept = std::conditional_t<(sizeof(T) < 4), std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>, T>;
            code.run = map1<Kept, F>(out, a, [=](F x) { return Kept(sat ? clamped<T>(__int128(x)) : T(x)); });
        });
    });
}

bool build_address(const Instruction& ins, Names& names, Code& code) {
    const uint64_t window = ins.has("shared") ? SHARED_WINDOW : ins.has("local") ? LOCAL_WINDOW : 0;
    const bool to_space = ins.has("to");
    code.run = map1<uint64_t, uint64_t>(names.slot(ins.operands[0].name), names.source(ins.operands[1], "u64"), [=](uint64_t x) {
        if (!window) return x;
        return to_space ? x & ~WINDOW_MASK : x | window;
    });
    return true;
}

}  // namespace

bool build_conversion(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "cvta") return build_address(ins, names, code);
    return ins.root == "cvt" && build_convert(ins, names, code) && code.run;
}

}  // namespace emulator::ptx

// Arithmetic of floating point, and what is alike for integers.

#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx_code.hpp"

namespace emulator::ptx {
namespace {

template <class T> T flush(T x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T(0), x) : x; }

// Run under another rounding than to the nearest, where an instruction asks for one.
Run rounded(const Instruction& ins, Run run) {
    const int mode = ins.has("rz") ? FE_TOWARDZERO : ins.has("rm") ? FE_DOWNWARD : ins.has("rp") ? FE_UPWARD : -1;
    if (mode < 0) return run;
    return [=](Machine& m) {
        std::fesetround(mode);
        run(m);
        std::fesetround(FE_TONEAREST);
    };
}

// A NaN of a GPU's arithmetic has these bits, whatever went in.
float canonical(float x) { return std::isnan(x) ? get<float>(0x7fffffff) : x; }
double canonical(double x) { return x; }

template <class T> struct Finish {
    bool ftz, sat;
    T in(T x) const { return ftz ? flush(x) : x; }
    T operator()(T x) const {
        if (sat) x = std::isnan(x) || x < T(0) ? T(0) : x > T(1) ? T(1) : x;
        return canonical(ftz ? flush(x) : x);
    }
};

template <class T, class F> Run unary(const Instruction& ins, Names& names, F f) {
    const Finish<T> end{ins.has("ftz"), ins.has("sat")};
    return map1<T, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], ins.type()),
                      [=](T x) { return end(f(end.in(x))); });
}

template <class T, class F> Run binary(const Instruction& ins, Names& names, F f) {
    const Finish<T> end{ins.has("ftz"), ins.has("sat")};
    return map2<T, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], ins.type()),
                      names.source(ins.operands[2], ins.type()), [=](T x, T y) { return end(f(end.in(x), end.in(y))); });
}

template <class T> T least(T x, T y) {
    if (std::isnan(x)) return y;
    if (std::isnan(y)) return x;
    if (x == y) return std::signbit(x) ? x : y;
    return x < y ? x : y;
}

template <class T> Run build_float(const Instruction& ins, Names& names) {
    const std::string& op = ins.root;
    const bool nan = ins.has("NaN");
    if (op == "add") return binary<T>(ins, names, [](T x, T y) { return x + y; });
    if (op == "sub") return binary<T>(ins, names, [](T x, T y) { return x - y; });
    if (op == "mul") return binary<T>(ins, names, [](T x, T y) { return x * y; });
    if (op == "div") return binary<T>(ins, names, [](T x, T y) { return x / y; });
    if (op == "min") return binary<T>(ins, names, [=](T x, T y) { return nan && (std::isnan(x) || std::isnan(y)) ? x + y : least(x, y); });
    if (op == "max") return binary<T>(ins, names, [=](T x, T y) { return nan && (std::isnan(x) || std::isnan(y)) ? x + y : -least(-x, -y); });
    // The first operand gives the sign.
    if (op == "copysign") return binary<T>(ins, names, [](T x, T y) { return std::copysign(y, x); });
    if (op == "neg") return map1<T, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], ins.type()), [](T x) { return -x; });
    if (op == "abs") return map1<T, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], ins.type()), [](T x) { return std::fabs(x); });
    if (op == "sqrt") return unary<T>(ins, names, [](T x) { return std::sqrt(x); });
    if (op == "rsqrt") return unary<T>(ins, names, [](T x) { return T(1.0 / std::sqrt(double(x))); });
    if (op == "rcp") return unary<T>(ins, names, [](T x) { return T(1) / x; });
    if (op == "ex2") return unary<T>(ins, names, [](T x) { return std::exp2(x); });
    if (op == "lg2") return unary<T>(ins, names, [](T x) { return std::log2(x); });
    if (op == "sin") return unary<T>(ins, names, [](T x) { return std::sin(x); });
    if (op == "cos") return unary<T>(ins, names, [](T x) { return std::cos(x); });
    if (op == "tanh") return unary<T>(ins, names, [](T x) { return std::tanh(x); });
    if (op == "fma" || op == "mad") {
        const Finish<T> end{ins.has("ftz"), ins.has("sat")};
        const std::string type = ins.type();
        return map3<T, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], type), names.source(ins.operands[2], type),
                          names.source(ins.operands[3], type), [=](T x, T y, T z) { return end(std::fma(end.in(x), end.in(y), end.in(z))); });
    }
    return nullptr;
}

template <class T> bool compare(const std::string& how, T x, T y, bool unordered) {
    if (how == "num") return !unordered;
    if (how == "nan") return unordered;
    // In the forms that end with u, what is no number compares as true.
    const bool or_unordered = how == "equ" || how == "neu" || how == "ltu" || how == "leu" || how == "gtu" || how == "geu";
    if (unordered) return or_unordered;
    const std::string base = how.substr(0, 2);
    if (base == "eq") return x == y;
    if (base == "ne") return x != y;
    if (base == "lt" || base == "lo") return x < y;
    if (base == "le" || base == "ls") return x <= y;
    if (base == "gt" || base == "hi") return x > y;
    return x >= y;
}

template <class T> bool unordered(T x, T y) {
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) return std::isnan(x) || std::isnan(y);
    return false;
}

// One word of the comparison decides for all threads, so it is looked at once.
template <class T> std::function<bool(T, T)> comparison(const std::string& how) {
    if (how == "eq") return [](T x, T y) { return x == y; };
    if (how == "lt") return [](T x, T y) { return x < y; };
    if (how == "gt") return [](T x, T y) { return x > y; };
    return [=](T x, T y) { return compare(how, x, y, unordered(x, y)); };
}

template <class T> void build_setp(const Instruction& ins, Names& names, Code& code) {
    const std::string type = ins.type();
    const auto f = comparison<T>(ins.modifiers[0]);
    const Source a = names.source(ins.operands[1], type), b = names.source(ins.operands[2], type);
    const unsigned to = names.slot(ins.operands[0].name);
    const int other = ins.operands[0].second.empty() ? -1 : int(names.slot(ins.operands[0].second));
    const bool is_set = ins.root == "set", to_float = is_set && ins.type(1) == "f32";
    const std::string with = ins.operands.size() > 3 ? ins.modifiers[1] : "";
    const Source c = with.empty() ? Source{true, 0, 0} : names.source(ins.operands[3], "pred");
    const bool negated = !with.empty() && ins.operands[3].negated;
    code.run = [=](Machine& m) {
        const Values x = values(m, a), y = values(m, b), z = values(m, c);
        for (unsigned k = 0; k < m.count; k++) {
            const unsigned t = m.list[k];
            const bool told = f(get<T>(x[t]), get<T>(y[t])), p = bool(z[t]) != negated;
            const auto joined = [&](bool q) { return with == "and" ? q && p : with == "or" ? q || p : with == "xor" ? q != p : q; };
            const uint64_t yes = is_set ? (to_float ? put(1.0f) : 0xffffffffu) : 1;
            m.row(to)[t] = joined(told) ? yes : 0;
            if (other >= 0) m.row(unsigned(other))[t] = joined(!told);
        }
    };
}

void build_select(const Instruction& ins, Names& names, Code& code) {
    const std::string type = ins.type();
    const Source a = names.source(ins.operands[1], type), b = names.source(ins.operands[2], type), p = names.source(ins.operands[3], "pred");
    const unsigned to = names.slot(ins.operands[0].name);
    code.run = [=](Machine& m) {
        const Values x = values(m, a), y = values(m, b), z = values(m, p);
        for (unsigned k = 0; k < m.count; k++) m.row(to)[m.list[k]] = z[m.list[k]] ? x[m.list[k]] : y[m.list[k]];
    };
}

// What is not a number, endless and so on, and half-precision arithmetic through single precision.
bool build_test(const Instruction& ins, Names& names, Code& code) {
    const std::string kind = ins.modifiers[0];
    return with_float(ins.type(), [&](auto tag) {
        using T = decltype(tag);
        code.run = map1<uint8_t, T>(names.slot(ins.operands[0].name), names.source(ins.operands[1], ins.type()), [=](T x) -> uint8_t {
            const int c = std::fpclassify(x);
            return kind == "finite" ? std::isfinite(x) : kind == "infinite" ? std::isinf(x) : kind == "notanumber" ? std::isnan(x)
                   : kind == "number" ? !std::isnan(x) : kind == "normal" ? c == FP_NORMAL : c == FP_SUBNORMAL;
        });
    });
}

}  // namespace

bool build_arithmetic(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "testp") return build_test(ins, names, code);
    if (ins.root == "selp") return build_select(ins, names, code), true;
    if (ins.root == "setp" || ins.root == "set") {
        const auto make = [&](auto tag) { build_setp<decltype(tag)>(ins, names, code); };
        return with_float(ins.type(), make) || with_integer(ins.type(), make);
    }
    with_float(ins.type(), [&](auto tag) {
        Run run = build_float<decltype(tag)>(ins, names);
        if (run) code.run = rounded(ins, run);
    });
    return bool(code.run);
}

}  // namespace emulator::ptx

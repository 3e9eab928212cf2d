#include "ptx_code.hpp"

namespace emulator::ptx {

unsigned Names::slot(const std::string& name) {
    // Registers are declared where they are used; what is declared nowhere is the machine's.
    auto own = slots.find(scope + name);
    if (own != slots.end()) return own->second;
    return slots.emplace(name, unsigned(slots.size())).first->second;
}

const uint64_t* Names::address(const std::string& name) const {
    auto own = addresses.find(scope + name);
    if (own != addresses.end()) return &own->second;
    auto found = addresses.find(name);
    return found == addresses.end() ? nullptr : &found->second;
}

Source Names::source(const Operand& operand, const std::string& type) {
    if (operand.kind == Operand::Kind::Number) {
        const size_t size = size_of(type);
        const uint64_t mask = size && size < 8 ? (1ull << (8 * size)) - 1 : ~0ull;
        return {true, operand.number & mask, 0};
    }
    if (const uint64_t* found = address(operand.name)) return {true, *found + uint64_t(operand.offset), 0};
    if (scope.empty()) {
        auto own = parameters.find(operand.name);
        if (own != parameters.end()) return {true, PARAMETERS + own->second + uint64_t(operand.offset), 0};
    }
    if (operand.name == "WARP_SZ") return {true, WARP, 0};
    if (operand.name[0] != '%') throw Fault{CUDA_ERROR_INVALID_PTX, "PTX names '" + operand.name + "', which is declared nowhere here"};
    return {false, 0, slot(operand.name)};
}

bool build_flow(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "bra") {
        code.flow = Flow::Branch;
        code.target = names.labels.at(ins.operands[0].name);
    } else if (ins.root == "ret" && !names.scope.empty()) {
        code.flow = Flow::Return;
        code.back = names.slot("back from " + names.scope);
    } else if (ins.root == "ret" || ins.root == "exit") {
        code.flow = Flow::Leave;
    } else if ((ins.root == "bar" || ins.root == "barrier") && (ins.has("sync") || ins.has("red")) && !ins.has("warp")) {
        code.flow = Flow::Barrier;
        if (!ins.has("red")) return true;
        code.reduction = ins.has("popc") ? "popc" : ins.has("and") ? "and" : "or";
        code.result = int(names.slot(ins.operands[0].name));
        const Operand& predicate = ins.operands.back();
        code.predicate = int(names.slot(predicate.name));
        code.predicate_negated = predicate.negated;
    } else if (ins.root == "trap") {
        code.run = [](Machine&) -> void { throw Fault{CUDA_ERROR_ILLEGAL_INSTRUCTION, "trap"}; };
    } else if (ins.root == "nanosleep") {
        code.run = [](Machine&) {};
    } else {
        return false;
    }
    return true;
}

Code build(const Instruction& ins, Names& names) {
    Code code;
    code.source = &ins;
    if (!ins.guard.empty()) {
        code.guard = int(names.slot(ins.guard));
        code.guard_negated = ins.guard_negated;
    }
    for (auto builder : {build_flow, build_warp, build_memory, build_conversion, build_arithmetic, build_integer})
        if (builder(ins, names, code)) return code;
    throw Fault{CUDA_ERROR_INVALID_PTX, "the interpreter does not know the instruction " + ins.text};
}

}  // namespace emulator::ptx

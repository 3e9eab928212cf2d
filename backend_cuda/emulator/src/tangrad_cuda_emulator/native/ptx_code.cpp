#include "ptx_code.hpp"

namespace emulator::ptx {

unsigned Names::slot(const std::string& name) {
    auto found = slots.find(name);
    if (found != slots.end()) return found->second;
    const unsigned made = unsigned(slots.size());
    slots[name] = made;
    return made;
}

Source Names::source(const Operand& operand, const std::string& type) {
    if (operand.kind == Operand::Kind::Number) {
        const size_t size = size_of(type);
        const uint64_t mask = size && size < 8 ? (1ull << (8 * size)) - 1 : ~0ull;
        return {true, operand.number & mask, 0};
    }
    auto address = addresses.find(operand.name);
    if (address != addresses.end()) return {true, address->second + uint64_t(operand.offset), 0};
    if (operand.name == "WARP_SZ") return {true, WARP, 0};
    if (operand.name[0] != '%') throw Fault{CUDA_ERROR_INVALID_PTX, "PTX names '" + operand.name + "', which is declared nowhere here"};
    return {false, 0, slot(operand.name)};
}

bool build_flow(const Instruction& ins, Names& names, Code& code) {
    if (ins.root == "bra") {
        code.flow = Flow::Branch;
        code.target = names.labels.at(ins.operands[0].name);
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

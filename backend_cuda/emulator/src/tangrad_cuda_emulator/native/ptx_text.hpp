// PTX as it is written: variables, functions, instructions with their operands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace emulator::ptx {

enum class Space { Register, Param, Global, Shared, Local, Const };

struct Variable {
    std::string name;
    Space space = Space::Global;
    size_t alignment = 1, size = 0;
    bool dynamic = false;
    std::vector<unsigned char> content;
};

// A register, a number, a name with what is added to it, or several of them.
struct Operand {
    enum class Kind { Name, Number, Address, Vector } kind = Kind::Name;
    std::string name;
    uint64_t number = 0;
    int64_t offset = 0;
    bool negated = false;
    std::vector<Operand> parts;
    // The predicate behind a bar: %r1|%p2.
    std::string second;
};

struct Instruction {
    std::string text;
    std::string root;
    std::vector<std::string> modifiers;
    std::vector<Operand> operands;
    std::string guard;
    bool guard_negated = false;

    bool has(const char* modifier) const;
    // The type that was written last; "" when there is none.
    std::string type(size_t from_the_end = 0) const;
};

struct Function {
    std::string name;
    bool is_entry = false;
    // What is told comes first, then what is passed.
    std::vector<Variable> parameters;
    size_t results = 0;
    std::vector<std::string> registers;
    std::vector<Variable> variables;
    std::vector<Instruction> instructions;
    std::map<std::string, size_t> labels;
    int most_threads = 1024;
};

struct Text {
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

// Throws std::runtime_error, with the line, for what it cannot read.
Text parse(const std::string& text);

// Bytes of a type such as ".f32" or "f32"; 0 for what is no type.
size_t size_of(const std::string& type);

}  // namespace emulator::ptx

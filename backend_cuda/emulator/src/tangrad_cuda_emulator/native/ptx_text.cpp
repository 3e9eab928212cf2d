#include "ptx_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace emulator::ptx {
namespace {

struct Token {
    std::string text;
    int line;
};

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || std::strchr("_$%.", c); }
bool is_in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_$.%", c); }

std::vector<Token> tokenize(const std::string& text) {
    std::vector<Token> all;
    int line = 1;
    for (size_t i = 0; i < text.size() && text[i];) {
        const char c = text[i];
        size_t end = i + 1;
        if (c == '\n') line++;
        if (std::isspace(static_cast<unsigned char>(c))) {
            i++;
            continue;
        }
        if (text.compare(i, 2, "//") == 0) {
            i = std::min(text.find('\n', i), text.size());
            continue;
        }
        if (text.compare(i, 2, "/*") == 0) {
            end = text.find("*/", i + 2);
            end = end == std::string::npos ? text.size() : end + 2;
            line += int(std::count(text.begin() + long(i), text.begin() + long(end), '\n'));
            i = end;
            continue;
        }
        if (c == '"') {
            end = text.find('"', i + 1) + 1;
        } else if (begins_name(c)) {
            while (end < text.size() && is_in_name(text[end])) end++;
        } else if (std::isdigit(static_cast<unsigned char>(c))) {
            while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '.')) end++;
        }
        all.push_back({text.substr(i, end - i), line});
        i = end;
    }
    return all;
}

bool is_number(const std::string& text) { return std::isdigit(static_cast<unsigned char>(text[0])); }

uint64_t number(const std::string& text) {
    const bool is_bits = text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]);
    if (is_bits) return std::strtoull(text.c_str() + 2, nullptr, 16);
    return std::strtoull(text.c_str(), nullptr, 0);
}

const std::map<std::string, Space> SPACES = {{".global", Space::Global}, {".shared", Space::Shared},
                                             {".local", Space::Local},   {".const", Space::Const},
                                             {".param", Space::Param},   {".reg", Space::Register}};

class Parser {
  public:
    explicit Parser(const std::string& text) : tokens_(tokenize(text)) {}

    Text run() {
        Text all;
        while (at_ < tokens_.size()) top(all);
        return all;
    }

  private:
    const std::string& peek(size_t ahead = 0) const {
        static const std::string none;
        return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : none;
    }
    std::string next() {
        if (at_ >= tokens_.size()) fail("it ends too early");
        return tokens_[at_++].text;
    }
    bool take(const char* text) {
        if (peek() != text) return false;
        at_++;
        return true;
    }
    void expect(const char* text) {
        if (!take(text)) fail(std::string("'") + text + "' is expected before '" + peek() + "'");
    }
    [[noreturn]] void fail(const std::string& why) const {
        const int line = tokens_.empty() ? 0 : tokens_[std::min(at_, tokens_.size() - 1)].line;
        throw std::runtime_error("PTX, line " + std::to_string(line) + ": " + why);
    }

    void top(Text& all) {
        if (take(".version") || take(".address_size")) {
            next();
        } else if (take(".target")) {
            do next();
            while (take(","));
        } else if (take(".visible") || take(".weak") || take(".common") || take(";")) {
        } else if (take(".extern")) {
            extern_ = true;
        } else if (peek() == ".entry" || peek() == ".func") {
            function(all);
            extern_ = false;
        } else if (SPACES.count(peek())) {
            all.variables.push_back(variable());
            expect(";");
            extern_ = false;
        } else {
            fail("'" + peek() + "' is not known at the top");
        }
    }

    Variable variable() {
        Variable made;
        made.space = SPACES.at(next());
        std::string type;
        while (peek()[0] == '.') {
            const std::string word = next();
            if (word == ".align") made.alignment = std::max<size_t>(made.alignment, number(next()));
            else if (size_of(word)) type = word;
        }
        if (type.empty()) fail("the type of a variable is not known");
        made.name = next();
        made.size = size_of(type);
        made.alignment = std::max(made.alignment, made.size);
        while (take("[")) {
            made.dynamic = peek() == "]";
            made.size *= made.dynamic ? 0 : number(next());
            expect("]");
        }
        if (take("=")) content(made, size_of(type));
        return made;
    }

    void content(Variable& made, size_t size) {
        made.content.assign(made.size, 0);
        size_t at = 0;
        const bool list = take("{");
        do {
            while (take("{") || take("}")) {}
            const bool negative = take("-");
            if (!is_number(peek())) fail("a variable begins with '" + peek() + "', which is no number");
            uint64_t value = number(next());
            if (negative) value = -value;
            if (at + size <= made.size) std::memcpy(&made.content[at], &value, size);
            at += size;
        } while (take(","));
        if (list) expect("}");
    }

    void function(Text& all) {
        Function made;
        made.is_entry = next() == ".entry";
        if (take("(")) parameters(made);
        made.results = made.parameters.size();
        made.name = next();
        if (take("(")) parameters(made);
        while (at_ < tokens_.size() && peek() != "{" && peek() != ";") {
            if (take(".maxntid")) {
                made.most_threads = int(number(next()));
                while (take(",")) made.most_threads *= int(number(next()));
            } else {
                next();
            }
        }
        if (take(";")) return;
        expect("{");
        int depth = 1;
        while (depth) {
            if (take("{")) depth++;
            else if (take("}")) depth--;
            else statement(made);
        }
        all.functions.push_back(std::move(made));
    }

    void parameters(Function& made) {
        while (!take(")")) {
            made.parameters.push_back(variable());
            take(",");
        }
    }

    void statement(Function& made) {
        if (peek() == ".reg") {
            at_ += 2;
            do registers(made);
            while (take(","));
            expect(";");
        } else if (SPACES.count(peek())) {
            made.variables.push_back(variable());
            expect(";");
        } else if (peek()[0] == '.') {
            while (!take(";")) next();
        } else if (peek(1) == ":") {
            made.labels[next()] = made.instructions.size();
            next();
        } else {
            instruction(made);
        }
    }

    void registers(Function& made) {
        const std::string name = next();
        if (!take("<")) {
            made.registers.push_back(name);
            return;
        }
        const uint64_t count = number(next());
        expect(">");
        for (uint64_t i = 0; i < count; i++) made.registers.push_back(name + std::to_string(i));
    }

    void instruction(Function& made) {
        Instruction ins;
        const size_t first = at_;
        if (take("@")) {
            ins.guard_negated = take("!");
            ins.guard = next();
        }
        std::string name = next();
        for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
            (ins.root.empty() ? ins.root : ins.modifiers.emplace_back()) = name.substr(0, dot);
            name = name.substr(dot + 1);
        }
        (ins.root.empty() ? ins.root : ins.modifiers.emplace_back()) = name;
        while (!take(";")) {
            ins.operands.push_back(operand());
            if (peek() != ";") expect(",");
        }
        for (size_t i = first; i + 1 < at_; i++) {
            const bool glued = i == first || std::strchr(",]}|", tokens_[i].text[0]) || std::strchr("[{|@!", tokens_[i - 1].text[0]);
            ins.text += (glued ? "" : " ") + tokens_[i].text;
        }
        made.instructions.push_back(std::move(ins));
    }

    Operand operand() {
        Operand made;
        if (take("{")) {
            made.kind = Operand::Kind::Vector;
            do made.parts.push_back(operand());
            while (take(","));
            expect("}");
        } else if (take("[")) {
            made = operand();
            made.kind = Operand::Kind::Address;
            expect("]");
        } else if (take("(")) {
            made.kind = Operand::Kind::Vector;
            while (!take(")")) {
                made.parts.push_back(operand());
                take(",");
            }
        } else if (take("!")) {
            made = operand();
            made.negated = true;
        } else if (take("-")) {
            made.kind = Operand::Kind::Number;
            made.number = -number(next());
        } else if (is_number(peek())) {
            made.kind = Operand::Kind::Number;
            made.number = number(next());
        } else {
            made.name = next();
            if (take("|")) made.second = next();
            if (take("+")) {
                const bool negative = take("-");
                made.offset = int64_t(number(next())) * (negative ? -1 : 1);
            }
        }
        return made;
    }

    std::vector<Token> tokens_;
    size_t at_ = 0;
    bool extern_ = false;
};

}  // namespace

bool Instruction::has(const char* modifier) const {
    return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::string Instruction::type(size_t from_the_end) const {
    for (auto it = modifiers.rbegin(); it != modifiers.rend(); ++it)
        if (size_of(*it) && from_the_end-- == 0) return *it;
    return "";
}

size_t size_of(const std::string& type) {
    static const std::map<std::string, size_t> sizes = {
        {"pred", 1}, {"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},  {"s16", 2}, {"f16", 2},
        {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4}, {"f16x2", 4}, {"b64", 8}, {"u64", 8},
        {"s64", 8},  {"f64", 8}};
    auto found = sizes.find(type[0] == '.' ? type.substr(1) : type);
    return found == sizes.end() ? 0 : found->second;
}

Text parse(const std::string& text) { return Parser(text).run(); }

}  // namespace emulator::ptx

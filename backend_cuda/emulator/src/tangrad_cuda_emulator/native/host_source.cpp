#include "host_source.hpp"

#include <cctype>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "settings.hpp"

// The two headers that every kernel begins with are part of the library.
asm(".section .rodata\n"
    "tangrad_runtime_text: .incbin \"" TANGRAD_NATIVE "/runtime.h\"\n.byte 0\n"
    "tangrad_header_text: .incbin \"" TANGRAD_NATIVE "/kernel_header.hpp\"\n.byte 0\n"
    ".text\n");
extern "C" {
extern const char tangrad_runtime_text[] __attribute__((visibility("hidden")));
extern const char tangrad_header_text[] __attribute__((visibility("hidden")));
}

namespace emulator {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The text with comments and strings blank, every character where it was.
std::string without_comments(const std::string& text) {
    std::string all = text;
    enum { Code, Line, Block, String } in = Code;
    for (size_t i = 0; i < all.size(); i++) {
        const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : 0;
        if (in == Code && c == '/' && next == '/') in = Line;
        if (in == Code && c == '/' && next == '*') in = Block;
        const bool quote = c == '"' && (i == 0 || text[i - 1] != '\\');
        if (in == Line && c == '\n') in = Code;
        const bool block_ends = in == Block && c == '/' && i && text[i - 1] == '*';
        if (in != Code && c != '\n') all[i] = ' ';
        if (block_ends) in = Code;
        if (quote && (in == Code || in == String)) in = in == Code ? String : Code;
    }
    return all;
}

size_t after_parentheses(const std::string& text, size_t at) {
    int depth = 0;
    for (; at < text.size(); at++) {
        depth += text[at] == '(';
        depth -= text[at] == ')';
        if (depth == 0) return at + 1;
    }
    return at;
}

// Names of the functions declared __global__ that are no templates.
std::vector<std::string> kernel_names(const std::string& source) {
    const std::string text = without_comments(source), mark = "__global__";
    std::vector<std::string> found;
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
        const size_t before = text.find_last_of(";}{#", at);
        std::string prefix = text.substr(before == std::string::npos ? 0 : before, at - before);
        // A macro ends with its line, unless a backslash is the last of that.
        for (size_t end = prefix.find('\n'); prefix[0] == '#' && end != std::string::npos; end = prefix.find('\n', end + 1))
            if (prefix[end - 1] != '\\') prefix = prefix.substr(end);
        if (prefix.find("template") != std::string::npos || prefix.find("define") != std::string::npos)
            continue;
        size_t i = at + mark.size();
        std::string word;
        while (i < text.size() && text[i] != ';' && text[i] != '{') {
            if (is_word(text[i])) {
                const size_t begin = i;
                while (i < text.size() && is_word(text[i])) i++;
                word = text.substr(begin, i - begin);
            } else if (text[i] == '(') {
                if (word.compare(0, 2, "__") != 0) break;
                i = after_parentheses(text, i);
            } else {
                i++;
            }
        }
        bool known = word.empty();
        for (auto& each : found) known = known || each == word;
        if (!known) found.push_back(word);
    }
    return found;
}

// extern __shared__ T name[]; is the block's dynamic memory under a name.
std::string with_dynamic_shared(const std::string& source) {
    static const std::regex declared(
        R"(extern\s+__shared__\s+((?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)?)([\w:\s]+?)\s*(\b\w+)\s*\[\s*\]\s*;)");
    return std::regex_replace(source, declared,
                              "static $2 *const $3 = ($2 *)tangrad_dynamic_shared;");
}

// volatile T *s; s[i] = x; in kernels older than __syncwarp: the warp stores it in one step, when all
// of its threads have read what they need, and none reads on before. The interpreter has no such
// mercy: watched for races, it tells of them.
std::string with_steps_of_warps(const std::string& source) {
    static const std::regex declared(R"(\bvolatile\s+[\w:]+\s*\*\s*(?:const\s+)?(\w+))");
    std::set<std::string> names;
    for (std::sregex_iterator each(source.begin(), source.end(), declared), end; each != end; ++each)
        names.insert((*each)[1]);
    std::string all = source;
    for (auto& name : names) {
        const std::string target = "\\b(" + name + R"(\s*\[[^\[\]=;]*\]))";
        all = std::regex_replace(all, std::regex(target + R"(\s*=(?!=)\s*([^;{}]*);)"),
                                 "{ auto tangrad_stored = $2; tangrad_lockstep(); $1 = tangrad_stored; "
                                 "tangrad_lockstep(); }");
        all = std::regex_replace(all, std::regex(target + R"(\s*([-+*/&|^])=\s*([^;{}]*);)"),
                                 "{ auto tangrad_stored = $1 $2 ($3); tangrad_lockstep(); "
                                 "$1 = tangrad_stored; tangrad_lockstep(); }");
    }
    return all;
}

// asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); is a call of the function that has its name.
std::string with_calls_for_assembly(const std::string& source) {
    static const std::regex statement(
        R"re((?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(\s*"\{?\s*([\w.]+)\s+%0\s*,\s*%1\s*;\s*\}?"\s*:\s*"=\w+"\s*\(([^()]*)\)\s*:\s*"\w+"\s*\(([^()]*)\)\s*\)\s*;)re");
    std::string all, rest = source;
    std::smatch match;
    while (std::regex_search(rest, match, statement)) {
        std::string name = match[1];
        for (char& c : name)
            if (c == '.') c = '_';
        all += match.prefix().str() + match[2].str() + " = tangrad_" + name + "(" + match[3].str() + ");";
        rest = match.suffix();
    }
    return all + rest;
}

}  // namespace

std::string translate_for_host(const std::string& source) {
    std::ostringstream all;
    all << tangrad_runtime_text << "\n#define TANGRAD_CAPABILITY " << settings().capability * 10 << "\n"
        << tangrad_header_text << "\n#line 1 \"kernel\"\n"
        << with_steps_of_warps(with_calls_for_assembly(with_dynamic_shared(source))) << "\n"
        << "extern \"C\" const tangrad_kernel_info tangrad_kernels[] = {\n";
    for (auto& name : kernel_names(source)) all << "TANGRAD_KERNEL(" << name << ")\n";
    all << "{}};\n";
    return all.str();
}

}  // namespace emulator

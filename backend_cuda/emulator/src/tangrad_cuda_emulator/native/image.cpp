// Which engine takes an image, and what all engines share.

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "digest.hpp"
#include "engine.hpp"
#include "settings.hpp"

namespace emulator {
namespace {

const char SOURCE[] = "//TANGRAD-SOURCE";

size_t size_of_elf(const char* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof header);
    size_t size = std::max<size_t>(header.e_shoff + size_t(header.e_shnum) * header.e_shentsize,
                                   header.e_phoff + size_t(header.e_phnum) * header.e_phentsize);
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        std::memcpy(&section, image + header.e_shoff + size_t(i) * header.e_shentsize, sizeof section);
        if (section.sh_type != SHT_NOBITS) size = std::max<size_t>(size, section.sh_offset + section.sh_size);
    }
    return size;
}

std::string content(const void* image, size_t size) {
    const char* bytes = static_cast<const char*>(image);
    if (size) return {bytes, size};
    const bool is_elf = std::memcmp(bytes, ELFMAG, SELFMAG) == 0;
    return {bytes, is_elf ? size_of_elf(bytes) : std::strlen(bytes)};
}

bool known_source(const std::string& image, std::string& source) {
    if (settings().sources.empty()) return false;
    std::ifstream file(settings().sources + "/" + sha256(image) + ".cu", std::ios::binary);
    if (!file) return false;
    std::stringstream all;
    all << file.rdbuf();
    source = all.str();
    return true;
}

}  // namespace

std::unique_ptr<Program> load_image(const void* image, size_t size, std::string& log) {
    std::string text = content(image, size);
    const bool is_elf = text.compare(0, SELFMAG, ELFMAG) == 0;
    while (!is_elf && !text.empty() && text.back() == 0) text.pop_back();
    if (text.compare(0, sizeof SOURCE - 1, SOURCE) == 0) return compile_for_host(text, log);
    std::string source;
    const bool is_ptx = text.find(".version") != std::string::npos && text.find(".target") != std::string::npos;
    if (!(settings().interpret && is_ptx) && known_source(text, source)) return compile_for_host(source, log);
    if (is_ptx) return read_ptx(text, log);
    log = "the image is neither PTX, nor CUDA C++ that begins with //TANGRAD-SOURCE, nor one whose source "
          "is in the folder TANGRAD_CUDA_EMULATOR_SOURCES; code of a GPU cannot run here";
    return nullptr;
}

void lay_out(Kernel& kernel, const std::vector<size_t>& sizes, const std::vector<size_t>& alignments) {
    size_t at = 0;
    for (size_t i = 0; i < sizes.size(); i++) {
        at = (at + alignments[i] - 1) / alignments[i] * alignments[i];
        kernel.parameters.push_back({at, sizes[i]});
        at += sizes[i];
    }
    kernel.parameter_bytes = at;
}

}  // namespace emulator

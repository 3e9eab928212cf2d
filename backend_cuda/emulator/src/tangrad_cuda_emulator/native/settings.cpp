#include "settings.hpp"

#include <cstdlib>

namespace emulator {
namespace {

std::string text(const char* name, const std::string& otherwise) {
    const char* value = std::getenv((std::string("TANGRAD_CUDA_EMULATOR_") + name).c_str());
    return value && *value ? value : otherwise;
}

long long number(const char* name, long long otherwise) {
    return std::strtoll(text(name, std::to_string(otherwise)).c_str(), nullptr, 0);
}

int capability() {
    const std::string told = text("CAPABILITY", "9.0");
    const size_t dot = told.find('.');
    if (dot == std::string::npos) return std::atoi(told.c_str());
    return std::atoi(told.substr(0, dot).c_str()) * 10 + std::atoi(told.substr(dot + 1).c_str());
}

std::string cache_folder() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = cache && *cache ? cache : std::string(home ? home : "/tmp") + "/.cache";
    return base + "/tangrad/cuda-emulator";
}

Settings read() {
    Settings all;
    all.devices = int(number("DEVICES", 1));
    all.memory = size_t(number("MEMORY", 8LL << 30));
    all.capability = capability();
    all.interpret = text("ENGINE", "host") == "ptx";
    all.races = number("RACES", 0) != 0;
    all.eager = number("EAGER", 0) != 0;
    all.protect = number("PROTECT", 1) != 0;
    all.poison = int(number("POISON", 255));
    all.sources = text("SOURCES", "");
    all.cache = text("CACHE", cache_folder());
    all.compiler = text("CXX", "g++");
    all.fail = text("FAIL", "");
    return all;
}

}  // namespace

const Settings& settings() {
    static const Settings all = read();
    return all;
}

}  // namespace emulator

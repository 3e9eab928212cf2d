// What runs kernels: an image becomes a program, which has kernels and variables.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

namespace emulator {

struct Launch {
    unsigned grid[3], block[3];
    size_t shared;
    // One pointer per parameter.
    std::vector<void*> arguments;
    int device;
};

struct Parameter {
    size_t offset, size;
};

class Kernel {
  public:
    virtual ~Kernel() = default;
    // Run it to its end, and say why it could not.
    virtual CUresult run(const Launch& launch, std::string& why) = 0;

    std::string name;
    std::vector<Parameter> parameters;
    size_t parameter_bytes = 0;
    size_t static_shared = 0;
    int registers = 32;
    int most_threads = 1024;
};

struct Variable {
    uintptr_t address = 0;
    size_t size = 0;
};

class Program {
  public:
    virtual ~Program() = default;
    virtual Kernel* kernel(const std::string& name) = 0;
    virtual std::vector<std::string> names() const = 0;
    virtual Variable variable(const std::string& name) = 0;
};

// Make a program of CUDA C++ by the compiler of the host.
std::unique_ptr<Program> compile_for_host(const std::string& source, std::string& log);
// Make a program of PTX.
std::unique_ptr<Program> read_ptx(const std::string& text, std::string& log);
// Choose by what the image is; `size` is 0 where the caller does not know.
std::unique_ptr<Program> load_image(const void* image, size_t size, std::string& log);

// Place the parameters one behind the other, each on a multiple of its alignment.
void lay_out(Kernel& kernel, const std::vector<size_t>& sizes, const std::vector<size_t>& alignments);

}  // namespace emulator

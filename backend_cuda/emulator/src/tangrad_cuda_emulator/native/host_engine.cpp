// Kernels whose source is known: compiled by the compiler of the host, kept on disk, and called.

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "block.hpp"
#include "digest.hpp"
#include "engine.hpp"
#include "fault.hpp"
#include "host_source.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "state.hpp"

extern char** environ;

namespace emulator {
namespace {

class HostKernel : public Kernel {
  public:
    HostKernel(const tangrad_kernel_info& info, tangrad_place& now, unsigned char* shared)
        : info_(info), now_(now), shared_(shared) {
        name = info.name;
        lay_out(*this, {info.sizes, info.sizes + info.parameters},
                {info.alignments, info.alignments + info.parameters});
    }

    CUresult run(const Launch& launch, std::string& why) override {
        return with_faults(launch.device, why, [&] { return run_blocks(launch, why); });
    }

  private:
    CUresult run_blocks(const Launch& launch, std::string& why) {
        // Kept for the next launch, with its fibers; one kernel runs at a time.
        static auto* block = new Block;
        std::memcpy(now_.block_size, launch.block, sizeof launch.block);
        std::memcpy(now_.grid_size, launch.grid, sizeof launch.grid);
        auto arguments = launch.arguments;
        for (unsigned z = 0; z < launch.grid[2]; z++)
            for (unsigned y = 0; y < launch.grid[1]; y++)
                for (unsigned x = 0; x < launch.grid[0]; x++) {
                    now_.block[0] = x;
                    now_.block[1] = y;
                    now_.block[2] = z;
                    if (launch.shared && settings().poison >= 0)
                        std::memset(shared_, settings().poison, launch.shared);
                    if (!block->run(info_, arguments.data(), now_, why)) return CUDA_ERROR_LAUNCH_TIMEOUT;
                }
        return CUDA_SUCCESS;
    }

    const tangrad_kernel_info& info_;
    tangrad_place& now_;
    unsigned char* shared_;
};

class HostProgram : public Program {
  public:
    explicit HostProgram(void* library) : library_(library) {
        auto* now = static_cast<tangrad_place*>(dlsym(library, "tangrad_now"));
        auto* shared = static_cast<unsigned char*>(dlsym(library, "tangrad_dynamic_shared"));
        *static_cast<const tangrad_runtime**>(dlsym(library, "tangrad_calls")) = Block::calls();
        auto* info = static_cast<const tangrad_kernel_info*>(dlsym(library, "tangrad_kernels"));
        for (; info->name; info++) add(*info, *now, shared);
    }
    ~HostProgram() override {
        for (uintptr_t address : shown_) memory().release(address, {Kind::Module});
        dlclose(library_);
    }

    Kernel* kernel(const std::string& name) override {
        auto found = kernels_.find(name);
        if (found != kernels_.end()) return found->second.get();
        auto other = mangled_.find(name);
        return other == mangled_.end() ? nullptr : other->second;
    }

    std::vector<std::string> names() const override {
        std::vector<std::string> all;
        for (auto& each : kernels_) all.push_back(each.first);
        return all;
    }

    Variable variable(const std::string& name) override {
        void* address = dlsym(library_, name.c_str());
        Dl_info where;
        void* symbol = nullptr;
        if (!address || !dladdr1(address, &where, &symbol, RTLD_DL_SYMENT) || !symbol) return {};
        // dlsym also finds what the library needs itself.
        struct link_map* map = nullptr;
        dlinfo(library_, RTLD_DI_LINKMAP, &map);
        if (!map || where.dli_fbase != reinterpret_cast<void*>(map->l_addr)) return {};
        shown_.insert(uintptr_t(address));
        return {uintptr_t(address), static_cast<const ElfW(Sym)*>(symbol)->st_size};
    }

  private:
    void add(const tangrad_kernel_info& info, tangrad_place& now, unsigned char* shared) {
        auto made = std::make_unique<HostKernel>(info, now, shared);
        Dl_info where;
        if (dladdr(info.address, &where) && where.dli_sname) mangled_[where.dli_sname] = made.get();
        kernels_[info.name] = std::move(made);
    }

    void* library_;
    // Variables that a program asked for, which are noted as memory of the device.
    std::set<uintptr_t> shown_;
    std::map<std::string, std::unique_ptr<HostKernel>> kernels_;
    std::map<std::string, Kernel*> mangled_;
};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

void make_folders(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
        mkdir(path.substr(0, at).c_str(), 0777);
    mkdir(path.c_str(), 0777);
}

std::vector<std::string> command() {
    std::vector<std::string> all = {settings().compiler, "-std=c++17", "-O2", "-g0", "-w", "-fPIC",
                                    "-shared", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing",
                                    "-fwrapv", "-ffp-contract=off", "-fno-threadsafe-statics",
                                    // Modules may have one name for different things.
                                    "-fno-gnu-unique", "-Wl,-Bsymbolic",
                                    // Threads run one after the other and do not change the rounding.
                                    "-fno-math-errno", "-fno-trapping-math"};
    // Without these, fma and half are calls of functions that work bit by bit.
    if (__builtin_cpu_supports("fma")) all.push_back("-mfma");
    if (__builtin_cpu_supports("avx2")) {
        all.push_back("-mavx2");
        all.push_back("-mf16c");
    }
    return all;
}

// Run a program with its output in a file; its exit status, or -1.
int spawn(const std::vector<std::string>& arguments, const std::string& output) {
    std::vector<char*> pointers;
    for (auto& each : arguments) pointers.push_back(const_cast<char*>(each.c_str()));
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    const int failed = posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return -1;
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Compile into `library`, by way of files that no other process uses.
bool build(const std::string& text, const std::string& library, std::string& log) {
    const std::string own = library + "." + std::to_string(getpid());
    const std::string source = own + ".cpp", made = own + ".so", said = own + ".log";
    std::ofstream(source, std::ios::binary) << text;
    auto arguments = command();
    arguments.insert(arguments.end(), {"-o", made, source});
    const int status = spawn(arguments, said);
    log = read_file(said);
    if (status < 0) log = "cannot run the compiler '" + settings().compiler + "'; name one by TANGRAD_CUDA_EMULATOR_CXX";
    const bool done = status == 0 && std::rename(made.c_str(), library.c_str()) == 0;
    if (status == 0 && !done) log = "cannot write " + library;
    for (auto& each : {source, said, made}) unlink(each.c_str());
    return done;
}

// Two modules of one source have variables of their own, and the loader knows files by their inode.
void* open_copy(const std::string& library) {
    static int copies = 0;
    const std::string copy = library + "." + std::to_string(getpid()) + "-" + std::to_string(copies++);
    std::ofstream(copy, std::ios::binary) << std::ifstream(library, std::ios::binary).rdbuf();
    void* opened = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    unlink(copy.c_str());
    return opened;
}

}  // namespace

std::unique_ptr<Program> compile_for_host(const std::string& source, std::string& log) {
    const std::string text = translate_for_host(source);
    std::string key = text;
    for (auto& each : command()) key += "\n" + each;
    make_folders(settings().cache);
    const std::string library = settings().cache + "/" + sha256(key).substr(0, 32) + ".so";
    if (access(library.c_str(), R_OK) != 0 && !build(text, library, log)) return nullptr;
    void* opened = open_copy(library);
    if (!opened) {
        log = dlerror();
        return nullptr;
    }
    return std::make_unique<HostProgram>(opened);
}

}  // namespace emulator

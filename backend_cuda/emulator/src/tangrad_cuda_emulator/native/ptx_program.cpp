// PTX as a program: its variables in memory, its kernels made ready for the interpreter.

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "control.hpp"
#include "engine.hpp"
#include "memory.hpp"
#include "ptx_block.hpp"
#include "settings.hpp"
#include "state.hpp"

namespace emulator {
namespace {

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

class PtxKernel : public Kernel {
  public:
    PtxKernel(const ptx::Function& function, const std::map<std::string, uint64_t>& globals,
              const std::vector<ptx::Variable>& shared)
        : function_(function) {
        name = function.name;
        most_threads = function.most_threads;
        registers = int(std::min<size_t>(255, std::max<size_t>(16, function.registers.size() / 4)));
        names_.addresses = globals;
        names_.labels = {function_.labels.begin(), function_.labels.end()};
        place_parameters();
        place(ptx::Space::Shared, shared, static_shared);
        place(ptx::Space::Shared, function_.variables, static_shared);
        static_shared = round_up(static_shared, 16);
        place_dynamic(shared);
        place_dynamic(function_.variables);
        place(ptx::Space::Local, function_.variables, local_);
        for (auto& each : function_.registers) names_.slot(each);
        for (auto& each : function_.instructions) code_.push_back(ptx::build(each, names_));
        for (auto& each : function_.instructions) fences_ = fences_ || each.root == "membar" || each.root == "fence";
    }

    CUresult run(const Launch& launch, std::string& why) override {
        ptx::Machine machine;
        CUresult result = CUDA_SUCCESS;
        try {
            run_blocks(launch, machine);
        } catch (const ptx::Fault& fault) {
            why = fault.why;
            result = fault.code;
        }
        note_traffic(name, machine.loads.requests, machine.loads.sectors, machine.loads.ideal,
                     machine.stores.requests, machine.stores.sectors, machine.stores.ideal);
        return result;
    }

  private:
    void place_parameters() {
        std::vector<size_t> sizes, alignments;
        for (auto& each : function_.parameters) {
            sizes.push_back(each.size);
            alignments.push_back(each.alignment);
        }
        lay_out(*this, sizes, alignments);
        for (size_t i = 0; i < sizes.size(); i++) names_.addresses[function_.parameters[i].name] = parameters[i].offset;
    }

    void place(ptx::Space space, const std::vector<ptx::Variable>& variables, size_t& used) {
        for (auto& each : variables) {
            if (each.space != space || each.dynamic) continue;
            used = round_up(used, each.alignment);
            names_.addresses[each.name] = used;
            used += each.size;
        }
    }

    void place_dynamic(const std::vector<ptx::Variable>& variables) {
        for (auto& each : variables)
            if (each.space == ptx::Space::Shared && each.dynamic) names_.addresses[each.name] = static_shared;
    }

    void run_blocks(const Launch& launch, ptx::Machine& machine) {
        const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
        std::vector<unsigned char> parameter_bytes(std::max<size_t>(parameter_bytes_of(), 1), 0);
        for (size_t i = 0; i < parameters.size(); i++)
            std::memcpy(&parameter_bytes[parameters[i].offset], launch.arguments[i], parameters[i].size);
        std::vector<uint64_t> registers(names_.slots.size() * threads);
        std::vector<unsigned char> shared(static_shared + launch.shared), local(round_up(local_, 16) * threads);
        ptx::Races races(fences_);
        machine.threads = threads;
        machine.registers = registers.data();
        machine.shared = shared.data();
        machine.shared_size = shared.size();
        machine.local = local.data();
        machine.local_size = round_up(local_, 16);
        machine.parameters = parameter_bytes.data();
        machine.device = launch.device;
        machine.races = watches_races() ? &races : nullptr;
        unsigned number = 0;
        for (unsigned z = 0; z < launch.grid[2]; z++)
            for (unsigned y = 0; y < launch.grid[1]; y++)
                for (unsigned x = 0; x < launch.grid[0]; x++) {
                    const int poison = std::max(settings().poison, 0);
                    std::fill(registers.begin(), registers.end(), 0);
                    std::fill(shared.begin(), shared.end(), static_cast<unsigned char>(poison));
                    std::fill(local.begin(), local.end(), static_cast<unsigned char>(poison));
                    const unsigned block[3] = {x, y, z};
                    fill_specials(machine, launch, block);
                    races.begin_block(number++, threads, shared.size());
                    ptx::Block(code_, machine).run();
                }
    }

    size_t parameter_bytes_of() const { return parameter_bytes; }

    void fill_specials(ptx::Machine& machine, const Launch& launch, const unsigned block[3]) {
        for (auto& [name, slot] : names_.slots) {
            if (name[0] != '%' || !(name[1] >= 'a' && name[1] <= 'z')) continue;
            uint64_t* row = machine.row(slot);
            for (unsigned thread = 0; thread < machine.threads; thread++) {
                uint64_t value;
                if (!special(name, thread, launch, block, value)) break;
                row[thread] = value;
            }
        }
    }

    static bool special(const std::string& name, unsigned thread, const Launch& launch, const unsigned block[3], uint64_t& value) {
        const unsigned lane = thread % ptx::WARP, below = (1u << lane) - 1;
        const unsigned axis = name.size() > 2 && name[name.size() - 2] == '.' ? unsigned(name.back() - 'x') : 3;
        const std::string base = axis < 3 ? name.substr(0, name.size() - 2) : name;
        const unsigned place[3] = {thread % launch.block[0], thread / launch.block[0] % launch.block[1],
                                   thread / (launch.block[0] * launch.block[1])};
        if (base == "%tid") value = place[axis];
        else if (base == "%ntid") value = launch.block[axis];
        else if (base == "%ctaid") value = block[axis];
        else if (base == "%nctaid") value = launch.grid[axis];
        else if (base == "%laneid") value = lane;
        else if (base == "%warpid") value = thread / ptx::WARP;
        else if (base == "%nwarpid") value = 64;
        else if (base == "%lanemask_lt") value = below;
        else if (base == "%lanemask_le") value = below | 1u << lane;
        else if (base == "%lanemask_eq") value = 1u << lane;
        else if (base == "%lanemask_gt") value = ~(below | 1u << lane);
        else if (base == "%lanemask_ge") value = ~below;
        else return false;
        return true;
    }

    const ptx::Function function_;
    ptx::Names names_;
    std::vector<ptx::Code> code_;
    size_t local_ = 0;
    bool fences_ = false;
};

class PtxProgram : public Program {
  public:
    explicit PtxProgram(const std::string& text) {
        const ptx::Text parsed = ptx::parse(text);
        for (auto& each : parsed.variables) keep(each);
        for (auto& each : parsed.functions)
            if (each.is_entry) kernels_[each.name] = std::make_unique<PtxKernel>(each, addresses_, parsed.variables);
    }

    ~PtxProgram() override {
        for (auto& each : variables_) memory().release(each.second.address, {Kind::Module});
    }

    Kernel* kernel(const std::string& name) override {
        auto found = kernels_.find(name);
        return found == kernels_.end() ? nullptr : found->second.get();
    }

    std::vector<std::string> names() const override {
        std::vector<std::string> all;
        for (auto& each : kernels_) all.push_back(each.first);
        return all;
    }

    Variable variable(const std::string& name) override {
        auto found = variables_.find(name);
        return found == variables_.end() ? Variable{} : found->second;
    }

  private:
    void keep(const ptx::Variable& each) {
        if (each.space != ptx::Space::Global && each.space != ptx::Space::Const) return;
        const size_t size = std::max<size_t>(each.size, 1);
        storage_.push_back(std::make_unique<unsigned char[]>(size + each.alignment));
        const uintptr_t address = round_up(uintptr_t(storage_.back().get()), each.alignment);
        std::memset(reinterpret_cast<void*>(address), 0, size);
        if (!each.content.empty()) std::memcpy(reinterpret_cast<void*>(address), each.content.data(), each.content.size());
        memory().note(current(), address, size, Kind::Module, 0);
        addresses_[each.name] = address;
        variables_[each.name] = {address, each.size};
    }

    std::vector<std::unique_ptr<unsigned char[]>> storage_;
    std::map<std::string, uint64_t> addresses_;
    std::map<std::string, Variable> variables_;
    std::map<std::string, std::unique_ptr<PtxKernel>> kernels_;
};

}  // namespace

std::unique_ptr<Program> read_ptx(const std::string& text, std::string& log) {
    try {
        return std::make_unique<PtxProgram>(text);
    } catch (const ptx::Fault& fault) {
        log = fault.why;
    } catch (const std::exception& error) {
        log = std::string("PTX cannot be read: ") + error.what();
    }
    return nullptr;
}

}  // namespace emulator

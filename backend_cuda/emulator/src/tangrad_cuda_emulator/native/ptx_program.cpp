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
    PtxKernel(std::shared_ptr<const ptx::Text> text, const ptx::Function& function,
              const std::map<std::string, uint64_t>& globals)
        : text_(std::move(text)) {
        end_.text = end_.root = "ret";
        name = function.name;
        most_threads = function.most_threads;
        registers = int(std::min<size_t>(255, std::max<size_t>(16, function.registers.size() / 4)));
        names_.addresses = globals;
        lay_out_parameters(function);
        reach(function);
        place();
        for (const ptx::Function* each : functions_) add(*each);
        for (auto& [at, callee] : calls_) code_[at].target = begins_.at(callee);
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
    void lay_out_parameters(const ptx::Function& function) {
        std::vector<size_t> sizes, alignments;
        for (auto& each : function.parameters) {
            sizes.push_back(each.size);
            alignments.push_back(each.alignment);
        }
        lay_out(*this, sizes, alignments);
        for (size_t i = 0; i < sizes.size(); i++) names_.parameters[function.parameters[i].name] = parameters[i].offset;
        names_.parameter_bytes = parameter_bytes;
    }

    static std::string scope_of(const ptx::Function& function) { return function.is_entry ? "" : function.name + "/"; }
    static const std::string& callee_of(const ptx::Instruction& ins) {
        return ins.operands[ins.operands[0].kind == ptx::Operand::Kind::Vector].name;
    }

    // Find the functions that the kernel calls, each once; they stand behind it.
    void reach(const ptx::Function& function) {
        functions_.push_back(&function);
        path_.push_back(&function);
        for (auto& ins : function.instructions) {
            if (ins.root != "call") continue;
            const ptx::Function* callee = nullptr;
            for (auto& each : text_->functions)
                if (each.name == callee_of(ins) && !each.is_entry) callee = &each;
            if (!callee) throw ptx::Fault{CUDA_ERROR_INVALID_PTX, "the interpreter does not know what is called by " + ins.text};
            if (std::count(path_.begin(), path_.end(), callee))
                throw ptx::Fault{CUDA_ERROR_INVALID_PTX, "the interpreter takes no function that calls itself: " + callee->name};
            if (!std::count(functions_.begin(), functions_.end(), callee)) reach(*callee);
        }
        path_.pop_back();
    }

    // Place all variables; dynamic shared memory lies behind all other.
    void place() {
        place("", text_->variables);
        for (const ptx::Function* each : functions_) {
            place(scope_of(*each), each->variables);
            if (!each->is_entry) place(scope_of(*each), each->parameters);
        }
        static_shared = round_up(static_shared, 16);
        for (auto& each : dynamic_) names_.addresses[each] = static_shared;
    }

    void place(const std::string& scope, const std::vector<ptx::Variable>& variables) {
        for (auto& each : variables) {
            const bool is_shared = each.space == ptx::Space::Shared;
            const bool is_local = each.space == ptx::Space::Local || each.space == ptx::Space::Param;
            if (is_shared && each.dynamic) dynamic_.push_back(scope + each.name);
            if ((!is_shared && !is_local) || each.dynamic) continue;
            size_t& used = is_shared ? static_shared : local_;
            // A name that several calls declare has room for the largest of them.
            size_t& room = rooms_[scope + each.name];
            if (room && room >= each.size) continue;
            room = each.size;
            used = round_up(used, std::max<size_t>(each.alignment, 8));
            names_.addresses[scope + each.name] = used;
            used += each.size;
        }
    }

    void add(const ptx::Function& function) {
        names_.scope = scope_of(function);
        names_.labels = {function.labels.begin(), function.labels.end()};
        for (auto& each : function.registers) names_.slots.emplace(names_.scope + each, unsigned(names_.slots.size()));
        const size_t first = code_.size();
        begins_[function.name] = first;
        std::vector<size_t> starts;
        for (auto& each : function.instructions) {
            starts.push_back(code_.size());
            if (each.root == "call") call(each);
            else code_.push_back(ptx::build(each, names_));
            fences_ = fences_ || each.root == "membar" || each.root == "fence";
        }
        starts.push_back(code_.size());
        for (size_t i = first; i < code_.size(); i++)
            if (code_[i].flow == ptx::Flow::Branch) code_[i].target = starts[code_[i].target];
        // A function need not say at its end that it ends.
        code_.push_back(ptx::build(end_, names_));
    }

    // Copy what is passed to where the function finds it, go there, and copy back what it tells.
    void call(const ptx::Instruction& ins) {
        const ptx::Function* callee = nullptr;
        for (const ptx::Function* each : functions_)
            if (each->name == callee_of(ins)) callee = each;
        const bool tells = ins.operands[0].kind == ptx::Operand::Kind::Vector;
        const std::vector<ptx::Operand> told = tells ? ins.operands[0].parts : std::vector<ptx::Operand>();
        const std::vector<ptx::Operand> passed = ins.operands.size() > size_t(tells) + 1 ? ins.operands[tells + 1].parts : std::vector<ptx::Operand>();
        for (size_t i = 0; i < passed.size(); i++) {
            const size_t at = callee->results + i;
            copy(ins, local(passed[i].name), local_of(*callee, at), callee->parameters[at].size);
        }
        ptx::Code jump;
        jump.source = &ins;
        jump.flow = ptx::Flow::Call;
        if (!ins.guard.empty()) throw ptx::Fault{CUDA_ERROR_INVALID_PTX, "the interpreter takes no call under a guard: " + ins.text};
        jump.back = names_.slot("back from " + scope_of(*callee));
        calls_.push_back({code_.size(), callee->name});
        code_.push_back(jump);
        for (size_t i = 0; i < told.size(); i++) copy(ins, local_of(*callee, i), local(told[i].name), callee->parameters[i].size);
    }

    size_t local(const std::string& name) const { return *names_.address(name); }
    size_t local_of(const ptx::Function& function, size_t i) const { return names_.addresses.at(function.name + "/" + function.parameters[i].name); }

    void copy(const ptx::Instruction& ins, size_t from, size_t to, size_t size) {
        ptx::Code made;
        made.source = &ins;
        made.run = [=](ptx::Machine& m) {
            for (unsigned k = 0; k < m.count; k++) {
                unsigned char* mine = m.local + m.list[k] * m.local_size;
                std::memmove(mine + to, mine + from, size);
            }
        };
        code_.push_back(made);
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

    std::shared_ptr<const ptx::Text> text_;
    std::vector<const ptx::Function*> functions_, path_;
    std::map<std::string, size_t> begins_, rooms_;
    std::vector<std::pair<size_t, std::string>> calls_;
    std::vector<std::string> dynamic_;
    ptx::Instruction end_;
    ptx::Names names_;
    std::vector<ptx::Code> code_;
    size_t local_ = 0;
    bool fences_ = false;
};

class PtxProgram : public Program {
  public:
    explicit PtxProgram(const std::string& text) {
        auto parsed = std::make_shared<const ptx::Text>(ptx::parse(text));
        for (auto& each : parsed->variables) keep(each);
        for (auto& each : parsed->functions)
            if (each.is_entry) kernels_[each.name] = std::make_unique<PtxKernel>(parsed, each, addresses_);
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

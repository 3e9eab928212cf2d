"""From a row program to machine code.

The function is `void f(int64 rows, int64 columns, char **streams, const int64 *steps, const void
*numbers)` by the System V convention: `streams` are the addresses of the first row, which it
advances, `steps` how many bytes each moves from row to row, `numbers` 8 bytes for each number of
the call. It computes on one thread, allocates nothing and never fails.

A pass is a loop whose body is written once and copied, so that several vectors are under way, and
once more for what is left of a row: masked with AVX-512, element by element with AVX2. A body so
long that a processor does not look ahead to its copy has, with AVX2, the instructions of two
vectors in turn.
"""

from __future__ import annotations

import struct
from functools import partial

from tangrad_jit.codegen.assembler import (
    BELOW,
    EQUAL,
    GREATER,
    LESS_EQUAL,
    NOT_BELOW,
    NOT_EQUAL,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    Assembler,
    Fragment,
    Memory,
    Recorder,
)  # fmt: skip
from tangrad_jit.codegen.folds import FoldCode
from tangrad_jit.codegen.memory import load_stream, load_uniform, store_stream
from tangrad_jit.codegen.registers import Registers
from tangrad_jit.codegen.rows import PER_CALL, PER_ROW, Pass, RowProgram
from tangrad_jit.codegen.select import emit_value
from tangrad_jit.codegen.vector import ITEMSIZE, Unsupported

# Registers that hold streams; the others of a pass are read from their array when they are used.
STREAM_REGISTERS = (RBX, RBP, R8, R9, R10, R11, R12, R13, R14, R15)
SAVED = (RBX, RBP, R12, R13, R14, R15)
# What the frame holds at its lower end, by offset.
OLD_STACK, ROWS, COLUMNS, STEPS, NUMBERS, COUNT, FIRST_SLOT = 0, 8, 16, 24, 32, 40, 64
SCRATCH = (0, 1)  # vector registers that no value is given
LEAST_FREE = 6  # vector registers that the body of a pass needs at least
# Bodies so short are copied that often.
_COPIES = ((12, 4), (40, 2))
FULL, SINGLE = "full", "single"

# The code for one vector of columns, and the registers in which it leaves what is folded.
Body = tuple[Fragment, list[int]]


def emit(program: RowProgram) -> bytes:
    """Return the code of a program that was planned, its constants behind it."""
    return Emitter(program).function()


class Emitter:
    """Write one program.

    Attributes:
        program: what is written.
        evex: whether it is for AVX-512.
        lanes: how many columns a vector holds.
        a: what the code goes to.
    """

    def __init__(self, program: RowProgram, assembler: type[Assembler] = Assembler) -> None:
        self.assembler = assembler
        self.program, self.ops = program, program.builder.ops
        self.evex = program.builder.evex
        self.lanes = (64 if self.evex else 32) // (8 if program.wide else 4)
        whole = 2 if self.evex else 1
        # Of vectors of elements of 4 bytes, and of 8, which a program has where it is wide.
        self._lengths = {"4": whole - program.wide, "8": whole}
        self.a = assembler(self.evex)
        self.constants = bytearray()
        self._constants: dict[tuple, int] = {}
        self.slots: dict[int, int] = {}
        self.stack = FIRST_SLOT
        self.base: dict[int, int] = {}
        self.mode = FULL
        self.fused = self._fused()
        self.aliases = self._aliases()
        self.reads = [self._reads(value) for value in range(len(self.ops))]

    def length(self, kind: str) -> int:
        """Return the encoded length of the registers that hold a type."""
        return self._lengths[kind[1]] if self.mode != SINGLE else 0

    def _aliases(self) -> list[int]:
        """Return what has each value's bits: of one that is only seen as another type, that one."""
        found: list[int] = []
        for value, op in enumerate(self.ops):
            found.append(found[op[2][0]] if op[0] == "as" else value)
        return found

    def _reads(self, value: int) -> tuple[int, ...]:
        """Return the values that the instructions of a value read."""
        op, _, args, _ = self.ops[value]
        if not args or op == "fold":
            return ()
        if op == "select" and args[0] in self.fused:
            args = self.ops[args[0]][2] + args[1:]
        aliases = self.aliases
        return tuple([aliases[arg] for arg in args])

    def _fused(self) -> set[int]:
        """Return the comparisons that become mask registers where they are used: in selections."""
        if not self.evex:
            return set()
        found = {v for v, op in enumerate(self.ops) if op[0] == "cmp"}
        found -= {v for _, v in self.program.results}
        for op, _, args, _ in self.ops:
            for k, arg in enumerate(args):
                if arg in found and not (op == "select" and k == 0):
                    found.discard(arg)
        return found

    def room(self, size: int = 64) -> int:
        """Return the offset of new room in the frame."""
        at = self.stack
        self.stack += size
        return at

    def slot(self, value: int) -> Memory:
        """Return the slot of a uniform value."""
        if value not in self.slots:
            self.slots[value] = self.room()
        return Memory(RSP, self.slots[value])

    def constant(self, value: int) -> Memory:
        """Return where a constant is: each has a whole vector."""
        op, kind, _, imm = self.ops[value]
        if op == "const":
            return self.all_of(imm, int(kind[1]))
        return self._constant(imm, b"".join(bits.to_bytes(4, "little") for bits in imm))

    def all_of(self, bits: int, size: int) -> Memory:
        """Return where a vector is of which all elements have some bits."""
        return self._constant((bits, size), bits.to_bytes(size, "little") * (64 // size))

    def _constant(self, key: tuple, data: bytes) -> Memory:
        at = self._constants.get(key)
        if at is None:
            at = self._constants[key] = len(self.constants)
            self.constants += data
        return Memory(-1, at)

    # --- the function -------------------------------------------------------------------------

    def function(self) -> bytes:
        """Return the whole function, its constants behind it."""
        a = self.a
        for register in SAVED:
            a.push(register)
        a.general(0x89, RSP, RAX)  # mov rax, rsp
        a.general(0x81, 5, RSP)  # sub rsp, imm32
        size = len(a.code)
        a.code += b"\0\0\0\0"
        a.immediate(4, RSP, -64)
        for offset, register in (
            (OLD_STACK, RAX),
            (ROWS, RDI),
            (COLUMNS, RSI),
            (STEPS, RCX),
            (NUMBERS, R8),
        ):
            a.store(Memory(RSP, offset), register)
        a.general(0x85, RDI, RDI)  # test rdi, rdi
        nothing = a.jump(LESS_EQUAL)
        a.note("numbers and scalars")
        self._uniforms(PER_CALL)
        a.note("rows")
        row = len(a.code)
        self._row()
        a.immediate(5, Memory(RSP, ROWS), 1)
        a.jump_back(NOT_EQUAL, row)
        a.land(nothing)
        a.load(RSP, Memory(RSP, OLD_STACK))
        for register in reversed(SAVED):
            a.pop(register)
        a.note("vzeroupper; ret")
        a.code += b"\xc5\xf8\x77\xc3"
        a.code[size : size + 4] = struct.pack("<i", (self.stack + 63 & ~63) + 64)
        return a.finish(bytes(self.constants))

    def _row(self) -> None:
        a, streams = self.a, self.program.streams
        columns = [k for k, stream in enumerate(streams) if stream.column]
        self.base = dict(zip(columns, STREAM_REGISTERS, strict=False))
        for k, register in self.base.items():
            a.load(register, Memory(RDX, 8 * k))
        self._uniforms(PER_ROW)
        for number, one in enumerate(self.program.passes):
            a.note(f"pass {number}")
            self._pass(one)
            a.note(f"after pass {number}")
            self._uniforms(number)
        moving = [k for k, stream in enumerate(streams) if stream.row]
        if moving:
            a.load(RCX, Memory(RSP, STEPS))
        for k in moving:
            a.load(RAX, Memory(RCX, 8 * k))
            a.general(0x01, RAX, Memory(RDX, 8 * k))  # add [rdx + 8 k], rax

    # --- passes -------------------------------------------------------------------------------

    def _pass(self, one: Pass) -> None:
        if not one.stores and not one.folds:
            return
        a = self.a
        self.mode = FULL
        order = self._ordered(
            [*[v for _, v in one.stores], *[self.ops[f][2][0] for f in one.folds]], one.replaced
        )
        folds = self._folds(one)
        copies = 4 if folds else next((c for n, c in _COPIES if len(order) <= n), 1)
        free = [r for r in range(32 if self.evex else 16) if r not in SCRATCH]
        if sum(fold.needs for fold in folds) > len(free) - LEAST_FREE:
            raise Unsupported("more folds at a time than there are registers")
        for fold in folds:
            fold.take(free)
        pair = None if self.evex or folds or copies > 1 else self._pair(one, order, free)
        pinned = {} if pair else self._pin(order, one, free)
        for fold in folds:
            fold.begin()
        body = pair[0] if pair else self._body(one, order, folds, pinned, free)
        block = self.lanes * (2 if pair else copies)
        a.general(0x31, RAX, RAX, wide=False)  # xor eax, eax
        if self.evex and one.stores and not folds:
            self._align(body[0].masked(), one.stores[0][0])
        self._loop(pair[1] if pair else body, folds, block, copies)
        if folds:
            a.address(RDI, Memory(RSP, folds[0].buffer))
        if not self.evex and block > self.lanes:
            self._loop(body, folds, self.lanes, 1, tail=True)
        if self.evex:
            self._tail((body[0].masked(), body[1]), folds, self.lanes)
        else:
            self.mode = SINGLE
            single = self._body(one, order, folds, pinned, free)
            self.mode = FULL
            self._tail(single, folds, 1)
        for fold in folds:
            fold.finish(block)

    def _folds(self, one: Pass) -> list[FoldCode]:
        found = []
        for value in one.folds:
            buffer = self.room(4 * self.lanes * int(self.ops[value][1][1]) + 64)
            found.append(FoldCode(self, value, buffer))
        for fold in found:
            fold.offset = fold.buffer - found[0].buffer
        return found

    def _loop(
        self, body: Body, folds: list[FoldCode], block: int, copies: int, tail: bool = False
    ) -> None:
        """Write the loop over whole vectors, `copies` of them at a time."""
        a = self.a
        a.load(RSI, Memory(RSP, COLUMNS))
        a.immediate(5, RSI, block)
        a.general(0x39, RSI, RAX)  # cmp rax, rsi
        none = a.jump(GREATER)
        start = len(a.code)
        code, results = body
        for copy in range(copies):
            a.append(code, copy)
            for fold, register in zip(folds, results, strict=True):
                fold.keep(register) if tail else fold.add(register, copy)
        if tail and folds:
            a.immediate(0, RDI, self.lanes * folds[0].size)
        a.immediate(0, RAX, block)
        a.general(0x39, RSI, RAX)
        a.jump_back(LESS_EQUAL, start)
        a.land(none)

    def _align(self, masked: Fragment, stream: int) -> None:
        """Write the first columns of a row up to where a result is aligned.

        Rows begin anywhere; a vector across the border of two cache lines takes two accesses.
        """
        a, size = self.a, ITEMSIZE[self.program.streams[stream].dtype]
        if stream in self.base:
            a.general(0x8B, RSI, self.base[stream])  # mov rsi, base
        else:
            a.load(RSI, Memory(RDX, 8 * stream))
        a.general(0xF7, 3, RSI)  # neg rsi
        a.immediate(4, RSI, self.lanes * size - 1)
        if size > 1:
            a.general(0xC1, 5, RSI)  # shr rsi, imm8
            a.code.append(size.bit_length() - 1)
        a.general(0x3B, RSI, Memory(RSP, COLUMNS))
        whole = a.jump(GREATER)  # the row ends before
        a.general(0x85, RSI, RSI)  # test rsi, rsi
        aligned = a.jump(EQUAL)
        a.store(Memory(RSP, COUNT), RSI)
        a.mask_of_count(7, RSI, RCX)
        a.append(masked)
        a.load(RAX, Memory(RSP, COUNT))
        a.land(whole)
        a.land(aligned)

    def _tail(self, body: Body, folds: list[FoldCode], step: int) -> None:
        """Write the loop over what is left of a row."""
        a = self.a
        a.general(0x3B, RAX, Memory(RSP, COLUMNS))  # cmp rax, [columns]
        none = a.jump(NOT_BELOW)
        start = len(a.code)
        if self.evex:
            a.load(RSI, Memory(RSP, COLUMNS))
            a.general(0x29, RAX, RSI)  # sub rsi, rax
            a.mask_of_count(7, RSI, RCX)
        code, results = body
        a.append(code)
        for fold, register in zip(folds, results, strict=True):
            fold.keep(register)
        if folds:
            a.immediate(0, RDI, step * folds[0].size)
        a.immediate(0, RAX, step)
        a.general(0x3B, RAX, Memory(RSP, COLUMNS))
        a.jump_back(BELOW, start)
        a.land(none)

    # --- bodies -------------------------------------------------------------------------------

    def _ordered(
        self, wanted: list[int], replaced: dict[int, int], uniform: int | None = None
    ) -> list[int]:
        """Return what has to be computed, operands first.

        Args:
            wanted: the results.
            replaced: what is loaded instead.
            uniform: None for what differs between columns, else when what is the same is computed.
        """
        varies, times, ops = self.program.varies, self.program.times, self.ops
        reads, aliases = self.reads, self.aliases
        order: list[int] = []
        done: set[int] = set()
        # A value again, as -1 - value, when its operands are in order.
        stack = [aliases[replaced.get(v, v)] for v in reversed(wanted)]
        while stack:
            value = stack.pop()
            if value < 0:
                value = -1 - value
                if value not in done:
                    done.add(value)
                    order.append(value)
                continue
            value = aliases[replaced.get(value, value)]
            if value in done or ops[value][0] in ("const", "table", "fold"):
                continue
            if not varies[value] if uniform is None else times[value] != uniform or varies[value]:
                continue
            stack.append(-1 - value)
            stack += reads[value][::-1]
        return order

    def _uses(
        self, order: list[int], replaced: dict[int, int], sinks: list[int]
    ) -> dict[int, list[int]]:
        """Return where each value is used: places in the order, the last first."""
        uses: dict[int, list[int]] = {value: [] for value in order}
        reads = self.reads
        for place in range(len(sinks) - 1, -1, -1):
            uses.setdefault(sinks[place], []).append(len(order) + place)
        for place in range(len(order) - 1, -1, -1):
            for arg in reads[order[place]]:
                if replaced:
                    arg = self.aliases[replaced.get(arg, arg)]
                if arg in uses:
                    uses[arg].append(place)
                else:
                    uses[arg] = [place]
        return uses

    def _home(self, spilled: dict[int, int], value: int) -> Memory | None:
        if value in spilled:
            return Memory(RSP, spilled[value])
        if self.ops[value][0] in ("const", "table"):
            return self.constant(value)
        if value in self.slots:
            return Memory(RSP, self.slots[value])
        return None

    def _pin(self, order: list[int], one: Pass, free: list[int]) -> dict[int, int]:
        """Load what is read most from memory into registers that the body does not need."""
        uses = self._uses(order, one.replaced, [])
        local = set(order)
        alive = most = 0
        last = {v: places[0] for v, places in uses.items() if places}
        ends: dict[int, int] = {}
        for value in order:
            if value in last:
                ends[last[value]] = ends.get(last[value], 0) + 1
        for place in range(len(order)):
            alive += 1
            if alive >= most:
                most = alive + 1
            if place in ends:
                alive -= ends[place]
        outer = [v for v in uses if v not in local]
        outer.sort(key=lambda v: -len(uses[v]))
        pinned: dict[int, int] = {}
        for value in outer[: max(0, len(free) - most - 1)]:
            pinned[value] = free.pop(0)
            self._load_home(value, pinned[value], self._home({}, value) or self.slot(value))
        return pinned

    def _load_home(self, value: int, register: int, at: Memory) -> None:
        self.a.vector("vmovups", max(self.length(self.ops[value][1]), 0), register, 0, at)

    def _body(self, one: Pass, order: list[int], folds: list[FoldCode], pinned: dict[int, int],
              free: list[int]) -> Body:  # fmt: skip
        """Return the code of one vector of columns, and the registers of what is folded."""
        outer, self.a = self.a, self.assembler(self.evex)
        resolve = one.replaced
        stores = [(s, self.aliases[resolve.get(v, v)]) for s, v in one.stores]
        sources = [self.ops[fold.value][2][0] for fold in folds]
        folded = [self.aliases[resolve.get(v, v)] for v in sources]
        sinks = [v for _, v in stores] + folded
        registers = self._run(order, resolve, sinks, pinned, free, stores)
        results = []
        for value in folded:
            results.append(registers.get(value))
        body, self.a = self.a.take(), outer
        return body, results

    def _pair(self, one: Pass, order: list[int], free: list[int]) -> tuple[Body, Body] | None:
        """Return the code of one vector of columns, and that of two whose instructions take turns.

        Each has half of the registers: None where those do not suffice.
        """
        outer, self.a = self.a, Recorder(self.evex)
        stores = [(s, self.aliases[one.replaced.get(v, v)]) for s, v in one.stores]
        half = len(free) // 2
        before = self.stack
        self._run(order, one.replaced, [v for _, v in stores], {}, free[-half:], stores)
        recorder, self.a = self.a, outer
        assert isinstance(recorder, Recorder)
        if self.stack != before:  # a value was spilled, or has a slot since
            return None
        bodies: list[Body] = []
        for others in (None, dict(zip(free[-half:], free, strict=False))):
            a = self.assembler(self.evex)
            recorder.write(a, others)
            bodies.append((a.take(), []))
        return bodies[0], bodies[1]

    def _run(self, order: list[int], resolve: dict[int, int], sinks: list[int], pinned: dict[int,
             int], free: list[int],
             stores: list[tuple[int, int]]) -> Registers:  # fmt: skip
        """Write a run of values and their stores along the columns."""
        spilled: dict[int, int] = {}

        def spill(value: int, register: int) -> None:
            spilled[value] = self.room()
            self.a.vector(
                "vmovups_store",
                self.length(self.ops[value][1]),
                register,
                0,
                Memory(RSP, spilled[value]),
            )

        registers = Registers(list(free), self._uses(order, resolve, sinks), partial(self._home,
        spilled),
                              self._load_home, spill, pinned)  # fmt: skip
        for value in order:
            self.a.begin_value()
            op, _, _, imm = self.ops[value]
            if op == "load":
                register = registers.take()
                load_stream(self, imm, register)
                registers.put(value, register)
            elif op in ("uniform", "number"):
                register = registers.take()
                load_uniform(self, value, register)
                registers.put(value, register)
            else:
                args = self.reads[value]
                if resolve:
                    args = tuple([self.aliases[resolve.get(a, a)] for a in args])
                emit_value(self, registers, value, args)
        for stream, value in stores:
            self.a.begin_value()
            store_stream(self, stream, registers.get(value))
            registers.used((value,))
        return registers

    # --- what is the same for all columns -----------------------------------------------------

    def _uniforms(self, when: int) -> None:
        """Compute the uniform values of a time, keep those that are used later, store results."""
        program = self.program
        results = [
            (s, v) for s, v in program.results
            if not program.streams[s].column and max(PER_ROW, program.times[v]) == when
        ]  # fmt: skip
        kept = [v for v in self._kept() if program.times[v] == when and self.ops[v][0] != "fold"]
        wanted = kept + [v for _, v in results if v not in kept]
        if not wanted:
            return
        self.mode = FULL
        order = self._ordered(wanted, {}, when)
        wanted = [self.aliases[v] for v in wanted]
        free = [r for r in range(32 if self.evex else 16) if r not in SCRATCH]
        registers = self._run(
            order, {}, wanted + [self.aliases[v] for _, v in results], {}, free, []
        )
        for value in kept:
            value = self.aliases[value]
            register = registers.get(value)
            self.a.vector(
                "vmovups_store", self.length(self.ops[value][1]), register, 0, self.slot(value)
            )
        for stream, value in results:
            register = registers.get(self.aliases[value])
            self.mode = SINGLE
            store_stream(self, stream, register)
            self.mode = FULL

    def _kept(self) -> list[int]:
        """Return the uniform values that are used at another time than their own."""
        if not hasattr(self, "_kept_values"):
            program, found = self.program, set()
            for user in range(len(self.ops)):
                if self.ops[user][0] == "as" or user in self.fused:
                    continue
                fold = self.ops[user][0] == "fold"
                for arg in [self.aliases[self.ops[user][2][0]]] if fold else self.reads[user]:
                    if program.varies[arg] or self.ops[arg][0] in ("const", "table"):
                        continue
                    if program.varies[user] or fold or program.times[user] != program.times[arg]:
                        found.add(arg)
            for stream, value in program.results:
                value = self.aliases[value]
                uniform = not program.varies[value] and self.ops[value][0] not in ("const", "table")
                if uniform and (program.streams[stream].column or program.times[value] == PER_CALL):
                    found.add(value)
            self._kept_values = sorted(found)
        return self._kept_values

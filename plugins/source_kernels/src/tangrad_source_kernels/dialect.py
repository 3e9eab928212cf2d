"""Describe a C-like language in which whole kernels are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from tangrad.plugin.render import KINDS, Dialect, compute_type

_CODES = {"int64": "q", "uint64": "Q", "float64": "d"}


@dataclass(frozen=True)
class Kernel:
    """One kernel: what it is called with, and its body.

    The body reads buffers by their names and numbers as `g.NAME`. It uses `tk_int` (an integer of
    64 bits) and the macros that `KernelDialect.macros` defines; each block does the work of
    `TG_BLOCK` of `TG_BLOCKS`, each lane that of `TG_LANE` of `TG_LANES`, for any number of lanes,
    one too. Barriers are reached by all lanes of a block or by none.

    Attributes:
        name: of the function; unique in its `Unit`.
        buffers: (dtype, name) of what lies in the device's memory.
        numbers: (kind, name, count) of what is passed by value; kind is "int64", "uint64" or
            "float64", count the size of an array or 0 for a single number.
        body: statements; they do not return.
        functions: helpers that take its numbers, of type `NAME_numbers`, by value.
    """

    name: str
    buffers: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str, int], ...]
    body: str
    functions: str = ""
    pack: Any = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        codes = "".join(f"{count or 1}{_CODES[kind]}" for kind, _, count in self.numbers)
        object.__setattr__(self, "pack", Struct("=" + codes).pack)


class KernelDialect(Dialect):
    """Describe a C-like language with blocks of lanes that share memory: a page for each.

    Args:
        name, function, types, header, helpers and others: as of
            `tangrad.plugin.render.Dialect`.
        lanes: How many lanes each block has, a power of two. 1 where blocks run one after the
            other: barriers and shared memory then cost nothing.
        max_blocks: How many blocks are given at most to a loop over elements.
        kernel: The head of a kernel, with `{name}` and `{params}`.
        block, blocks, lane: Expressions for a block's number, how many there are, a lane's number.
        barrier: The statement that all lanes of a block wait at.
        pointer: The qualifier of a pointer to the device's memory.
        shared: The qualifier of an array that the lanes of a block share, declared at the
            beginning of a kernel; shared_pointer, of a pointer to one.
        shared_bytes: How much shared memory a block may declare.
        warp: How many neighbouring lanes exchange values without a barrier; 1 if none do.
        shuffle: {dtype: expression over `{value}` and `{mask}`} of the value of the lane whose
            number differs in the bits of a mask, for "int32", "int64", "float32" and "float64".
        align: The qualifier of a structure that starts at a multiple of `{n}` bytes.
        vector_bytes: How many bytes one load of a lane may have; 0 if the compiler decides.
        addresses: Whether a handle plus an offset is an address that kernels may use. If not,
            a kernel gets the handle, and the offset as one of its numbers.
        fma: Whether the library's `fma` is an instruction, for products of matrices.
    """

    def __init__(
        self,
        name: str,
        *,
        function: str,
        types: Mapping[str, str],
        header: str,
        lanes: int,
        max_blocks: int,
        kernel: str = "void {name}({params})",
        block: str = "0",
        blocks: str = "1",
        lane: str = "0",
        barrier: str = "",
        pointer: str = "",
        shared: str = "",
        shared_pointer: str = "",
        shared_bytes: int = 48 * 1024,
        warp: int = 1,
        shuffle: Mapping[str, str] | None = None,
        align: str = "",
        vector_bytes: int = 0,
        addresses: bool = True,
        fma: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(name, function=function, types=types, header=header, **others)
        self.lanes, self.max_blocks, self.kernel_head = lanes, max_blocks, kernel
        self.block, self.blocks, self.lane, self.barrier = block, blocks, lane, barrier
        self.pointer, self.shared, self.shared_pointer = pointer, shared, shared_pointer
        self.shared_bytes, self.warp, self.shuffle = shared_bytes, warp, dict(shuffle or {})
        self.align, self.vector_bytes = align, vector_bytes
        self.addresses, self.fma = addresses, fma

    def macros(self) -> str:
        """Return the definitions that bodies of kernels rely on."""
        defined = {
            "tk_int": self.types["int64"],
            "TG_LANES": self.lanes,
            "TG_WARP": self.warp,
            "TG_BLOCK": self.block,
            "TG_BLOCKS": self.blocks,
            "TG_LANE": self.lane,
            "TG_BARRIER": self.barrier,
            "TG_GLOBAL": self.pointer,
            "TG_SHARED": self.shared,
            "TG_SHARED_POINTER": self.shared_pointer,
        }
        lines = [f"#define {name} {text}" for name, text in defined.items()]
        for dtype, text in self.shuffle.items():
            exchanged = text.format(value="(v)", mask="(m)")
            lines.append(f"#define TG_SHUFFLE_{dtype}(v, m) {exchanged}")
        return "\n".join(lines) + "\n"

    def structure(self, kernel: Kernel) -> str:
        """Return the type of a kernel's numbers, and the functions that take them.

        It is called `NAME_numbers`; every field has 8 bytes.
        """
        fields = [
            f"{self.types[kind]} {name}{f'[{count}]' if count else ''};"
            for kind, name, count in self._numbers(kernel)
        ]
        known = f"typedef struct {{ {' '.join(fields)} }} {kernel.name}_numbers;"
        return known + kernel.functions

    def kernel(self, kernel: Kernel) -> str:
        """Return the text of a kernel; a dialect may have quite another frame."""
        params = [*self._buffers(kernel)]
        if self._numbers(kernel):
            params.append(f"const {kernel.name}_numbers g")
        head = self.kernel_head.format(name=kernel.name, params=", ".join(params))
        structure = self.structure(kernel) if self._numbers(kernel) else ""
        return f"{structure}\n{head} {{\n{self._opened(kernel)}{kernel.body}\n}}\n"

    def _numbers(self, kernel: Kernel) -> Sequence[tuple[str, str, int]]:
        if self.addresses:
            return kernel.numbers
        offsets = (("int64", f"{name}_offset", 0) for _, name in kernel.buffers)
        return (*kernel.numbers, *offsets)

    def _buffers(self, kernel: Kernel) -> list[str]:
        if self.addresses:
            return [f"{self.pointer} {self.type(t)} *{n}" for t, n in kernel.buffers]
        return [f"{self.pointer} {self.types['uint8']} *{n}_memory" for _, n in kernel.buffers]

    def _opened(self, kernel: Kernel) -> str:
        if self.addresses:
            return ""
        lines = []
        for dtype, name in kernel.buffers:
            pointer = f"{self.pointer} {self.type(dtype)} *"
            lines.append(f"    {pointer}{name} = ({pointer})({name}_memory + g.{name}_offset);\n")
        return "".join(lines)

    def load(self, text: str, dtype: str) -> str:
        """Return the value of what is stored, in the dtype that it is computed in."""
        return text if compute_type(dtype) == dtype else f"tg_load_{dtype}({text})"

    def store(self, text: str, dtype: str) -> str:
        """Return what is stored of a value in the dtype that it is computed in."""
        if KINDS[dtype] == "b":
            return f"(({text}) != 0)"
        return text if compute_type(dtype) == dtype else f"tg_store_{dtype}({text})"

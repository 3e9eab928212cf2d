"""Loads and stores of streams: elements of every dtype to and from lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tangrad_jit.codegen.assembler import RAX, RCX, RDX, RSI, RSP, Memory
from tangrad_jit.codegen.vector import ITEMSIZE

if TYPE_CHECKING:
    from tangrad_jit.codegen.emit import Emitter

_SCALES = {1: 0, 2: 1, 4: 2, 8: 3}
_WIDENED = {"uint8": "vpmovzxbd", "int8": "vpmovsxbd", "int16": "vpmovsxwd"}
_SMALL = frozenset(("bool", "uint8", "int8", "int16", "float16", "bfloat16"))
NUMBERS = 32  # of the frame, see emit.py


def place(e: Emitter, stream: int) -> Memory:
    """Return where the element of this column is; the address may be loaded into rcx for it."""
    at = e.program.streams[stream]
    size = ITEMSIZE[at.dtype]
    base = e.base.get(stream)
    if base is None:
        base = RCX
        e.a.load(RCX, Memory(RDX, 8 * stream))
    if not at.column:
        return Memory(base)
    return Memory(base, 0, RAX, _SCALES[size], e.lanes * size)


def load_stream(e: Emitter, stream: int, to: int) -> None:
    """Load the elements of this and the next columns, as many as the mode says."""
    at, dtype = place(e, stream), e.program.streams[stream].dtype
    kind = e.program.builder.lanes(dtype)
    if e.mode == "single":
        load_one(e, at, dtype, kind, to)
        return
    length = e.length(kind)
    e.a.masked_later(loads=True)
    if ITEMSIZE[dtype] >= 4:
        e.a.vector("vmovupd" if ITEMSIZE[dtype] == 8 else "vmovups", length, to, 0, at)
    elif dtype == "float16":
        e.a.vector("vcvtph2ps", length, to, 0, at)
    elif dtype == "bfloat16":
        e.a.vector("vpmovzxwd", length, to, 0, at)
        e.a.vector("vpslld", length, to, 0, to, 16)
    elif dtype == "bool":
        e.a.vector("vpmovzxbq" if kind == "m8" else "vpmovzxbd", length, to, 0, at)
        negate(e, kind, length, to)
    else:
        e.a.vector(_WIDENED[dtype], length, to, 0, at)


def negate(e: Emitter, kind: str, length: int, to: int) -> None:
    """Make masks of ones."""
    e.a.vector("vpxorq" if e.evex else "vpxor", length, 0, 0, 0)
    e.a.vector("vpsubq" if kind == "m8" else "vpsubd", length, to, 0, to)


def load_one(e: Emitter, at: Memory, dtype: str, kind: str, to: int) -> None:
    """Load one element into the first lane."""
    if dtype in ("float32", "float64"):
        e.a.vector("vmovss" if dtype == "float32" else "vmovsd", 0, to, 0, at)
    elif dtype in ("int32", "int64"):
        e.a.vector("vmovd" if dtype == "int32" else "vmovq", 0, to, 0, at)
    else:
        e.a.load_small(RSI, at, ITEMSIZE[dtype], dtype in ("int8", "int16"))
        e.a.vector("vmovd", 0, to, 0, RSI)
        if dtype == "float16":
            e.a.vector("vcvtph2ps", 0, to, 0, to)
        elif dtype == "bfloat16":
            e.a.vector("vpslld", 0, to, 0, to, 16)
        elif dtype == "bool":
            negate(e, kind, 0, to)


def load_uniform(e: Emitter, value: int, to: int) -> None:
    """Load an element, or a number of the call, into all lanes."""
    op, kind, _, imm = e.ops[value]
    if op == "number":
        e.a.load(RCX, Memory(RSP, NUMBERS))
        at, dtype = Memory(RCX, 8 * imm), ""
    else:
        at, dtype = place(e, imm), e.program.streams[imm].dtype
    if dtype in _SMALL:
        load_one(e, at, dtype, kind, to)
    else:
        e.a.vector("vmovsd" if kind[1] == "8" else "vmovss", 0, to, 0, at)
    spread(e, kind, to)


def spread(e: Emitter, kind: str, register: int) -> None:
    """Copy the first lane into all."""
    length = e.length(kind)
    if kind[1] == "8":
        name = "vbroadcastsd" if length else "vmovddup"
        e.a.vector(name, length, register, 0, register)
    else:
        e.a.vector("vbroadcastss", length, register, 0, register)


def store_stream(e: Emitter, stream: int, source: int) -> None:
    """Store the elements of this and the next columns, as many as the mode says."""
    at, dtype = place(e, stream), e.program.streams[stream].dtype
    if e.mode == "single":
        store_one(e, at, dtype, source)
        return
    kind = e.program.builder.lanes(dtype)
    length = e.length(kind)
    if ITEMSIZE[dtype] >= 4:
        e.a.masked_later(loads=False)
        e.a.vector(
            "vmovupd_store" if ITEMSIZE[dtype] == 8 else "vmovups_store", length, source, 0, at
        )
    elif dtype == "float16":
        e.a.masked_later(loads=False)
        e.a.vector("vcvtps2ph", length, source, 0, at, 0)
    elif e.evex:
        _store_narrow_512(e, at, dtype, kind, source, length)
    else:
        _store_narrow(e, at, dtype, kind, source, length)


def _store_narrow_512(
    e: Emitter, at: Memory, dtype: str, kind: str, source: int, length: int
) -> None:
    name = "vpmovdb"
    if dtype == "bool":
        e.a.vector("vpabsq" if kind == "m8" else "vpabsd", length, 0, 0, source)
        source, name = 0, "vpmovqb" if kind == "m8" else "vpmovdb"
    elif dtype == "bfloat16":
        e.a.vector("vpsrld", length, 0, 0, source, 16)
        source, name = 0, "vpmovdw"
    elif dtype == "int16":
        name = "vpmovdw"
    e.a.masked_later(loads=False)
    e.a.vector(name, length, source, 0, at)


def _store_narrow(e: Emitter, at: Memory, dtype: str, kind: str, source: int, length: int) -> None:
    """Store lanes cut to their lower bytes: by packing, which saturates what is not cut before."""
    a = e.a
    words = dtype in ("int16", "bfloat16")
    if dtype == "bool" and kind == "m8":
        a.vector("vextractf128", 1, source, 0, 1, 1)
        a.vector("vshufps", 0, 0, source, 1, 0x88)
        length = 0
    elif dtype == "bool":
        a.vector("vmovaps", length, 0, 0, source)
    elif dtype == "bfloat16":
        a.vector("vpsrld", length, 0, 0, source, 16)
    else:
        a.vector("vpslld", length, 0, 0, source, 16 if words else 24)
        a.vector("vpsrld", length, 0, 0, 0, 16 if words else 24)
    if length:
        a.vector("vextractf128", 1, 0, 0, 1, 1)
    signed = dtype == "bool"
    a.vector("vpackssdw" if signed else "vpackusdw", 0, 0, 0, 1 if length else 0)
    if words:
        a.vector("vmovups_store" if length else "vmovq_store", 0, 0, 0, at)
        return
    a.vector("vpacksswb" if signed else "vpackuswb", 0, 0, 0, 0)
    if signed:
        a.vector("vpabsb", 0, 0, 0, 0)
    a.vector("vmovq_store" if e.lanes == 8 else "vmovd_store", 0, 0, 0, at)


def store_one(e: Emitter, at: Memory, dtype: str, source: int) -> None:
    """Store the first lane."""
    if ITEMSIZE[dtype] >= 4:
        e.a.vector("vmovsd_store" if ITEMSIZE[dtype] == 8 else "vmovss_store", 0, source, 0, at)
        return
    if dtype == "float16":
        e.a.vector("vcvtps2ph", 0, source, 0, 0, 0)
        source = 0
    elif dtype == "bfloat16":
        e.a.vector("vpsrld", 0, 0, 0, source, 16)
        source = 0
    e.a.vector("vmovd_store", 0, source, 0, RSI)
    if dtype == "bool":
        e.a.immediate(4, RSI, 1)
    e.a.store_small(at, RSI, ITEMSIZE[dtype])

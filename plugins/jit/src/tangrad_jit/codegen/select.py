"""Choose the instructions of each value, and the registers that they read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tangrad_jit.codegen.assembler import Memory
from tangrad_jit.codegen.registers import Registers
from tangrad_jit.codegen.vector import EQUAL

if TYPE_CHECKING:
    from tangrad_jit.codegen.emit import Emitter

_FLOATS = {
    f"{op}.f{size}": f"v{name}{'ps' if size == 4 else 'pd'}"
    for op, name in (
        ("add", "add"),
        ("sub", "sub"),
        ("mul", "mul"),
        ("div", "div"),
        ("max", "max"),
        ("min", "min"),
    )
    for size in (4, 8)
}
BINARY = _FLOATS | {
    "add.i4": "vpaddd", "add.i8": "vpaddq", "sub.i4": "vpsubd", "sub.i8": "vpsubq",
    "mul.i4": "vpmulld",
    "mul.i8": "vpmullq", "max.i4": "vpmaxsd", "max.i8": "vpmaxsq", "min.i4": "vpminsd",
    "min.i8": "vpminsq",
    "scalef.f4": "vscalefps",
}  # fmt: skip
LOGIC = {"and": "vpand", "or": "vpor", "xor": "vpxor", "andn": "vpandn"}
UNARY = {
    "sqrt.f4": "vsqrtps", "sqrt.f8": "vsqrtpd", "abs.i4": "vpabsd", "abs.i8": "vpabsq",
    "rcp14.f4": "vrcp14ps",
    "getmant.f4": "vgetmantps", "getexp.f4": "vgetexpps",
}  # fmt: skip
SHIFTS = {
    "shl.i4": "vpslld", "shl.i8": "vpsllq", "shr.i4": "vpsrld", "shr.i8": "vpsrlq",
    "sar.i4": "vpsrad",
    "sar.i8": "vpsraq",
}  # fmt: skip
# Conversions by source and result; the length is that of the wider.
CONVERSIONS = {
    "i4.f4": "vcvtdq2ps", "f4.i4": "vcvttps2dq", "f4.f8": "vcvtps2pd", "f8.f4": "vcvtpd2ps",
    "i4.f8": "vcvtdq2pd",
    "f8.i4": "vcvttpd2dq", "i8.f8": "vcvtqq2pd", "f8.i8": "vcvttpd2qq", "i8.f4": "vcvtqq2ps",
    "f4.i8": "vcvttps2qq",
    "i4.i8": "vpmovsxdq", "m4.m8": "vpmovsxdq",
}  # fmt: skip
COMMUTES = frozenset(("add", "mul", "and", "or", "xor"))
_COMMUTES_INTEGERS = frozenset(("max", "min"))


def emit_value(e: Emitter, registers: Registers, value: int, args: tuple[int, ...]) -> None:
    """Write the instructions of a value whose operands are at hand."""
    op, kind = e.ops[value][:2]
    rule = _RULES.get(op)
    if rule is not None:
        rule(e, registers, value, args)
        return
    name = BINARY.get(f"{op}.{kind}")
    if name is None:
        name = _logic(e, op, kind)
    swaps = op in COMMUTES or (kind[0] == "i" and op in _COMMUTES_INTEGERS)
    _binary(e, registers, value, args, name, e.length(kind), swaps)


def _logic(e: Emitter, op: str, kind: str) -> str:
    name = LOGIC[op]
    return name + ("q" if kind[1] == "8" else "d") if e.evex else name


def _binary(e: Emitter, r: Registers, value: int, args: tuple[int, ...], name: str, length: int,
            swaps: bool,
            imm: int = -1) -> None:  # fmt: skip
    a, b = args
    if swaps and a not in r.where and b in r.where:
        a, b = b, a
    first = r.get(a)
    second = r.either(b)
    r.used(args)
    to = r.take()
    e.a.vector(name, length, to, first, second, imm)
    r.put(value, to)


def _unary(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    op, kind, _, imm = e.ops[value]
    source = r.either(args[0])
    r.used(args)
    to = r.take()
    e.a.vector(UNARY[f"{op}.{kind}"], e.length(kind), to, 0, source, -1 if imm is None else imm)
    r.put(value, to)


def _round(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    _, kind, _, imm = e.ops[value]
    name = ("vrndscale" if e.evex else "vround") + ("ps" if kind == "f4" else "pd")
    source = r.either(args[0])
    r.used(args)
    to = r.take()
    e.a.vector(name, e.length(kind), to, 0, source, imm)
    r.put(value, to)


def _shift(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    op, kind, _, count = e.ops[value]
    source = r.get(args[0])
    r.used(args)
    to = r.take()
    # The destination is in the place of the second source.
    e.a.vector(SHIFTS[f"{op}.{kind}"], e.length(kind), to, 0, source, count)
    r.put(value, to)


def _fused_product(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    """A b + c: the destination is one of the three, so one that is not needed again is chosen."""
    op, kind = e.ops[value][:2]
    a, b, c = args
    name = ("vfmadd" if op == "fma" else "vfnmadd") + "{}" + ("ps" if kind == "f4" else "pd")
    length = e.length(kind)

    def dying(which: int) -> bool:
        return r.dies(which, args.count(which))

    if not dying(c) and not dying(a) and dying(b):
        a, b = b, a
    if dying(c) or not dying(a):
        if a not in r.where and b in r.where:
            a, b = b, a
        first = r.get(a)
        second = r.either(b)
        if dying(c):
            to = r.get(c)
            r.where.pop(c)
        else:
            third = r.either(c)
            to = r.take()
            e.a.vector("vmovups", length, to, 0, third)
        r.used(args)
        e.a.vector(name.format("231"), length, to, first, second)
    else:
        to = r.get(a)
        if c in r.where and b not in r.where:
            form, first, second = "132", r.get(c), r.either(b)
        else:
            form, first, second = "213", r.get(b), r.either(c)
        r.where.pop(a)
        r.used(args)
        e.a.vector(name.format(form), length, to, first, second)
    r.put(value, to)


def _ternary(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    a, b, c = args
    _, kind, _, imm = e.ops[value]
    second, third = r.get(b), r.either(c)
    if r.dies(a, args.count(a)):
        to = r.get(a)
        r.where.pop(a)
    else:
        source = r.either(a)
        to = r.take()
        e.a.vector("vmovups", e.length(kind), to, 0, source)
    r.used(args)
    e.a.vector("vpternlogd", e.length(kind), to, second, third, imm)
    r.put(value, to)


def _permute(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    index, table = r.get(args[0]), r.either(args[1])
    r.used(args)
    to = r.take()
    e.a.vector("vpermps", 2, to, index, table)
    r.put(value, to)


def compare_to_mask(e: Emitter, value: int, first: int, second: int | Memory) -> None:
    """Write a comparison into k1."""
    _, kind, args, predicate = e.ops[value]
    operand = e.ops[args[0]][1]
    if operand[0] == "f":
        name = "vcmpps" if operand == "f4" else "vcmppd"
    else:
        name = "vpcmpd" if kind == "m4" else "vpcmpq"
    e.a.vector(name, e.length(kind), 1, first, second, predicate)


def _compare(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    _, kind, sources, predicate = e.ops[value]
    operand = e.ops[sources[0]][1]
    a, b = args
    if e.evex:
        first, second = r.get(a), r.either(b)
        compare_to_mask(e, value, first, second)
        r.used(args)
        to = r.take()
        e.a.vector("vpmovm2d" if kind == "m4" else "vpmovm2q", e.length(kind), to, 0, 1)
        r.put(value, to)
        return
    if operand[0] == "f":
        name = "vcmpps" if operand == "f4" else "vcmppd"
        _binary(e, r, value, args, name, e.length(kind), False, predicate)
        return
    size = "d" if kind == "m4" else "q"
    if predicate == EQUAL:
        _binary(e, r, value, args, "vpcmpeq" + size, e.length(kind), True)
        return
    # a < b is b > a
    first, second = r.get(b), r.either(a)
    r.used(args)
    to = r.take()
    e.a.vector("vpcmpgt" + size, e.length(kind), to, first, second)
    r.put(value, to)


def _select(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    _, kind, sources, _ = e.ops[value]
    length = e.length(kind)
    if not e.evex:
        mask, other, chosen = r.get(args[0]), r.get(args[2]), r.either(args[1])
        r.used(args)
        to = r.take()
        e.a.vector(
            "vblendvpd" if kind[1] == "8" else "vblendvps", length, to, other, chosen, mask << 4
        )
        r.put(value, to)
        return
    if sources[0] in e.fused:
        first, second = r.get(args[0]), r.either(args[1])
        compare_to_mask(e, sources[0], first, second)
        r.locked.clear()
    else:
        e.a.vector("vpmovq2m" if kind[1] == "8" else "vpmovd2m", length, 1, 0, r.get(args[0]))
        r.locked.clear()
    other, chosen = r.get(args[-1]), r.either(args[-2])
    r.used(args)
    to = r.take()
    e.a.vector("vblendmpd" if kind[1] == "8" else "vblendmps", length, to, other, chosen, mask=1)
    r.put(value, to)


def _resize(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    _convert_by(e, r, value, args, e.ops[args[0]][1])


def _convert(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    _convert_by(e, r, value, args, e.ops[value][3])


def _convert_by(e: Emitter, r: Registers, value: int, args: tuple[int, ...], own: str) -> None:
    kind = e.ops[value][1]
    length = e.length(max(own, kind, key=lambda k: k[1]))
    name = CONVERSIONS.get(f"{own}.{kind}")
    if name is not None:
        source = r.either(args[0])
        r.used(args)
        to = r.take()
        e.a.vector(name, length, to, 0, source)
    else:  # the lower halves of lanes of 8 bytes
        source = r.get(args[0])
        r.used(args)
        to = r.take()
        if e.evex:
            e.a.vector("vpmovqd", length, source, 0, to)
        elif length == 0:
            e.a.vector("vmovaps", 0, to, 0, source)
        else:
            e.a.vector("vextractf128", 1, source, 0, 1, 1)
            e.a.vector("vshufps", 0, to, source, 1, 0x88)
    r.put(value, to)


def _half(e: Emitter, r: Registers, value: int, args: tuple[int, ...]) -> None:
    source = r.get(args[0])
    r.used(args)
    to = r.take()
    e.a.vector("vcvtps2ph", e.length("f4"), source, 0, 0, 0)
    e.a.vector("vcvtph2ps", e.length("f4"), to, 0, 0)
    r.put(value, to)


_RULES = {
    "sqrt": _unary, "abs": _unary, "rcp14": _unary, "getmant": _unary, "getexp": _unary,
    "round": _round,
    "shl": _shift, "shr": _shift, "sar": _shift, "fma": _fused_product, "fnma": _fused_product,
    "tern": _ternary, "permute": _permute, "cmp": _compare, "select": _select, "resize": _resize,
    "convert": _convert, "half": _half,
}  # fmt: skip

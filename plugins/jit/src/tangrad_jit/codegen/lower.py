"""From typed programs of ops to vector SSA: one rule for each primitive that is emitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from tangrad.plugin.render import KINDS, Program, compute_type
from tangrad_jit.codegen._emit import replay
from tangrad_jit.codegen.elementary import CALLED_512, FUNCTIONS, OPS_512
from tangrad_jit.codegen.group import Step
from tangrad_jit.codegen.vector import (
    DOWN,
    EQUAL,
    LANES,
    LESS,
    LESS_EQUAL,
    NEAREST,
    NOT_EQUAL,
    TO_ZERO,
    UP,
    Builder,
    Unsupported,
)  # fmt: skip

Rule = Callable[..., int]


def _maximum(b: Builder, x: int, y: int) -> int:
    if b.kind(x)[0] == "m":
        return b.bitwise("or", x, y)
    if b.kind(x)[0] == "i":
        return b.max(x, y)
    return b.select(b.nan(y), y, b.max(y, x))


def _minimum(b: Builder, x: int, y: int) -> int:
    if b.kind(x)[0] == "m":
        return b.bitwise("and", x, y)
    if b.kind(x)[0] == "i":
        return b.min(x, y)
    return b.select(b.nan(y), y, b.min(y, x))


def _fmax(b: Builder, x: int, y: int) -> int:
    if b.kind(x)[0] != "f":
        return _maximum(b, x, y)
    return b.select(b.nan(y), x, b.select(b.compare(LESS_EQUAL, y, x), x, y))


def _fmin(b: Builder, x: int, y: int) -> int:
    if b.kind(x)[0] != "f":
        return _minimum(b, x, y)
    return b.select(b.nan(y), x, b.select(b.compare(LESS_EQUAL, x, y), x, y))


def _one(b: Builder, kind: str) -> int:
    return b.bits(kind, {"f4": 0x3F800000, "f8": 0x3FF0000000000000}.get(kind, 1))


def _sign(b: Builder, x: int) -> int:
    kind = b.kind(x)
    if kind[0] == "m":
        return x
    zero, one = b.bits(kind, 0), _one(b, kind)
    positive = b.select(b.compare(LESS, zero, x), one, zero)
    return b.select(b.compare(LESS, x, zero), b.neg(one), positive)


def _signbit(b: Builder, x: int) -> int:
    kind = "i" + b.kind(x)[1]
    return b.compare(LESS, b.make("as", kind, (x,)), b.bits(kind, 0))


def _add(b: Builder, x: int, y: int) -> int:
    return b.bitwise("or", x, y) if b.kind(x)[0] == "m" else b.add(x, y)


def _mul(b: Builder, x: int, y: int) -> int:
    return b.bitwise("and", x, y) if b.kind(x)[0] == "m" else b.mul(x, y)


def _rounding(mode: int) -> Rule:
    return lambda b, x: b.round(x, mode) if b.kind(x)[0] == "f" else x


def _infinity(b: Builder, x: int) -> int:
    return b.bits(b.kind(x), {"f4": 0x7F800000, "f8": 0x7FF0000000000000}[b.kind(x)])


def _xlogy(b: Builder, x: int, y: int) -> int:
    zero = b.f4(0.0)
    product = b.select(b.compare(EQUAL, x, zero), zero, b.mul(x, FUNCTIONS["log"](b, y)))
    return b.select(b.nan(y), y, product)


def _same(b: Builder, x: int) -> int:
    return x


# The rules by primitive. Those of FLOATS have none for integers, which the compiled loops serve.
RULES: dict[str, Rule] = {
    "add": _add,
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": _mul,
    "neg": lambda b, x: b.neg(x),
    "abs": lambda b, x: x if b.kind(x)[0] == "m" else b.abs(x),
    "square": lambda b, x: b.mul(x, x),
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": _fmax,
    "fmin": _fmin,
    "lt": lambda b, x, y: b.compare(LESS, x, y),
    "le": lambda b, x, y: b.compare(LESS_EQUAL, x, y),
    "gt": lambda b, x, y: b.compare(LESS, y, x),
    "ge": lambda b, x, y: b.compare(LESS_EQUAL, y, x),
    "eq": lambda b, x, y: b.compare(EQUAL, x, y),
    "ne": lambda b, x, y: b.compare(NOT_EQUAL, x, y),
    "sign": _sign,
    "sgn": _sign,
    "where": lambda b, c, x, y: b.select(c, x, y),
    "logical_and": lambda b, x, y: b.bitwise("and", x, y),
    "logical_or": lambda b, x, y: b.bitwise("or", x, y),
    "logical_xor": lambda b, x, y: b.bitwise("xor", x, y),
    "logical_not": lambda b, x: b.not_(x),
    "bitwise_and": lambda b, x, y: b.bitwise("and", x, y),
    "bitwise_or": lambda b, x, y: b.bitwise("or", x, y),
    "bitwise_xor": lambda b, x, y: b.bitwise("xor", x, y),
    "bitwise_not": lambda b, x: b.not_(x),
    "real": _same,
    "conj": _same,
    "floor": _rounding(DOWN),
    "ceil": _rounding(UP),
    "trunc": _rounding(TO_ZERO),
    "round": _rounding(NEAREST),
}
FLOATS: dict[str, Rule] = {
    "truediv": lambda b, x, y: b.div(x, y),
    "reciprocal": lambda b, x: b.div(_one(b, b.kind(x)), x),
    "fma": lambda b, x, y, z: b.fma(x, y, z),
    "sqrt": lambda b, x: b.sqrt(x),
    "rsqrt": lambda b, x: b.div(_one(b, b.kind(x)), b.sqrt(x)),
    "frac": lambda b, x: b.sub(x, b.round(x, TO_ZERO)),
    "isnan": lambda b, x: b.nan(x),
    "isinf": lambda b, x: b.compare(EQUAL, b.abs(x), _infinity(b, x)),
    "isfinite": lambda b, x: b.compare(LESS, b.abs(x), _infinity(b, x)),
    "signbit": _signbit,
    "copysign": lambda b, x, y: b.copysign(x, y),
}
# Primitives whose results may exceed a small integer's width, or its sign's.
WRAPS = frozenset(("add", "sub", "mul", "neg", "abs", "square", "bitwise_not"))
# Unsigned numbers compare like signed ones only where they were widened.
_UNSIGNED = frozenset(("uint16", "uint32", "uint64"))


def lower_program(
    b: Builder, program: Program, loads: Mapping[str, int], params: Mapping[str, int]
) -> list[int]:
    """Append a program and return its results.

    Args:
        b: what the values are appended to.
        program: typed steps.
        loads: the inputs, each in the lanes of its own compute type.
        params: the parameters, each in the lanes of the type that the program has it in.

    Raises:
        Unsupported: there is a step without a rule.
    """
    values: list[int] = []
    for step in program.instructions:
        args = [values[k] for k in step.args]
        if step.op == "load":
            value = loads[str(step.value)]
        elif step.op == "param":
            value = params[str(step.value)]
        elif step.op == "literal":
            value = b.literal(step.value, step.type)  # type: ignore[arg-type]
        elif step.op == "convert":
            value = b.convert(args[0], step.operand, step.type)
        elif step.op == "cast":
            value = b.rounded(args[0], str(step.value))
        else:
            value = _primitive(b, step.op, step.operand, args)
        values.append(value)
    return [values[k] for k in program.results]


def _primitive(b: Builder, op: str, dtype: str, args: list[int]) -> int:
    if dtype in _UNSIGNED or dtype not in LANES:
        raise Unsupported(f"{op} of {dtype}")
    if op in RULES:
        value = RULES[op](b, *args)
        return b.wrapped(value, dtype) if op in WRAPS else value
    if op in FLOATS and KINDS[dtype] == "f":
        return FLOATS[op](b, *args)
    if op in FUNCTIONS and dtype == "float32":
        return FUNCTIONS[op](b, args[0])
    if op == "xlogy" and dtype == "float32":
        return _xlogy(b, *args)
    raise Unsupported(f"{op} of {dtype}")


class Template:
    """A pointwise step lowered once, to be appended to programs.

    Attributes:
        ops: (operation, type, operands, immediate) of each value; operands count the step's own
            first, then its parameters, then the values of the template.
        results: the numbers of the results.
    """

    __slots__ = ("ops", "results")

    def __init__(self, step: Step, evex: bool, wide: bool) -> None:
        b, form = Builder(evex, wide), step.form
        given = [*form.operands, *form.params.values()]
        for k, dtype in enumerate(given):
            b.make("load", b.lanes(dtype), (), k)
        params = dict(zip(form.params, range(form.count, len(given)), strict=True))
        self.results = _lowered(b, step, list(range(form.count)), params)
        for dtype in form.result_types:
            b.lanes(dtype)
        self.ops = b.ops[len(given) :]


def template_of(step: Step, evex: bool, wide: bool) -> Template | None:
    """Return how a pointwise step is lowered, None where the emitter lacks an instruction."""
    form, given = step.form, step.params
    if form.params and any(given.get(name) is None for name in form.params):
        return None
    found = form.templates.get((evex, wide), "")
    if found == "":
        try:
            found = Template(step, evex, wide)
        except Unsupported:
            found = None
        form.templates[evex, wide] = found
    template: Template | None = found
    return template


def lower_step(b: Builder, template: Template, operands: list[int]) -> list[int]:
    """Append a pointwise step and return its results, each in the lanes of its stored dtype.

    Args:
        b: what the values are appended to.
        template: the step's.
        operands: the operands, in the lanes of the compute type of what the step takes, and the
            parameters that its program uses.
    """
    replay(b, template.ops, operands)
    return [operands[k] for k in template.results]


def _lowered(b: Builder, step: Step, loads: list[int], params: Mapping[str, int]) -> list[int]:
    op, form = step.described, step.form
    if b.evex and step.dtype == "float32" and op.kind == "op" and op.key in OPS_512:
        return [OPS_512[op.key](b, loads[0])]
    if b.evex and step.dtype == "float32" and op.key in CALLED_512:
        raise Unsupported(op.key)
    if form.called:
        raise Unsupported("division of integers, or random bits")
    return lower_program(b, form.typed.program, dict(zip(form.names, loads, strict=True)), params)


def cast_value(b: Builder, value: int, source: str, target: str) -> int:
    """Append a conversion; half types take part as float32.

    Raises:
        Unsupported: the level lacks an instruction for it.
    """
    found = b.convert(value, compute_type(source), compute_type(target))
    return (
        b.rounded(found, target) if target != compute_type(target) and source != target else found
    )


@cache
def casts(source: str, target: str, evex: bool, wide: bool) -> bool:
    """Tell whether a conversion is emitted."""
    b = Builder(evex, wide)
    try:
        cast_value(b, b.make("load", b.lanes(source)), source, target)
        return target in LANES
    except Unsupported:
        return False

"""The ONNX form of a pointwise op, from the expression that defines it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tangrad
from tangrad.plugin.render import ExpressionTypeError, PointwiseOp
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.graph import Size, Value, Writer
from tangrad_onnx.writing.special import divisor, looped, program_of

__all__ = ["FORMS_OF_STEPS", "write_pointwise"]

_FLOATS = {"float32", "float64", "float16", "bfloat16"}


def _dtype(name: str) -> Any:
    return getattr(tangrad, name)


class _Step:
    """One step that is written.

    Args:
        w: the graph.
        operand: dtype of the operands.
        dtype: of the result.
    """

    def __init__(self, w: Writer, operand: str, dtype: str) -> None:
        self.w, self.operand, self.dtype = w, operand, dtype

    def number(self, value: float) -> str:
        return self.w.constant(value, _dtype(self.operand))

    def op(self, operator: str, *operands: str, **attributes: Any) -> str:
        return str(self.w.op(operator, *operands, **attributes))

    @property
    def floats(self) -> bool:
        return self.operand in _FLOATS


def _named(operator: str, **attributes: Any) -> Callable[..., str]:
    return lambda s, *xs: s.op(operator, *xs, **attributes)


def _of_bits(boolean: str, integer: str) -> Callable[..., str]:
    return lambda s, *xs: s.op(boolean if s.operand == "bool" else integer, *xs)


def _trunc(s: _Step, x: str) -> str:
    if not s.floats:
        return x
    return s.op("Where", s.op("Less", x, s.number(0)), s.op("Ceil", x), s.op("Floor", x))


def _floor_divide(s: _Step, a: str, b: str) -> str:
    if s.floats:
        return s.op("Floor", s.op("Div", a, b))
    return s.op("Div", s.op("Sub", a, s.op("Mod", a, b)), b)


def _remainder(s: _Step, a: str, b: str) -> str:
    if not s.floats:
        return s.op("Mod", a, b)
    rest = s.op("Mod", a, b, fmod=1)
    zero = s.number(0)
    other = s.op("Xor", s.op("Less", rest, zero), s.op("Less", b, zero))
    moves = s.op("And", other, s.op("Not", s.op("Equal", rest, zero)))
    return s.op("Where", moves, s.op("Add", rest, b), rest)


def _expm1(s: _Step, x: str) -> str:
    """By tanh near zero, where exp(x) - 1 loses digits."""
    half = s.op("Tanh", s.op("Mul", x, s.number(0.5)))
    near = s.op("Div", s.op("Mul", s.number(2), half), s.op("Sub", s.number(1), half))
    small = s.op("Less", s.op("Abs", x), s.number(0.5))
    return s.op("Where", small, near, s.op("Sub", s.op("Exp", x), s.number(1)))


def _log1p(s: _Step, x: str) -> str:
    """Correct the logarithm by what 1 + x has lost (Kahan)."""
    one = s.number(1)
    u = s.op("Add", x, one)
    lost = s.op("Or", s.op("Equal", u, one), s.op("Equal", u, s.number(math.inf)))
    safe = s.op("Where", lost, s.number(2), u)
    corrected = s.op("Mul", s.op("Log", safe), s.op("Div", x, s.op("Sub", safe, one)))
    return s.op("Where", lost, x, corrected)


def _log_sigmoid(s: _Step, x: str) -> str:
    fall = _log1p(s, s.op("Exp", s.op("Neg", s.op("Abs", x))))
    return s.op("Sub", s.op("Min", x, s.number(0)), fall)


def _signbit(s: _Step, x: str) -> str:
    zero = s.number(0)
    below = s.op("Less", x, zero)
    if not s.floats:
        return below
    minus = s.op("Less", s.op("Reciprocal", x), zero)
    return s.op("Or", below, s.op("And", s.op("Equal", x, zero), minus))


def _copysign(s: _Step, a: str, b: str) -> str:
    size = s.op("Abs", a)
    return s.op("Where", _signbit(s, b), s.op("Neg", size), size)


def _number_first(operator: str) -> Callable[..., str]:
    def call(s: _Step, a: str, b: str) -> str:
        both = s.op(operator, a, b)
        if not s.floats:
            return both
        with_b = s.op("Where", s.op("IsNaN", b), a, both)
        return s.op("Where", s.op("IsNaN", a), b, with_b)

    return call


def _isfinite(s: _Step, x: str) -> str:
    return s.op("Not", s.op("Or", _isinf(s, x), s.op("IsNaN", x)))


def _isinf(s: _Step, x: str) -> str:
    if s.operand in {"float32", "float64"}:
        return s.op("IsInf", x)
    return s.op("Equal", s.op("Abs", x), s.number(math.inf))


def _xlogy(s: _Step, x: str, y: str) -> str:
    zero = s.number(0)
    product = s.op("Where", s.op("Equal", x, zero), zero, s.op("Mul", x, s.op("Log", y)))
    return s.op("Where", s.op("IsNaN", y), y, product)


def _atan2(s: _Step, y: str, x: str) -> str:
    zero = s.number(0)
    plain = s.op("Atan", s.op("Div", y, x))
    half_turn = _copysign(s, s.number(math.pi), y)
    turned = s.op("Where", _signbit(s, x), s.op("Add", plain, half_turn), plain)
    upright = s.op("And", s.op("Equal", x, zero), s.op("Not", s.op("Equal", y, zero)))
    quarter = _copysign(s, s.number(math.pi / 2), y)
    found = s.op("Where", upright, quarter, turned)
    flat = s.op("Equal", y, zero)
    on_axis = s.op("Where", _signbit(s, x), half_turn, _copysign(s, zero, y))
    both = s.op(
        "And",
        s.op("Equal", s.op("Abs", x), s.number(math.inf)),
        s.op("Equal", s.op("Abs", y), s.number(math.inf)),
    )
    quarters = s.op("Where", _signbit(s, x), s.number(3 * math.pi / 4), s.number(math.pi / 4))
    return s.op("Where", both, _copysign(s, quarters, y), s.op("Where", flat, on_axis, found))


def _shift(by: str) -> Callable[..., str]:
    def call(s: _Step, a: str, b: str) -> str:
        if s.operand.startswith("u"):
            return s.op("BitShift", a, b, direction=by)
        power = s.op("Pow", s.number(2), b)
        return s.op("Mul", a, power) if by == "LEFT" else _floor_divide(s, a, power)

    return call


def _sigmoid_slope(s: _Step, x: str) -> str:
    value = s.op("Sigmoid", x)
    return s.op("Mul", value, s.op("Sub", s.number(1), value))


def _sign(s: _Step, x: str) -> str:
    if s.operand == "bool":
        return x
    if not s.floats:
        return s.op("Sign", x)
    return s.op("Where", s.op("IsNaN", x), s.number(0), s.op("Sign", x))


def _multiple(s: _Step, a: str, b: str) -> str:
    shared = divisor(s.w, a, b, _dtype(s.operand))
    safe = s.op("Max", shared, s.number(1))
    return s.op("Abs", s.op("Mul", s.op("Div", a, safe), b))


def _frac(s: _Step, x: str) -> str:
    return s.op("Sub", x, _trunc(s, x))


def _same(s: _Step, x: str) -> str:
    return x


FORMS_OF_STEPS: dict[str, Callable[..., str]] = {
    "abs": _named("Abs"),
    "acos": _named("Acos"),
    "acosh": _named("Acosh"),
    "add": _named("Add"),
    "angle": lambda s, x: s.op(
        "Where", s.op("IsNaN", x), x, s.op("Where", _signbit(s, x), s.number(math.pi), s.number(0))
    ),
    "asin": _named("Asin"),
    "asinh": _named("Asinh"),
    "atan": _named("Atan"),
    "atan2": _atan2,
    "atanh": _named("Atanh"),
    "bitwise_and": _of_bits("And", "BitwiseAnd"),
    "bitwise_not": _of_bits("Not", "BitwiseNot"),
    "bitwise_or": _of_bits("Or", "BitwiseOr"),
    "bitwise_xor": _of_bits("Xor", "BitwiseXor"),
    "cbrt": lambda s, x: s.op("Mul", s.op("Sign", x), s.op("Pow", s.op("Abs", x), s.number(1 / 3))),
    "ceil": lambda s, x: s.op("Ceil", x) if s.floats else x,
    "conj": _same,
    "copysign": _copysign,
    "cos": _named("Cos"),
    "cosh": _named("Cosh"),
    "eq": _named("Equal"),
    "erf": _named("Erf"),
    "erfc": lambda s, x: s.op("Sub", s.number(1), s.op("Erf", x)),
    "exp": _named("Exp"),
    "exp2": lambda s, x: s.op("Pow", s.number(2), x),
    "expm1": _expm1,
    "floor": lambda s, x: s.op("Floor", x) if s.floats else x,
    "floor_divide": _floor_divide,
    "fma": lambda s, a, b, c: s.op("Add", s.op("Mul", a, b), c),
    "fmax": _number_first("Max"),
    "fmin": _number_first("Min"),
    "fmod": lambda s, a, b: s.op("Mod", a, b, fmod=1),
    "frac": _frac,
    "gcd": lambda s, a, b: divisor(s.w, a, b, _dtype(s.operand)),
    "ge": _named("GreaterOrEqual"),
    "gt": _named("Greater"),
    "hypot": lambda s, a, b: s.op("Sqrt", s.op("Add", s.op("Mul", a, a), s.op("Mul", b, b))),
    "imag": lambda s, x: s.op("Expand", s.number(0), str(s.w.op("Shape", x))),
    "isfinite": _isfinite,
    "isinf": _isinf,
    "isnan": _named("IsNaN"),
    "lcm": _multiple,
    "le": _named("LessOrEqual"),
    "log": _named("Log"),
    "log10": lambda s, x: s.op("Div", s.op("Log", x), s.number(math.log(10))),
    "log1p": _log1p,
    "log2": lambda s, x: s.op("Div", s.op("Log", x), s.number(math.log(2))),
    "log_sigmoid": _log_sigmoid,
    "logical_and": _named("And"),
    "logical_not": _named("Not"),
    "logical_or": _named("Or"),
    "logical_xor": _named("Xor"),
    "lshift": _shift("LEFT"),
    "lt": _named("Less"),
    "maximum": _named("Max"),
    "minimum": _named("Min"),
    "mul": _named("Mul"),
    "ne": lambda s, a, b: s.op("Not", s.op("Equal", a, b)),
    "neg": _named("Neg"),
    "pow": _named("Pow"),
    "real": _same,
    "reciprocal": _named("Reciprocal"),
    "remainder": _remainder,
    "round": lambda s, x: s.op("Round", x) if s.floats else x,
    "rshift": _shift("RIGHT"),
    "rsqrt": lambda s, x: s.op("Reciprocal", s.op("Sqrt", x)),
    "sgn": _sign,
    "sigmoid": _named("Sigmoid"),
    "sigmoid_slope": _sigmoid_slope,
    "sign": _sign,
    "signbit": _signbit,
    "sin": _named("Sin"),
    "sinh": _named("Sinh"),
    "sqrt": _named("Sqrt"),
    "square": lambda s, x: s.op("Mul", x, x),
    "sub": _named("Sub"),
    "tan": _named("Tan"),
    "tanh": _named("Tanh"),
    "trunc": _trunc,
    "trunc_divide": lambda s, a, b: _trunc(s, s.op("Div", a, b)),
    "truediv": _named("Div"),
    "where": _named("Where"),
    "xlogy": _xlogy,
}
_ON_BOOLS = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
# On numbers of two values And is the product and Or the sum; the operators refuse bool.
_BOOLEAN_FORMS = {"add": "Or", "mul": "And", "maximum": "Or", "minimum": "And", "ne": "Xor"}


def write_pointwise(w: Writer, op: Any, given: Mapping[str, Any], result: Any) -> Any:
    """Write a pointwise op and return the names of its results.

    Args:
        w: the graph.
        op: the op.
        given: {parameter: `Value`, number or None}.
        result: the dtype of the result, or of each of several.

    Raises:
        UnsupportedOperatorError: a step of the expression has no form.
    """
    described = PointwiseOp.of(op)
    promoted = _promoted(described, given)
    try:
        program = described.typed(promoted).program
    except ExpressionTypeError as error:
        raise UnsupportedOperatorError(str(error), operator=op.name) from None
    half = promoted in {"float16", "bfloat16"}
    single = half and sum(step.op in FORMS_OF_STEPS for step in program.instructions) == 1
    names: list[str] = []
    kinds: list[str] = []
    for step in program.instructions:
        wanted = promoted if single and step.type == program.compute else step.type
        names.append(_written(w, step, names, kinds, wanted, given, described, promoted))
        kinds.append(wanted)
    outs = result if isinstance(result, (tuple, list)) else [result]
    made = [
        w.cast(names[at], _dtype(kinds[at]), dtype)
        for at, dtype in zip(program.results, outs, strict=True)
    ]
    return made if isinstance(result, (tuple, list)) else made[0]


def _written(
    w: Writer,
    step: Any,
    names: list[str],
    kinds: list[str],
    wanted: str,
    given: Mapping[str, Any],
    described: Any,
    promoted: str,
) -> str:
    if step.op == "load":
        value = given[str(step.value)]
        if isinstance(value, Value):
            kind = described.fixed.get(str(step.value), promoted)
            return w.cast(
                w.cast(value.name, value.dtype, _dtype(kind)), _dtype(kind), _dtype(wanted)
            )
        if isinstance(value, Size):
            return w.cast(value.name, tangrad.int64, _dtype(wanted))
        return w.constant(value, _dtype(wanted))
    if step.op == "param":
        value = given[str(step.value)]
        if isinstance(value, Size):
            return w.cast(value.name, tangrad.int64, _dtype(wanted))
        if isinstance(value, Value):
            return w.cast(value.name, value.dtype, _dtype(wanted))
        return w.constant(value, _dtype(wanted))
    if step.op == "literal":
        return w.constant(step.value, _dtype(wanted))
    args = [names[at] for at in step.args]
    if step.op in ("convert", "cast"):
        return w.cast(args[0], _dtype(kinds[step.args[0]]), _dtype(wanted))
    if step.op == "iterate":
        return looped(w, step, args, lambda program, given: _evaluated(w, program, given))
    special = program_of(step.op)
    if special is not None:
        wide = [
            w.cast(name, _dtype(kinds[at]), tangrad.float64)
            for name, at in zip(args, step.args, strict=True)
        ]
        return w.cast(_evaluated(w, special, wide)[0], tangrad.float64, _dtype(wanted))
    form = FORMS_OF_STEPS.get(step.op)
    if form is None:
        raise UnsupportedOperatorError(
            f"{step.op!r}, of which {described.title!r} is made, has no form in ONNX",
            operator=described.title,
        )
    operand = step.operand
    if step.op == "where":
        args[0] = w.cast(args[0], _dtype(kinds[step.args[0]]), tangrad.bool)
        operand = wanted
        begin = 1
    else:
        begin = 0
    if wanted != step.type and operand == step.type:
        operand = wanted
    if step.op in _ON_BOOLS:
        operand = "bool"
    if operand == "bool" and step.op in _BOOLEAN_FORMS:
        form = _named(_BOOLEAN_FORMS[step.op])
    for i in range(begin, len(args)):
        have = kinds[step.args[i]]
        stays = have in {"float16", "bfloat16"} and operand == "float32"
        args[i] = (
            args[i] if stays and wanted == have else w.cast(args[i], _dtype(have), _dtype(operand))
        )
    return form(_Step(w, operand, wanted), *args)


class _Plain:
    """What a program that no op describes is described by."""

    fixed: Mapping[str, str] = {}
    title = "a special function"


def _evaluated(w: Writer, program: Any, given: Sequence[str]) -> list[str]:
    """Write a program and return the names of its results.

    Args:
        w: the graph.
        program: of which all inputs have one dtype.
        given: names of the inputs.
    """
    kind = program.compute
    inputs = {
        text: Value(name, _dtype(kind), 0, ())
        for text, name in zip(program.inputs, given, strict=True)
    }
    names: list[str] = []
    kinds: list[str] = []
    for step in program.instructions:
        names.append(_written(w, step, names, kinds, step.type, inputs, _Plain, kind))
        kinds.append(step.type)
    return [names[at] for at in program.results]


def _promoted(described: PointwiseOp, given: Mapping[str, Any]) -> str:
    """Return the dtype that operands meet in."""
    operands: list[Any] = []
    for name in described.inputs:
        value = given.get(name)
        if name in described.fixed or value is None:
            continue
        if isinstance(value, Value):
            operands.append(_zeros(value))
        else:
            operands.append(1 if isinstance(value, Size) else value)
    found = _all_together(operands) if operands else tangrad.get_default_dtype()
    kind = str(found).rpartition(".")[2]
    promote = described.op.definition.promote
    if promote == "float" and kind not in _FLOATS and not kind.startswith("complex"):
        kind = str(tangrad.get_default_dtype()).rpartition(".")[2]
    return kind


def _zeros(value: Value) -> Any:
    return tangrad.zeros((1,) * value.rank, dtype=value.dtype)


def _all_together(operands: list[Any]) -> Any:
    total = operands[0]
    if not isinstance(total, tangrad.Tensor):
        total = tangrad.tensor(total)
    for other in operands[1:]:
        dtype = tangrad.result_type(total, other)
        ranks = [x.ndim for x in (total, other) if isinstance(x, tangrad.Tensor)]
        total = tangrad.zeros((1,) * max(ranks, default=0), dtype=dtype)
    return total.dtype

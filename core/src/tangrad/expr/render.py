"""Render typed programs as C and its dialects.

A program becomes one scalar function::

    static inline void NAME([int64_t index,] inputs..., params..., outputs*... [, int32_t *err])

Inputs come by value in their storage types, outputs go through pointers; half and bfloat16 are
stored as 16-bit unsigned integers, bool as one byte of 0 or 1, complex numbers as structures
``{re, im}``. ``index``, the element's linear index, is there if the program is ``indexed``. If it
``divides`` integers, a zero divisor gives 0 and sets bit 0 of ``*err``: the caller, who clears it
before the loop, raises ZeroDivisionError after. Every value is a temporary of its own type and
every operation a call of a typed helper from :func:`c_prelude`: C's promotions never apply.
Compile with ``-ffp-contract=off``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tangrad.expr.c_library import C99_COMPLEX, COMPLEX_POWER, FUNCTIONS, PORTABLE_COMPLEX
from tangrad.expr.c_special import SPECIAL
from tangrad.expr.composed import COMPOSED
from tangrad.expr.dtypes import BITS, COMPLEX, KINDS, REAL, compute_type
from tangrad.expr.errors import ExpressionTypeError
from tangrad.expr.infer import typed_body, typed_function
from tangrad.expr.loop import loop_of
from tangrad.expr.primitives import PRIMITIVES, Primitive
from tangrad.expr.steps import Instruction, Steps

_SUFFIX = {"b": "bool", "u": "u", "i": "i", "f": "f", "c": "c"}
_COMPUTE = tuple(dtype for dtype in KINDS if compute_type(dtype) == dtype)


def suffix(dtype: str) -> str:
    """Return the suffix of the helpers for ``dtype``: f32, i64, bool."""
    kind = _SUFFIX[KINDS[dtype]]
    return kind if kind == "bool" else f"{kind}{BITS[dtype]}"


class Dialect:
    """Describe a C-like language.

    Args:
        name: What error messages call it.
        function: The qualifiers of a helper function.
        types: The names of the integer and floating types, by dtype.
        header: Text at the beginning; it defines ``TG_INF`` and ``TG_NAN``.
        float_suffix: What the library appends to the name of a function of float32.
        c99_complex: Whether there is ``<complex.h>``; otherwise complex functions are written out.
        helpers: Texts of helper functions by name that replace those of the prelude, such as
            half conversions in the machine's own instructions.
    """

    def __init__(
        self,
        name: str,
        *,
        function: str,
        types: Mapping[str, str],
        header: str,
        float_suffix: str = "f",
        c99_complex: bool = False,
        helpers: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.function, self.header = name, function, header
        self.types = dict(types)
        self.float_suffix, self.c99_complex = float_suffix, c99_complex
        self.helpers = dict(helpers or {})

    def type(self, dtype: str) -> str:
        """Return the name of the type of a value (half types: of their storage)."""
        if KINDS[dtype] == "c":
            return f"tg_{suffix(dtype)}"
        if KINDS[dtype] == "b":
            return self.types["uint8"]
        return self.types["uint16" if compute_type(dtype) != dtype else dtype]

    def library(self, name: str, dtype: str) -> str:
        """Return the library's function of the precision of ``dtype``."""
        return name + (self.float_suffix if dtype in ("float32", "complex64") else "")

    def literal(self, value: Any, dtype: str) -> str:
        """Return a typed literal."""
        kind = KINDS[dtype]
        if kind == "c":
            number = complex(value)
            parts = (self.literal(part, REAL[dtype]) for part in (number.real, number.imag))
            return f"tg_make_{suffix(dtype)}({', '.join(parts)})"
        if kind == "f":
            return self._float(float(value), dtype)
        return self._integer(int(value), dtype)

    def _float(self, value: float, dtype: str) -> str:
        if dtype == "float32":
            value = _round_float32(value)
        if value != value:
            return f"({self.type(dtype)})TG_NAN"
        if value in (float("inf"), float("-inf")):
            return f"({self.type(dtype)}){'-' * (value < 0)}TG_INF"
        text = value.hex() + ("f" if dtype == "float32" else "")
        return f"({text})" if text.startswith("-") else text

    def _integer(self, value: int, dtype: str) -> str:
        mark = ("u" if KINDS[dtype] == "u" else "") + ("l" if BITS[dtype] == 64 else "")
        if KINDS[dtype] == "i" and value == -(1 << BITS[dtype] - 1):
            return f"({self.type(dtype)})({value + 1}{mark} - 1)"
        return f"({self.type(dtype)})({value}{mark})"


def _round_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_C_INTEGERS = {
    f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_FLOATS = {"float32": "float", "float64": "double"}

# A device that compiles its kernels adds the dialect of its compiler.
DIALECTS: dict[str, Dialect] = {
    "c": Dialect(
        "c",
        function="static inline",
        types=_C_INTEGERS | _FLOATS,
        header="#include <math.h>\n#include <stdint.h>\n#define TG_INF INFINITY\n"
        "#define TG_NAN NAN\n",
        c99_complex=True,
    )
}


def _language(dialect: str | Dialect) -> Dialect:
    return DIALECTS[dialect] if isinstance(dialect, str) else dialect


# --- helpers ------------------------------------------------------------------------------------


def _expand(text: str, dtype: str, dialect: Dialect) -> str:
    """Fill in the table's notation for operands of ``dtype``."""
    bits = max(32, BITS[dtype])
    names = {
        "T": dialect.type(dtype),
        "R": dialect.type(REAL.get(dtype, dtype)),
        "U": dialect.types[f"uint{bits if KINDS[dtype] in 'ui' else 32}"],
        "s": suffix(dtype),
        "bits": str(BITS[dtype]),
        "fn": dialect.function,
    }
    names |= {suffix(name): dialect.types[name] for name in _C_INTEGERS}
    text = re.sub(r"\$(\w+)", lambda match: names[match.group(1)], text)
    return re.sub(r"@(c?)(\w+)", lambda match: _call(match, dtype, dialect), text)


def _call(match: re.Match, dtype: str, dialect: Dialect) -> str:
    name = match.group(1) + match.group(2)
    if KINDS[dtype] == "c" and name in (*PORTABLE_COMPLEX, "cpow"):
        # Real functions of a complex's parts and complex functions share the notation.
        return f"tg_{name}_{suffix(dtype)}"
    return dialect.library(name, dtype)


def _function(head: str, text: str) -> str:
    body = text if text.startswith("{") else f"{{ return {text}; }}"
    return f"{head} {body}"


def _primitive(primitive: Primitive, dtype: str, dialect: Dialect) -> str | None:
    """Return the helper for one primitive and operand type, None if there is none."""
    text = primitive.text("c", KINDS[dtype])
    allowed = KINDS[dtype] in primitive.kinds or "t" not in primitive.operands
    if not text or not allowed:
        return None
    roles = {"t": dtype, "c": "bool", "s": "int64", "n": dtype}
    params = [
        f"{dialect.type(roles[role])} {letter}"
        for role, letter in zip(primitive.operands, "abc", strict=False)
    ]
    if primitive.divides and KINDS[dtype] in "ui":
        params.append(f"{dialect.types['int32']} *err")
    result = {
        "same": dtype,
        "bool": "bool",
        "real": REAL.get(dtype, dtype),
        "complex": COMPLEX.get(dtype, dtype),
    }[primitive.result]
    if primitive.result == "complex":
        text = text.replace("$s", suffix(result))
    name = f"tg_{primitive.name}_{suffix(dtype)}"
    head = f"{dialect.function} {dialect.type(result)} {name}({', '.join(params)})"
    return _function(head, _expand(text, dtype, dialect))


def _conversion(source: str, target: str) -> str:
    """Return the table's text that converts ``a`` from one type to another."""
    if KINDS[source] == "c" and KINDS[target] == "c":
        return "tg_make_$s(a.re, a.im)"
    if KINDS[target] == "c":
        return "tg_make_$s(a, 0)"
    if KINDS[target] == "b":
        return "a.re != 0 || a.im != 0" if KINDS[source] == "c" else "a != 0"
    value = "a.re" if KINDS[source] == "c" else "a"
    if KINDS[source] not in "fc" or KINDS[target] == "f":
        return f"($T){value}"
    if target == "uint64":
        # Half of the range is out of int64's.
        upper = f"($T)($i64)({value} - 9223372036854775808.0f) + (($T)1 << 63)"
        return f"{value} >= 9223372036854775808.0f ? {upper} : ($T)($i64){value}"
    wide = "$i32" if BITS[target] < 32 or target == "int32" else "$i64"
    return f"($T)({wide}){value}"


@cache
def _helpers(dialect: Dialect) -> dict[str, str]:
    """Return every helper of a dialect by name."""
    found = {key: _expand(text, "float64", dialect) for key, text in (FUNCTIONS | SPECIAL).items()}
    for dtype in ("complex64", "complex128"):
        found |= _complex_helpers(dtype, dialect)
    for primitive in PRIMITIVES.values():
        for dtype in _COMPUTE if primitive.operands != "ss" else ():
            text = _primitive(primitive, dtype, dialect)
            if text is not None:
                found[f"tg_{primitive.name}_{suffix(dtype)}"] = text
    for source in _COMPUTE:
        for target in _COMPUTE:
            key = f"tg_cast_{suffix(source)}_{suffix(target)}"
            head = f"{dialect.function} {dialect.type(target)} {key}({dialect.type(source)} a)"
            found[key] = _function(head, _expand(_conversion(source, target), target, dialect))
    return found | dialect.helpers


def _complex_helpers(dtype: str, dialect: Dialect) -> dict[str, str]:
    mark, kind, part = suffix(dtype), dialect.type(dtype), dialect.type(REAL[dtype])
    make = f"{dialect.function} {kind} tg_make_{mark}({part} re, {part} im)"
    found = {
        kind: f"typedef struct {{ {part} re, im; }} {kind};",
        f"tg_make_{mark}": f"{make} {{ {kind} z; z.re = re; z.im = im; return z; }}",
    }
    for name, portable in PORTABLE_COMPLEX.items():
        text = _expand(portable, dtype, dialect)
        if dialect.c99_complex:
            text = _expand(
                C99_COMPLEX.replace("@NAME", dialect.library(name, dtype)), dtype, dialect
            )
        head = f"{dialect.function} {kind} tg_{name}_{mark}({kind} a)"
        found[f"tg_{name}_{mark}"] = _function(head, text)
    head = f"{dialect.function} {kind} tg_cpow_{mark}({kind} a, {kind} b)"
    found[f"tg_cpow_{mark}"] = _function(head, _expand(COMPLEX_POWER, dtype, dialect))
    return found


@cache
def _composed_helper(name: str, dialect: Dialect) -> str | None:
    """Return the helper of a function that ``composed.py`` writes, None if it writes none."""
    if name[3:] not in COMPOSED:
        return None
    program = typed_function(name[3:])
    kind = dialect.type("float64")
    params = ", ".join(f"{kind} {text}" for text in program.inputs)
    names = {text: text for text in program.inputs}
    lines = _statements(program, _storage(program), dialect, names)
    head = f"{dialect.function} {kind} {name}({params})"
    return "\n".join([f"{head} {{", *lines, f"    return v{program.results[0]};", "}"])


def c_prelude(dialect: str | Dialect = "c", used: str | None = None) -> str:
    """Return the helpers that rendered functions call.

    Args:
        dialect: ``"c"``, ``"cuda"``, ``"opencl"``, or a dialect of one's own.
        used: Source text; only the helpers it needs are returned. By default, all.
    """
    language = _language(dialect)
    helpers = _helpers(language)
    order: dict[str, str] = {}

    def need(text: str) -> None:
        for name in re.findall(r"\btg_\w+", text):
            if name in order or name in pending:
                continue
            helper = helpers.get(name) or _composed_helper(name, language)
            if helper is not None:
                pending.add(name)
                need(helper)
                order[name] = helper

    pending: set[str] = set()
    need(" ".join(helpers) if used is None else used)
    body = "\n".join(order.values())
    header = language.header
    if "_Complex" in body:
        header += "#include <complex.h>\n#undef I\n"
    return f"{header}\n{body}\n"


# --- programs -------------------------------------------------------------------------------------


def render(
    program: Steps,
    name: str,
    storage_types: Mapping[str, str],
    out_types: Sequence[str] | None,
    dialect: str | Dialect,
) -> str:
    """Return the function of ``program``; the module's docstring gives its signature.

    Raises:
        ExpressionTypeError: if a primitive has no helper for its type.
    """
    language = _language(dialect)
    outs = tuple(out_types or program.result_types)
    storage = _storage(program) | dict(storage_types)
    names = {text: f"in_{text}" for text in program.inputs}
    lines = _statements(program, storage, language, names)
    for k, (result, out) in enumerate(zip(program.results, outs, strict=True)):
        lines.append(f"    *out{k} = {_stored(f'v{result}', program, result, out)};")
    params = _signature(program, storage, outs, language)
    head = f"{language.function} void {name}({', '.join(params)})"
    return "\n".join([f"{head} {{", *lines, "}"]) + "\n"


def _statements(
    program: Steps,
    storage: Mapping[str, str],
    language: Dialect,
    names: Mapping[str, str],
    prefix: str = "v",
) -> list[str]:
    """Return a statement for each step; the values are called ``prefix`` and a number."""
    lines = []
    for k, step in enumerate(program.instructions):
        if step.op == "iterate":
            lines += _loop(step, f"{prefix}{k}", prefix, language)
            continue
        value = _value(step, storage, language, names, prefix)
        lines.append(f"    const {language.type(step.type)} {prefix}{k} = {value};")
    return lines


def _loop(step: Instruction, name: str, prefix: str, language: Dialect) -> list[str]:
    """Return the statements of a loop; ``name`` is its first state, and its value."""
    loop, kind = loop_of(str(step.value)), language.type(step.type)
    body, operands = typed_body(str(step.value), step.type), [f"{prefix}{k}" for k in step.args]
    states = [name, *(f"{name}s{k}" for k in range(1, loop.states))]
    count = f"{name}k"
    names = dict(zip(body.inputs, [f"({kind}){count}", *states, *operands[len(states) :]],
                     strict=True))  # fmt: skip
    more, *following = [f"{name}_{k}" for k in body.results]
    return [
        *(f"    {kind} {a} = {b};" for a, b in zip(states, operands, strict=False)),
        f"    for (int {count} = 0; {count} < {loop.bound}; ++{count}) {{",
        *_statements(body, _storage(body), language, names, f"{name}_"),
        f"    if (!{more}) break;",
        *(f"    {a} = {b};" for a, b in zip(states, following, strict=True)),
        "    }",
    ]


def _storage(program: Steps) -> dict[str, str]:
    steps = (step for step in program.instructions if step.op == "load")
    return {str(step.value): str(step.storage) for step in steps}


def _signature(
    program: Steps, storage: Mapping[str, str], outs: Sequence[str], language: Dialect
) -> list[str]:
    params = [f"{language.types['int64']} index"] if program.indexed else []
    types = {str(step.value): step.type for step in program.instructions if step.op == "param"}
    # An input that is not used is passed all the same: positions stay.
    for text in program.inputs:
        params.append(f"{language.type(storage.get(text, program.compute))} in_{text}")
    for text in program.params:
        params.append(f"{language.type(types.get(text, program.compute))} p_{text}")
    params += [f"{language.type(out)} *out{k}" for k, out in enumerate(outs)]
    return params + [f"{language.types['int32']} *err"] * program.divides


def render_conversion(text: str, source: str, target: str) -> str:
    """Convert between storage and compute types."""
    if source == target:
        return text
    if compute_type(source) != source:
        return render_conversion(f"tg_load_{source}({text})", "float32", target)
    if compute_type(target) != target:
        return f"tg_store_{target}({render_conversion(text, source, 'float32')})"
    return f"tg_cast_{suffix(source)}_{suffix(target)}({text})"


def _value(
    step: Instruction,
    storage: Mapping[str, str],
    language: Dialect,
    names: Mapping[str, str],
    prefix: str,
) -> str:
    args = [f"{prefix}{arg}" for arg in step.args]
    if step.op == "load":
        name, stored = names[str(step.value)], storage[str(step.value)]
        # Memory that is viewed as bool may hold other bytes than 0 and 1.
        text = f"({name} != 0)" if stored == "bool" else name
        return render_conversion(text, stored, step.type)
    if step.op == "param":
        return f"p_{step.value}"
    if step.op == "literal":
        return language.literal(step.value, step.type)
    if step.op == "convert":
        return render_conversion(args[0], step.operand, step.type)
    if step.op == "cast":
        return f"tg_load_{step.value}(tg_store_{step.value}({args[0]}))"
    if step.op == "philox_uniform":
        return f"tg_philox_uniform({', '.join(args)}, index)"
    primitive = PRIMITIVES[step.op]
    if primitive.divides and KINDS[step.operand] in "ui":
        args.append("err")
    helper = f"tg_{step.op}_{suffix(step.operand)}"
    if helper not in _helpers(language):
        raise ExpressionTypeError(f"{step.op} has no {language.name} text for {step.operand}")
    return f"{helper}({', '.join(args)})"


def _stored(text: str, program: Steps, result: int, out: str) -> str:
    step = program.instructions[result]
    if step.op == "cast" and step.storage == out:
        # The store rounds: rounding before it would be the same.
        text = f"v{step.args[0]}"
    return render_conversion(text, step.type, out)


__all__ = ["DIALECTS", "Dialect", "c_prelude", "render", "suffix"]

"""Render the pointwise kernels: an inner loop and a descriptor for each expression and dtype.

Which kernels there are follows from the core's definitions: every pointwise op, the gradient of
every set of inputs that can need one, and the tangents. An inner loop runs over contiguous
operands of the compute type; `native/pointwise_loop.c` brings all other operands into that form.

`python -m render.pointwise OP [DTYPE]`, in the folder of this package's sources, prints what is
rendered for one op.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from render.dialect import SHARED, cpu_dialect
from tangrad.expr import ExpressionError, ExpressionTypeError, c_prelude
from tangrad.expr.dtypes import compute_type
from tangrad.expr.program import Program
from tangrad.expr.render import render

DIALECT = cpu_dialect()
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
KINDS = {"bool": ("bool",), "integral": INTEGERS, "floating": FLOATS, "complex": COMPLEX}
KINDS["all"] = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
# Dtypes that are computed in another: their kernels have the other's inner loop.
STORED = {"float32": ("float16", "bfloat16")}
# Kernels up to this cost have an inner loop over bfloat16 as well: they would spend most of their
# time on the way to float32 and back through a tile.
DIRECT_COST = 4
# Kernels up to this cost have loops in which numbers stay in registers: they would spend much of
# their time on reading them.
NUMBERS_COST = 10
# Inputs that are a number of each row where their op is called by others, declared tensors.
NUMBER_OF_ROW = {"addcmul": ("tensor1",)}
# A file is compiled as a whole; about as many kernels as give files of equal cost.
STEPS_PER_FILE = 800

# What a step costs beside an addition, to cut work into tasks of about equal time.
COSTS = dict.fromkeys(("exp", "exp2", "log", "log2", "log10", "sqrt", "truediv", "reciprocal"), 8)
COSTS |= dict.fromkeys(("sin", "cos", "tanh", "expm1", "log1p", "erf", "sigmoid", "cbrt"), 16)
COSTS |= dict.fromkeys(("philox_uniform", "floor_divide", "remainder", "fmod", "atan2"), 24)
COSTS |= dict.fromkeys(("pow", "lgamma", "erfc", "gcd", "lcm", "asinh", "acosh", "atanh"), 40)
COSTS |= dict.fromkeys(("trigamma", "iterate", *SHARED), 200)
COSTS |= dict.fromkeys(("literal", "load", "param", "convert"), 0)


@dataclass(frozen=True)
class Kernel:
    """One kernel: the typed program of an op and what its caller must know."""

    key: str
    title: str
    compute: str
    program: Program
    inputs: tuple[str, ...]
    input_types: tuple[str, ...]
    result_types: tuple[str, ...]
    params: tuple[str, ...]
    integers: tuple[str, ...]
    numbers: tuple[str, ...]

    @property
    def symbol(self) -> str:
        """The C name of the scalar function."""
        return re.sub(r"\W+", "_", self.key).strip("_") + "_" + self.compute

    @property
    def direct(self) -> bool:
        """Whether there is an inner loop over bfloat16."""
        types = {*self.result_types, *self.input_types}
        special = self.program.indexed or self.program.divides
        return types == {"float32"} and not special and self.cost <= DIRECT_COST

    @property
    def number_sets(self) -> tuple[tuple[str, ...], ...]:
        """The sets of inputs that a loop of its own takes for numbers."""
        usable = {*self.input_types, self.compute} <= {self.compute, "bool"}
        if self.compute not in FLOATS or not usable or self.program.indexed:
            return ()
        if self.cost > NUMBERS_COST or not self.numbers:
            return ()
        tensors = [
            name
            for name, dtype in zip(self.inputs, self.input_types, strict=True)
            if dtype == self.compute and name not in self.numbers
        ]
        # Where every operand may be a number, one of them is.
        return (self.numbers,) if tensors else tuple((name,) for name in self.numbers)

    @property
    def cost(self) -> int:
        """About how many additions an element costs."""
        steps = sum(COSTS.get(step.op, 1) for step in self.program.instructions)
        return min(max(1, steps) * (4 if self.compute in COMPLEX else 1), 65535)


# --- which kernels there are ----------------------------------------------------------------------


def definitions() -> Iterator[tuple[Any, Any]]:
    """Yield (definition, the definition whose dtypes it accepts) of all ops, derived ones too."""
    from tangrad.ops import registry

    known = {
        op.definition.key: op.definition
        for op in registry.load_all().values()
        if op.kind == "pointwise"
    }
    for definition in known.values():
        yield definition, definition
        derive(definition)
        for made in {id(op): op for op, _ in definition._derived.values()}.values():
            yield made.definition, definition


# Of more inputs than these only some sets get kernels: there are 2^n of them.
_FEW_INPUTS = 4


def _is_usual(size: int, inputs: int) -> bool:
    """Return whether kernels are made for the sets of `size` inputs: all, all but one, or one."""
    return inputs <= _FEW_INPUTS or size in (1, inputs - 1, inputs)


def derive(definition: Any) -> None:
    """Make the ops of the gradients and tangents of the sets of inputs that are usual."""
    from tangrad import _C

    if not definition.differentiable:
        return
    inputs = [k for k, name in enumerate(definition.inputs) if name not in definition.fixed]
    sizes = [size for size in range(1, len(inputs) + 1) if _is_usual(size, len(inputs))]
    for size in sizes:
        for chosen in combinations(inputs, size):
            names = tuple(definition.inputs[k] for k in chosen)
            for make in (
                lambda chosen=chosen: definition.backward_rule(sum(1 << k for k in chosen)),
                lambda names=names: definition.tangent(names),
            ):
                try:
                    make()
                except (_C.DerivativeError, ExpressionError):
                    continue  # this input has no derivative: the op says so when it is asked for


def accepted(definition: Any, parent: Any) -> Iterator[str]:
    """Yield the dtypes that an op computes in, which are those it is called with but for halves."""
    for dtype in dict.fromkeys(name for word in parent.dtypes.split() for name in KINDS[word]):
        integral = dtype in KINDS["bool"] + INTEGERS
        if integral and (definition is not parent or parent.promote == "float"):
            continue
        if parent.promote == "integral" and not integral:
            continue
        yield dtype


def kernels() -> Iterator[Kernel]:
    """Yield every kernel of the core's definitions."""
    for definition, parent in definitions():
        if definition.expression is None:
            continue
        for dtype in accepted(definition, parent):
            kernel = typed(definition, parent, dtype)
            if kernel is not None:
                yield kernel


def typed(definition: Any, parent: Any, dtype: str) -> Kernel | None:
    """Return the kernel of a definition for one dtype, None where the loop cannot serve it."""
    compute = compute_type(dtype)
    types = {name: definition.fixed.get(name, compute) for name in definition.inputs}
    results = tuple(result_type(result, compute) for result in definition.results)
    try:
        program = definition.expression.typed(types, compute, list(results))
        render(program, "probe", {}, results, DIALECT)
    except ExpressionTypeError:
        return None  # the op refuses the dtype in its own words, before any kernel
    return Kernel(
        definition.key,
        definition.op.title,
        compute,
        program,
        definition.inputs,
        tuple(types[name] for name in definition.inputs),
        results,
        numeric_params(definition),
        tuple(p.name for p in definition.schema.params if p.type == "int"),
        numbers_of(definition, parent),
    )


def numbers_of(definition: Any, parent: Any) -> tuple[str, ...]:
    """Return the inputs of an op or its gradient that are usually numbers, if any is."""
    if "_jvp(" in definition.key:
        return ()
    head, _, chosen = definition.key.rstrip(")").partition("(")
    declared = [p.name for p in parent.schema.params if p.type == "Operand"]
    declared += NUMBER_OF_ROW.get(head, ())
    differentiated = chosen.split(",")
    return tuple(n for n in definition.inputs if n in declared and n not in differentiated)


def numeric_params(definition: Any) -> tuple[str, ...]:
    """Return the parameters that a loop receives: numbers, an absent one is left out."""
    declared = {p.name: p.type for p in definition.schema.params}
    return tuple(
        name
        for name in definition.params
        if declared[name] in ("Scalar", "int", "float", "bool")
        or name in definition.expression.free
    )


def result_type(result: str, compute: str) -> str:
    """Return the dtype of a result as the core decides it."""
    if result == "real":
        return {"complex64": "float32", "complex128": "float64"}.get(compute, compute)
    if result == "complex":
        return {"float32": "complex64", "float64": "complex128"}.get(compute, compute)
    return compute if result == "promoted" else result


# --- their C --------------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """Return the generated files: {stem: text}, each with the kernels of one group of dtypes."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in kernels():
        groups.setdefault(kernel.compute, []).append(kernel)
    files = {}
    for compute, members in groups.items():
        for number, part in enumerate(parts(members)):
            stem = f"pointwise_{compute}_{number}"
            files[stem] = file_source(stem, part)
    return files


def parts(members: list[Kernel]) -> Iterator[list[Kernel]]:
    """Split kernels into files of about equal size, in order."""
    total = sum(len(kernel.program.instructions) + 8 for kernel in members)
    size = total / max(1, round(total / STEPS_PER_FILE))
    part: list[Kernel] = []
    steps = 0
    for kernel in members:
        part.append(kernel)
        steps += len(kernel.program.instructions) + 8
        if steps >= size:
            yield part
            part, steps = [], 0
    if part:
        yield part


def file_source(stem: str, members: list[Kernel]) -> str:
    """Return a kernel file: helpers, inner loops, descriptors and the table."""
    body = "\n".join(kernel_source(kernel) for kernel in members)
    entries = [
        f'    {{"{kernel.key}", "{dtype}", TGC_ANYWHERE, (void *)TGC(tgc_pointwise), '
        f"&{kernel.symbol}{direct_mark(kernel, dtype)}_kernel}},"
        for kernel in members
        for dtype in (kernel.compute, *STORED.get(kernel.compute, ()))
    ]
    return "\n".join(
        [
            "/* Rendered from the definitions of tangrad's ops by render/pointwise.py. */",
            inlined(c_prelude(DIALECT, body)),
            '#include "pointwise_loop.h"',
            "",
            inlined(body),
            f"const tgc_kernel TGC(tgc_table_{stem})[] = {{",
            *entries,
            "    {0},",
            "};",
            "",
        ]
    )


def inlined(text: str) -> str:
    """Return C whose functions become part of each loop before anything else is done with them.

    GCC keeps a long function that several kernels call until it was optimized alone; its selects
    are branches then, and the loop that it is put into stays scalar.
    """
    return text.replace("static inline", "static inline __attribute__((always_inline))")


def direct_mark(kernel: Kernel, dtype: str) -> str:
    """Return what the names of an inner loop over bfloat16 and its descriptor have in addition."""
    return "_bfloat16" if dtype == "bfloat16" and kernel.direct else ""


def kernel_source(kernel: Kernel) -> str:
    """Return the scalar function, the inner loops around it and the descriptors of a kernel."""
    storage = dict(zip(kernel.inputs, kernel.input_types, strict=True))
    scalar = render(kernel.program, kernel.symbol, storage, kernel.result_types, DIALECT)
    parts = [f"/* {kernel.key} */", scalar, inner_loop(kernel)]
    parts += [*number_loops(kernel), descriptor(kernel)]
    if kernel.direct:
        parts += [inner_loop(kernel, "bfloat16"), descriptor(kernel, "bfloat16")]
    return "\n".join([*parts, ""])


def descriptor(kernel: Kernel, stored: str = "") -> str:
    """Return what the driver of the loop must know of a kernel, or of its loop over bfloat16."""
    name = kernel.symbol + direct_mark(kernel, stored)
    types = (*kernel.result_types, *kernel.input_types)
    dtypes = ", ".join(f"TGC_{(stored or dtype).upper()}" for dtype in types)
    others = ""
    if stored:
        others = f" &{kernel.symbol}_kernel,"
    elif kernel.number_sets:
        others = f" NULL, {name}_numbers,"
    return "\n".join(
        [
            f"static const tgc_pointwise_kernel {name}_kernel = {{",
            f'    {name}_loop, "{kernel.title}", {len(kernel.result_types)}, {len(kernel.inputs)}, '
            f"{int(kernel.program.indexed)}, {kernel.cost}, {{{dtypes}}},{others}",
            "};",
        ]
    )


def number_loops(kernel: Kernel) -> list[str]:
    """Return the loops that take some inputs for numbers, and the list of them."""
    sets = kernel.number_sets
    if not sets:
        return []
    nouts = len(kernel.result_types)
    listed = []
    for names in sets:
        mask = sum(1 << nouts + kernel.inputs.index(name) for name in names)
        listed.append(f"{{{kernel.symbol}{number_mark(names)}_loop, {mask}}}")
    head = f"static const tgc_pointwise_numbers {kernel.symbol}_numbers[] = "
    loops = [inner_loop(kernel, numbers=names) for names in sets]
    return [*loops, head + "{" + ", ".join([*listed, "{0}"]) + "};", ""]


def number_mark(names: tuple[str, ...]) -> str:
    """Return what the name of a loop that takes inputs for numbers has in addition."""
    return "_".join(("", "by", *names)) if names else ""


def inner_loop(kernel: Kernel, stored: str = "", numbers: tuple[str, ...] = ()) -> str:
    """Return the loop over contiguous operands; an operand may be the result's own memory.

    Args:
        kernel: the kernel.
        stored: "bfloat16" for the loop over operands that are widened and rounded on the way.
        numbers: the inputs of which the first element is taken for all.
    """
    program, nouts = kernel.program, len(kernel.result_types)
    name = kernel.symbol + direct_mark(kernel, stored) + number_mark(numbers)
    lines = [
        f"static void {name}_loop(int64_t n, "
        "char *const *data, const tg_scalar *params, int64_t index, int32_t *err)",
        "{",
    ]
    for k, dtype in enumerate(kernel.result_types):
        kind = DIALECT.type(stored or dtype)
        lines.append(f"    {kind} *out{k} = ({kind} *)data[{k}];")
    arguments = ["index + i"] if program.indexed else []
    for k, (name, dtype) in enumerate(zip(kernel.inputs, kernel.input_types, strict=True)):
        kind = DIALECT.type(stored or dtype)
        place = f"(const {kind} *)data[{nouts + k}]"
        if name in numbers:
            lines.append(f"    const {kind} in_{name} = *{place};")
        else:
            lines.append(f"    const {kind} *in_{name} = {place};")
        if name in program.inputs:
            element = f"in_{name}" if name in numbers else f"in_{name}[i]"
            arguments.append(f"tg_load_{stored}({element})" if stored else element)
    for name in program.params:
        lines.append(f"    {parameter(kernel, name)}")
        arguments.append(f"p_{name}")
    results = range(nouts)
    arguments += [f"&r{k}" if stored else f"out{k} + i" for k in results]
    if program.divides:
        # A flag of its own keeps the loop free of stores through a pointer.
        lines.append("    int32_t failed = 0;")
        arguments.append("&failed")
    call = f"{kernel.symbol}({', '.join(arguments)});"
    lines += ["#pragma GCC ivdep", "    for (int64_t i = 0; i < n; i++)"]
    if stored:
        rounded = " ".join(f"out{k}[i] = tg_store_{stored}(r{k});" for k in results)
        declared = ", ".join(f"r{k}" for k in results)
        lines[-1] += " {"
        lines += [f"        float {declared};", f"        {call}", f"        {rounded}", "    }"]
    else:
        lines.append(f"        {call}")
    lines += [*(["    *err |= failed;"] if program.divides else []), "}", ""]
    return "\n".join(lines)


def parameter(kernel: Kernel, name: str) -> str:
    """Return the declaration of a parameter, read from the loop's numbers (tangrad_abi.h)."""
    steps = kernel.program.instructions
    dtype = next((s.type for s in steps if s.op == "param" and s.value == name), kernel.compute)
    kind = DIALECT.type(dtype)
    if name not in kernel.params:  # an argument that chose this form of the op, and is None
        return f"const {kind} p_{name} = {{0}};"
    source = f"params[{kernel.params.index(name)}]"
    if name in kernel.integers:
        return f"const {kind} p_{name} = ({kind}){source}.i;"
    if dtype in COMPLEX:
        mark = "c64" if dtype == "complex64" else "c128"
        return f"const {kind} p_{name} = tg_make_{mark}({source}.c[0], {source}.c[1]);"
    if dtype in FLOATS:
        return f"const {kind} p_{name} = ({kind}){source}.f;"
    return f"const {kind} p_{name} = *(const {kind} *)&{source};"


def main(name: str, dtype: str = "float32") -> None:
    """Print what is rendered for an op and those derived from it."""
    family = [pair for pair in definitions() if name in (pair[1].key, pair[1].op.title)]
    for definition, parent in family:
        kernel = typed(definition, parent, dtype)
        if kernel is not None:
            print(kernel_source(kernel))


if __name__ == "__main__":
    main(*sys.argv[1:])

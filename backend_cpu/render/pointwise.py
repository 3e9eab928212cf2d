"""Render the pointwise kernels: an inner loop and a descriptor for each expression and dtype.

Which kernels there are follows from the core's definitions: every pointwise op, the gradient of
every set of inputs that can need one, and the tangents. An inner loop runs over contiguous
operands of the compute type; `native/loops/pointwise_loop.c` brings all other operands into that
form.

`python -m render.pointwise OP [DTYPE]`, in the folder of this package's sources, prints what is
rendered for one op.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from render.dialect import SHARED, cpu_dialect
from tangrad.plugin.render import (
    ExpressionTypeError,
    PointwiseOp,
    TypedPointwise,
    compute_type,
    pointwise_ops,
    prelude,
)

DIALECT = cpu_dialect()
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
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
COSTS |= dict.fromkeys(("sigmoid_slope", "hypot_slope"), 16)
COSTS |= dict.fromkeys(("philox_uniform", "floor_divide", "remainder", "fmod", "atan2"), 24)
COSTS |= dict.fromkeys(("pow", "lgamma", "erfc", "gcd", "lcm", "asinh", "acosh", "atanh"), 40)
COSTS |= dict.fromkeys(("trigamma", "iterate", *SHARED), 200)
COSTS |= dict.fromkeys(("literal", "load", "param", "convert"), 0)


class Kernel:
    """One kernel: the typed program of an op and what its caller must know."""

    def __init__(self, typed: TypedPointwise) -> None:
        op = typed.op
        self.typed, self.key, self.title = typed, op.key, op.title
        self.compute, self.program = typed.dtype, typed.program
        self.inputs, self.params, self.integers = op.inputs, op.params, op.integers
        self.input_types, self.result_types = typed.input_types, typed.result_types
        # Which of the inputs are usually numbers.
        listed = (*op.numbers, *NUMBER_OF_ROW.get(op.key, ()))
        self.numbers = tuple(name for name in op.inputs if name in listed)

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


def kernels() -> Iterator[Kernel]:
    """Yield every kernel of the core's definitions."""
    for op in pointwise_ops():
        for dtype in (*op.dtypes, *of_complex_results(op)):
            # Half types have the inner loop of the type that they are computed in.
            kernel = kernel_of(op, dtype) if compute_type(dtype) == dtype else None
            if kernel is not None:
                yield kernel


def of_complex_results(op: PointwiseOp) -> tuple[str, ...]:
    """Return the dtypes of gradients by real inputs that made complex results."""
    made = op.kind == "gradient" and "complex" in (op.parent.definition.results or ())
    return tuple(dtype for dtype in COMPLEX if made and dtype not in op.dtypes)


def kernel_of(op: PointwiseOp, dtype: str) -> Kernel | None:
    """Return the kernel of an op for the dtype it computes in, None where it has no meaning."""
    try:
        typed = op.typed(compute_type(dtype))
        typed.render("probe", DIALECT)
    except ExpressionTypeError:
        return None  # the op refuses the dtype in its own words, before any kernel
    return Kernel(typed)


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
            inlined(prelude(DIALECT, body)),
            '#include "loops/pointwise_loop.h"',
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
    scalar = kernel.typed.render(kernel.symbol, DIALECT)
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
    family = [op for op in pointwise_ops() if name in (op.parent.name, op.parent.title)]
    for op in family:
        kernel = kernel_of(op, dtype)
        if kernel is not None:
            print(kernel_source(kernel))


if __name__ == "__main__":
    main(*sys.argv[1:])

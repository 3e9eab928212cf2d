"""Pointwise ops, their gradients and tangents: loops around the scalar function of a definition.

One unit has the loops of one op for one set of dtypes: `dense`, where all operands lie as the
result does or are one element; `wide`, the same by vector loads; and `strided`, for everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import tangrad
from tangrad.plugin import location
from tangrad.plugin.render import BITS, ExpressionTypeError, Program, compute_type
from tangrad_source_kernels import numbers
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.geometry import Loop, loop_over, rank_for
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.text import ELEMENTS
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


class Operand(NamedTuple):
    """An input of a loop: its name, the dtype it is stored in, and whether it is a number."""

    name: str
    dtype: str
    number: bool


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a pointwise op, None where its expression has no meaning."""
    loops = Loops(driver, op, compute_type(dtype))
    try:
        loops.program(tuple((name, dtype) for name in op.definition.inputs), None)
    except ExpressionTypeError:
        return None
    return loops


class Loops:
    """The loops of one pointwise op for one promoted dtype, compiled as they are met."""

    def __init__(self, driver: Compiler, op: Any, compute: str) -> None:
        self.driver, self.compute = driver, compute
        self.title, self.definition = op.title, op.definition
        self.inputs = tuple(op.definition.inputs)
        self._made: dict[Any, PointwiseUnit] = {}
        self._loops: dict[Any, Loop] = {}

    def __call__(self, outs: Any, inputs: Any, params: dict[str, Any]) -> None:
        """Compute the op: the kernel, as the core calls it."""
        if outs[0].numel() == 0:
            return
        operands = tuple(self._operand(n, v) for n, v in zip(self.inputs, inputs, strict=True))
        key = operands, tuple(out.dtype.name for out in outs)
        compiled = self._made.get(key)
        if compiled is None:
            compiled = self._made[key] = PointwiseUnit(self, *key)
        tensors = [*outs, *(v for v, o in zip(inputs, operands, strict=True) if not o.number)]
        loop = self._loop(outs[0].shape, tensors, compiled.indexed)
        given = compiled.encoded(inputs, params)
        compiled.run(loop, tensors, given, outs[0].device.index)

    def places_of_numbers(
        self, outs: Any, inputs: Any, params: dict[str, Any]
    ) -> list[numbers.Place] | None:
        """Return which numbers of a call, in the order of what was given, its kernel gets last.

        None where the kernel gets numbers that are not the call's.
        """
        operands = tuple(self._operand(n, v) for n, v in zip(self.inputs, inputs, strict=True))
        compiled = self._made.get((operands, tuple(out.dtype.name for out in outs)))
        names = [*(o.name for o in operands if o.number), *params]
        wanted = [] if compiled is None else compiled.typed_numbers()
        if not all(name in names for name, _ in wanted):
            return None
        return [(names.index(name), *numbers.form(dtype)) for name, dtype in wanted]

    def _operand(self, name: str, value: Any) -> Operand:
        if isinstance(value, tangrad.Tensor):
            return Operand(name, value.dtype.name, False)
        return Operand(name, self.compute, True)

    def _loop(self, shape: Any, tensors: list[Any], indexed: bool) -> Loop:
        geometries = tuple((tuple(t.shape), tuple(t.stride())) for t in tensors)
        found = self._loops.get(geometries)
        if found is None:
            if len(self._loops) > 512:
                self._loops.clear()
            found = loop_over(tuple(shape), geometries, reorder=not indexed)
            self._loops[geometries] = found
        return found

    def program(self, types: tuple[tuple[str, str], ...], results: Any) -> Program:
        """Return the program for operands of some dtypes."""
        fixed = self.definition.fixed
        named = {name: fixed.get(name, dtype) for name, dtype in types} if results is None else {}
        expression = self.definition.expression
        typed: Program = expression.typed(named or dict(types), self.compute, results)
        return typed


class PointwiseUnit(Unit):
    """The loops for one set of dtypes; for dimensions past four, further units are made."""

    def __init__(self, loops: Loops, operands: tuple[Operand, ...], results: tuple[str, ...]):
        self.loops, self.operands, self.results = loops, operands, results
        self.label = loops.title
        types = tuple((o.name, o.dtype) for o in operands)
        self.program = loops.program(types, list(results))
        # Properties that look at every step: asked here once, not in every call.
        self.divides, self.indexed = self.program.divides, self.program.indexed
        self._typed_params = self._params()
        self.types = [*results, *(o.dtype for o in operands if not o.number)]
        self.driver = loops.driver
        self.vector = self._vector_length()
        self._ranks: dict[int, Unit] = {}
        self._site = self._site_number()
        kernels = [self._dense(), self._strided(4)]
        if self.vector > 1:
            kernels.append(self._wide())
        super().__init__(loops.driver, kernels, self._functions())

    def run(self, loop: Loop, tensors: list[Any], given: list[Any], index: int) -> None:
        """Launch the loop that fits."""
        buffers: list[Any] = list(tensors)
        if self.divides:
            buffers.append(self.driver.error_cell(index))
            given = [self._site, *given]
        blocks = self.driver.blocks_for(loop.elements)
        if loop.dense:
            steps = [s[0] for s in loop.strides[len(self.results) :]]
            name = "wide" if self._may_load_vectors(loop, tensors) else "dense"
            if name == "wide":
                blocks = self.driver.blocks_for(loop.elements, self.vector)
            self.launch(name, blocks, buffers, [loop.elements, *steps, *given], index)
        else:
            # Fewer dimensions than four cost nothing: what is left of the index is 0 soon.
            rank = max(4, rank_for(len(loop.shape)))
            unit = self if rank == 4 else self._of_rank(rank)
            unit.launch(
                "strided", blocks, buffers, [loop.elements, *loop.padded(rank), *given], index
            )
        if self.divides:
            self.driver.reports.expect(index)

    def encoded(self, inputs: Any, params: dict[str, Any]) -> list[Any]:
        """Return the numbers of a call that are no geometry."""
        given: list[Any] = []
        for operand, value in zip(self.operands, inputs, strict=True):
            if operand.number:
                given += numbers.encode(value, operand.dtype)
        for name, dtype in self._typed_params:
            given += numbers.encode(params.get(name), dtype)
        return given

    def typed_numbers(self) -> list[tuple[str, str]]:
        """Return name and dtype of what `encoded` returns, in its order."""
        return [*((o.name, o.dtype) for o in self.operands if o.number), *self._typed_params]

    # --- what is compiled -------------------------------------------------------------------------

    def _functions(self) -> str:
        storage = {o.name: o.dtype for o in self.operands}
        scalar = self.program.render_c("tk_f", storage, self.results, self.driver.dialect)
        return scalar + (REPORT if self.divides else "")

    def _site_number(self) -> int:
        text = f"ZeroDivisionError: {self.loops.title} of integers by zero"
        return self.driver.reports.site(RuntimeError, text) if self.divides else 0

    def _params(self) -> list[tuple[str, str]]:
        used = {str(s.value): s.type for s in self.program.instructions if s.op == "param"}
        return [(name, used.get(name, self.program.compute)) for name in self.program.params]

    def _fields(self) -> list[numbers.Field]:
        made: list[numbers.Field] = []
        for operand in self.operands:
            if operand.number:
                made += numbers.fields(f"s_{operand.name}", operand.dtype)
        for name, dtype in self._params():
            made += numbers.fields(f"p_{name}", dtype)
        return [("int64", "site", 0), *made] if self.divides else made

    def _buffers(self) -> tuple[tuple[str, str], ...]:
        outs = [(dtype, f"y{k}") for k, dtype in enumerate(self.results)]
        ins = [(o.dtype, f"x_{o.name}") for o in self.operands if not o.number]
        return (*outs, *ins, *([("int64", "err")] if self.divides else []))

    def _tensors(self) -> list[str]:
        return [o.name for o in self.operands if not o.number]

    def _call(self, values: dict[str, str], outs: list[str]) -> str:
        """Return the call of the scalar function on texts of its operands."""
        dialect = self.driver.dialect
        found = dict(values)
        for operand in self.operands:
            if operand.number:
                found[operand.name] = numbers.text(f"s_{operand.name}", operand.dtype, dialect)
        args = ["i"] if self.indexed else []
        args += [found[name] for name in self.program.inputs]
        args += [numbers.text(f"p_{name}", dtype, dialect) for name, dtype in self._params()]
        args += [f"&{out}" for out in outs]
        return f"tk_f({', '.join(args + ['&bad'] * self.divides)});"

    def _element(self, places: list[str], targets: list[str]) -> str:
        """Return the statements for one element at some places."""
        dialect = self.driver.dialect
        values = {n: f"x_{n}[{p}]" for n, p in zip(self._tensors(), places, strict=True)}
        outs = [f"o{k}" for k in range(len(self.results))]
        lines = [f"{dialect.type(t)} {o};" for t, o in zip(self.results, outs, strict=True)]
        lines.append(self._call(values, outs))
        lines += [f"y{k}[{place}] = o{k};" for k, place in enumerate(targets)]
        return "\n".join(f"        {line}" for line in lines)

    def _around(self, loop: str) -> str:
        if not self.divides:
            return loop
        kind = self.driver.dialect.types["int32"]
        return f"    {kind} bad = 0;\n{loop}\n    if (bad) TG_REPORT(0, 0);"

    def _dense(self) -> Kernel:
        names = self._tensors()
        steps = [("int64", f"step_{name}", 0) for name in names]
        body = self._element([f"i * g.step_{name}" for name in names], ["i"] * len(self.results))
        loop = ELEMENTS.format(count="g.n", body=body)
        fields = (("int64", "n", 0), *steps)
        return Kernel("dense", self._buffers(), self._all(fields), self._around(loop))

    def _all(self, fields: tuple[numbers.Field, ...]) -> tuple[numbers.Field, ...]:
        own = self._fields()
        return (*fields, *own)

    def _strided(self, rank: int) -> Kernel:
        operands = [f"y{k}" for k in range(len(self.results))] + self._tensors()
        fields = [("int64", "n", 0), ("int64", "shape", rank)]
        fields += [("int64", f"of_{name}", rank) for name in operands]
        lines = [f"        tk_int rest = i{''.join(f', at_{name} = 0' for name in operands)};"]
        lines.append(f"        for (int d = {rank - 1}; d >= 0 && rest > 0; --d) {{")
        lines.append("            tk_int above = rest / g.shape[d], k = rest - above * g.shape[d];")
        lines.append("            rest = above;")
        lines += [f"            at_{name} += k * g.of_{name}[d];" for name in operands]
        lines.append("        }")
        count = len(self.results)
        places = [f"at_{name}" for name in operands]
        lines.append(self._element(places[count:], places[:count]))
        loop = ELEMENTS.format(count="g.n", body="\n".join(lines))
        return Kernel("strided", self._buffers(), self._all(tuple(fields)), self._around(loop))

    def _of_rank(self, rank: int) -> Unit:
        if rank not in self._ranks:
            self._ranks[rank] = Unit(self.driver, [self._strided(rank)], self._functions())
        return self._ranks[rank]

    # --- vectors ----------------------------------------------------------------------------------

    def _vector_length(self) -> int:
        wide = self.driver.dialect.vector_bytes
        if self.indexed or self.divides or not wide:
            return 1
        return max(1, wide // max(map(item_bytes, self.types)))

    def _may_load_vectors(self, loop: Loop, tensors: list[Any]) -> bool:
        if self.vector == 1 or loop.elements < 2 * self.vector:
            return False
        for tensor, strides in zip(tensors, loop.strides, strict=True):
            if strides[0]:
                handle, offset = location(tensor)
                if (handle + offset) % (self.vector * tensor.itemsize):
                    return False
        return True

    def _wide(self) -> Kernel:
        dialect, length = self.driver.dialect, self.vector
        names, lines = self._tensors(), []
        tensors = [o for o in self.operands if not o.number]
        vectors = {dtype: f"tk_vector_{dtype}" for dtype in self.types}
        for dtype, name in vectors.items():
            align = dialect.align.format(n=length * item_bytes(dtype))
            lines.append(
                f"    typedef struct {align} {{ {dialect.type(dtype)} v[{length}]; }} {name};"
            )
        body = []
        for operand in tensors:
            kind = vectors[operand.dtype]
            body.append(f"        {kind} a_{operand.name};")
            body.append(
                f"        if (g.step_{operand.name}) a_{operand.name} = "
                f"((const TG_GLOBAL {kind} *)x_{operand.name})[i];\n        else for (int k = 0; "
                f"k < {length}; ++k) a_{operand.name}.v[k] = x_{operand.name}[0];"
            )
        for k, dtype in enumerate(self.results):
            body.append(f"        {vectors[dtype]} b{k};")
        call = self._call(
            {name: f"a_{name}.v[k]" for name in names},
            [f"b{k}.v[k]" for k in range(len(self.results))],
        )
        body.append(f"        for (int k = 0; k < {length}; ++k) {call}")
        for k, dtype in enumerate(self.results):
            body.append(f"        ((TG_GLOBAL {vectors[dtype]} *)y{k})[i] = b{k};")
        lines.append(ELEMENTS.format(count=f"g.n / {length}", body="\n".join(body)))
        tail = self._element([f"i * g.step_{name}" for name in names], ["i"] * len(self.results))
        first = f"g.n / {length} * {length} + "
        loop = ELEMENTS.format(count="g.n", body=tail)
        lines.append(
            loop.replace("tk_int i = (tk_int)TG_BLOCK", f"tk_int i = {first}(tk_int)TG_BLOCK")
        )
        fields = (("int64", "n", 0), *[("int64", f"step_{name}", 0) for name in names])
        return Kernel("wide", self._buffers(), self._all(fields), "\n".join(lines))


def item_bytes(dtype: str) -> int:
    """Return how many bytes an element has in memory."""
    return BITS[dtype] // 8

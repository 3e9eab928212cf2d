"""Give every value of an expression a dtype: from untyped nodes to a typed program.

Inputs are converted to the compute type as they are loaded, except those that are only ever used
as conditions, those that are declared exact, and complex ones in a real computation, which stay
complex. Literals take the type of what they meet. Where values of different types meet, the result
is complex before floating before integer before bool, and within a kind the wider type; arithmetic
on bools is done in the compute type, logic and comparisons of bools stay bool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tangrad.expr.errors import ExpressionTypeError
from tangrad.expr.expression import Expression
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.ssa import Node, Scalar, walk
from tangrad.expr.syntax import DTYPES

if TYPE_CHECKING:
    from tangrad.expr.render import Dialect

KINDS: dict[str, str] = {
    dtype: {"bo": "b", "ui": "u", "in": "i", "fl": "f", "bf": "f", "co": "c"}[dtype[:2]]
    for dtype in DTYPES
}
BITS: dict[str, int] = {
    dtype: int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz") or 8) for dtype in DTYPES
}
_ORDER = "buifc"
_REAL = {"complex64": "float32", "complex128": "float64"}
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_HALVES = ("float16", "bfloat16")


def compute_type(dtype: str) -> str:
    """Return the dtype to compute in for operands of ``dtype``: float32 for the half types."""
    if dtype not in KINDS:
        raise ExpressionTypeError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    return "float32" if dtype in _HALVES else dtype


def promote(a: str, b: str) -> str:
    """Return the type in which values of types ``a`` and ``b`` meet."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: (_ORDER.index(KINDS[dtype]), BITS[dtype]))
    if KINDS[high] == "c":
        parts = promote(_REAL.get(low, low), _REAL[high]) if KINDS[low] in "fc" else _REAL[high]
        return _COMPLEX[parts]
    if KINDS[low] == "u" and KINDS[high] == "i" and BITS[low] >= BITS[high]:
        return f"int{min(64, 2 * BITS[low])}"
    return high


class Instruction:
    """Hold one typed step of a program.

    ``op`` is ``"load"`` (an input, of storage dtype ``storage``), ``"param"``, ``"literal"``,
    ``"convert"`` (to ``type``) or a primitive; ``args`` index earlier instructions; ``operand`` is
    the type of the operands; ``value`` is the name, the literal, or a cast's dtype.
    """

    __slots__ = ("args", "op", "operand", "storage", "type", "value")

    def __init__(
        self,
        op: str,
        dtype: str,
        args: tuple[int, ...] = (),
        operand: str | None = None,
        value: Scalar | None = None,
        storage: str | None = None,
    ) -> None:
        self.op, self.type, self.args = op, dtype, args
        self.operand = operand or dtype
        self.value, self.storage = value, storage

    def __str__(self) -> str:
        words = [self.op]
        if self.value is not None:
            words.append(str(self.value) if self.op in ("load", "param") else repr(self.value))
        words.append(", ".join(f"%{arg}" for arg in self.args))
        stored = f" ({self.storage})" if self.storage not in (None, self.type) else ""
        return " ".join(word for word in words if word) + f" : {self.type}{stored}"

    def _key(self) -> tuple:
        return self.op, self.type, self.args, self.operand, repr(self.value), self.storage


class Program:
    """Hold typed SSA: ``instructions`` in order, ``results`` the indices of the outputs."""

    __slots__ = ("compute", "inputs", "instructions", "params", "results")

    def __init__(
        self,
        inputs: tuple[str, ...],
        params: tuple[str, ...],
        compute: str,
        instructions: list[Instruction],
        results: list[int],
    ) -> None:
        self.inputs, self.params, self.compute = inputs, params, compute
        self.instructions, self.results = instructions, results

    @property
    def result_types(self) -> tuple[str, ...]:
        """The outputs' dtypes."""
        return tuple(self._stored(self.instructions[k]) for k in self.results)

    @staticmethod
    def _stored(instruction: Instruction) -> str:
        rounded = instruction.op == "cast" and instruction.storage is not None
        return str(instruction.storage) if rounded else instruction.type

    @property
    def divides(self) -> bool:
        """Whether an integer division by zero can happen: the C function takes an error flag."""
        return any(
            PRIMITIVES[step.op].divides and KINDS[step.operand] in "ui"
            for step in self.instructions
            if step.op in PRIMITIVES
        )

    @property
    def indexed(self) -> bool:
        """Whether the element's linear index is used (by random bits)."""
        return any(step.op == "philox_uniform" for step in self.instructions)

    def __str__(self) -> str:
        lines = [f"%{k} = {step}" for k, step in enumerate(self.instructions)]
        return "\n".join([*lines, "return " + ", ".join(f"%{k}" for k in self.results)])

    def numpy(self) -> Callable[..., tuple]:
        """Return a function of NumPy arrays, in the order of ``inputs``, and keyword parameters.

        It returns a tuple of arrays of ``result_types``; an output that is just an input may be
        the same array. bfloat16 arrays, which NumPy lacks, come
        and go as uint16 bits. Programs that are ``indexed`` take the keyword ``index``: the
        array of the elements' linear indices.

        Raises:
            ZeroDivisionError: from the function, if an integer is divided by zero.
        """
        from tangrad.expr.numpy_eval import build

        return build(self)

    def python(self) -> Callable[..., tuple]:
        """Return the oracle: a function of Python scalars, integers exact, floats in float64."""
        from tangrad.expr.oracle import build

        return build(self)

    def mpmath(self, prec: int = 200) -> Callable[..., tuple]:
        """Return the oracle with ``prec`` bits, for measuring errors in ulp; needs mpmath."""
        from tangrad.expr.oracle import build

        return build(self, prec)

    def render_c(
        self,
        name: str,
        storage_types: Mapping[str, str] | None = None,
        out_types: Sequence[str] | None = None,
        dialect: str | Dialect = "c",
    ) -> str:
        """Return the source of a scalar function called ``name``; see ``render.py``."""
        from tangrad.expr.render import render

        return render(self, name, storage_types or {}, out_types, dialect)


def infer(
    expression: Expression,
    types: Mapping[str, str],
    compute: str,
    results: Sequence[str] | None = None,
    exact: Collection[str] = (),
) -> Program:
    """Type ``expression``; see :meth:`Expression.typed`."""
    if compute_type(compute) != compute:
        raise ExpressionTypeError(f"cannot compute in {compute}; use {compute_type(compute)}")
    if results is not None and len(results) != expression.outputs:
        raise ExpressionTypeError(f"{expression.outputs} outputs, but {len(results)} result types")
    return _Typing(expression, types, compute, exact).program(results)


class _Typing:
    """Emit typed instructions for the nodes of one expression."""

    def __init__(
        self,
        expression: Expression,
        types: Mapping[str, str],
        compute: str,
        exact: Collection[str],
    ) -> None:
        self.expression, self.types, self.compute = expression, types, compute
        self.exact = exact
        self.instructions: list[Instruction] = []
        self.known: dict[tuple, int] = {}
        self.done: dict[Node, int | Node] = {}
        self.conditions, self.seeds = _roles(expression.nodes)

    def program(self, results: Sequence[str] | None) -> Program:
        self._resolve(self.expression.nodes)
        outputs = []
        for k, node in enumerate(self.expression.nodes):
            step = self._typed(node, self.compute)
            outputs.append(step if results is None else self._store(step, results[k]))
        return Program(
            self.expression.inputs,
            self.expression.params,
            self.compute,
            *_compact(self.instructions, outputs),
        )

    def _resolve(self, outputs: Sequence[Node]) -> None:
        """Emit every node that is needed, arguments first."""
        stack = list(reversed(outputs))
        while stack:
            node = stack[-1]
            missing = [arg for arg in self._needs(node) if arg not in self.done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node not in self.done:
                self.done[node] = self._emit_node(node)

    def _needs(self, node: Node) -> tuple[Node, ...]:
        """Return the arguments; of a select_complex, the type's witness and then one side."""
        if node.op != "select_complex":
            return node.args
        witness = node.args[0]
        return (witness, self._chosen(node)) if witness in self.done else (witness,)

    def _chosen(self, node: Node) -> Node:
        kind = self._type(self.done[node.args[0]])
        is_complex = kind is not None and KINDS[kind] == "c"
        return node.args[1 if is_complex else 2]

    def _emit_node(self, node: Node) -> int | Node:
        if node.op == "literal":
            return node
        if node.op == "name":
            return self._name(node)
        return self.done[self._chosen(node)] if node.op == "select_complex" else self._call(node)

    def _emit(self, instruction: Instruction) -> int:
        key = instruction._key()
        if key not in self.known:
            self.known[key] = len(self.instructions)
            self.instructions.append(instruction)
        return self.known[key]

    def _type(self, value: int | Node) -> str | None:
        return None if isinstance(value, Node) else self.instructions[value].type

    def _name(self, node: Node) -> int:
        text = str(node.value)
        is_input = text in self.expression.inputs
        own = self.types.get(text)
        if own is None and is_input:
            raise ExpressionTypeError(f"input {text!r} has no dtype; types has {dict(self.types)}")
        if own is not None:
            compute_type(own)
        target = self.compute
        if text in self.seeds:
            target = "int64"
        elif text in self.conditions:
            target = "bool" if own is None else compute_type(own)
        elif own is not None and (not is_input or text in self.exact):
            target = compute_type(own)
        elif own is not None and KINDS[own] == "c":
            target = _COMPLEX.get(self.compute, own)
        if not is_input:
            return self._emit(Instruction("param", target, value=text))
        assert own is not None
        loaded = self._emit(Instruction("load", compute_type(own), value=text, storage=own))
        return self._convert(loaded, target)

    def _typed(self, node: Node, dtype: str) -> int:
        """Return the instruction of a resolved node; a literal gets ``dtype``."""
        value = self.done[node]
        if not isinstance(value, Node):
            return value
        is_complex = isinstance(value.value, complex)
        return self._literal(value, _COMPLEX.get(dtype, dtype) if is_complex else dtype)

    def _literal(self, node: Node, dtype: str) -> int:
        return self._emit(Instruction("literal", dtype, value=_fit(node.value, dtype)))

    def _convert(self, step: int, dtype: str) -> int:
        if self.instructions[step].type == dtype:
            return step
        return self._emit(Instruction("convert", dtype, (step,), self.instructions[step].type))

    def _store(self, step: int, dtype: str) -> int:
        """Convert an output to a result type, which may be a half type."""
        compute = compute_type(dtype)
        step = self._convert(step, compute)
        if compute == dtype:
            return step
        return self._emit(Instruction("cast", compute, (step,), compute, dtype, storage=dtype))

    def _call(self, node: Node) -> int:
        primitive = PRIMITIVES[node.op]
        values = [self.done[arg] for arg in node.args]
        joined = self._join(node, values)
        args = tuple(
            self._operand(role, value, joined)
            for role, value in zip(primitive.operands, values, strict=True)
        )
        if node.op == "cast":
            return self._cast(args[0], str(node.value))
        kind = KINDS[joined]
        if node.op == "complex" and kind == "c":
            # A complex cotangent beside it has promoted its operands; they are real all the same.
            whole, joined, kind = joined, _result("real", joined), "f"
            args = tuple(self._emit(Instruction("real", joined, (a,), whole)) for a in args)
        if kind not in primitive.kinds and "t" in primitive.operands:
            raise ExpressionTypeError(
                f"{node.op} has no meaning for {joined} in {self.expression.source!r}"
            )
        result = _result(primitive.result, joined)
        return self._emit(Instruction(node.op, result, args, joined))

    def _cast(self, step: int, dtype: str) -> int:
        source = self.instructions[step].type
        if KINDS[source] == "c" and KINDS[dtype] not in "bc":
            raise ExpressionTypeError(f"cast of {source} to {dtype} loses a part; take real(x)")
        if dtype not in _HALVES:
            return self._convert(step, dtype)
        step = self._convert(step, "float32")
        return self._emit(Instruction("cast", "float32", (step,), "float32", dtype))

    def _operand(self, role: str, value: int | Node, joined: str) -> int:
        target = {"t": joined, "c": "bool", "s": "int64", "n": None}[role]
        if isinstance(value, Node):
            if role == "c":
                return self._emit(Instruction("literal", "bool", value=bool(value.value)))
            return self._literal(value, target or self.compute)
        return value if target is None else self._convert(value, target)

    def _join(self, node: Node, values: list[int | Node]) -> str:
        """Return the type in which the operands of role t meet."""
        primitive = PRIMITIVES[node.op]
        roles = zip(primitive.operands, values, strict=True)
        operands = [value for role, value in roles if role == "t"]
        literals = [value.value for value in operands if isinstance(value, Node)]
        types = [self.instructions[k].type for k in operands if not isinstance(k, Node)]
        if not operands:
            return {"s": "int64", "c": "bool"}.get(primitive.operands[0], self.compute)
        # For operands that are all literals the compute type decides, as for a single one.
        joined = reduce(promote, types) if types else self.compute
        stays_bool = primitive.keeps_bool or primitive.result == "bool"
        stays_bool &= all(isinstance(value, bool) for value in literals)
        if joined == "bool" and not stays_bool:
            joined = promote(joined, self.compute)
        if "b" not in primitive.kinds + _ORDER[: KINDS[joined] != "b"]:
            joined = promote(joined, self.compute)
        if KINDS[joined] in "ui" and not set(primitive.kinds) & set("ui"):
            joined = promote(joined, self.compute)
        if any(isinstance(value, complex) for value in literals):
            joined = _COMPLEX.get(joined, joined)
        if KINDS[joined] in "ui" and any(isinstance(value, float) for value in literals):
            joined = promote(joined, self.compute)
        return joined


def _result(rule: str, joined: str) -> str:
    if rule == "real":
        return _REAL.get(joined, joined)
    if rule == "complex":
        return _COMPLEX.get(joined, joined)
    return joined if rule == "same" else rule


def _fit(value: Scalar | None, dtype: str) -> Scalar:
    """Return the literal as the Python scalar of ``dtype``.

    Raises:
        ExpressionTypeError: if it does not fit.
    """
    kind = KINDS[dtype]
    if isinstance(value, str) or value is None:
        raise ExpressionTypeError(f"the string {value!r} is no number; substitute the parameter")
    if isinstance(value, complex) and kind != "c":
        raise ExpressionTypeError(f"complex literal {value} in {dtype} computation")
    if kind == "c":
        return complex(value)
    if kind == "f":
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, float):
        raise ExpressionTypeError(f"float literal {value} in {dtype} computation")
    if kind == "b":
        return bool(value)
    number, span = int(value), 1 << BITS[dtype]  # type: ignore[arg-type]
    # A negative number wraps around to an unsigned one, as in PyTorch.
    low, high = (1 - span, span) if kind == "u" else (-span // 2, span // 2)
    if not low <= number < high:
        raise ExpressionTypeError(f"literal {value} is out of range for {dtype}")
    return number % span if kind == "u" else number


def _roles(outputs: Sequence[Node]) -> tuple[set[str], set[str]]:
    """Return the names used only as conditions, and those used only as seeds."""
    roles: dict[str, set[str]] = {}
    for node in walk(outputs):
        if node.op in PRIMITIVES:
            for role, arg in zip(PRIMITIVES[node.op].operands, node.args, strict=True):
                if arg.op == "name":
                    roles.setdefault(str(arg.value), set()).add(role)
    for node in outputs:
        if node.op == "name":
            roles.setdefault(str(node.value), set()).add("t")
    conditions = {text for text, found in roles.items() if found == {"c"}}
    return conditions, {text for text, found in roles.items() if found == {"s"}}


def _compact(instructions: list[Instruction], results: list[int]) -> tuple[list, list[int]]:
    """Drop what no result reaches: the unused side of each select_complex."""
    needed: set[int] = set(results)
    for k in range(len(instructions) - 1, -1, -1):
        if k in needed:
            needed.update(instructions[k].args)
    position = {old: new for new, old in enumerate(sorted(needed))}
    kept = []
    for old in sorted(needed):
        step = instructions[old]
        args = tuple(position[arg] for arg in step.args)
        kept.append(Instruction(step.op, step.type, args, step.operand, step.value, step.storage))
    return kept, [position[k] for k in results]

"""Give every value of an expression a dtype: from untyped nodes to a typed program.

Inputs are converted to the compute type as they are loaded, except those that are only ever used
as conditions, those that are declared exact, and complex ones in a real computation, which stay
complex. Literals take the type of what they meet. Where values of different types meet, the result
is complex before floating before integer before bool, and within a kind the wider type; arithmetic
on bools is done in the compute type, logic and comparisons of bools stay bool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, reduce

from tangrad.expr.dtypes import BITS, COMPLEX, HALVES, KINDS, ORDER, REAL, compute_type, promote
from tangrad.expr.errors import ExpressionTypeError
from tangrad.expr.formula import Formula
from tangrad.expr.loop import loop_of
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.ssa import Node, Scalar, walk
from tangrad.expr.steps import Instruction, Steps
from tangrad.expr.syntax import parse_nodes


def infer(
    formula: Formula,
    types: Mapping[str, str],
    compute: str,
    results: Sequence[str] | None = None,
    exact: Collection[str] = (),
) -> tuple[list[Instruction], list[int]]:
    """Return the typed steps of a formula, and which are its results; see `Expression.typed`."""
    if compute_type(compute) != compute:
        raise ExpressionTypeError(f"cannot compute in {compute}; use {compute_type(compute)}")
    if results is not None and len(results) != formula.outputs:
        raise ExpressionTypeError(f"{formula.outputs} outputs, but {len(results)} result types")
    return _Typing(formula, types, compute, exact).steps(results)


@cache
def typed_body(loop: str, dtype: str) -> Steps:
    """Return the typed body of a loop: its results are the condition and the next states."""
    body = loop_of(loop).body
    types = dict.fromkeys(body.inputs, dtype)
    results = ["bool", *[dtype] * (body.outputs - 1)]
    return Steps(body.inputs, (), dtype, *infer(body, types, dtype, results))


@cache
def typed_function(name: str) -> Steps:
    """Return the program, in float64, of a function that ``composed.py`` writes."""
    from tangrad.expr.composed import COMPOSED  # its tables take longer to load than all else here

    inputs = ("a", "b")[: PRIMITIVES[name].arity]
    formula = Formula(parse_nodes(COMPOSED[name], inputs), inputs, (), COMPOSED[name])
    types = dict.fromkeys(inputs, "float64")
    return Steps(inputs, (), "float64", *infer(formula, types, "float64", ["float64"]))


class _Typing:
    """Emit typed instructions for the nodes of one formula."""

    def __init__(
        self, formula: Formula, types: Mapping[str, str], compute: str, exact: Collection[str]
    ) -> None:
        self.formula, self.types, self.compute = formula, types, compute
        self.exact = exact
        self.instructions: list[Instruction] = []
        self.known: dict[tuple, int] = {}
        self.done: dict[Node, int | Node] = {}
        self.conditions, self.seeds = _roles(formula.nodes)

    def steps(self, results: Sequence[str] | None) -> tuple[list[Instruction], list[int]]:
        self._resolve(self.formula.nodes)
        outputs = []
        for k, node in enumerate(self.formula.nodes):
            step = self._typed(node, self.compute)
            outputs.append(step if results is None else self._store(step, results[k]))
        return _compact(self.instructions, outputs)

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
        if node.op == "iterate":
            return self._iterate(node)
        return self.done[self._chosen(node)] if node.op == "select_complex" else self._call(node)

    def _iterate(self, node: Node) -> int:
        known = [self._type(self.done[arg]) for arg in node.args]
        joined = reduce(promote, [dtype for dtype in known if dtype is not None], self.compute)
        if KINDS[joined] != "f":
            raise ExpressionTypeError(
                f"iterate has no meaning for {joined} in {self.formula.source!r}"
            )
        typed_body(str(node.value), joined)
        args = tuple(self._convert(self._typed(arg, joined), joined) for arg in node.args)
        return self._emit(Instruction("iterate", joined, args, value=node.value))

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
        is_input = text in self.formula.inputs
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
            target = COMPLEX.get(self.compute, own)
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
        return self._literal(value, COMPLEX.get(dtype, dtype) if is_complex else dtype)

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
                f"{node.op} has no meaning for {joined} in {self.formula.source!r}"
            )
        result = _result(primitive.result, joined)
        return self._emit(Instruction(node.op, result, args, joined))

    def _cast(self, step: int, dtype: str) -> int:
        source = self.instructions[step].type
        if KINDS[source] == "c" and KINDS[dtype] not in "bc":
            raise ExpressionTypeError(f"cast of {source} to {dtype} loses a part; take real(x)")
        if dtype not in HALVES:
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
        if "b" not in primitive.kinds + ORDER[: KINDS[joined] != "b"]:
            joined = promote(joined, self.compute)
        if KINDS[joined] in "ui" and not set(primitive.kinds) & set("ui"):
            joined = promote(joined, self.compute)
        if any(isinstance(value, complex) for value in literals):
            joined = COMPLEX.get(joined, joined)
        if KINDS[joined] in "ui" and any(isinstance(value, float) for value in literals):
            joined = promote(joined, self.compute)
        return joined


def _result(rule: str, joined: str) -> str:
    if rule == "real":
        return REAL.get(joined, joined)
    if rule == "complex":
        return COMPLEX.get(joined, joined)
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
        if node.op == "iterate":
            for arg in node.args:
                roles.setdefault(str(arg.value), set()).add("t")
        if node.op in PRIMITIVES:
            for role, arg in zip(PRIMITIVES[node.op].operands, node.args, strict=True):
                if arg.op == "name":
                    roles.setdefault(str(arg.value), set()).add(role)
    for node in outputs:
        if node.op == "name":
            roles.setdefault(str(node.value), set()).add("t")
    conditions = {text for text, found in roles.items() if found == {"c"}}
    return conditions, {text for text, found in roles.items() if found == {"s"}}


def _compact(
    instructions: list[Instruction], results: list[int]
) -> tuple[list[Instruction], list[int]]:
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

"""The formula: output nodes over named inputs and parameters, and the text that it is."""

from __future__ import annotations

from collections import Counter

from tangrad.expr.ssa import Node, Scalar, walk

TYPE_CHECKING = False  # importing typing would double the time to import this package
if TYPE_CHECKING:
    from collections.abc import Sequence


def _walk_values(outputs: Sequence[Node]) -> set[Node]:
    """Return the nodes that ``outputs`` reach but through the witness of a ``select_complex``."""
    seen: set[Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args[1:] if node.op == "select_complex" else node.args)
    return seen


class Formula:
    """Hold a scalar function of ``inputs`` and ``params``; immutable, compared by structure.

    Inputs become tensors' elements, parameters Python scalars.
    """

    __slots__ = ("_free", "_read", "_source", "inputs", "nodes", "params")

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[str],
        params: Sequence[str],
        source: str | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.inputs, self.params = tuple(inputs), tuple(params)
        self._source = source
        self._free: frozenset[str] | None = None
        self._read: frozenset[str] | None = None

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return len(self.nodes)

    @property
    def source(self) -> str:
        """The text the expression was parsed from, or text that parses to it."""
        if self._source is None:
            self._source = unparse(self.nodes, self.inputs + self.params)
        return self._source

    @property
    def free(self) -> frozenset[str]:
        """The inputs and parameters that an output depends on."""
        if self._free is None:
            used = (str(node.value) for node in walk(self.nodes) if node.op == "name")
            self._free = frozenset(used)
        return self._free

    @property
    def read(self) -> frozenset[str]:
        """Those of `free` whose values matter, not only whether they are complex."""
        if self._read is None:
            used = (str(node.value) for node in _walk_values(self.nodes) if node.op == "name")
            self._read = frozenset(used)
        return self._read

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Formula):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.nodes, self.inputs, self.params

    def is_identity_of(self, k: int = 0) -> str | None:
        """Return the name of the input or parameter that output ``k`` is, else None."""
        node = self.nodes[k]
        return str(node.value) if node.op == "name" else None

    def constant(self, k: int = 0) -> Scalar | None:
        """Return the Python scalar that output ``k`` folds to, else None."""
        node = self.nodes[k]
        return node.value if node.op == "literal" else None


_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floor_divide": "//", "remainder": "%",
    "pow": "**", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "lshift": "<<",
    "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def unparse(nodes: Sequence[Node], names: Sequence[str]) -> str:
    """Write text that parses to ``nodes``; values used twice get a local name."""
    uses = Counter(arg for node in walk(nodes) for arg in node.args)
    texts: dict[Node, str] = {}
    locals_: list[str] = []
    taken = set(names)
    for node in walk(nodes):
        text = _text(node, [texts[arg] for arg in node.args])
        if uses[node] > 1 and node.op not in ("name", "literal"):
            label = f"t{len(locals_)}"
            while label in taken:
                label = "_" + label
            locals_.append(f"{label} = {text}")
            text = label
        texts[node] = text
    return "; ".join(locals_ + [texts[node] for node in nodes])


def _text(node: Node, args: list[str]) -> str:
    if node.op == "name":
        return str(node.value)
    if node.op == "literal":
        # A negative literal is no operand of ** without parentheses.
        text = repr(node.value)
        return f"({text})" if text.startswith("-") else text
    if node.op == "cast":
        return f"cast({args[0]}, {node.value!r})"
    if node.op == "iterate":
        bound, _, names, body = str(node.value).split(";", 3)
        operands = ", ".join(f"{k}={v}" for k, v in zip(names.split(), args, strict=True))
        return f"iterate({bound}, {body!r}, {operands})"
    if node.op == "neg":
        return f"(-{args[0]})"
    symbol = _SYMBOLS.get(node.op)
    return f"({args[0]} {symbol} {args[1]})" if symbol else f"{node.op}({', '.join(args)})"

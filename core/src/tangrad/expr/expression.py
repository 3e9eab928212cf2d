"""The expression: a tuple of output nodes over named inputs and parameters."""

from __future__ import annotations

from collections import Counter

from tangrad.expr.errors import ExpressionError
from tangrad.expr.ssa import Node, Scalar, literal, rebuild, walk

TYPE_CHECKING = False  # importing typing would double the time to import this package
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tangrad.expr.program import Program


class Expression:
    """Hold a scalar function of ``inputs`` and ``params``; immutable, compared by structure.

    Make one with :func:`parse`. Inputs become tensors' elements, parameters Python scalars.
    """

    __slots__ = ("_free", "_source", "inputs", "nodes", "params")

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"parse({self.source!r}, inputs={self.inputs!r}, params={self.params!r})"

    def __reduce__(self) -> tuple:
        return parse, (self.source, self.inputs, self.params)

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

    def select(self, ks: Sequence[int]) -> Expression:
        """Return the expression with only the outputs ``ks``, in that order."""
        return Expression([self.nodes[k] for k in ks], self.inputs, self.params)

    def substitute(self, values: Mapping[str, Expression | Scalar]) -> Expression:
        """Replace inputs or parameters by expressions of one output or Python scalars.

        The inputs (parameters) of the substituted expressions follow those that are left.

        Raises:
            ExpressionError: for a name that is neither input nor parameter, or an expression of
                several outputs.
        """
        replace: dict[str, Node] = {}
        inputs = [text for text in self.inputs if text not in values]
        params = [text for text in self.params if text not in values]
        for text, value in values.items():
            if text not in self.inputs and text not in self.params:
                known = ", ".join(self.inputs + self.params)
                raise ExpressionError(f"cannot substitute {text!r}: the names are {known}")
            if not isinstance(value, Expression):
                replace[text] = literal(value)
                continue
            if value.outputs != 1:
                raise ExpressionError(f"{text!r} needs one output, got {value.outputs}")
            replace[text] = value.nodes[0]
            inputs += [new for new in value.inputs if new not in inputs]
            params += [new for new in value.params if new not in params]
        both = set(inputs) & set(params)
        if both:
            raise ExpressionError(f"both input and parameter after substitution: {sorted(both)}")
        return Expression(rebuild(self.nodes, replace), inputs, params)

    def partial(self, wrt: str, k: int = 0) -> Expression:
        """Return the derivative of output ``k`` by ``wrt``, over the same inputs and parameters.

        For a function that is holomorphic it is the complex derivative too; for one that is not,
        the derivative for real inputs.

        Raises:
            DerivativeError: if the output depends on ``wrt`` through a primitive without
                derivative; the message gives the reason.
        """
        from tangrad.expr.derive import partial

        return partial(self, wrt, k)

    def vjp(self, wrt: Sequence[str], grad: str = "g") -> Expression:
        """Return the vector-Jacobian product: one output per name in ``wrt``.

        With PyTorch's convention for complex numbers, the gradient is
        ``sum_k g_k * conj(d out_k / d z) + conj(g_k) * d out_k / d conj(z)``.
        Its inputs are the output gradients (``grad``, or ``grad0, grad1, ...`` for several
        outputs), then those inputs that are used.

        Raises:
            DerivativeError: as :meth:`partial`.
        """
        from tangrad.expr.derive import vjp

        return vjp(self, wrt, grad)

    def jvp(self, wrt: Sequence[str], suffix: str = "_t") -> Expression:
        """Return the Jacobian-vector product: one output per output.

        Its inputs are the tangents (``name + suffix`` for each name in ``wrt``), then those
        inputs that are used.

        Raises:
            DerivativeError: as :meth:`partial`.
        """
        from tangrad.expr.derive import jvp

        return jvp(self, wrt, suffix)

    def typed(
        self,
        types: Mapping[str, str],
        compute: str,
        results: Sequence[str] | None = None,
        exact: Collection[str] = (),
    ) -> Program:
        """Return the typed program that computes in dtype ``compute``.

        Args:
            types: The storage dtype of every input that is used, and of any parameter that should
                not have the compute type.
            compute: A dtype's name, not a half type (see :func:`compute_type`).
            results: The outputs' dtypes; by default, what the typing rules give.
            exact: Inputs that keep their own dtype instead of being converted to the compute
                type: an index beside floating-point values.

        Raises:
            ExpressionTypeError: if a primitive has no meaning for its operands' types.
        """
        from tangrad.expr.program import infer

        return infer(self, types, compute, results, exact)


def parse(source: str, inputs: Sequence[str], params: Sequence[str] = ()) -> Expression:
    """Parse ``source`` into an expression of ``inputs`` and ``params``.

    Raises:
        ExpressionError: if the text is not in the language; it says what and where.

    Example:
        >>> elu = parse("where(x > 0, x, alpha * expm1(x))", inputs=("x",), params=("alpha",))
        >>> elu.partial("x").source
        'where((x > 0), 1, (alpha * exp(x)))'
    """
    from tangrad.expr.syntax import parse_nodes

    inputs, params = tuple(inputs), tuple(params)
    return Expression(parse_nodes(source, inputs + params), inputs, params, source)


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
    if node.op == "neg":
        return f"(-{args[0]})"
    symbol = _SYMBOLS.get(node.op)
    return f"({args[0]} {symbol} {args[1]})" if symbol else f"{node.op}({', '.join(args)})"

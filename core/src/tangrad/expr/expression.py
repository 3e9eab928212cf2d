"""The expression: a formula that is differentiated, substituted and typed as a whole."""

from __future__ import annotations

from tangrad.expr.errors import ExpressionError
from tangrad.expr.formula import Formula
from tangrad.expr.ssa import Node, Scalar, literal, rebuild, walk

TYPE_CHECKING = False  # importing typing would double the time to import this package
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tangrad.expr.program import Program


class Expression(Formula):
    """A formula from which others follow; make one with :func:`parse`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"parse({self.source!r}, inputs={self.inputs!r}, params={self.params!r})"

    def __reduce__(self) -> tuple:
        return parse, (self.source, self.inputs, self.params)

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

        self._check((wrt,))
        return Expression([partial(self.nodes[k], wrt)], self.inputs, self.params)

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

        self._check(wrt)
        count = self.outputs
        grads = [grad] if count == 1 else [f"{grad}{k}" for k in range(count)]
        return self._over(grads, vjp(self.nodes, wrt, grads))

    def jvp(self, wrt: Sequence[str], suffix: str = "_t") -> Expression:
        """Return the Jacobian-vector product: one output per output.

        Its inputs are the tangents (``name + suffix`` for each name in ``wrt``), then those
        inputs that are used.

        Raises:
            DerivativeError: as :meth:`partial`.
        """
        from tangrad.expr.derive import jvp

        self._check(wrt)
        tangents = [text + suffix for text in wrt]
        return self._over(tangents, jvp(self.nodes, wrt, tangents))

    def weighted(self, factors: Sequence[str], conjugate: bool = False) -> Expression:
        """Return the sum of the outputs, or their conjugates, each times an input."""
        from tangrad.expr.derive import weighted

        return Expression([weighted(self.nodes, factors, conjugate)], self.inputs, self.params)

    def without(self, absent: Sequence[str]) -> Expression:
        """Return the expression, linear in the inputs ``absent``, without the terms they are in."""
        from tangrad.expr.derive import without

        return Expression(without(self.nodes, absent), self.inputs, self.params)

    def _check(self, wrt: Iterable[str]) -> None:
        for text in wrt:
            if text not in self.inputs and text not in self.params:
                known = ", ".join(self.inputs + self.params)
                raise ExpressionError(f"cannot differentiate by {text!r}: the names are {known}")

    def _over(self, new: list[str], outputs: Sequence[Node]) -> Expression:
        """Make the expression whose inputs are ``new`` and those of this one that are used."""
        clash = set(new) & set(self.inputs + self.params)
        if clash:
            raise ExpressionError(f"{sorted(clash)} are names already; choose another prefix")
        used = {str(node.value) for node in walk(outputs) if node.op == "name"}
        inputs = new + [text for text in self.inputs if text in used]
        return Expression(outputs, inputs, [text for text in self.params if text in used])

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
        from tangrad.expr.infer import infer
        from tangrad.expr.program import Program

        return Program(
            self.inputs, self.params, compute, *infer(self, types, compute, results, exact)
        )


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

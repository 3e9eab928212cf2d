"""About how long steps take on one thread, from the sizes of what they read and write.

The rates are those of one core of a server's processor, with values in its caches; a factor of two
either way changes little for those who ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tangrad_jit.graph.ir import Node, Value, values_in
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.needed_bytes import bytes_of

__all__ = ["work_of", "work_of_loops"]

# Of a core, in a microsecond.
_BYTES = 20_000.0
_PRODUCTS = 40_000.0  # multiplications, each with an addition
_SIMPLE = 8_000.0  # elements through a simple function
_HARD = 2_500.0  # elements through a function that takes a polynomial
_CALL = 0.5  # what any step costs, in microseconds
# From how much on kernels of tangrad-cpu take another thread.
_ELEMENTS_OF_A_THREAD = 1 << 14
_PRODUCTS_OF_A_THREAD = 1 << 20
_FUNCTIONS = frozenset(
    """acos acosh asin asinh atan atanh cos cosh digamma elu erf erfc erfinv exp exp2 expm1 gelu
    lgamma log log10 log1p log2 log_sigmoid logaddexp mish pow rsqrt selu sigmoid silu sin sinh
    softplus softmax log_softmax tan tanh""".split()
)


def work_of_loops(
    nodes: Iterable[Node], reads: list[Value], writes: list[Value]
) -> tuple[float, int]:
    """Return the microseconds of ops that go over elements together, and how many threads help."""
    moved = sum(bytes_of(value) for value in {*reads, *writes})
    computed, most = 0.0, 0
    for node in nodes:
        elements = max((_numel(v) for v in (*node.inputs, *node.results)), default=0)
        computed += elements / (_HARD if _is_hard(node) else _SIMPLE)
        most = max(most, elements)
    return _CALL + moved / _BYTES + computed, max(1, most // _ELEMENTS_OF_A_THREAD)


def work_of(node: Node) -> tuple[float, int]:
    """Return the microseconds of a kernel's call, and how many threads help."""
    if node.op.kind in ("pointwise", "reduction"):
        return work_of_loops([node], node.inputs, node.results)
    work, pieces = work_of_loops([node], [*node.inputs, *node.results], [])
    products = _products(node)
    if products:
        pieces = max(1, int(products / _PRODUCTS_OF_A_THREAD))
    return work + products / _PRODUCTS, pieces


def _products(node: Node) -> float:
    """Return how many numbers a product of matrices, a convolution or attention multiplies."""
    shapes = [v.type.shape for v in values_in(node.args) if isinstance(v.type, TensorType)]
    made = node.results[0].type if node.results else None
    if len(shapes) < 2 or not isinstance(made, TensorType):
        return 0.0
    name, numel = node.name, prod(made.shape)
    if name in ("mm", "bmm", "mv", "matmul", "linear"):
        return float(numel * shapes[0][-1])
    if name in ("addmm", "addmv", "baddbmm", "addbmm"):
        return float(numel * shapes[1][-1])
    if name.startswith("convolution"):
        image, weight = max(shapes, key=len), shapes[1]
        if name == "convolution":
            return float(numel * prod(weight[1:]))
        if name == "convolution_input":
            return float(prod(shapes[1]) * prod(shapes[0][1:]))
        return float(prod(shapes[1]) * prod(made.shape[1:])) if len(image) > 2 else 0.0
    if "attention" in name:
        return float(2 * prod(shapes[0]) * shapes[1][-2])
    return 0.0


def _is_hard(node: Node) -> bool:
    return node.name.lstrip("_").partition("_backward")[0] in _FUNCTIONS


def _numel(value: Value) -> int:
    type = value.type
    return type.numel if isinstance(type, TensorType) and isinstance(type.numel, int) else 0

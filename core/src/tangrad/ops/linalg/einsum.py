"""Define Einstein summation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.views.geometry import numel_of

#
# Every operand becomes a tensor whose dimensions are labels in one common order (absent ones
# of size one). Operands are then multiplied from left to right, and a label is summed as soon
# as nothing that follows mentions it: as a batched matrix product where both operands have it.


@lru_cache(maxsize=256)
def _parse_einsum(equation: str, ranks: tuple[int, ...]) -> tuple[list[list[Any]], list[Any]]:
    """Give the labels of every operand and of the result; ellipses become numbers < 0."""
    terms, arrow, output = equation.replace(" ", "").partition("->")
    inputs = terms.split(",")
    if len(inputs) != len(ranks):
        raise RuntimeError(
            f"einsum(): the equation '{equation}' has {len(inputs)} operands, "
            f"but {len(ranks)} were provided"
        )
    labels = [_operand_labels(term, rank) for term, rank in zip(inputs, ranks, strict=True)]
    rest = sorted({c for term in labels for c in term if isinstance(c, int)})
    if arrow:
        return labels, _output_labels(output, rest, labels)
    letters = [c for term in labels for c in term if isinstance(c, str)]
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return labels, [*rest, *once]


def _check_letters(term: str) -> None:
    if not all(c.isascii() and c.isalpha() for c in term.replace("...", "", 1)):
        raise RuntimeError(
            f"einsum(): invalid subscript given in '{term}', subscripts must be in [a-zA-Z]"
        )


def _operand_labels(term: str, rank: int) -> list[Any]:
    _check_letters(term)
    before, dots, after = term.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (covered and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(before) + len(after)}) "
            f"does not match the number of dimensions ({rank}) for operand '{term}'"
        )
    return [*before, *range(-covered, 0), *after]


def _output_labels(output: str, rest: list[Any], labels: list[list[Any]]) -> list[Any]:
    _check_letters(output)
    before, dots, after = output.partition("...")
    named = [*before, *after]
    for c in named:
        if named.count(c) > 1:
            raise RuntimeError(f"einsum(): output subscript {c} appears more than once")
        if not any(c in term for term in labels):
            raise RuntimeError(
                f"einsum(): output subscript {c} does not appear in the equation for any input "
                "operand"
            )
    return [*before, *(rest if dots else []), *after]


class _Product(NamedTuple):
    """How two operands become matrices, or batches of them, whose product is the result.

    Attributes:
        left, right: the order of each operand's dimensions; None: as it is.
        batch, rows, summed: how many dimensions of the left one are of which kind.
        shared: pairs of dimensions that both operands have.
        order: that of the result's dimensions; None: as the product has them.
    """

    left: tuple[int, ...] | None
    right: tuple[int, ...] | None
    batch: int
    rows: int
    summed: int
    shared: list[tuple[int, int]]
    order: tuple[int, ...] | None


def _order(found: list[int]) -> tuple[int, ...] | None:
    return None if found == sorted(found) else tuple(found)


@lru_cache(maxsize=256)
def _outer_orders(equation: str, ranks: tuple[int, ...]) -> list[Any] | None:
    """Give each operand's order of dimensions, and which of the result's it has; None: sums."""
    labels, output = _parse_einsum(equation, ranks)
    if any(len({*term}) < len(term) or not {*term} <= {*output} for term in labels):
        return None
    return [
        (_order([term.index(c) for c in output if c in term]), [c in term for c in output])
        for term in labels
    ]


@lru_cache(maxsize=256)
def _product_of(equation: str, ranks: tuple[int, ...]) -> _Product | None:
    """Return how operands are multiplied; None: one label repeats, or is of one operand's sum."""
    (a, b), output = _parse_einsum(equation, ranks)
    summed = [c for c in a if c not in output]
    if len({*a}) < len(a) or len({*b}) < len(b) or {*summed} != {*b} - {*output} or not summed:
        return None
    batch = [c for c in output if c in a and c in b]
    rows, columns = ([c for c in output if c in term and c not in batch] for term in (a, b))
    made = [*batch, *rows, *columns]
    return _Product(
        _order([a.index(c) for c in (*batch, *rows, *summed)]),
        _order([b.index(c) for c in (*batch, *summed, *columns)]),
        len(batch),
        len(rows),
        len(summed),
        [(a.index(c), b.index(c)) for c in (*batch, *summed)],
        _order([made.index(c) for c in output]),
    )


def _outer(operands: Sequence[Any], orders: list[Any]) -> Any:
    """Multiply what no label is summed of."""
    result = None
    for x, (order, has) in zip(operands, orders, strict=True):
        x = x if order is None else x.permute(order)
        if not all(has):
            sizes = iter(x.shape)
            x = x.reshape(tuple([next(sizes) if mine else 1 for mine in has]))
        result = x if result is None else result * x
    return result


def _product(a: Any, b: Any, plan: _Product) -> Any:
    """Multiply two operands as matrices; None where a dimension is broadcast."""
    left_sizes, right_sizes = a.shape, b.shape
    for i, j in plan.shared:
        if left_sizes[i] != right_sizes[j]:
            return None
    a = a if plan.left is None else a.permute(plan.left)
    b = b if plan.right is None else b.permute(plan.right)
    left_sizes, right_sizes = tuple(a.shape), tuple(b.shape)
    above, inner = plan.batch + plan.rows, plan.batch + plan.summed
    kinds = (left_sizes[: plan.batch], left_sizes[plan.batch : above], left_sizes[above:])
    beside = right_sizes[inner:]
    groups, rows, within = ((n[0] if len(n) == 1 else numel_of(n)) for n in kinds)
    columns = beside[0] if len(beside) == 1 else numel_of(beside)
    of_matrices = plan.rows == 1 == len(beside) and plan.batch < 2
    if not of_matrices or plan.summed > 1:
        first = (groups,) if plan.batch else ()
        a, b = a.reshape((*first, rows, within)), b.reshape((*first, within, columns))
    result = a.bmm(b) if plan.batch else a.mm(b)
    if not of_matrices:
        result = result.reshape((*kinds[0], *kinds[1], *beside))
    return result if plan.order is None else result.permute(plan.order)


def _without_repeats(x: Any, labels: list[Any]) -> tuple[Any, list[Any]]:
    """Take the diagonal of dimensions that carry one label."""
    if len(set(labels)) == len(labels):
        return x, labels
    labels = list(labels)
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            first = labels.index(c)
            second = labels.index(c, first + 1)
            if x.shape[first] != x.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated for an operand but the sizes don't "
                    f"match, {x.shape[first]} != {x.shape[second]}"
                )
            x = x.diagonal(0, first, second)
            labels = [d for i, d in enumerate(labels) if i not in (first, second)] + [c]
    return x, labels


def _permuted(x: Any, order: list[int]) -> Any:
    return x if order == sorted(order) else x.permute(tuple(order))


def _aligned(x: Any, labels: list[Any], order: list[Any]) -> Any:
    """Permute a tensor to the common order of labels, with size one where it lacks a label."""
    x = _permuted(x, [labels.index(c) for c in order if c in labels])
    if x.ndim == len(order):
        return x
    sizes = iter(x.shape)
    return x.reshape(tuple(next(sizes) if c in labels else 1 for c in order))


def _label_sizes(operands: Sequence[Any], labels: list[list[Any]]) -> dict[Any, int]:
    sizes: dict[Any, int] = {}
    for x, term in zip(operands, labels, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            known = sizes.get(c, 1)
            if 1 not in (known, n) and known != n:
                raise RuntimeError(
                    f"einsum(): subscript {c} has size {n} for one operand which does not "
                    f"broadcast with previously seen size {known}"
                )
            sizes[c] = n if known == 1 else known
    return sizes


def _sum_of_products(a: Any, b: Any, summed: list[int]) -> Any:
    """Multiply two aligned tensors and sum dimensions, which stay with size one."""
    both = [d for d in summed if a.shape[d] != 1 and b.shape[d] != 1]
    alone = [d for d in summed if d not in both]
    for d in alone:
        if a.shape[d] != 1:
            a = a.sum((d,), keepdim=True)
        elif b.shape[d] != 1:
            b = b.sum((d,), keepdim=True)
    if not both:
        return a * b
    sizes = [m if n == 1 else n for n, m in zip(a.shape, b.shape, strict=True)]
    others = [d for d in range(a.ndim) if d not in both]
    batch = [d for d in others if a.shape[d] != 1 and b.shape[d] != 1]
    rows = [d for d in others if d not in batch and b.shape[d] == 1]
    columns = [d for d in others if d not in batch and d not in rows]
    parts = (batch, rows, both, columns)
    groups, above, within, beside = [numel_of([sizes[d] for d in part]) for part in parts]
    left = _permuted(a, [*batch, *rows, *both, *columns]).reshape((groups, above, within))
    right = _permuted(b, [*batch, *both, *columns, *rows]).reshape((groups, within, beside))
    order = [*batch, *rows, *columns, *both]
    left_over = [1 if d in both else sizes[d] for d in order]
    product = left.bmm(right).reshape(tuple(left_over))
    return _permuted(product, [order.index(d) for d in range(a.ndim)])


@composite(
    old_form="labels",
    dtypes="integral floating complex",
    varargs=True,
    method=False,
    samples=lambda s: [
        s("ij,jk->ik", [s.tensor(2, 3), s.tensor(3, 2)]),
        s("bij,bjk", [s.tensor(2, 2, 3), s.tensor(2, 3, 2)]),
        s("ii->i", [s.tensor(3, 3)]),
        s("ij->", [s.tensor(2, 3)]),
        s("...i,...i->...", [s.tensor(2, 3), s.tensor(3)]),
        s("iji->j", [s.tensor(1, 3, 1)]),
        s("i,j,k->kij", [s.tensor(2), s.tensor(2), s.tensor(3)]),
    ],
    errors=lambda s: [
        (s("ij,jk", [s.tensor(2, 3)]), RuntimeError, "operands"),
        (s("ij,jk", [s.tensor(2, 3), s.tensor(2, 3)]), RuntimeError, "does not broadcast"),
        (s("ij->k", [s.tensor(2, 3)]), RuntimeError, "does not appear"),
        (s("ijk", [s.tensor(2, 3)]), RuntimeError, "does not match the number of dimensions"),
    ],
)
def einsum(equation: str, operands: Sequence[Tensor]) -> Tensor:
    """Sum products of tensors over labelled dimensions (Einstein's convention).

    Args:
        equation: labels of each operand, comma separated, and after "->" of the result
            (default: the labels that occur once, sorted). "..." stands for broadcast dimensions.

    NumPy's form is taken too: `einsum(a, [0, 1], b, [1, 2], [0, 2])`, with numbers below 52 and
    `...` behind each operand, and perhaps those of the result at the end.
    """
    ranks = tuple([x.ndim for x in operands])
    if len(operands) == 2:
        plan = _product_of(equation, ranks)
        if plan is not None and (found := _product(operands[0], operands[1], plan)) is not None:
            return found
    if 0 < len(operands) <= 2:
        orders = _outer_orders(equation, ranks)
        if orders is not None and (len(operands) == 2 or orders[0][0] is not None):
            with suppress(RuntimeError):  # of sizes, which has another text below
                return _outer(operands, orders)
    labels, output = _parse_einsum(equation, ranks)
    plain = [_without_repeats(x, term) for x, term in zip(operands, labels, strict=True)]
    operands, labels = [x for x, _ in plain], [term for _, term in plain]
    sizes = _label_sizes(operands, labels)
    order = [*output, *(c for c in sizes if c not in output)]
    aligned = [_aligned(x, term, order) for x, term in zip(operands, labels, strict=True)]
    result = aligned[0]
    for i, operand in enumerate(aligned[1:], 1):
        later = {c for term in labels[i + 1 :] for c in term}
        done = [d for d, c in enumerate(order) if c not in output and c not in later]
        result = _sum_of_products(result, operand, done)
    # PyTorch sums a single operand over all that is left, which makes integers int64.
    alone = len(operands) == 1
    left = tuple(d for d in range(len(output), len(order)) if alone or result.shape[d] != 1)
    result = result.sum(left, keepdim=True) if left else result
    return result.reshape(tuple(result.shape)[: len(output)])


@composite(
    samples=lambda s: [s(s.tensor(3, 3)), s(s.tensor(2, 4)), s(s.tensor(0, 2))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "expected a matrix")],
)
def trace(self: Tensor) -> Tensor:
    """Sum the diagonal of a matrix."""
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    return self.diagonal().sum()


def _contracted_dims(a: Any, b: Any, dims: Any) -> tuple[list[int], list[int]]:
    if hasattr(dims, "tolist"):
        dims = dims.item() if len(dims.reshape(-1)) == 1 else dims.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            bound = ">= 0" if dims < 0 else "< ndim_a or ndim_b"
            raise RuntimeError(f"tensordot expects dims {bound}, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise RuntimeError(
            "tensordot expects dims to be an int, or two lists of dimensions, one of each tensor, "
            f"got {dims!r}"
        )
    ours, theirs = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(ours) != len(theirs):
        raise RuntimeError("both dimension lists should have same length")
    return [d % a.ndim for d in ours], [d % b.ndim for d in theirs]


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 2), s.tensor(3, 2, 2)),
        s(s.tensor(2, 3), s.tensor(2, 3), ([0], [0])),
        s(s.tensor(2), s.tensor(3), 0),
        s(s.tensor(1, 3), s.tensor(3, 2), ([0, 1], [1, 0])),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2, 3), 1), RuntimeError, "contracted dimensions")
    ],
)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sum the products of two tensors over pairs of dimensions.

    Args:
        dims: a number n (the last n of `a` with the first n of `b`) or two lists.
    """
    ours, theirs = _contracted_dims(a, b, dims)
    for i, j in zip(ours, theirs, strict=True):
        if a.shape[i] == 1:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif b.shape[j] == 1:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} "
                f"and second has size {b.shape[j]} in dim {j}"
            )
    free_a = [d for d in range(a.ndim) if d not in ours]
    free_b = [d for d in range(b.ndim) if d not in theirs]
    summed = numel_of([a.shape[d] for d in ours])
    rows = a.permute((*free_a, *ours)).reshape((numel_of([a.shape[d] for d in free_a]), summed))
    columns = b.permute((*theirs, *free_b)).reshape(
        (summed, numel_of([b.shape[d] for d in free_b]))
    )
    shape = (*(a.shape[d] for d in free_a), *(b.shape[d] for d in free_b))
    return rows.mm(columns).reshape(shape)

"""Define sums, means and greatest elements of bags: rows of a table, looked up by number."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.embedding import (
    embedding_renorm_,
    index_select_backward,
    row_of,
    rows_at,
    sparse_rows,
)
from tangrad.plugin import Tensor, composite, op, require_integer_index


def _bags_reference(np: Any, offsets: Any, length: int, include_last_offset: bool) -> Any:
    if include_last_offset and offsets.size == 0:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    count = offsets.size - include_last_offset
    if offsets.size == 0:
        return np.zeros(length, np.int64)
    if offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0]}"
        )
    if offsets[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of "
            f"{offsets[-1]}"
        )
    if (np.diff(offsets) < 0).any():
        raise RuntimeError("embedding_bag: offsets must not decrease")
    return np.searchsorted(offsets, np.arange(length), side="right").clip(max=count + 1) - 1


bag_numbers = op(
    "bag_numbers(Tensor offsets, int length, bool include_last_offset) -> Tensor",
    shape=lambda length: (length,),
    dtype="int64",
    reference=_bags_reference,
    vjp="none: integer output",
    function=False,
    method=False,
    oracle=lambda torch, offsets, length, last: (
        torch.searchsorted(offsets.contiguous(), torch.arange(length), right=True) - 1
    ),
    samples=lambda s: [
        s(s.values([0, 2, 2, 3], dtype="int64"), 5, False),
        s(s.values([0, 2, 2, 3], dtype="int64"), 5, True),
        s(s.values([0], dtype="int32"), 0, False),
    ],
    errors=lambda s: [
        (s(s.values([1], dtype="int64"), 2, False), RuntimeError, "has to be 0"),
        (s(s.values([0, 3], dtype="int64"), 2, False), RuntimeError, "can not be greater"),
        (s(s.values([0, 2, 1], dtype="int64"), 4, False), RuntimeError, "must not decrease"),
    ],
    doc="""Tell for each of `length` places in which bag it lies, of those that start at `offsets`.

    With `include_last_offset` the last offset is the end of the last bag; what lies behind it gets
    the number of bags.
    """,
)


def _sum_by_steps(self: Any, index: Any, bags: Any, count: int, factors: Any) -> Any:
    """Serve `_bag_sum` of devices without a kernel of it."""
    rows = self.index_select(0, index)
    return _added(rows if factors is None else rows * factors.unsqueeze(1), bags, count)


def _of_bags(g: Any, bags: Any) -> Any:
    """Give each place the row of its bag, zeros where it lies in none."""
    return tangrad.cat([g, g.new_zeros((1, g.shape[1]))]).index_select(0, bags)


def _table_gradient(g: Any, self_meta: Any, index: Any, bags: Any, factors: Any) -> Any:
    rows = _of_bags(g, bags)
    rows = rows if factors is None else rows * factors.unsqueeze(1)
    return index_select_backward(rows, self_meta.shape, 0, index)


def _sum_tangent(
    self: Any, index: Any, bags: Any, count: int, factors: Any, self_t: Any, factors_t: Any
) -> Any:
    total = tangrad.zeros((count, self.shape[1]), dtype=self.dtype, device=self.device)
    if self_t is not None:
        total = total + _bag_sum(self_t, index, bags, count, factors)
    return total if factors_t is None else total + _bag_sum(self, index, bags, count, factors_t)


_bag_sum = op(
    "_bag_sum(Tensor self, Tensor index, Tensor bags, int count, Tensor? factors=None) -> Tensor",
    dtypes="floating",
    shape=lambda self, count: (count, self.shape[1]),
    decompose=_sum_by_steps,
    vjp={
        "self": _table_gradient,
        "factors": lambda g, self, index, bags: (
            _of_bags(g, bags) * self.index_select(0, index)
        ).sum(1),
    },
    jvp=_sum_tangent,
    function=False,
    method=False,
    oracle=lambda torch, x, index, bags, count, factors=None: torch.zeros(
        (count + 1, x.shape[1]), dtype=x.dtype
    ).index_add(0, bags, x[index.long()] * (1 if factors is None else factors.unsqueeze(1)))[
        :count
    ],
    samples=lambda s: (
        [
            s(s.tensor(4, 3), s.integers(0, 4, 6), s.values([0, 0, 0, 0, 0, 2], dtype="int64"), 3),
            s(s.tensor(4, 2), s.integers(0, 4, 3), s.values([1, 2, 1], dtype="int64"), 2),
            s(
                s.tensor(4, 20),
                s.integers(0, 4, 6),
                s.values([0, 0, 0, 1, 1, 1], dtype="int64"),
                2,
                s.tensor(6),
            ),
            s(s.tensor(4, 2, strided=True), s.integers(0, 4, 0), s.integers(0, 1, 0), 2),
        ]
        if s.dtype in ("float32", "float64")
        else []
    ),
    doc="""Sum rows of a table (V, D) in bags, each times its factor where there are factors.

    The row numbered `index[k]` counts for bag `bags[k]` of `count`; that of bag `count` for none.
    """,
)


def _greatest_reference(np: Any, self: Any, bags: Any, count: int) -> Any:
    """Compare the rows of each bag, which may lie anywhere, as segments of sorted places."""
    found = np.full((count, self.shape[1]), -1, np.int64)
    order = np.argsort(bags, kind="stable")
    order = order[bags[order] < count]
    if order.size == 0:
        return found
    numbers, starts, sizes = np.unique(bags[order], return_index=True, return_counts=True)
    rows = self[order]
    greatest = np.repeat(np.maximum.reduceat(rows, starts, axis=0), sizes, axis=0)
    equal = (rows == greatest) | (np.isnan(rows) & np.isnan(greatest))
    places = np.where(equal, order[:, None], self.shape[0])
    found[numbers] = np.minimum.reduceat(places, starts, axis=0)
    return found


bag_argmax = op(
    "bag_argmax(Tensor self, Tensor bags, int count) -> Tensor",
    dtypes="floating",
    shape=lambda self, count: (count, self.shape[1]),
    dtype="int64",
    reference=_greatest_reference,
    vjp="none: integer output",
    function=False,
    method=False,
    oracle=lambda torch, x, bags, count: torch.stack(
        [
            torch.where(bags == b)[0][x[bags == b].argmax(0)]
            if bool((bags == b).any())
            else torch.full((x.shape[1],), -1)
            for b in range(count)
        ]
    ),
    samples=lambda s: (
        [
            s(s.permutation(5, 2), s.values([0, 0, 2, 2, 3], dtype="int64"), 3),
            s(s.permutation(4, 1), s.values([0, 0, 0, 0], dtype="int64"), 1),
        ]
        if s.is_floating
        else []
    ),
    doc="Find for each bag and column the row with the greatest number, -1 in an empty bag.",
)


def _check_bag_arguments(
    input: Any,
    weight: Any,
    offsets: Any,
    mode: str,
    per_sample_weights: Any,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> None:
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not None, "
            f"then it must have the same shape as the input ({list(input.shape)})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            f"fixed length sequences. However, found offsets of shape {list(offsets.shape)}"
        )
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise ValueError(
            "offsets has to be a 1D Tensor but got "
            f"{None if offsets is None else list(offsets.shape)}"
        )
    if input.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode has to be one of sum, mean or max, got '{mode}'")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}')"
        )
    _check_bag_dtypes(weight, per_sample_weights)


def _check_bag_dtypes(weight: Any, per_sample_weights: Any) -> None:
    if not weight.dtype.is_floating_point:
        raise RuntimeError(
            f"embedding_bag: expected a floating-point dtype for weight, got {weight.dtype}"
        )
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            "embedding_bag: expected weight to have the same type as per_sample_weights, got "
            f"{weight.dtype} and {per_sample_weights.dtype}"
        )


def _in_one_dtype(input: Any, offsets: Any) -> tuple[Any, Any]:
    """Bring row numbers and offsets to the dtype that both fit in.

    Raises:
        RuntimeError: unless that is int64 or int32.
    """
    if offsets is None or offsets.dtype == input.dtype:
        require_integer_index("embedding_bag", input)
        return input, offsets
    dtype = tangrad.promote_types(input.dtype, offsets.dtype)
    if dtype not in (tangrad.int64, tangrad.int32):
        raise RuntimeError(
            "embedding_bag: expected input and offsets of int64 or int32, got "
            f"{input.dtype} and {offsets.dtype}"
        )
    return input.to(dtype), offsets.to(dtype)


def _bag_samples(s: Any) -> list[Any]:
    if not s.is_floating:
        return []
    bags = s.values([0, 2, 2], dtype="int64")
    samples = []
    for mode in ("mean", "sum", "max"):
        samples += [
            s(s.integers(0, 4, 2, 3), s.permutation(4, 2), mode=mode),
            s(s.integers(0, 4, 5), s.permutation(4, 2), bags, mode=mode),
            s(s.integers(0, 4, 6), s.permutation(4, 2), bags, mode=mode, padding_idx=-2),
            s(s.integers(0, 4, 0), s.permutation(4, 2), s.values([0, 0], dtype="int64"), mode=mode),
        ]
    weights = s.tensor(5)
    return [
        *samples,
        s(s.integers(0, 4, 5), s.tensor(4, 2), bags, mode="sum", per_sample_weights=weights),
        s(s.integers(0, 4, 2), s.tensor(4, 2), bags, mode="sum", include_last_offset=True),
    ]


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.embedding_bag",
    samples=_bag_samples,
    errors=lambda s: [
        (
            s(s.integers(4, 5, 1), s.tensor(4, 2), s.integers(0, 1, 1)),
            RuntimeError,
            "embedding_bag",
        ),
        (s(s.integers(0, 4, 1), s.tensor(4, 2)), ValueError, "offsets has to be a 1D"),
        (s(s.integers(0, 4, 1, 1, 1), s.tensor(4, 2)), ValueError, "1D or 2D"),
        (s(s.integers(0, 4, 1), s.tensor(4), s.integers(0, 1, 1)), ValueError, "2D Tensor"),
        (s(s.integers(0, 4, 2, 2), s.tensor(4, 2), mode="min"), ValueError, "one of sum, mean"),
        (s(s.tensor(2), s.tensor(4, 2), s.integers(0, 1, 1)), RuntimeError, "embedding_bag"),
        (s(s.integers(0, 4, 2), s.tensor(4, 2), s.tensor(1)), RuntimeError, "embedding_bag"),
        (s(s.integers(0, 4, 2, 2), s.tensor(4, 2), padding_idx=4), RuntimeError, "padding_idx"),
        (
            s(s.integers(0, 4, 2, 2), s.tensor(4, 2), per_sample_weights=s.tensor(2, 2)),
            NotImplementedError,
            "only supported for mode='sum'",
        ),
        (
            s(s.integers(0, 4, 2), s.tensor(4, 2), s.integers(1, 2, 1)),
            RuntimeError,
            "has to be 0",
        ),
    ],
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Look rows of a table up and reduce them within bags.

    Args:
        input: row numbers: (B, N) for B bags of N, or (N) for bags that start at `offsets`.
        weight: the table (V, D).
        offsets: where in the input the bags start, from 0 on.
        max_norm: norm to which the rows that are looked up are shortened, in place.
        norm_type: p of that p-norm.
        scale_grad_by_freq: divide gradients by how often a row is looked up; not for "max".
        mode: "sum", "mean" or "max"; zeros in an empty bag.
        sparse: make the gradient a sparse tensor.
        per_sample_weights: factors of the rows, of the input's shape, for "sum".
        include_last_offset: the last offset is where the last bag ends.
        padding_idx: row that does not take part.

    Returns:
        A tensor of shape (B, D).

    Raises:
        NotImplementedError: for `per_sample_weights` unless the mode is "sum", and for `sparse`
            without the package that brings sparse tensors.
    """
    if weight.dtype.name == "int64" and input.dtype.is_floating_point:
        import warnings

        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=4,
        )
        input, weight = weight, input
    _check_bag_arguments(
        input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq, sparse
    )
    input, offsets = _in_one_dtype(input, offsets)
    padding = row_of("embedding_bag", padding_idx, weight.shape[0])
    index = input.reshape((-1,))
    if max_norm is not None:
        embedding_renorm_(weight.detach(), index, max_norm, norm_type)
    if include_last_offset and (padding is not None or mode == "max"):
        # As in PyTorch, the last bag goes on to the end there, whatever its own end says.
        offsets, include_last_offset = offsets[:-1], False
    bags, count = _bags(input, offsets, include_last_offset)
    if padding is not None:
        bags = bags.masked_fill(index == padding, count)
    factors = None if per_sample_weights is None else per_sample_weights.reshape((-1,))
    try:
        gathers = sparse and weight.requires_grad
        if gathers:
            rows = sparse_rows("embedding_bag", scale_grad_by_freq)(weight, index, padding)
        elif mode != "max" and weight.dtype.itemsize >= 4 and not scale_grad_by_freq:
            total = _bag_sum(weight, index, bags, count, factors)
            if mode == "sum":
                return total
            if padding is not None:
                return _mean(total, _taken(total, bags, count))
            if input.ndim == 2:
                return total / max(1, input.shape[1])
            end = None if include_last_offset else offsets.new_full((1,), index.shape[0])
            return _mean(total, offsets.diff(append=end).to(total.dtype))
        if not gathers:
            rows = rows_at(weight, index, scale_grad_by_freq)
    except IndexError as error:
        raise RuntimeError(
            f"embedding_bag: Expected idx >= 0 && idx < num_embeddings, but {error} "
            f"(weight {list(weight.shape)})"
        ) from error
    if mode == "max":
        return _greatest(rows, bags, count)
    if weight.dtype.itemsize < 4:  # as in PyTorch, one rounding at the end
        rows = rows.to(tangrad.float32)
    if factors is not None:
        rows = rows * factors.unsqueeze(1)
    total = _added(rows, bags, count)
    total = _mean(total, _taken(total, bags, count)) if mode == "mean" else total
    return total.to(weight.dtype)


def _taken(total: Any, bags: Any, count: int) -> Any:
    """Count the places of each bag, in the dtype of its sums."""
    ones = total.detach().new_ones(bags.shape)
    return total.detach().new_zeros((count + 1,)).index_add(0, bags, ones).narrow(0, 0, count)


def _mean(total: Any, taken: Any) -> Any:
    """Divide sums by how many rows each bag has."""
    return total / taken.clamp(min=1).unsqueeze(1)


def _bags(input: Any, offsets: Any, include_last_offset: bool) -> tuple[Any, int]:
    """Number the bag of each index, and count the bags."""
    if input.ndim == 1:
        numbers = bag_numbers(offsets, input.shape[0], include_last_offset)
        return numbers, offsets.shape[0] - include_last_offset
    numbers = tangrad.arange(input.shape[0], device=input.device)
    return numbers.unsqueeze(1).expand(input.shape).reshape((-1,)), input.shape[0]


def _added(rows: Any, bags: Any, count: int) -> Any:
    """Add rows within bags; what belongs to none is in a bag behind the last."""
    zeros = rows.detach().new_zeros((count + 1, rows.shape[1]))
    return zeros.index_add(0, bags, rows).narrow(0, 0, count)


def _greatest(rows: Any, bags: Any, count: int) -> Any:
    if rows.shape[0] == 0:
        return _added(rows, bags, count)
    places = bag_argmax(rows.detach(), bags, count)
    return rows.gather(0, places.clamp(min=0)).masked_fill(places < 0, 0)

"""Define the ops that list the distinct elements, or slices, of a tensor."""

from __future__ import annotations

from typing import Any

from tangrad.ops.define import composite, op
from tangrad.ops.movement import numel_of


def _check_distinct(self: Any, dim: int | None) -> None:
    if self.dtype.is_complex:
        raise NotImplementedError(f'"unique" not implemented for {self.dtype}: it has no order')
    if dim is None or self.ndim == 0 or numel_of(self.shape):
        return
    others = [size for d, size in enumerate(self.shape) if d != dim]
    if self.shape[dim] and 0 in others:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied: "
            f"shape {list(self.shape)}, dim {dim}"
        )


def _distinct_reference(
    np: Any, self: Any, dim: int | None, consecutive: bool
) -> tuple[Any, Any, Any]:
    """Compare neighbouring rows, after a lexicographic sort unless only runs are asked for."""
    whole = dim is None or self.ndim == 0
    lines = self.reshape(-1) if whole else np.moveaxis(self, dim, 0)
    count = lines.shape[0]
    rows = lines.reshape((count, numel_of(lines.shape[1:])))
    order = np.arange(count) if consecutive or not rows.size else np.lexsort(rows.T[::-1])
    placed = rows[order]
    starts = np.ones(count, bool)
    starts[1:] = (placed[1:] != placed[:-1]).any(1)
    first = np.flatnonzero(starts)
    inverse = np.empty(count, np.int64)
    inverse[order] = np.cumsum(starts) - 1
    counts = np.diff(np.append(first, count))
    output = lines[order][first]
    if whole:
        return output, inverse.reshape(self.shape), counts
    return np.moveaxis(output, 0, dim), inverse, counts


_distinct = op(
    "_distinct(Tensor self, dim? dim, bool consecutive, bool inverse, bool counts)"
    " -> (Tensor, Tensor, Tensor)",
    dtypes="bool integral floating",
    check=_check_distinct,
    shape=None,
    shape_depends_on_data=True,
    dtype=lambda self: [self.dtype, "int64", "int64"],
    reference=_distinct_reference,
    vjp="none: how many elements are distinct jumps with their values",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(6, low=0, high=3), None, False, True, True),
        s(s.tensor(2, 3, low=0, high=3, strided=True), None, False, True, True),
    ],
    oracle=lambda torch, x, dim, consecutive, inverse, counts: torch.unique(
        x, return_inverse=True, return_counts=True
    ),
    doc="""List distinct elements or slices, which of them each is, and how often they occur.

    What is not asked for may be an empty tensor.
    """,
)


def _chosen(found: Any, inverse: bool, counts: bool) -> Any:
    """Give the parts that were asked for; the list alone is no tuple."""
    parts = [found[0], *([found[1]] if inverse else []), *([found[2]] if counts else [])]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(6, low=0, high=3)),
        s(s.integers(0, 3, 7), return_inverse=True, return_counts=True),
        s(s.integers(0, 2, 5, 2), return_inverse=True, return_counts=True, dim=0),
        s(s.integers(0, 2, 2, 5, strided=True), return_counts=True, dim=-1),
        s(s.integers(0, 2, 2, 3), return_inverse=True),
        s(s.tensor(), return_inverse=True),
        s(s.tensor(0), return_inverse=True, return_counts=True),
        s(s.tensor(0, 2), dim=0),
    ]


def _errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(0, 2), dim=1), RuntimeError, "0 sized dimensions"),
        (s(s.tensor(2), dim=1), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="complex64")), NotImplementedError, "unique"),
    ]


@composite(
    "unique(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False,"
    " dim? dim=None) -> Tensor",
    dtypes="bool integral floating",
    shape_depends_on_data=True,
    samples=_samples,
    errors=_errors,
)
def unique(
    input: Any, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None
) -> Any:
    """List the distinct elements, in ascending order; every NaN is distinct.

    Args:
        sorted: has no effect: the result always is.
        return_inverse: give also, in the shape of the input, where in the list each element is.
        return_counts: give also how often each occurs.
        dim: list the distinct slices along this dimension instead, in lexicographic order.

    Raises:
        NotImplementedError: the dtype is complex, and so has no order.
    """
    return _chosen(
        _distinct(input, dim, False, return_inverse, return_counts), return_inverse, return_counts
    )


@composite(
    "unique_consecutive(Tensor input, bool return_inverse=False, bool return_counts=False,"
    " dim? dim=None) -> Tensor",
    dtypes="bool integral floating",
    shape_depends_on_data=True,
    samples=_samples,
    errors=_errors,
)
def unique_consecutive(
    input: Any, return_inverse: bool, return_counts: bool, dim: int | None
) -> Any:
    """Replace every run of equal elements by its first.

    Args:
        return_inverse: give also, in the shape of the input, to which run each element belongs.
        return_counts: give also how long each run is.
        dim: compare slices along this dimension instead.
    """
    return _chosen(
        _distinct(input, dim, True, return_inverse, return_counts), return_inverse, return_counts
    )

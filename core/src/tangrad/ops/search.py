"""Define the search in sorted rows."""

from __future__ import annotations

from typing import Any

from tangrad.ops.define import op


def _reference(np: Any, sorted_sequence: Any, self: Any, right: bool) -> Any:
    which = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, self, which).astype(np.int64)
    rows = zip(
        sorted_sequence.reshape(-1, sorted_sequence.shape[-1]),
        self.reshape(-1, self.shape[-1]),
        strict=True,
    )
    found = [np.searchsorted(row, values, which) for row, values in rows]
    return np.asarray(found, np.int64).reshape(self.shape)


def _check(sorted_sequence: Any, self: Any) -> None:
    if self.dtype.is_complex or sorted_sequence.dtype != self.dtype:
        raise RuntimeError(
            "_searchsorted: expected real tensors of one dtype, got "
            f"{sorted_sequence.dtype} and {self.dtype}"
        )


search_rows = op(
    "_searchsorted(Tensor sorted_sequence, Tensor self, bool right) -> Tensor",
    shape=lambda self: self.shape,
    dtype="int64",
    check=_check,
    reference=_reference,
    vjp="none: integer output",
    function=False,
    method=False,
    oracle=lambda torch, sorted_sequence, x, right: torch.searchsorted(
        sorted_sequence, x, right=right
    ),
    samples=lambda s: [
        s(s.values([0, 1, 3, 5]), s.tensor(3, 4), False),
        s(s.values([[0, 1, 3], [1, 1, 2]]), s.values([[1, 3], [1, 0]]), True),
    ],
    doc="""Find where elements belong in sorted rows of the same dtype.

    The index of the first element that is not less, or is greater; NaN is greater than all.
    """,
)

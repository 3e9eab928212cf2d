"""Define the product of bytes with sums of 32 bits, on which quantized products can stand."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import op


def _check_int_mm(self: Any, mat2: Any) -> None:
    for name, x in (("self", self), ("mat2", mat2)):
        if len(x.shape) != 2:
            raise RuntimeError(
                f"_int_mm: expected {name} to be of dimension 2, got shape {list(x.shape)}"
            )
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"_int_mm: self.size(1) needs to match mat2.size(0), got shapes {list(self.shape)} "
            f"and {list(mat2.shape)}"
        )
    if self.dtype not in (tangrad.int8, tangrad.uint8) or mat2.dtype != tangrad.int8:
        raise RuntimeError(
            "_int_mm: expected self dtype to be int8 or uint8 and mat2 dtype to be int8, got "
            f"{self.dtype} and {mat2.dtype}"
        )


int_mm = op(
    "_int_mm(Tensor self, Tensor mat2) -> Tensor",
    method=False,
    out=True,
    strict_out_dtype=True,
    dtypes="int8 uint8",
    check=_check_int_mm,
    shape=lambda self, mat2: (self.shape[0], mat2.shape[1]),
    dtype=lambda: tangrad.int32,
    reference=lambda np, self, mat2: np.matmul(self.astype(np.int32), mat2.astype(np.int32)),
    vjp="none: integers",
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(3, 4, dtype="int8")),
        s(s.tensor(40, 70, strided=True), s.tensor(70, 33, dtype="int8", strided=True)),
        s(s.tensor(2, 0), s.tensor(0, 3, dtype="int8")),
        s(s.tensor(0, 3), s.tensor(3, 2, dtype="int8")),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(3, 2, dtype="int8")), RuntimeError, "dimension 2"),
        (s(s.tensor(2, 3), s.tensor(2, 3, dtype="int8")), RuntimeError, "needs to match"),
        (s(s.tensor(2, 3), s.tensor(3, 2, dtype="uint8")), RuntimeError, "int8"),
        (s(s.tensor(2, 3, dtype="int32"), s.tensor(3, 2, dtype="int8")), RuntimeError, "int8"),
    ],
    doc="""Multiply matrices of bytes; sums are exact, in int32 modulo 2^32.

    Args:
        self: int8 or uint8 (N, K).
        mat2: int8 (K, M).

    Returns:
        int32 (N, M).

    Raises:
        RuntimeError: shapes or dtypes are others.
    """,
)

"""One rule says the results' dtypes to renderers and readers; the compiled core agrees with it."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.expr.syntax import DTYPES
from tangrad.ops.definition.describe import _promotion, describe
from tangrad.plugin import plain_ops


def of_tensors_alone(op) -> bool:
    """Return whether a call needs nothing but tensors, and the op has no check of its own."""
    d = op.definition
    required = [p for p in d.schema.params if p.required]
    in_front = d.schema.params[: len(required)]
    return (
        op.kind in ("pointwise", "reduction")
        and op.functional is None
        and d.check is None
        and required == in_front
        and all(p.type in ("Tensor", "Operand") and not p.keyword_only for p in required)
    )


OPS = {name: op for name, op in plain_ops().items() if of_tensors_alone(op)}


@pytest.mark.parametrize("name", OPS)
def test_results_have_the_dtypes_that_are_told(name):
    op = OPS[name]
    fixed = getattr(op.definition, "fixed", {})
    needed = [p.name for p in op.definition.schema.params if p.required]
    for dtype in DTYPES:
        if op.definition.rejection(getattr(tangrad, dtype)) is not None:
            continue
        made = [
            tangrad.ones(2, dtype=getattr(tangrad, fixed.get(n, dtype)), device="meta")
            for n in needed
        ]
        try:
            results = op(*made)
        except (RuntimeError, NotImplementedError, TypeError):
            found = ""
        else:
            results = results if isinstance(results, tuple) else (results,)
            found = ", ".join(x.dtype.name for x in results)
        assert _promotion(op.definition, dtype).partition(" -> ")[2] == found, dtype


def test_the_text_of_an_op_tells_of_bools_that_become_integers():
    assert "bool         computes in int64 -> int64" in describe("square")

"""Make kernels in C-like languages from the definitions of ops.

What a device that compiles source needs, and what a compiler of whole programs builds on:

1. `describe(op)` tells what an op computes: a `PointwiseOp` (elements by scalar expressions; its
   gradients and tangents are such ops, too), a `Fold` (a reduction or scan: map, combination,
   identity, last step), or None for an op that is neither. `pointwise_ops()` and `folds()` give
   all of them, for backends that compile ahead of time.
2. `.typed(dtype)` makes typed programs of it: static single assignment whose every value has a
   dtype, with the accumulators' types and the results'.
3. `program.render_c(name, storage, outs, dialect)` writes a program as a scalar function of a
   `Dialect`; `prelude(dialect, source)` has the helpers that a source calls. A dialect is a page:
   names of types, qualifiers, and texts in place of the plain C ones.
4. The kernel around it is the device's own. `op.definition.key` names it for kernels compiled
   ahead of time, `op.definition.fingerprint` tells for which definition they were compiled.

Programs also run on NumPy (`program.numpy()`), which is how the reference device computes.
"""

from __future__ import annotations

from tangrad.expr import DerivativeError, Expression, ExpressionError, ExpressionTypeError, parse
from tangrad.expr.dtypes import BITS, COMPLEX, KINDS, REAL, compute_type
from tangrad.expr.program import Program
from tangrad.expr.syntax import DTYPES
from tangrad.plugin.render.folds import Fold, TypedFold, folds
from tangrad.plugin.render.kernels import definitions, describe
from tangrad.plugin.render.pointwise import PointwiseOp, TypedPointwise, pointwise_ops

TYPE_CHECKING = False  # who types programs writes no C: what writes it is loaded when asked for
if TYPE_CHECKING:
    from tangrad.expr.render import DIALECTS, Dialect, render_conversion, suffix
    from tangrad.expr.render import c_prelude as prelude
    from tangrad.plugin.render.functions import own_functions, own_program, repeated

__all__ = [
    "BITS",
    "COMPLEX",
    "DIALECTS",
    "DTYPES",
    "KINDS",
    "REAL",
    "DerivativeError",
    "Dialect",
    "Expression",
    "ExpressionError",
    "ExpressionTypeError",
    "Fold",
    "PointwiseOp",
    "Program",
    "TypedFold",
    "TypedPointwise",
    "compute_type",
    "definitions",
    "describe",
    "folds",
    "own_functions",
    "own_program",
    "parse",
    "pointwise_ops",
    "prelude",
    "render_conversion",
    "repeated",
    "suffix",
]


def __getattr__(name: str) -> object:
    if name in ("own_functions", "own_program", "repeated"):
        from tangrad.plugin.render import functions

        return getattr(functions, name)
    if name not in ("DIALECTS", "Dialect", "prelude", "render_conversion", "suffix"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tangrad.expr import render

    return getattr(render, "c_prelude" if name == "prelude" else name)

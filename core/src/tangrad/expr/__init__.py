"""The scalar expression language: what a pointwise op computes for one element.

An expression is parsed once (:func:`parse`), differentiated and substituted as a whole, typed for
given dtypes (:meth:`Expression.typed`), and then evaluated by NumPy or rendered to C.

==================================  ===================================================
``primitives.py``                   the table: each primitive in NumPy, Python and C, and its
                                    derivative
``syntax.py``, ``ssa.py``           text to hash-consed nodes, simplified as they are made
``formula.py``                      nodes over named inputs, and back to text
``derive.py``                       derivatives, which are nodes again
``loop.py``                         bounded loops
``composed.py``                     special functions written in the language itself, with
                                    ``coefficients_special.py``, ``coefficients_gamma.py``
``dtypes.py``, ``infer.py``         what meets in which dtype; a dtype for every value
``steps.py``                        typed SSA
``numpy_eval.py``                   the reference, with ``special.py``, ``gaussian.py`` and
                                    ``gamma.py``
``scalar_eval.py``                  constant folding on Python numbers
``render.py``                       C, CUDA C and OpenCL C, with ``c_library.py`` and
                                    ``c_special.py``
``program.py``, ``expression.py``   what is used of all this: `Program` over the evaluators,
                                    `Expression` over derivatives and types
==================================  ===================================================
"""

from __future__ import annotations

from tangrad.expr.errors import DerivativeError, ExpressionError, ExpressionTypeError
from tangrad.expr.expression import Expression, parse

__all__ = [
    "DerivativeError",
    "Dialect",
    "Expression",
    "ExpressionError",
    "ExpressionTypeError",
    "Program",
    "c_prelude",
    "compute_type",
    "parse",
]

_LAZY = {"compute_type": "dtypes", "Program": "program", "c_prelude": "render", "Dialect": "render"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)

"""Every pointwise op, derivative and fold, compiled alone: the bits of the op itself."""

from __future__ import annotations

import os
import warnings
import zlib
from typing import Any

import pytest
from codegen_groups import compare, eager, full, inputs_of, ops

from tangrad.plugin.render import ExpressionTypeError, Fold
from tangrad_jit.codegen import Group, Step, can_compile
from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here")

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "uint8", "bool")
# What is written in integers for dtypes of integers.
NUMBERS = {"int": 1, "bool": True}
# Results that are complex have no half type of their own.
HALF_COMPLEX = ("complex", "polar")


def params_of(described: Any, dtype: str) -> dict[str, Any]:
    """Return a number for each parameter."""
    whole = dtype.startswith(("int", "uint", "bool"))
    declared = described.op.definition.schema.params
    return {
        p.name: NUMBERS.get(p.type, 1 if whole else 1.5)
        for p in declared
        if p.name in described.params
    }


def group_of(described: Any, dtype: str) -> Group | None:
    """Return the group of one op, None if it has no meaning or draws random numbers."""
    if isinstance(described, Fold):
        if described.is_scan:
            return None
        if not {"dim", "keepdim"} <= {p.name for p in described.op.definition.schema.params}:
            return None
        inputs = (dtype,)
    else:
        if dtype in ("bfloat16", "float16") and described.key.startswith(HALF_COMPLEX):
            return None
        try:
            typed = described.typed(dtype)
        except ExpressionTypeError:
            return None
        if typed.program.indexed:
            return None
        inputs = typed.input_types
    try:
        step = Step(described, dtype, tuple(range(len(inputs))), params_of(described, dtype))
        count = len(step.result_types)
    except ExpressionTypeError:
        return None
    return Group(full(*inputs), (step,), tuple(range(len(inputs), len(inputs) + count)))


def is_taken(key: str, dtype: str) -> bool:
    """Take all ops, and of their derivatives a quarter by hash in the fast form."""
    if "(" not in key or os.environ.get("TANGRAD_TESTS") == "full":
        return True
    return zlib.crc32(f"{key} {dtype}".encode()) % 4 == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_has_the_bits_of_eager(dtype: str) -> None:
    checked = 0
    for described in ops().values():
        if dtype not in described.dtypes or not is_taken(described.key, dtype):
            continue
        group = group_of(described, dtype)
        if group is None or can_compile(group) is not None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                eager(group, inputs_of(group, 3, 67))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue  # the op itself refuses these numbers
        compare(group, 3, 67)
        checked += 1
    assert checked > (35 if dtype.startswith(("int", "uint", "bool")) else 250)


@pytest.mark.parametrize("dtype", DTYPES)
def test_most_of_common_ops_are_emitted(dtype: str) -> None:
    """No op may fall back to the compiled loop unnoticed."""
    from tangrad_jit.codegen.lower import template_of

    if native_level() == "tiles":
        pytest.skip("there is no executable memory here")
    evex = native_level() == "avx512"
    common = [
        "add_plain",
        "sub_plain",
        "mul",
        "neg",
        "abs",
        "relu",
        "maximum",
        "minimum",
        "eq",
        "lt",
        "ge",
        "square",
    ]
    if dtype in ("float32", "float64", "bfloat16", "float16"):
        common += [
            "true_divide",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "floor",
            "round_whole",
            "lerp",
            "addcmul",
            "sign",
        ]
    if dtype in ("float32", "bfloat16", "float16"):
        common += ["exp", "log", "tanh", "sigmoid", "silu", "gelu_none", "gelu_tanh", "softplus",
        "log1p", "expm1", "erf",
                   "tanh_backward(self)", "sigmoid_backward(self)",
                   "gelu_none_backward(self)"]  # fmt: skip
    missing = []
    for key in common:
        described = ops().get(key)
        if described is None or dtype not in described.dtypes:
            continue
        step = Step(
            described, dtype, tuple(range(len(described.inputs))), params_of(described, dtype)
        )
        if template_of(step, evex, step.form.wide) is None:
            missing.append(key)
    wide_products = [] if evex or dtype != "int64" else ["mul", "square"]
    assert missing == wide_products

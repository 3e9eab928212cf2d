"""Operators between tensors and NumPy's arrays and numbers: what PyTorch gives or raises."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch

import tangrad

OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.matmul, operator.lt, operator.eq, operator.and_, operator.lshift,
    operator.iadd, operator.imul,
)  # fmt: skip
OTHERS = (
    np.array([1, 2, 3], dtype=np.int64),
    np.array([1.5, 2, 3], dtype=np.float32),
    np.ones((2, 3), dtype=np.int32),
    np.ones((), dtype=np.float64),
    np.float32(2),
    np.int64(3),
)


def outcome(library: Any, function: Any, other: Any, tensor_first: bool) -> Any:
    tensor = library.tensor([1, 2, 3], dtype=library.int32)
    operands = (tensor, other) if tensor_first else (other, tensor)
    try:
        found = function(*operands)
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error)
    return str(found.dtype).rpartition(".")[2], found.tolist()


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("function", OPERATORS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: f"{type(other).__name__}{other.shape}")
@pytest.mark.parametrize("tensor_first", [True, False], ids=["tensor-first", "array-first"])
def test_an_operator_beside_an_array_gives_what_it_gives_in_pytorch(
    function: Any, other: Any, tensor_first: bool
) -> None:
    if isinstance(other, np.generic) and function is operator.matmul:
        pytest.skip("a number has no matrix product; each library has its own error")
    expected = outcome(torch, function, other.copy(), tensor_first)
    assert outcome(tangrad, function, other.copy(), tensor_first) == expected


@pytest.mark.parametrize("size", [1, 3])
def test_an_array_is_no_operand_of_a_function(size: int) -> None:
    x, array = tangrad.ones(3), np.ones(size, dtype=np.float32)
    for call in (
        lambda: tangrad.add(x, array),
        lambda: tangrad.add(array, x),
        lambda: x.mul_(array),
        lambda: tangrad.full((2,), array),
    ):
        with pytest.raises(TypeError, match="ndarray"):
            call()


def test_an_array_beside_a_tensor_with_a_gradient_is_refused() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        tangrad.ones(3, requires_grad=True) + np.ones(3)

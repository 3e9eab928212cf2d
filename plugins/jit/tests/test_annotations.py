"""Names of the script language outside of scripts, beside PyTorch's."""

import warnings
from typing import Dict, List, Optional, Tuple  # noqa: UP035

import pytest
import torch

import tangrad

# ruff: noqa: UP006, UP045
CASES = [
    *(([1], list[int]), ([1.0], list[int]), ([], list[int]), ([[1]], list[list[int]])),
    *(({"a": 1}, dict[str, int]), ({"a": "b"}, dict[str, int]), ({1: 1}, Dict[str, int])),
    *(((1, "a"), tuple[int, str]), ((1,), tuple[int, str]), ((1, 2), Tuple[int, str])),
    *((None, Optional[int]), (3, Optional[int]), ("a", Optional[int]), (3, int | None)),
    *(([1, "a"], List[int | str]), (1, (int, str)), ([1], (list[str], list[int]))),
    *((3, int), ("a", int)),
]


@pytest.mark.parametrize(("value", "kind"), CASES)
def test_isinstance_looks_at_members(value, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty lists, on both sides
        wanted = torch.jit.isinstance(value, kind)
        assert tangrad.jit.isinstance(value, kind) is wanted


@pytest.mark.parametrize("side", [torch, tangrad])
def test_isinstance_warns_of_empty_containers(side):
    with pytest.warns(UserWarning, match="inner type of a container is lost"):
        assert side.jit.isinstance([], list[int])


def test_isinstance_knows_tensors():
    assert tangrad.jit.isinstance([tangrad.ones(1)], list[tangrad.Tensor])
    assert not tangrad.jit.isinstance([1], list[tangrad.Tensor])


@pytest.mark.parametrize("side", [torch, tangrad])
def test_isinstance_refuses_containers_of_unknown_members(side):
    with pytest.raises(RuntimeError, match="list"):
        side.jit.isinstance([1], list)


def test_optimized_execution_is_a_context():
    with tangrad.jit.optimized_execution(False):
        assert tangrad.jit.trace(lambda x: x + 1, (tangrad.ones(1),))(tangrad.ones(1)).item() == 2

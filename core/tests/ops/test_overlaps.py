"""Writes into memory that an argument shows in another geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")

WRITES: dict[str, Callable[[Any], Any]] = {
    "copy to the next": lambda x: x[1:5].copy_(x[:4]),
    "copy to the one before": lambda x: x[:4].copy_(x[1:5]),
    "assigned": lambda x: x.__setitem__(slice(1, 5), x[:4]),
    "added": lambda x: x[1:5].add_(x[:4]),
    "transposed": lambda x: x.view(3, 3).copy_(x.view(3, 3).t()),
    "transposed and multiplied": lambda x: x.view(3, 3).mul_(x.view(3, 3).t()),
    "itself": lambda x: x.copy_(x),
    "the same view": lambda x: x[1:5].copy_(x[1:5]),
    "added to itself": lambda x: x.add_(x),
    "beside": lambda x: x[:4].copy_(x[4:8]),
}


def _outcome(lib: Any, write: Callable[[Any], Any]) -> Any:
    x = lib.arange(9.0) / 8
    try:
        write(x)
    except RuntimeError as error:
        return "refer to a single memory location" in str(error)
    return [round(value, 5) for value in x.tolist()]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_read_does_not_depend_on_the_order_of_writes(write: Callable[[Any], Any]) -> None:
    ours, theirs = _outcome(tangrad, write), _outcome(torch, write)
    assert ours == theirs
    assert ours is not False


def test_a_result_is_not_written_over_part_of_an_operand() -> None:
    for lib in (tangrad, torch):
        x = lib.arange(6.0)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            lib.mul(x[:4], 2, out=x[1:5])
        assert x.tolist() == [0, 1, 2, 3, 4, 5]

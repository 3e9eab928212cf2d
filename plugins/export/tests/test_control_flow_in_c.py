"""`tangrad.cond` and `tangrad.while_loop` in exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiling import exported

import tangrad
from tangrad import nn
from tangrad_export import ExportError


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


REFUSED: dict[str, tuple[Any, str]] = {
    "a branch": (
        lambda x: tangrad.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
        "cond",
    ),
    "a loop": (
        lambda x: tangrad.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,)),
        "while_loop",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    function, op = REFUSED[name]
    with pytest.raises(ExportError) as caught:
        exported(nn.Sequential(Called(function)), (tangrad.ones(3),), tmp_path)
    assert (caught.value.op, caught.value.module) == (op, "0")
    assert str(caught.value.where).startswith("test_control_flow_in_c.py:")
    assert list(tmp_path.iterdir()) == []

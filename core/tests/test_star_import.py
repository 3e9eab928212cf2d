"""`from MODULE import *` takes what PyTorch's takes, also what is loaded on first use."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def taken(module: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(f"from {module} import *", names)
    return names


@pytest.mark.parametrize("place", ["", ".fft", ".special", ".linalg"])
def test_a_star_takes_the_functions_that_pytorchs_takes(place: str) -> None:
    module = importlib.import_module(f"tangrad{place}")
    ours, theirs = taken(f"tangrad{place}"), taken(f"torch{place}")
    wanted = set(theirs) & set(dir(module)) - {"__builtins__", "export"}
    assert len(wanted) > 15
    assert wanted <= set(ours)
    assert all(ours[name] is getattr(module, name) for name in wanted)


def test_a_star_takes_no_modules() -> None:
    ours = taken("tangrad")
    assert not {"nn", "annotations", "TYPE_CHECKING", "ops"} & set(ours)
    assert {"zeros", "float32", "float", "FloatTensor", "no_grad", "strided"} <= set(ours)
    assert "float32" in dir(importlib.import_module("tangrad"))

"""Scripts whose branches and loops depend on values, in exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import array, exported, loaded, needs_compiler, pointer

import tangrad
from tangrad import Tensor, nn
from tangrad.utils import _pytree

pytest.importorskip("tangrad_jit")


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = self.layer(x)
        elif x.max() > 1:
            return x - 1
        else:
            y = x * 2
        return y + 1


class Loops(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int, float]:
        i = 0
        total = 0.0
        while x.sum() < 30 and i < 9:
            j = 0
            while j < i:
                x = x + 0.1
                j += 1
            if i % 2 == 0:
                total += x.sum().item()
            else:
                total = total * 0.5
            x = x.abs() + 1
            i += 1
            if total > 60:
                break
        return x * total + i / 2, i, total


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for k in range(int(x.abs().sum())):
            if k == 2:
                continue
            x = x * 0.5 + k
        return x


X = tangrad.tensor([0.5, 1.5, 0.25])


@needs_compiler
@pytest.mark.parametrize("kind", [Branch, Loops, Rounds])
def test_scripts_compute_what_eager_does(kind: Any, tmp_path: Path) -> None:
    script = tangrad.jit.script(kind())
    library = loaded(exported(script, (X,), tmp_path))
    for x in (X, -X, 3 * X, 0 * X, tangrad.tensor([-1.0, 2.0, 0.5])):
        with tangrad.no_grad():
            values = _pytree.tree_leaves(script(x))
        # A number of Python is a double.
        expected = [array(v) if isinstance(v, Tensor) else np.array([v]) for v in values]
        found = [np.full_like(a, 77) for a in expected]
        assert library.model_run(*(pointer(a) for a in (array(x), *found))) == 0
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

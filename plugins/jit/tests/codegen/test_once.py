"""Code is made once: sizes, numbers, learning rates, steps and seeds come with each run."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad import nn
from tangrad_jit.codegen import compiled
from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() in (None, "tiles"), reason="no code is emitted here")
OPTIONS = {"measure": False}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what grows with every piece of code that is made; none is known from before."""
    sizes: list[int] = []
    make = compiled._execute.Code

    def counted(code: bytes) -> Any:
        sizes.append(len(code))
        return make(code)

    monkeypatch.setattr(compiled, "_kernels", {})
    monkeypatch.setattr(compiled._execute, "Code", counted)
    return sizes


def test_other_sizes_run_the_same_code(made: list[int]) -> None:
    @tangrad.compile(fullgraph=True, dynamic=True, options=OPTIONS)
    def program(x: Any, bias: Any) -> Any:
        y = (x + bias).sigmoid() * x
        return y - y.mean(1, keepdim=True)

    for rows, columns in ((4, 100), (6, 130), (5, 110)):
        program(tangrad.randn(rows, columns), tangrad.randn(columns))
    known = len(made)
    assert known > 0
    for rows, columns in ((9, 100), (31, 333), (64, 257), (1000, 128), (77, 2000)):
        program(tangrad.randn(rows, columns), tangrad.randn(columns))
    assert len(made) == known


def test_steps_rates_and_seeds_run_the_same_code(made: list[int]) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.25), nn.Linear(16, 4))
    optimizer = tangrad.optim.Adam(net.parameters(), lr=1e-3)
    schedule = tangrad.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @tangrad.compile(fullgraph=True, options=OPTIONS)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = tangrad.randn(12, 8)
    for _ in range(4):
        step(x)
    known = len(made)
    assert known > 0
    for seed in range(6):
        tangrad.manual_seed(seed)
        step(x)
        schedule.step()
    assert len(made) == known


def test_another_recording_of_the_same_ops_runs_the_same_code(made: list[int]) -> None:
    """The key is what is computed and of which dtypes and patterns, at which level."""

    def program(x: Any, y: Any) -> Any:
        return (x * y).relu() + y

    def run(*shapes: tuple[int, ...], dtype: Any = tangrad.float32) -> int:
        fast = tangrad.compile(program, fullgraph=True, options=OPTIONS)
        for _ in range(2):
            fast(*(tangrad.ones(shape, dtype=dtype) for shape in shapes))
        return len(made)

    once = run((5, 7), (5, 7))
    assert once > 0
    assert run((30, 11), (30, 11)) == once
    of_rows = run((5, 7), (7,))
    assert of_rows > once
    assert run((9, 3), (3,)) == of_rows
    assert run((5, 7), (5, 7), dtype=tangrad.float64) > of_rows

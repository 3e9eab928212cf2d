"""Steps of training that go back through branches and loops."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compiling import array, exported, loaded, needs_compiler, pointer, self_tested

import tangrad
from tangrad import Tensor, nn

T = tangrad


class Model(nn.Module):
    """Two layers, and a function of them and of the first one's result."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.second, self.first(x))


def _zero() -> Tensor:
    return T.zeros((), dtype=T.int64)


CASES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a branch": lambda layer, y: T.cond(
        y.sum() > 0, lambda y: layer(y).tanh(), lambda y: y * y * layer.weight.sum(), (y,)
    ),
    "a branch of two results, of which one is not used": lambda layer, y: T.cond(
        y.sum() > 0, lambda y: (layer(y), y.argmax()), lambda y: (y, y.argmin()), (y,)
    )[0],
    "a loop": lambda layer, y: T.while_loop(
        lambda i, a: (i < 4) & (a.abs().sum() < 9),
        lambda i, a: (i + 1, layer(a).tanh() + a * 1.1),
        (_zero(), y),
    )[1],
    "no round": lambda layer, y: T.while_loop(
        lambda i, a: i < 0, lambda i, a: (i + 1, layer(a)), (_zero(), y)
    )[1],
    "values change places": lambda layer, y: T.while_loop(
        lambda i, a, b: i < 3,
        lambda i, a, b: (i + 1, b, layer(a).sin() + b),
        (_zero(), y, y.exp()),
    )[2],
    "a branch in a loop, and one in a branch": lambda layer, y: T.cond(
        y[0, 0] > 0,
        lambda y: T.while_loop(
            lambda i, a: i < 3,
            lambda i, a: (
                i + 1,
                T.cond(a.sum() > 0, lambda a: layer(a).sin(), lambda a: a * y.tanh(), (a,)),
            ),
            (_zero(), y),
        )[1],
        lambda y: T.cond(y[0, 1] > 0, lambda y: y * 2, lambda y: layer(y), (y,)),
        (y,),
    ),
    "a loop in a loop": lambda layer, y: T.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (
            i + 1,
            T.while_loop(
                lambda j, b: j < i, lambda j, b: (j + 1, layer(b).tanh() + a), (_zero(), a * 0.5)
            )[1],
        ),
        (_zero(), y),
    )[1],
}


def assert_trains(model: Any, optimizer: Any, folder: Path, steps: int = 12) -> None:
    """Compare the losses of steps in C with those of eager steps."""
    x, target = T.randn(2, 3), T.randn(2, 3)
    path = exported(
        model,
        (x,),
        folder,
        training=True,
        loss=lambda out, wanted: ((out - wanted) ** 2).mean(),
        targets=target,
        optimizer=optimizer,
    )
    self_tested(path, most=1e-5)
    library = loaded(path)
    library.model_train_step.restype = ctypes.c_float
    for _ in range(steps):
        x, target = T.randn(2, 3), T.randn(2, 3)
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        for p in model.parameters():
            p.grad = T.zeros_like(p) if p.grad is None else p.grad
        optimizer.step()
        found = library.model_train_step(pointer(array(x)), pointer(array(target)))
        assert found == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_eager(name: str, tmp_path: Path) -> None:
    T.manual_seed(1)
    model = Model(CASES[name])
    assert_trains(model, T.optim.SGD(model.parameters(), 0.02, momentum=0.5), tmp_path)


@needs_compiler
def test_losses_are_those_of_eager_with_adam(tmp_path: Path) -> None:
    T.manual_seed(2)
    model = Model(CASES["a branch in a loop, and one in a branch"])
    assert_trains(model, T.optim.Adam(model.parameters(), 0.01), tmp_path)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        k = 0
        while bool(y.abs().sum() < 6) and k < 5:
            y = y * 1.5 + 0.1 * k
            k += 1
        if y.max() > 1:
            return self.second(y).tanh()
        return y


@needs_compiler
def test_a_script_trains(tmp_path: Path) -> None:
    pytest.importorskip("tangrad_jit")
    T.manual_seed(3)
    model = T.jit.script(Scripted())
    assert_trains(model, T.optim.SGD(model.parameters(), 0.02), tmp_path)

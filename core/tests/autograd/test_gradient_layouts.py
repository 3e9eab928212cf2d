"""A leaf's gradient lies in memory as the leaf does, where the leaf is dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")

LEAVES: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda lib: lib.ones(2, 3, 4, 5),
    "channels last": lambda lib: lib.ones(2, 3, 4, 5).to(memory_format=lib.channels_last),
    "channels last 3d": lambda lib: lib.ones(2, 3, 4, 5, 1).to(memory_format=lib.channels_last_3d),
    "one channel": lambda lib: lib.ones(2, 1, 4, 5).to(memory_format=lib.channels_last),
    "transposed": lambda lib: lib.ones(3, 4).t(),
    "permuted": lambda lib: lib.ones(2, 3, 4).permute(2, 0, 1),
    "with gaps": lambda lib: lib.ones(4, 6)[:, ::2],
    "expanded": lambda lib: lib.ones(3, 1).expand(3, 4),
    "number": lambda lib: lib.ones(()),
}
USES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "product": lambda x: (x * x).sum(),
    "contiguous gradient": lambda x: (x.contiguous() * 2).sum(),
    "part": lambda x: x.flatten()[:2].sum(),
    "twice": lambda x: x.sum() + (x * 3).sum(),
}


def _leaf(lib: Any, kind: str) -> Any:
    return LEAVES[kind](lib).detach().requires_grad_()


@pytest.mark.filterwarnings("ignore:.*create_graph=True:UserWarning")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", LEAVES)
def test_gradient_has_the_strides_of_its_leaf(kind: str, use: str, create_graph: bool) -> None:
    grads = []
    for lib in (tangrad, torch):
        x = _leaf(lib, kind)
        USES[use](x).backward(create_graph=create_graph)
        # Where there is one place, a stride says nothing.
        strides = [s for n, s in zip(x.shape, x.grad.stride(), strict=True) if n > 1]
        grads.append((strides, x.grad.tolist()))
    assert grads[0] == grads[1]


@pytest.mark.filterwarnings("ignore:.*create_graph=True:UserWarning")
def test_second_derivative_passes_through_a_gradient_with_other_strides() -> None:
    x = tangrad.arange(6.0).reshape(2, 3).t().requires_grad_()
    (x.contiguous() ** 3).sum().backward(create_graph=True)
    assert x.grad.stride() == x.stride()
    (second,) = tangrad.autograd.grad(x.grad.sum(), x)
    assert second.tolist() == (6 * x).tolist()


def test_gradient_that_others_hold_is_copied_into_the_order_of_the_leaf() -> None:
    x = tangrad.ones(2, 3, 4, 4).to(memory_format=tangrad.channels_last).requires_grad_()
    seen = []
    x.register_hook(seen.append)
    x.reshape(-1).sum().backward()
    assert x.grad.stride() == x.stride()
    assert x.grad is not seen[0]

"""Which hooks run where gradients are accumulated, and where they are only asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")

RUNS: dict[str, Callable[..., Any]] = {
    "backward": lambda lib, leaf, middle, end: end.backward(),
    "grad of the leaf": lambda lib, leaf, middle, end: lib.autograd.grad(end, leaf),
    "grad of the middle": lambda lib, leaf, middle, end: lib.autograd.grad(end, middle),
    "grad of both": lambda lib, leaf, middle, end: lib.autograd.grad(end, (middle, leaf)),
    "backward into the leaf": lambda lib, leaf, middle, end: end.backward(inputs=[leaf]),
}


def _told(lib: Any, run: Callable[..., Any]) -> list[str]:
    told: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_: told.append(name)

    leaf = lib.ones(2, requires_grad=True)
    middle = leaf * 2
    end = (middle * 3).sum()
    accumulator = middle.grad_fn.next_functions[0][0]
    leaf.register_hook(note("leaf"))
    leaf.register_post_accumulate_grad_hook(note("accumulated"))
    middle.register_hook(note("middle"))
    for name, node in (("accumulator", accumulator), ("node", middle.grad_fn)):
        node.register_prehook(note(f"before {name}"))
        node.register_hook(note(f"after {name}"))
    run(lib, leaf, middle, end)
    return told


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_hooks_around_nodes_run_where_the_nodes_run(run: Callable[..., Any]) -> None:
    assert _told(tangrad, run) == _told(torch, run)


def test_what_is_captured_is_not_what_a_hook_before_the_node_gives() -> None:
    for lib in (tangrad, torch):
        leaf = lib.ones(2, requires_grad=True)
        middle = leaf * 2
        middle.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
        grads = lib.autograd.grad((middle * 3).sum(), (middle, leaf))
        assert [g.tolist() for g in grads] == [[3, 3], [60, 60]]


def test_a_second_derivative_sees_what_an_unpack_hook_gave_for_a_leaf() -> None:
    outcomes = []
    for lib in (tangrad, torch):
        x = lib.tensor([1.0, 3.0], requires_grad=True)
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
            y = x**3
        (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        outcomes.append((first.tolist(), second.tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_hook_of_several_tensors_is_called_once_in_each_walk(mode: str) -> None:
    outcomes = []
    for lib in (tangrad, torch):
        a, b = (lib.ones(2, requires_grad=True) for _ in range(2))
        middle, seen = a * 2, []

        def note(given: Any, seen: list[Any] = seen) -> None:
            grads = given if isinstance(given, (list, tuple)) else [given]
            seen.append([None if g is None else g.tolist() for g in grads])

        lib.autograd.graph.register_multi_grad_hook((a, b, middle), note, mode=mode)
        (middle * b).sum().backward(retain_graph=True)  # all
        (a * 2).sum().backward()  # one of them
        (middle * b).sum().backward(inputs=[b, middle], retain_graph=True)  # two
        (a * b).sum().backward(inputs=[b])
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


def test_a_hook_of_several_tensors_sees_a_walk_within_a_walk() -> None:
    outcomes = []
    for lib in (tangrad, torch):
        seen: list[Any] = []
        a, b = (lib.ones(2, requires_grad=True) for _ in range(2))
        lib.autograd.graph.register_multi_grad_hook(
            (a, b), lambda grads, seen=seen: seen.append([g.tolist() for g in grads])
        )
        outer = lib.ones(2, requires_grad=True)
        product = (a * b * 3).sum()
        outer.register_hook(lambda g, product=product: product.backward())
        (outer * 2).sum().backward()
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1] == [[[3, 3], [3, 3]]]


def test_a_pack_hook_does_not_write_its_input() -> None:
    for lib in (tangrad, torch):
        x = lib.ones(2, requires_grad=True)
        hooks = lib.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t)
        with hooks, pytest.raises(RuntimeError, match="is modifying its input in place"):
            (x * 1) ** 2

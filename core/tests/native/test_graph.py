"""The graph: long chains, threads, hooks, saved versions, views whose base is written."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

import tangrad

# The step is a view, which needs no kernel: what is tested is the graph, on every device.
LONG_CHAIN = """
import tangrad
x = tangrad.ones(1, requires_grad=True)
y = x
for _ in range({length}):
    y = {step}
{end}
print("done", x.grad.item() if x.grad is not None else None)
"""


def run(length: int, step: str, end: str) -> str:
    """Run a chain in a process of its own, for a recursion would end it."""
    done = subprocess.run(
        [sys.executable, "-c", LONG_CHAIN.format(length=length, step=step, end=end)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.strip()


def test_a_chain_of_a_million_nodes_goes_backward() -> None:
    assert run(1_000_000, "y.view(1)", "y.backward()") == "done 1.0"


def test_a_chain_of_a_million_nodes_is_destroyed() -> None:
    assert run(1_000_000, "y.view(1)", "del y") == "done None"


def test_a_chain_of_views_written_in_place_is_destroyed() -> None:
    assert run(100_000, "(y * 1).view(1)", "del y") == "done None"


def leaf(*values: float) -> Any:
    """Make a leaf of float64."""
    return tangrad.tensor(values, dtype=tangrad.float64, requires_grad=True)


def test_graphs_of_four_threads_are_independent() -> None:
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        x = leaf(float(k))
        for _ in range(50):
            x.grad = None
            (x * x * x).sum().backward()
        results[k] = x.grad.item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == {k: 3.0 * k * k for k in range(4)}


def test_no_grad_holds_in_its_own_thread_only() -> None:
    seen = []
    with tangrad.no_grad():
        t = threading.Thread(
            target=lambda: seen.append((tangrad.is_grad_enabled(), (leaf(1.0) * 2).requires_grad))
        )
        t.start()
        t.join()
        assert not tangrad.is_grad_enabled()
    assert seen == [(True, True)]


def test_a_part_that_nobody_holds_frees_itself() -> None:
    x = leaf(1.0)
    y = x.sin()
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_backward_twice_needs_retain_graph() -> None:
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time.*retain_graph=True"):
        y.backward()


def test_retained_graph_accumulates() -> None:
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8.0


def test_writing_what_was_saved_names_saver_and_writer() -> None:
    x = leaf(2.0)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(
        RuntimeError, match=r"modified by an inplace operation.*exp.*version 1.*mul_"
    ):
        y.sum().backward()


def test_data_has_a_version_of_its_own() -> None:
    x = leaf(2.0)
    y = x * 1
    y.data.mul_(3)
    assert (y._version, y.item()) == (0, 6.0)


def test_a_view_shares_the_version_of_its_base() -> None:
    base = tangrad.zeros(4)
    view = base[1:]
    view.add_(1)
    base.mul_(2)
    assert base._version == view._version == 2


def test_detach_shares_the_version() -> None:
    x = tangrad.ones(2)
    x.detach().add_(1)
    assert x._version == 1


def test_writing_a_view_rebases_the_history_of_its_base() -> None:
    x, w = leaf(1.0, 2.0, 3.0), leaf(5.0)
    base = x * 2
    view = base[1:]
    view.mul_(w)
    base.sum().backward()
    assert x.grad.tolist() == [2.0, 10.0, 10.0]
    assert w.grad.tolist() == [10.0]
    assert type(base.grad_fn).__name__ == "CopySlices"
    assert view.grad_fn.next_functions[0][0] is base.grad_fn


@pytest.mark.parametrize("write", [
    lambda x: x.add_(1),
    lambda x: x[0].zero_(),
    lambda x: x.view(-1).mul_(2),
    lambda x: x.__setitem__(0, 1.0),
])  # fmt: skip
def test_a_leaf_is_written_under_no_grad_only(write: Any) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        write(x)
    with tangrad.no_grad():
        write(x)
    assert x._version == 1


def test_tensor_hooks_run_in_order_and_may_replace() -> None:
    x = leaf(1.0)
    seen: list[float] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.item()))
    y.register_hook(lambda g: g * 10)
    last = y.register_hook(lambda g: seen.append(g.item()))
    y.sum().backward()
    assert (seen, x.grad.item()) == ([1.0, 10.0], 20.0)
    last.remove()
    (x * 2).sum().backward()
    assert seen == [1.0, 10.0]


def test_a_leafs_hook_sees_the_whole_gradient() -> None:
    x = leaf(1.0)
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 2 + x * 3).sum().backward()
    assert seen == [5.0, 5.0]


def test_node_hooks_see_and_replace_gradients() -> None:
    x = leaf(1.0)
    y = x * 3
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2,))
    y.grad_fn.register_hook(
        lambda inputs, outputs: tuple(None if g is None else g + 1 for g in inputs)
    )
    y.sum().backward()
    assert x.grad.item() == 7.0


def test_hook_on_a_constant_is_refused() -> None:
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        tangrad.ones(1).register_hook(lambda g: g)


def test_an_error_in_a_hook_leaves_the_graph_usable() -> None:
    x = leaf(2.0)
    y = (x * x).sum()

    def fail(g: Any) -> None:
        raise KeyError("mine")

    handle = y.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        y.backward(retain_graph=True)
    handle.remove()
    assert tangrad.is_grad_enabled()
    y.backward()
    assert x.grad.item() == 4.0


def test_cycle_of_a_tensor_and_its_hook_is_collected() -> None:
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g, held=y: None)
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "choose",
    [
        lambda x, kept: tangrad.where(kept, x, 0.0),
        lambda x, kept: x.masked_fill(~kept, 0.0),
    ],
    ids=["where", "masked_fill"],
)
def test_nan_gradient_does_not_reach_what_was_not_chosen(choose: Any) -> None:
    x = tangrad.ones(2, requires_grad=True)
    y = choose(x, tangrad.tensor([True, False]))
    (gradient,) = tangrad.autograd.grad(y, x, tangrad.full((2,), float("nan")))
    assert gradient.isnan().tolist() == [True, False]
    assert gradient[1] == 0

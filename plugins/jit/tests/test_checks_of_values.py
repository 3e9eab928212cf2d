"""Ops that refuse values are in graphs, and refuse them there as they do in eager."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn
from tangrad_jit.graph import parse
from tangrad_jit.passes.pipeline import optimize

cross_entropy = nn.functional.binary_cross_entropy


def outside(x):
    """Return probabilities of which one is none."""
    bad = x.clone()
    bad[0, 0] = 1.5
    return bad


@pytest.mark.parametrize("fullgraph", [True, False])
def test_binary_cross_entropy_is_one_graph_and_refuses_what_is_no_probability(fullgraph):
    fast = tangrad.compile(cross_entropy, fullgraph=fullgraph, options={"measure": False})
    x, y = tangrad.rand(4, 3), tangrad.rand(4, 3)
    for _ in range(3):
        assert fast(x, y).item() == cross_entropy(x, y).item()
    assert len(fast.compiled.executables) == 1
    assert not fast.compiled.off
    for name, given in (("input", (outside(x), y)), ("target", (x, outside(y)))):
        with pytest.raises(RuntimeError, match=f"all elements of {name} should be between 0 and 1"):
            fast(*given)
    assert fast(x, y).item() == cross_entropy(x, y).item()


def test_a_training_step_that_is_refused_has_trained_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Sigmoid())
    optimizer = tangrad.optim.Adam(model.parameters())

    @tangrad.compile(fullgraph=True, options={"measure": False})
    def step(x, y):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = tangrad.randn(8, 3), tangrad.rand(8, 3)
    for _ in range(3):
        step(x, y)
    assert len(step.compiled.executables) == 1
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RuntimeError, match="elements of target should be between 0 and 1"):
        step(x, outside(y))
    assert all(tangrad.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(x, y)
    assert not any(tangrad.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_graph_for_all_sizes_refuses_at_each():
    fast = tangrad.compile(cross_entropy, fullgraph=True, dynamic=True, options={"measure": False})
    for n in (4, 6, 9, 5):
        x, y = tangrad.rand(n, 3), tangrad.rand(n, 3)
        assert fast(x, y).item() == cross_entropy(x, y).item()
        with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
            fast(outside(x), y)
    assert sum(event.startswith("recorded") for event in fast.compiled.events) <= 2


def test_a_traced_function_refuses_too(tmp_path):
    x, y = tangrad.rand(4, 3), tangrad.rand(4, 3)
    traced = tangrad.jit.trace(lambda a, b: cross_entropy(a, b), (x, y))
    tangrad.jit.save(traced, tmp_path / "traced.zip")
    for function in (traced, tangrad.jit.load(tmp_path / "traced.zip")):
        assert function(x, y).item() == cross_entropy(x, y).item()
        with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
            function(outside(x), y)


def test_a_check_is_no_dead_code_and_nothing_after_it_comes_before_it():
    graph = parse(
        """graph f(%0: float32[4] argument "x", %1: bool[] argument "held") {
  %2: float32[4] = sin(%0)
  %3: bool = number.require(%1, 'no')
  %4: float32[4] = add_plain(%0, %0) into %0
  return %2
}"""
    )
    names = [node.name for node in optimize(graph)[0].nodes]
    assert names.index("number.require") < max(names.index("add_plain"), names.index("copy_"))

"""What `check` writes when a graph and its function differ: the fewest calls, as a program."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tangrad
from tangrad_jit.compiling.difference import both_ways, reduced, same_bits
from tangrad_jit.graph import parse


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def run(program):
    """Return what a program prints in a process of its own, in another folder than its own."""
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, cwd=program.parent.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def thirds(x, weight):
    hidden = (x @ weight).relu()
    scaled = hidden.exp().sum(-1, keepdim=True) / 3.0
    return (scaled * hidden + x).tanh().mean(0), scaled, hidden.sum()


def test_the_program_has_no_call_too_many_runs_by_itself_and_shows_the_difference(folder):
    # The rewriting that changes last bits is a difference that every process has.
    fast = tangrad.compile(thirds, options={"fast": True, "check": 1.0, "measure": False})
    generator = tangrad.Generator().manual_seed(0)
    x, weight = (tangrad.randn(n, 8, generator=generator) for n in (32, 8))
    fast(x, weight)
    given = x.clone()
    found, wanted = fast(x, weight), thirds(x, weight)
    assert all(same_bits(a, b) for a, b in zip(found, wanted, strict=True))
    assert same_bits(x, given)
    assert "differ from the function's" in fast.compiled.off
    (program,) = folder.glob("*/show.py")
    assert str(program) in fast.compiled.off
    graph = parse((program.parent / "graph.txt").read_text("utf-8"))
    assert [node.name for node in graph.nodes] == ["true_divide"]
    (told,) = run(program).splitlines()[:1]
    assert told.startswith("0: node by node tensor(")
    assert "by the plan" in run(program)


def test_a_function_that_is_not_its_graph_is_shown_by_its_results(folder):
    g = tangrad.compile(lambda x: x + 1, options={"check": 1.0, "measure": False})
    x = tangrad.ones(3)
    g(x)
    g.compiled.executables[0]._run_forward = lambda inputs: [inputs[0] + 2]
    assert g(x).tolist() == [2.0, 2.0, 2.0]
    (program,) = folder.glob("*/show.py")
    assert run(program).strip() == (
        "0: the graph gave tensor([3., 3., 3.]), the function tensor([2., 2., 2.])"
    )


def test_gradients_that_a_step_leaves_are_compared(folder):
    linear = tangrad.nn.Linear(3, 2)

    @tangrad.compile(options={"check": 1.0, "measure": False})
    def step(x):
        linear.zero_grad()
        loss = linear(x).square().mean()
        loss.backward()
        return loss

    x = tangrad.randn(4, 3)
    for _ in range(3):
        step(x)
    assert not step.compiled.off
    executable = step.compiled.executables[0]
    forward, (tensor, at) = executable._run_forward, executable._new_gradients[0]

    def wrong(inputs):
        outs = forward(inputs)
        outs[at] = outs[at] + 1
        return outs

    executable._run_forward = wrong
    step(x)
    assert "differ from the function's" in step.compiled.off
    assert tensor.grad is not None


def test_a_sound_graph_is_not_reduced():
    graph = parse(
        """graph f(%0: float32[4] argument "x") {
  %1: float32[4] = sin(%0)
  %2: float32[4] = mul(%1, 2.0)
  return %2
}"""
    )
    assert reduced(graph, [tangrad.randn(4)], False) is None


def test_random_numbers_are_the_same_both_ways():
    x = tangrad.ones(64)
    fast = tangrad.compile(
        lambda x: tangrad.nn.functional.dropout(x) * 3,
        fullgraph=True,
        options={"measure": False},
    )
    fast(x)
    (executable,) = fast.compiled.executables
    by_nodes, by_plan = both_ways(executable.recorded, [x])
    assert all(same_bits(a, b) for a, b in zip(by_nodes, by_plan, strict=True))


def test_what_is_reduced_keeps_views_and_writes():
    graph = parse(
        """graph f(%0: float32[4, 4] argument "x") {
  %1: float32[4, 4] = exp(%0)
  %2: float32[4] strided(4) = select(%1, 1, 2) view of %1
  %3: float32[4] strided(4) = true_divide(%2, 3.0) into %2
  %4: float32[4] = sum(%1, (0,), False, None)
  return %4
}"""
    )
    found = reduced(graph, [tangrad.randn(4, 4)], True)
    if found is not None:
        by_nodes, by_plan = both_ways(*found, fast=True)
        assert not all(same_bits(a, b) for a, b in zip(by_nodes, by_plan, strict=True))


def test_zeros_of_either_sign_differ_and_nans_do_not():
    zero, nan = tangrad.tensor([0.0]), tangrad.tensor([float("nan")])
    assert same_bits(zero, zero.clone())
    assert not same_bits(zero, -zero)
    assert not same_bits(0.0, -0.0)
    assert same_bits(nan, nan.clone())
    assert not same_bits(tangrad.complex(zero, zero), tangrad.complex(zero, -zero))


@pytest.mark.parametrize("make", [
    lambda: tangrad.arange(96.0).reshape(8, 12)[::2, ::3],
    lambda: tangrad.arange(12.0).reshape(3, 4).t(),
    lambda: tangrad.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[1:],
], ids=["every second", "turned", "part"])  # fmt: skip
def test_what_a_checked_call_writes_keeps_its_strides(folder, make):
    @tangrad.compile(options={"check": 1.0, "measure": False})
    def scaled(x, y):
        x.mul_(2).add_(y)
        return x + 1

    for _ in range(4):
        x, expected = make(), make()
        around = x.untyped_storage().nbytes()
        found = scaled(x, tangrad.ones(x.shape))
        assert same_bits(found, expected.mul_(2).add_(1) + 1)
        assert same_bits(x, expected)
        assert x.untyped_storage().nbytes() == around
    assert not scaled.compiled.off
    assert not list(folder.glob("*"))

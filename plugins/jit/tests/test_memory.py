"""What a compiled step holds: one arena, no tensors of the recorded run, values made again."""

from __future__ import annotations

import gc

import pytest

import tangrad
from tangrad import nn
from tangrad.plugin import allocator_of
from tangrad_jit.passes.memory_plan import Life, lodge, most_alive, place


def compiled(function):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def allocated():
    gc.collect()
    return int(allocator_of("cpu").memory_stats()["allocated_bytes.all.current"])


def peak_of(run, before):
    allocator_of("cpu").reset_peak_memory_stats()
    run()
    return int(allocator_of("cpu").memory_stats()["allocated_bytes.all.peak"]) - before


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def stepping(depth, width, seed=0):
    tangrad.manual_seed(seed)
    model = nn.Sequential(*[Block(width) for _ in range(depth)])
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def test_a_recorded_run_s_tensors_are_let_go():
    x = tangrad.randn(1000, 100)
    before = allocated()
    fast = compiled(lambda x: ((x * 2).exp().cumsum(0).sin().cumsum(1)).sum())
    fast(x)
    held = sum(plan.arena_bytes for e in fast.compiled.executables for plan in e.plans)
    assert allocated() - before <= held + 100_000


def test_old_gradients_and_results_of_ops_in_python_are_let_go_during_a_run():
    step, model = stepping(1, 64)
    x = tangrad.randn(16, 64)
    fast = compiled(step)
    for _ in range(3):
        fast(x)
    before = allocated()
    gradients = sum(4 * p.numel() for p in model.parameters())
    # The gradients of the last step make room for those of the next.
    assert peak_of(lambda: fast(x), before) < gradients // 2


def test_values_are_made_again_behind_the_peak_and_are_the_same():
    pytest.importorskip("tangrad_cpu", reason="the reference holds memory of its own")
    (eager, plain), (step, model) = stepping(4, 128), stepping(4, 128)
    x = tangrad.randn(512, 128)
    fast = compiled(step)
    for _ in range(4):
        assert tangrad.equal(fast(x), eager(x))
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        assert tangrad.equal(a, b)
    executable = fast.compiled.executables[0]
    assert any(note.startswith("rematerialization") for note in executable.notes)
    for p in plain.parameters():
        p.grad = None
    gradients = sum(4 * p.numel() for p in model.parameters())
    needed = executable.plans[0].arena_bytes + gradients
    assert peak_of(lambda: fast(x), allocated()) < 100_000
    assert needed < 0.9 * peak_of(lambda: eager(x), allocated())


def test_recordings_of_a_function_share_an_arena():
    fast = compiled(lambda x, n: (x.exp().cumsum(0) * n).sin().sum())
    before = allocated()
    xs = {k: tangrad.randn(100 * k, 100) for k in (3, 1, 4, 2)}
    for n in (2, 3):
        for x in xs.values():
            assert tangrad.equal(fast(x, n), (x.exp().cumsum(0) * n).sin().sum())
    assert len(fast.compiled.executables) > 1
    arenas = {id(e.arena) for e in fast.compiled.executables}
    assert len(arenas) == 1
    given = sum(4 * x.numel() for x in xs.values())
    largest = max(p.arena_bytes for e in fast.compiled.executables for p in e.plans)
    assert allocated() - before - given <= 2 * largest + 200_000


def test_a_smaller_arena_that_moves_leaves_ops_in_python_what_they_are_given():
    def f(x):
        y = x * 2
        return tangrad.linalg.matrix_exp(y.cumsum(0)) + y

    fast = tangrad.compile(f, fullgraph=True, dynamic=False, options={"measure": False})
    small, large = tangrad.rand(3, 3) / 10, tangrad.rand(9, 9) / 10
    for _ in range(3):
        for x in (small, large):
            assert tangrad.equal(fast(x), f(x))


def test_a_scatter_lies_where_what_it_copies_dies():
    x, index = tangrad.randn(8, 4), tangrad.arange(8).flip(0)

    def plain(x, index):
        zeros = tangrad.zeros(8, 4)
        return zeros.scatter_add(0, index.unsqueeze(1).expand(8, 4), x).sin()

    fast = compiled(plain)
    for _ in range(3):
        assert tangrad.equal(fast(x, index), plain(x, index))
    assert fast.compiled.executables[0].plans[0].arena_bytes < 2 * 8 * 4 * 4 + 128


def test_places_are_as_low_as_what_is_alive_needs_where_an_order_finds_it():
    mib = 1 << 20
    lives = [Life("a", 2 * mib, 0, 1), Life("b", mib, 1, 2), Life("c", 2 * mib, 2, 3)]
    offsets, total = place(lives)
    assert total == most_alive(lives) == 3 * mib
    assert {k: v % 64 for k, v in offsets.items()} == {"a": 0, "b": 0, "c": 0}


def test_values_lie_in_what_is_made_when_they_are_gone_and_leaves():
    hosts = [Life("late", 256, 5, 5), Life("early", 256, 1, 1)]
    lives = [
        Life("a", 128, 0, 2),
        Life("b", 128, 1, 3),
        Life("c", 64, 3, 4),
        Life("too long", 64, 3, 5),
        Life("too large", 512, 0, 1),
    ]
    found = lodge(hosts, lives)
    assert found == {"a": ("late", 0), "b": ("late", 128), "c": ("late", 0)}


def test_activations_lie_in_the_gradients_that_backward_makes_of_them():
    tangrad.manual_seed(0)
    layers = (nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    model = nn.Sequential(*layers)

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    x = tangrad.randn(64, 512)
    fast = compiled(step)
    for _ in range(3):
        found = fast(x)
    gradients = [p.grad.clone() for p in model.parameters()]
    assert tangrad.equal(step(x), found)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert tangrad.equal(p.grad, gradient)
    (plan,) = fast.compiled.executables[0].plans
    activations = 64 * 4 * (256 + 256 + 512 + 512)
    assert plan.arena_bytes < activations // 4
    # What a run has returned is not written by the next one.
    kept = [p.grad for p in model.parameters()]
    fast(tangrad.randn(64, 512))
    for before, gradient in zip(kept, gradients, strict=True):
        assert tangrad.equal(before, gradient)

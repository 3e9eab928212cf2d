"""Branches of a graph, side by side: eager's bits, errors in the program's order, memory apart."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad import nn
from tangrad_jit.graph.ir import Value
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes import branches
from tangrad_jit.passes.branches import Costs, Step, find_parallel_regions
from tangrad_jit.run import placement

needs_kernels = pytest.importorskip("tangrad_cpu", reason="branches are of compiled kernels")


@pytest.fixture
def always(monkeypatch):
    """Have all branches run apart, however small, on one thread one after the other."""
    monkeypatch.setattr(branches, "costs", Costs(always=True))


@pytest.fixture(params=[1, 2, 4])
def threads(request):
    before = tangrad.get_num_threads()
    tangrad.set_num_threads(request.param)
    yield request.param
    tangrad.set_num_threads(before)


def compiled(function):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def parallel_regions_of(fast):
    return [s for e in fast.compiled.executables for plan in e.plans for s in plan.regions]


class Towers(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU())
            for _ in range(count)
        )
        self.out = nn.Linear(count * width, 3)

    def forward(self, x):
        return self.out(tangrad.cat([tower(x) for tower in self.towers], 1))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 4, 1)
        self.three = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(3, 4, 1))

    def forward(self, x):
        parts = (self.one, self.three, self.five, self.pool)
        return tangrad.cat([part(x) for part in parts], 1).relu().mean((2, 3))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        q, k, v = (f(x).view(-1, 3, 4).transpose(0, 1) for f in (self.query, self.key, self.value))
        return ((q @ k.transpose(1, 2)).softmax(-1) @ v).transpose(0, 1).reshape(-1, 12)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 6), nn.Dropout(0.3))
            for _ in range(2)
        )

    def forward(self, x):
        return self.towers[0](x) * self.towers[1](x)


MODELS = {
    "dropping": (Dropping, (5, 6)),
    "towers": (lambda: Towers(3, 20), (6, 20)),
    # Their products use the pool by themselves, too.
    "large towers": (lambda: Towers(2, 160), (300, 160)),
    "inception": (Inception, (2, 3, 7, 7)),
    "heads": (Heads, (5, 12)),
    "lstm": (lambda: nn.LSTMCell(6, 9), (4, 6)),
}


def trained(make, shape, compile):
    tangrad.manual_seed(0)
    model = make()
    optimizer = tangrad.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        out = model(x)
        loss = (out[0] * out[1] if isinstance(out, tuple) else out).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = compiled(step) if compile else step
    losses = [run(tangrad.randn(*shape)) for _ in range(6)]
    return [*losses, *model.parameters(), *(p.grad for p in model.parameters())], run


@pytest.mark.parametrize("name", MODELS)
def test_a_step_in_branches_is_eager_s_to_the_bit(name, threads, always):
    make, shape = MODELS[name]
    wanted, _ = trained(make, shape, compile=False)
    found, fast = trained(make, shape, compile=True)
    assert all(tangrad.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert any(len(s.branches) > 1 for s in parallel_regions_of(fast))
    assert "branches" in fast.compiled.executables[0].plans[0].steps


@pytest.mark.parametrize("wrong", [(1,), (0, 2), (2, 1)])
def test_of_errors_in_branches_the_first_of_the_program_is_raised(wrong, threads, always):
    tables = [tangrad.randn(4 + k, 3) for k in range(3)]

    def f(places):
        first = nn.functional.embedding(places[0], tables[0]).sin()
        second = nn.functional.embedding(places[1], tables[1]).sin()
        third = nn.functional.embedding(places[2], tables[2]).sin()
        return tangrad.cat([first, second, third])

    good = tangrad.arange(3).repeat(3, 1)
    fast = compiled(f)
    for _ in range(3):
        assert tangrad.equal(fast(good), f(good))
    assert [len(s.branches) for s in parallel_regions_of(fast)] == [3]
    bad = good.clone()
    for row in wrong:
        bad[row, 1] = 77 + row
    with pytest.raises(IndexError) as eager:
        f(bad)
    for _ in range(2):
        with pytest.raises(IndexError) as found:
            fast(bad)
        assert str(found.value) == str(eager.value)
        assert any("test_branches.py:" in note for note in found.value.__notes__)
    assert tangrad.equal(fast(good), f(good))


def test_a_branch_whose_kernel_declines_is_gone_on_with_in_turn(threads, always):
    pdist = nn.functional.pdist

    def f(x, y):
        return tangrad.cat([pdist(x.sin(), 3.0).cumsum(0).exp(), pdist(y.cos(), 3.0).cumsum(0)])

    x, y = tangrad.rand(5, 3), tangrad.rand(5, 3)
    fast = compiled(f)
    fast(x, y)
    (plan,) = fast.compiled.executables[0].plans
    assert [len(s.branches) for s in plan.regions] == [2]
    assert [apart for _, apart, *_ in plan.program.branches] == [True]
    for _ in range(2):
        assert tangrad.equal(fast(x, y), f(x, y))
        assert [apart for _, apart, *_ in plan.program.branches] == [False]


def test_draws_of_random_numbers_are_made_before_the_branches_that_use_them(always):
    _, fast = trained(Dropping, (5, 6), compile=True)
    first = parallel_regions_of(fast)[0]
    graph = fast.compiled.executables[0].plans[0].graph
    nodes = graph.nodes[first.first : first.last + 1]
    assert len(first.branches) >= 2
    assert sum(node.form == "draw" for node in nodes) > 1


CHILD = """
import os, threading
import tangrad
from tangrad import nn
from tangrad_jit.passes import branches

branches.costs = branches.Costs(always=True)
tangrad.set_num_threads(3)
tables = [tangrad.randn(4 + k, 3) for k in range(3)]

def f(places):
    return tangrad.cat([nn.functional.embedding(places[k], tables[k]).sin() for k in range(3)])

good = tangrad.arange(3).repeat(3, 1)
bad, wanted = good.clone(), f(good)
bad[2, 1], bad[1, 0] = 99, 98
fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
failed = []

def many():
    for k in range(300):
        if k % 3:
            failed.extend([] if tangrad.equal(fast(good), wanted) else ["another result"])
            continue
        try:
            fast(bad)
            failed.append("no error")
        except IndexError as error:
            failed.extend([] if "98" in str(error) else [str(error)])

many()
threads = [threading.Thread(target=many) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
if (child := os.fork()) == 0:
    many()
    os._exit(len(failed))
assert os.waitpid(child, 0)[1] == 0
assert not failed, failed
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_branches_run_in_several_threads_of_python_and_in_a_child_of_fork():
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def test_explain_tells_what_runs_side_by_side(always):
    model = Towers(2, 8)
    x = tangrad.randn(4, 8)
    fast = compiled(lambda x: model(x))
    assert "2 branches: side by side" in str(tangrad.compile.explain(fast, x))


def test_branches_of_little_work_run_in_turn():
    model = Towers(2, 8)
    x = tangrad.randn(4, 8)
    fast = compiled(lambda x: model(x))
    for _ in range(3):
        assert tangrad.equal(fast(x), model(x))
    assert not parallel_regions_of(fast)


def wide():
    return nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 8), nn.Tanh())


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_branches_do_not_make_a_large_arena_larger(threads, monkeypatch):
    a, b, x = wide().requires_grad_(False), wide().requires_grad_(False), tangrad.randn(40, 64)
    plans = []
    for most in (1 << 30, 0):
        monkeypatch.setattr(placement, "MOST_ADDED", most)
        fast = compiled(lambda x: a(x) + b(x))
        for _ in range(3):
            assert tangrad.equal(fast(x), a(x) + b(x))
        plans += fast.compiled.executables[0].plans
    large, small = plans
    assert [len(s.branches) for s in large.regions] == [2]
    assert large.arena_bytes >= 2 * 40 * 512 * 4
    assert small.arena_bytes < 2 * 40 * 512 * 4


class Timed:
    """A program that tells of its branches what it is told."""

    busy, timed = False, True

    def __init__(self, program, faster):
        times = (1e-4, 5e-5 if faster else 1e-4)
        self.program, self.branches = program, [(2, True, *times)]

    def __getattr__(self, name):
        return getattr(self.program, name)


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_branches_that_are_no_faster_give_their_memory_back(threads):
    a, b, x = wide().requires_grad_(False), wide().requires_grad_(False), tangrad.randn(20, 64)
    wanted = a(x) + b(x)
    for faster in (True, False):
        fast = compiled(lambda x: a(x) + b(x))
        fast(x)
        (plan,) = fast.compiled.executables[0].plans
        before = plan.arena_bytes
        assert len(plan.regions) == 1
        plan.program = Timed(plan.program, faster)
        for _ in range(2):
            assert tangrad.equal(fast(x), wanted)
        assert len(plan.regions) == faster
        assert (plan.arena_bytes < before) == (not faster)
        assert fast.compiled.executables[0].arena.nbytes == plan.arena_bytes


def test_branches_draw_no_random_numbers_and_write_nothing_that_is_held(always):
    a, b = tangrad.zeros(5), tangrad.zeros(5)

    def f(x):
        p, q = x.sin().cumsum(0), x.cos().cumsum(0)
        a.add_(p)
        b.add_(q)
        return p.exp().cumsum(0) + tangrad.rand(5), q.exp().cumsum(0) + tangrad.rand(5)

    fast = compiled(f)
    x = tangrad.randn(5)
    for _ in range(4):
        tangrad.manual_seed(3)
        held = a.clone(), b.clone()
        found = fast(x)
        after = a.clone(), b.clone()
        a.copy_(held[0])
        b.copy_(held[1])
        tangrad.manual_seed(3)
        assert all(tangrad.equal(s, t) for s, t in zip(found, f(x), strict=True))
        assert tangrad.equal(after[0], a)
        assert tangrad.equal(after[1], b)


UNARY = ("sin", "tanh", "abs", "square", "relu", "exp", "neg")


def random_program(seed):
    """Return a function of some chains of views, writes, products and folds, and its text."""
    draw = random.Random(seed)
    lines, chains = [], [f"x{k}" for k in range(draw.randint(2, 4))]
    for k in range(draw.randint(6, 24)):
        at = draw.randrange(len(chains))
        a, b, new = chains[at], draw.choice([*chains, "c", "c"]), f"y{k}"
        line = draw.choice(
            [
                f"{new} = {a}.{draw.choice(UNARY)}()",
                f"{new} = {a}.{draw.choice(UNARY)}().cumsum({draw.randint(0, 1)})",
                f"{new} = {a} @ w{draw.randint(0, 1)}",
                f"{new} = {a} * 0.5 + {b}",
                f"{new} = tangrad.maximum({a}, {b})",
                f"{new} = {a}.t().contiguous()",
                f"{new} = {a} - {a}.{draw.choice(['amax', 'sum', 'mean'])}(1, keepdim=True)",
                f"{new} = {a}.clone(); {new}[1:] += {b}[:-1]",
                f"{new} = {a}.clone(); {new}[{draw.randint(0, 3)}].zero_()",
                f"{new} = tangrad.cat([{a}[:2], {a}[2:].sin()])",
                f"{new} = {a}.softmax(1).{draw.choice(UNARY)}()",
                f"{new} = {a}.sort(0)[0]",
            ]
        )
        lines.append(line)
        chains[at] = new
    lines.append(f"return {', '.join(chains)}, {' + '.join(chains)}")
    names = {"tangrad": tangrad}
    exec("def f(x0, x1, x2, x3, w0, w1, c):\n    " + "\n    ".join(lines), names)
    return names["f"], "\n".join(lines)


@pytest.mark.parametrize("seed", [*range(6), 48, 68, 91, 341, 381])
def test_a_random_program_in_branches_is_what_it_was(seed, threads, always):
    f, text = random_program(seed)
    tangrad.manual_seed(seed)
    inputs = [tangrad.randn(4, 4) for _ in range(7)]
    fast = compiled(f)
    for _ in range(3):
        wanted, found = f(*inputs), fast(*inputs)
        same = [tangrad.equal(a, b) for a, b in zip(wanted, found, strict=True)]
        assert all(same), text
    assert fast.compiled.executables


@st.composite
def programs(draw):
    """Steps over a few memories; some of them join no branch."""
    values = [Value(TensorType("float32", (4,), (1,), "cpu")) for _ in range(6)]
    some = st.frozensets(st.sampled_from(values), max_size=2)
    place, steps = -1, []
    for _ in range(draw(st.integers(1, 14))):
        place += draw(st.integers(1, 2))
        writes = draw(st.frozensets(st.sampled_from(values), min_size=1, max_size=2))
        work = draw(st.sampled_from([0.5, 20.0, 35.0, 300.0]))
        joins, pieces = draw(st.integers(0, 9)) > 0, draw(st.integers(1, 2))
        steps.append(Step(place, draw(some), writes, work, joins, pieces))
    return steps


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(2, 4), st.booleans())
def test_branches_touch_nothing_that_others_write(steps, threads, everything):
    by_place = {step.place: step for step in steps}
    before, branches.costs = branches.costs, Costs(always=everything)
    try:
        found = find_parallel_regions(steps, threads)
    finally:
        branches.costs = before
    ends = [-1, *(s.last for s in found)]
    for region, end in zip(found, ends, strict=False):
        assert end < region.first <= region.last
        within = [s for s in steps if region.first <= s.place <= region.last]
        assert all(step.joins for step in within)
        assert sorted(p for b in region.branches for p in b) == [s.place for s in within]
        assert len(region.branches) > 1
        for one in region.branches:
            assert list(one) == sorted(one)
            for other in region.branches:
                if one is not other:
                    wrote = {r for p in one for r in by_place[p].writes}
                    used = {r for p in other for r in by_place[p].reads | by_place[p].writes}
                    assert not wrote & used

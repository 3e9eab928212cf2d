"""Calls of many sizes: each is right to the bit, and those of dynamic dimensions count as one.

That one recording serves many is told in test_size_families.
"""

from __future__ import annotations

import importlib
import warnings

import pytest

import tangrad
from tangrad import nn
from tangrad.plugin import get_driver

# There each size is recorded where a kernel in Python may count by sizes.
BY_REFERENCE = not type(get_driver("cpu")).__module__.startswith("tangrad_cpu")

DYNAMO = tangrad._dynamo


def compiled(function, **options):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False}, **options)


def bits(item):
    return repr(item.tolist()) + str(item.stride()) if isinstance(item, tangrad.Tensor) else item


def counts(function):
    events = function.compiled.events
    return tuple(sum(e.startswith(word) for e in events) for word in ("recorded", "prepared"))


def called(function, fast, sizes):
    for _ in range(2):
        for size in sizes:
            x = tangrad.randn(*size) if isinstance(size, tuple) else tangrad.randn(size, 3)
            assert bits(fast(x)) == bits(function(x)), size


FUNCTIONS = [
    lambda x: (x * 2).relu().sum(-1),
    lambda x: x.mean(0) + len(x),
    lambda x: x * 2 if x.shape[0] > 6 else x.sum(0),
    lambda x: x[: x.shape[0] // 2] * x.size(0),
    lambda x: x.reshape(-1, 3) if x.numel() % 2 else x.t(),
    lambda x: x + x[:1] + x[..., :1],
    lambda x: tangrad.cat([x, x.new_zeros(x.shape[0], 2)], 1),
    lambda x: tangrad.stack([row * k for k, row in enumerate(x)]) if len(x) else x,
    lambda x: x * {3: 10, 4: 20}.get(len(x), 30),
    lambda x: x.flatten() if x.is_contiguous() and x.shape[0] != 1 else x * 3,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_size_is_right_also_none_and_one(function):
    sizes = (4, 5, 1, 0, 7, 3, 12, 6, 2, 9)
    fast = compiled(function, dynamic=True, recompile_limit=1)
    called(function, fast, sizes)
    recorded, prepared = counts(fast)
    assert (recorded, 3 <= prepared < len(sizes)) == (1, True)
    assert not fast.compiled.off


def test_the_second_size_of_a_dimension_makes_it_dynamic():
    def f(x):
        return x * x.shape[1]

    fast = compiled(f, recompile_limit=3)
    called(f, fast, ((2, 3), (4, 3), (5, 3), (6, 3)))
    assert counts(fast) == (2, 1)
    called(f, fast, ((6, 4), (7, 5), (8, 6)))
    assert counts(fast)[0] == 3
    assert "s0 = args[0].shape[0]" in str(tangrad.compile.explain(fast, tangrad.randn(7, 5)))


def test_not_dynamic_each_size_is_a_recording():
    fast = tangrad.compile(
        lambda x: x + 1, dynamic=False, recompile_limit=2, options={"measure": False}
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(2, 6):
            assert fast(tangrad.zeros(n)).tolist() == [1.0] * n
    assert len(told) == 1
    assert "none fits" in str(told[0].message)


def test_marks_say_which_dimensions_are_dynamic():
    fast = compiled(lambda x: x * 2, recompile_limit=2)
    for n in range(2, 8):
        x = tangrad.ones(n, 3)
        DYNAMO.mark_dynamic(x, 0)
        assert fast(x).shape == (n, 3)
    assert counts(fast) == (1, 2)
    still = tangrad.compile(
        lambda x: x * 2, dynamic=True, recompile_limit=3, options={"measure": False}
    )
    for n in range(2, 5):
        x = tangrad.ones(n)
        DYNAMO.mark_static(x)
        still(x)
    assert counts(still) == (3, 0)
    with pytest.raises(IndexError, match="no dimension 4"):
        DYNAMO.mark_dynamic(x, (0, 4))


def test_another_dtype_or_structure_counts_whatever_its_size():
    fast = compiled(lambda x, k=1: x * 2, dynamic=True, recompile_limit=2)
    fast(tangrad.ones(2))
    fast(tangrad.ones(3))
    fast(tangrad.ones(3).double())
    fast(tangrad.ones(4).double())
    assert counts(fast) == (2, 2)


def test_the_graphs_of_the_sizes_used_last_are_kept():
    fast = compiled(lambda x: x + 1, dynamic=True)
    fast.compiled.sizes_kept = 3
    for n in (1, 2, 3, 1, 4, 1, 5, 1):
        fast(tangrad.ones(n))
    assert len(fast.compiled.executables) == 3
    before = counts(fast)
    fast(tangrad.ones(1))
    assert counts(fast) == before
    assert before == (1, 2)


def test_a_training_step_takes_batches_of_every_size():
    def trained(compile):
        tangrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
        optimizer = tangrad.optim.Adam(model.parameters(), lr=0.05)
        schedule = tangrad.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step, dynamic=True, recompile_limit=2) if compile else step
        losses = []
        for k in range(30):
            n = (8, 8, 8, 5, 2, 11)[k % 6]
            losses.append(float(run(tangrad.randn(n, 4), tangrad.arange(n) % 3)))
            schedule.step()
        if compile:
            assert counts(run) == (1, 3 if BY_REFERENCE else 1)
        return losses, [p.tolist() for p in model.parameters()]

    assert trained(True) == trained(False)


def test_sizes_and_what_is_outside_change_together():
    scale = 3.5

    def f(x):
        return x * scale

    fast = compiled(f, dynamic=True, recompile_limit=4)
    for n, scale in ((2, 3.5), (3, 3.5), (4, 4.5), (2, 4.5), (5, 5.5), (2, 3.5)):  # noqa: B007
        x = tangrad.randn(n)
        assert bits(fast(x)) == bits(f(x))


def test_what_serves_all_sizes_is_declared_by_the_function_and_not_by_its_name():
    from tangrad_jit.capture.calls import _OPS, counts_by_sizes

    source = "def infer_size(x):\n    return x.shape[0] // 2\n"
    code = compile(source, _OPS[0] + "own.py", "exec")
    assert counts_by_sizes(next(c for c in code.co_consts if hasattr(c, "co_code")))
    geometry = importlib.import_module("tangrad.ops.views.geometry")
    assert not counts_by_sizes(geometry.infer_size.__code__)

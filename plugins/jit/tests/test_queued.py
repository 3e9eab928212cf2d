"""Queued calls are eager's to the bit, whatever looks at memory; their queues become kernels."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import tangrad
from tangrad import nn
from tangrad.plugin import allocator_of

_queue = pytest.importorskip("tangrad_jit._queue")
pytest.importorskip("tangrad_cpu", reason="work is queued for compiled kernels")

from tangrad_jit.codegen.compiled import Planner, native_level  # noqa: E402
from tangrad_jit.compiling.queued import QueuedCalls  # noqa: E402

needs_kernels = pytest.mark.skipif(native_level() is None, reason="no kernels for this processor")


def queued(function):
    """Return a function whose calls are queued from the first on."""
    calls = QueuedCalls(function, False, [])

    def run(*args, **kwargs):
        return calls.run(args, kwargs)

    run.calls = calls
    return run


def same(a, b):
    equal = (a == b) | ((a != a) & (b != b))
    return a.shape == b.shape and a.dtype == b.dtype and bool(equal.all())


def chain(x, y):
    a = x * y + 0.3
    b = a.sigmoid() * a - y
    return b.tanh() / 2, a


@needs_kernels
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64])
def test_a_queue_that_comes_again_is_one_kernel_with_the_same_bits(dtype):
    x, y = tangrad.randn(7, 33, dtype=dtype), tangrad.randn(7, 33, dtype=dtype)
    run = queued(chain)
    for _ in range(4):
        assert all(same(a, b) for a, b in zip(run(x, y), chain(x, y), strict=True))
    assert run.calls.ops == 4 * 7
    assert run.calls.compiled == 2
    other = tangrad.randn(2, 1000, dtype=dtype).unbind()
    one, two = (t.clone() for t in other)
    assert same(run(one, two)[0], chain(one, two)[0])
    assert run.calls.compiled == 3, "the kernel is for all sizes"


BROADCAST = {
    "row": lambda x, row, column, one: (x + row).sigmoid() * row,
    "column": lambda x, row, column, one: (x - column) / column.abs() * 2,
    "both": lambda x, row, column, one: ((x - column) * row + row).tanh() * one - 0.5,
    "neither full": lambda x, row, column, one: (column * row).sin() + x,
    "in place": lambda x, row, column, one: (x * 2).mul_(row).add_(column).sub_(one),
}


@needs_kernels
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64])
@pytest.mark.parametrize("name", BROADCAST)
def test_operands_that_are_broadcast_are_queued_with_the_same_bits(name, dtype):
    program = BROADCAST[name]
    run = queued(program)
    for shape in [(7, 33), (4, 64), (2, 3, 5), (33, 1), (1, 33)]:
        x, column = tangrad.randn(*shape, dtype=dtype), tangrad.randn(*shape[:-1], 1, dtype=dtype)
        given = (x, tangrad.randn(shape[-1], dtype=dtype), column, tangrad.randn(1, dtype=dtype))
        for _ in range(4):
            assert same(run(*given), program(*given))
    assert run.calls.compiled


FOLDS = {
    "norm": lambda x: (x - x.mean(-1, keepdim=True)) * (x * x).mean(-1, keepdim=True).rsqrt(),
    "softmax": lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
    "of all": lambda x: (x * 2).sum() * 3 + 1,
    "of all, then each": lambda x: x * 2 - (x * x).mean(),
    "seen with another dimension": lambda x: x - (x * 0.5).sum(-1).unsqueeze(-1),
    "two, and of rows": lambda x: (x * x).sum(-1).sqrt() - (x + 1).amin(-1),
    "in place": lambda x: (x * 1).sub_((x * 2).mean(-1, keepdim=True)).mul_(2),
    "of columns": lambda x: (x * x).sum(0),
}


@needs_kernels
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64])
@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_rows_are_queued_with_the_same_bits(name, dtype):
    program = FOLDS[name]
    run = queued(program)
    for shape in [(7, 33), (1, 64), (64,), (3, 5, 40), (2, 1000), (70, 200), (33, 1), (4, 3)]:
        x = tangrad.randn(*shape, dtype=dtype)
        for _ in range(4):
            assert same(run(x), program(x)), shape
    assert run.calls.compiled


@needs_kernels
@pytest.mark.parametrize("name", ["of all, then each", "softmax"])
def test_a_kernel_has_all_its_plans_before_it_runs(name, monkeypatch):
    # A plan that a run makes lets other threads run, which then read results not computed yet.
    program = FOLDS[name]
    run, made = queued(program), []
    _queue.forget()
    for rows, columns in [(5, 40), (5, 40), (5, 40), (1, 3), (2, 9000), (300, 20)]:
        x = tangrad.randn(rows, columns)
        assert same(run(x), program(x))
        if run.calls.compiled:
            monkeypatch.setattr(Planner, "make", lambda self: made.append(self))
    assert run.calls.compiled == 4
    assert not made


@needs_kernels
def test_a_fold_and_what_follows_from_it_are_one_queue():
    program = FOLDS["softmax"]
    run, x = queued(program), tangrad.randn(8, 100)
    for _ in range(4):
        run(x)
    assert run.calls.ops == 4 * 5
    assert run.calls.queues == 4


@needs_kernels
def test_what_nobody_holds_of_a_kernel_s_values_takes_no_memory():
    def program(x):
        y = x
        for _ in range(10):
            y = (y * x).tanh() + 0.5
        return y

    def allocations(call):
        before = allocator_of("cpu").memory_stats()["allocation.all.allocated"]
        call()
        return allocator_of("cpu").memory_stats()["allocation.all.allocated"] - before

    run, x = queued(program), tangrad.randn(50)
    assert allocations(lambda: program(x)) == 30
    for _ in range(3):
        assert same(run(x), program(x))
    assert allocations(lambda: run(x)) == 1


WITHOUT_MEMORY = """
import tangrad
from tangrad.plugin import allocator_of
from tangrad_jit.compiling.queued import QueuedCalls

allocator, x, held = allocator_of("cpu"), tangrad.arange(10000.0), []

def program():
    y = x * 2
    allocator.empty_cache()
    allocator.set_limit(1)
    z = y + 1
    held.append(z)
    return z[:3].tolist()

calls = QueuedCalls(program, False, [])
print(calls.run((), {}))
try:
    for _ in range(1000):
        held.append(calls.run((), {}))
except RuntimeError as error:
    print(type(error).__name__)
allocator.set_limit(None)
print(calls.run((), {}), all(h[:3].tolist() == [1, 3, 5] for h in held if not isinstance(h, list)))
"""


def test_work_that_was_taken_is_done_where_memory_is_short_and_further_work_is_refused():
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=True
    )
    assert told.stdout.split("\n")[:-1] == [
        "[1.0, 3.0, 5.0]",
        "OutOfMemoryError",
        "[1.0, 3.0, 5.0] True",
    ]


def test_rows_of_other_lengths_and_other_views_settle_a_queue():
    def program(x, row, column):
        y = x + row
        z = y.view(6, 4) * column
        w = z.view(4, 6) + row
        first = x[0]
        return w * first, z + z[0], y - column.view(-1)[:1]

    given = tangrad.randn(4, 6), tangrad.randn(6), tangrad.randn(6, 1)
    run = queued(program)
    for _ in range(4):
        assert all(same(a, b) for a, b in zip(run(*given), program(*given), strict=True))


LOOKS = {
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy().tolist(),
    "print": repr,
    "bool": lambda t: bool(t[0] > 0),
    "address": lambda t: tangrad.tensor(t.untyped_storage()[:4]).tolist(),
    "buffer": lambda t: memoryview(t).tolist(),
    "dlpack": lambda t: tangrad.from_dlpack(t).tolist(),
    "copy": lambda t: t.clone().to(tangrad.float64).tolist(),
    "cat": lambda t: tangrad.cat([t, t]).tolist(),
    "index": lambda t: t[tangrad.tensor([1, 0])].tolist(),
    "matmul": lambda t: (t @ t).item(),
    "pickle": lambda t: __import__("pickle").loads(__import__("pickle").dumps(t)).tolist(),
    "resize": lambda t: t.clone().resize_(2).tolist(),
}


@pytest.mark.parametrize("name", LOOKS)
def test_memory_is_ready_whoever_looks_at_it(name):
    def look(x):
        y = x * 2
        y.add_(1)
        return LOOKS[name](y), y

    x = tangrad.randn(5)
    wanted, _ = look(x)
    run = queued(look)
    for _ in range(4):
        found, y = run(x)
        assert found == wanted
        assert same(y, x * 2 + 1)


def test_writes_and_views_keep_their_order():
    def program(x):
        view = x[:4]
        old = x * 3
        x.mul_(2)
        view.add_(old[4:])
        x[0] = 7.0
        x.sub_(x.sum())
        return old, view, x

    run = queued(program)
    for seed in range(4):
        tangrad.manual_seed(seed)
        a = tangrad.randn(8)
        b = a.clone()
        assert all(same(p, q) for p, q in zip(run(a), program(b), strict=True))


def test_an_array_on_a_tensors_memory_sees_writes_at_once_and_is_seen():
    def program(x):
        array = x.numpy()
        x.add_(1)
        first = array.tolist()
        y = x * 2
        array[:] = 5
        return first, y.tolist(), (x + 1).tolist()

    run = queued(program)
    for _ in range(3):
        assert run(tangrad.ones(3)) == program(tangrad.ones(3))


def test_a_training_step_is_eagers():
    def trained(wrap):
        tangrad.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = tangrad.randn(16, 6), tangrad.arange(16) % 3

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x) * 1.5 + 0.1, y)
            loss.backward()
            optimizer.step()
            return loss.item()

        run = wrap(step)
        return [run() for _ in range(6)], [p.detach().clone() for p in model.parameters()]

    losses, weights = trained(queued)
    wanted, others = trained(lambda step: step)
    assert losses == wanted
    assert all(same(a, b) for a, b in zip(weights, others, strict=True))


def test_saved_tensors_that_were_written_are_still_noticed():
    def program(x):
        y = x.sigmoid()
        z = y * y
        y.add_(1)
        return z.sum()

    with pytest.raises(RuntimeError, match="version"):
        queued(program)(tangrad.randn(3, requires_grad=True)).backward()


def test_errors_are_raised_at_their_line_and_what_came_before_is_done():
    x = tangrad.ones(3)

    def program():
        x.add_(1)
        y = x * 2
        return y + tangrad.ones(4)

    with pytest.raises(RuntimeError, match="must match"):
        queued(program)()
    assert x.tolist() == [2, 2, 2]


def test_another_thread_that_is_given_a_tensor_finds_it_ready():
    def program(x):
        y = x * 2 + 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(y.tolist()))
        thread.start()
        thread.join(60)
        return seen, (y * 2).tolist()

    x = tangrad.arange(5.0)
    assert queued(program)(x) == ([[1, 3, 5, 7, 9]], [2, 6, 10, 14, 18])


def test_threads_may_queue_at_once():
    x = tangrad.randn(64)
    run, found = queued(chain), []

    def work():
        for _ in range(50):
            found.append(same(run(x, x)[0], chain(x, x)[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 200


def test_memory_is_ready_while_a_queue_is_described(monkeypatch):
    # To tell the line runs Python, and with it other threads, which look at memory and queue work.
    held, seen = [], []

    def line():
        seen.append((held[-1].tolist(), (held[-1] * 2 + 1).tolist()))
        return ""

    def program(x):
        held.append(x * 2 + 1)
        return (held[-1] * 3).tolist()

    _queue.forget()
    monkeypatch.setattr(_queue, "line_of_program", line)
    assert queued(program)(tangrad.arange(3.0)) == [3, 9, 15]
    assert seen[0] == ([1, 3, 5], [3, 7, 11])


def test_calls_nest_and_transforms_and_autocast_go_through():
    inner = queued(lambda x: (x * 2).sin() + 1)
    row = tangrad.func.vmap(tangrad.func.grad(lambda r: (r * r * 0.5).sin().sum()))

    def program(x):
        y = x * 3
        z = inner(y) * y
        with tangrad.autocast("cpu", dtype=tangrad.bfloat16):
            w = (z @ z.t()).float() * 2
        return z, w, row(y)

    x = tangrad.randn(4, 4)
    run = queued(program)
    for _ in range(4):
        assert all(same(a, b) for a, b in zip(run(x), program(x), strict=True))


def test_results_that_nobody_holds_are_not_kept():
    def program(x):
        for _ in range(100):
            x = x * 1.01 + 0.5
        return x

    x = tangrad.randn(16)
    run = queued(program)
    assert all(same(run(x), program(x)) for _ in range(4))


def test_a_call_that_is_no_graph_is_queued_and_told():
    @tangrad.compile(options={"measure": False})
    def f(x):
        y = x * 2 + 1
        return y * y if y.sum().item() > 0 else -y

    x = tangrad.ones(4)
    for _ in range(5):
        assert f(x).tolist() == [9, 9, 9, 9]
    told = str(tangrad.compile.explain(f, x))
    assert "Python looks at the value" in told
    assert "queues" in told
    assert "test_queued.py:" in told


random_graphs = pytest.importorskip("random_graphs", reason="needs tests/random_programs.py")


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_is_what_it_was(seed):
    said = random_graphs.queued_compared(seed)
    assert said in ("same", "error"), said

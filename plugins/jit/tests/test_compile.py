"""`tangrad.compile`: a compiled function is the function, and says when it is not one graph."""

from __future__ import annotations

import math
import threading
import time
import warnings

import pytest

import tangrad
from tangrad import nn

FACTOR = 2.0
CALLS = []


def compiled(function, **options):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False, **options})


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())


def recordings(function):
    return len(function.compiled.executables)


def test_a_recorded_call_gives_the_same_bits_and_skips_python():
    ran = []

    @compiled
    def f(x, y):
        return (x * y + 1).relu().sum(-1), {"mean": x.mean(), "n": 3}

    x, y = tangrad.randn(4, 5), tangrad.randn(5)
    wanted = f.compiled.function(x, y)
    for _ in range(3):
        found = f(x, y)
    ran.append(recordings(f))
    assert ran == [1]
    assert same(found[0], wanted[0])
    assert same(found[1]["mean"], wanted[1]["mean"])
    assert found[1]["n"] == 3


def test_another_shape_dtype_or_number_is_another_recording():
    f = compiled(lambda x, k: x * k)
    for x, k in (
        (tangrad.ones(2), 3),
        (tangrad.ones(3), 3),
        (tangrad.ones(3).double(), 3),
        (tangrad.ones(3), 4),
    ):
        for _ in range(2):
            assert same(f(x, k), x * k)
    assert recordings(f) == 4
    assert "args[1] is 4, it was 3" in "\n".join(f.compiled.events) or "dtype" in str(
        tangrad.compile.explain(f, tangrad.ones(3), 4)
    )


def test_a_changed_global_or_closure_is_seen():
    global FACTOR
    inner = 1.0

    def f(x):
        return x * FACTOR + inner

    g = compiled(f)
    x = tangrad.ones(2)
    assert g(x).tolist() == g(x).tolist() == [3.0, 3.0]
    FACTOR = 5.0
    try:
        assert g(x).tolist() == [6.0, 6.0]
    finally:
        FACTOR = 2.0
    inner = 10.0
    assert g(x).tolist() == [12.0, 12.0]


def test_a_module_may_be_changed_in_every_way():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.ReLU()).eval()
    fast = tangrad.compile(model, fullgraph=True, options={"measure": False})
    x = tangrad.randn(2, 3)

    def agrees():
        return all(same(fast(x).detach(), model(x).detach()) for _ in range(2))

    assert agrees()
    with tangrad.no_grad():
        model[0].weight.mul_(2)
    assert agrees()
    model[0].weight.data = tangrad.randn(3, 3)
    assert agrees()
    model[2] = nn.Tanh()
    assert agrees()
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    assert agrees()
    model.train()
    assert agrees()
    model[0].bias = None
    assert agrees()


def test_results_are_differentiated_as_eager_ones_are():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
    fast = tangrad.compile(model, fullgraph=True, options={"measure": False})
    x = tangrad.randn(5, 4, requires_grad=True)
    fast(x)
    fast(x).sum().backward()
    found = [x.grad, *[p.grad for p in model.parameters()]]
    x.grad = None
    model.zero_grad()
    model(x).sum().backward()
    wanted = [x.grad, *[p.grad for p in model.parameters()]]
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_training_step_is_one_graph(name):
    def trained(compile):
        tangrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        optimizer = getattr(tangrad.optim, name)(model.parameters(), lr=0.05)
        x, y = tangrad.randn(7, 6), tangrad.arange(7) % 3

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step) if compile else step
        losses = [float(run(x, y)) for _ in range(6)]
        if compile:
            assert recordings(run) >= 1
        return losses, [p.tolist() for p in model.parameters()], model[0].weight.grad.tolist()

    assert trained(True) == trained(False)


def test_random_numbers_are_those_of_eager():
    f = compiled(lambda x: nn.functional.dropout(x, 0.5) + tangrad.rand(4))
    x = tangrad.ones(4)
    f(x)
    tangrad.manual_seed(3)
    found = [f(x) for _ in range(3)]
    tangrad.manual_seed(3)
    wanted = [f.compiled.function(x) for _ in range(3)]
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


def test_batch_norm_updates_its_buffers():
    plain, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    fast = tangrad.compile(other, fullgraph=True, options={"measure": False})
    for seed in range(4):
        tangrad.manual_seed(seed)
        x = tangrad.randn(5, 3)
        assert same(fast(x).detach(), plain(x).detach())
    assert same(plain.running_mean, other.running_mean)
    assert int(other.num_batches_tracked) == 4


def test_writes_into_arguments_and_views_are_made():
    def f(x):
        x[0].add_(1)
        x[:, 1] *= 2
        return x.t()

    g = compiled(f)
    a, b = tangrad.zeros(2, 2), tangrad.zeros(2, 2)
    version = a._version
    for _ in range(3):
        found, wanted = g(a), f(b)
        assert same(a, b)
        assert same(found, wanted)
        assert found.data_ptr() == a.data_ptr()
    assert a._version > version + 3


def test_arguments_that_share_memory_otherwise_are_not_confused():
    def f(x, y):
        x.add_(1)
        return y * 2

    g = compiled(f)
    assert same(g(tangrad.zeros(3), tangrad.ones(3)), g(tangrad.zeros(3), tangrad.ones(3)))
    memory = tangrad.zeros(4)
    assert g(memory[:3], memory[1:]).tolist() == [2.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x if x.sum() > 0 else -x, "looks at the value"),
        (lambda x: x * x.tolist()[0], "looked at the values"),
        (lambda x: x[x > 0], "depends on values"),
        (lambda x: x * time.time(), "may answer otherwise"),
        (lambda x: [print("here"), x][1], "prints only when it is recorded"),
        (lambda x: iter([x]), "returns an object of list_iterator"),
    ],
)
def test_what_cannot_be_one_graph_is_refused_with_the_reason_and_the_line(function, reason):
    with pytest.raises(RuntimeError, match=rf"{reason}.*test_compile\.py:\d+|{reason}"):
        compiled(function)(tangrad.ones(3))


def test_a_run_that_changes_what_it_reads_is_refused_in_the_end():
    def f(x):
        CALLS.append(len(CALLS))
        return x + len(CALLS)

    g = compiled(f)
    CALLS.clear()
    assert [g(tangrad.ones(1)).tolist() for _ in range(2)] == [[2.0], [3.0]]
    with pytest.raises(RuntimeError, match="changed what the next one reads"):
        g(tangrad.ones(1))


def test_by_default_what_cannot_be_a_graph_runs_as_it_is():
    def f(x):
        return x * 2 if float(x.sum()) > 0 else x - 1

    g = tangrad.compile(f)
    for x in (tangrad.ones(2), -tangrad.ones(2), tangrad.ones(2)):
        assert same(g(x), f(x))
    assert "looks at the value" in str(tangrad.compile.explain(g, tangrad.ones(2)))


def test_guards_that_always_fail_end_in_eager_with_one_warning():
    g = tangrad.compile(lambda x, k: x * k, recompile_limit=2, options={"measure": False})
    assert [g(tangrad.ones(1), k).tolist() for k in range(2)] == [[0], [1]]
    with pytest.warns(UserWarning, match="none fits"):
        assert g(tangrad.ones(1), 2).tolist() == [2]
    assert [g(tangrad.ones(1), k).tolist() for k in range(3)] == [[0], [1], [2]]


def test_a_difference_is_found_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    g = tangrad.compile(lambda x: x + 1, options={"check": 1.0, "measure": False})
    x = tangrad.ones(3)
    g(x)
    g.compiled.executables[0]._run_forward = lambda inputs: [inputs[0] + 2]
    assert g(x).tolist() == [2.0, 2.0, 2.0]
    assert "differ from the function's" in g.compiled.off
    (shown,) = tmp_path.glob("*/show.py")
    exec(compile(shown.read_text(), str(shown), "exec"), {"__file__": str(shown)})


def test_transforms_go_through_and_around():
    f = compiled(lambda x: (x * x).sin())
    x = tangrad.randn(4, 3)
    assert same(tangrad.vmap(f)(x), (x * x).sin())
    per_sample = compiled(tangrad.vmap(tangrad.func.grad(lambda x: (x * x).sin().sum())))
    wanted = 2 * x * (x * x).cos()
    for _ in range(2):
        assert tangrad.allclose(per_sample(x), wanted)


def test_autocast_around_a_call_is_heard():
    linear = nn.Linear(3, 3)
    fast = tangrad.compile(linear, options={"measure": False})
    x = tangrad.randn(2, 3)
    fast(x)
    with tangrad.autocast("cpu", dtype=tangrad.bfloat16):
        assert fast(x).dtype is tangrad.bfloat16
    assert fast(x).dtype is tangrad.float32


def test_threads_and_reentry_are_right():
    f = compiled(lambda x: (x * 2 + 1).relu().sum(-1, keepdim=True) * x)
    x = tangrad.randn(64, 64)
    wanted = f(x)
    f(x)
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(f(x) for _ in range(30))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 90
    assert all(same(item, wanted) for item in found)


def test_an_exception_tells_the_line():
    def f(x, i):
        return x.index_select(0, i)

    g = compiled(f)
    x, fine, wrong = tangrad.ones(3), tangrad.tensor([0, 1]), tangrad.tensor([0, 9])
    g(x, fine)
    with pytest.raises((IndexError, RuntimeError)) as told:
        g(x, wrong)
    assert any("test_compile.py" in note for note in getattr(told.value, "__notes__", []))


def test_backends_get_a_graph_module_and_examples():
    seen = []

    def mine(module, examples):
        seen.append((type(module).__name__, len(examples)))
        return module

    fx = pytest.importorskip("tangrad_fx")
    assert fx
    x = tangrad.randn(3)
    for backend in ("eager", "aot_eager", mine):
        f = tangrad.compile(lambda a: (a.sin() * 2).sum(), backend=backend, fullgraph=True)
        assert same(f(x), f(x))
    assert seen
    assert seen[0][1] == 1
    assert {"eager", "aot_eager", "tangrad"} <= set(tangrad.compiler.list_backends())
    with pytest.raises(LookupError, match="no 'nobody'"):
        tangrad.compile(len, backend="nobody")


def test_unknown_modes_and_options_are_refused():
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        tangrad.compile(len, mode="fastest")
    with pytest.raises(RuntimeError, match="optimization option"):
        tangrad.compile(len, options={"speed": 1})


def test_disabled_functions_and_breaks_keep_a_graph_from_being():
    outside = tangrad.compiler.disable(lambda x: x + 1)
    with pytest.raises(RuntimeError, match="kept out of graphs"):
        compiled(lambda x: outside(x))(tangrad.ones(1))
    assert outside(tangrad.ones(1)).tolist() == [2.0]
    assert not tangrad.compiler.is_compiling()
    state = []
    compiled(lambda x: [state.append(0), x + 1][1] if math.pi < 3 else x + 1)(tangrad.ones(1))


def test_explain_tells_graphs_guards_and_groups():
    def f(x):
        return ((x + 1) * 2).sum(-1)

    told = str(tangrad.compile.explain(f, tangrad.ones(3, 4)))
    assert "1 graphs" in told
    assert "guards" in told
    assert "plan of f" in told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tangrad.compiler.reset()


def test_a_view_of_what_is_rewritten_to_a_view_shows_the_right_bytes():
    def f(x):
        return tangrad.stack([x[0] * 2, x[1] * 1]), (x[1:] * 1)[1:].t() * 3

    fast = compiled(f)
    for _ in range(3):
        x = tangrad.randn(3, 3)
        assert all(same(a, b) for a, b in zip(fast(x), f(x), strict=True))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, held: held.append(x * 2) or x + 1,
        lambda x, held: x + len(held) if held.pop() is None else x,
        lambda x, held: x * held.__setitem__(0, x) if False else held.insert(0, x + 1) or x,
    ],
    ids=["append", "pop", "insert"],
)
def test_a_list_among_the_arguments_that_the_run_changes_is_refused(program):
    x = tangrad.ones(2)
    with pytest.raises(RuntimeError, match="changed a list or dict that it was given"):
        tangrad.compile(program, fullgraph=True)(x, [x, None])
    fast, eager, calls = tangrad.compile(program), [], []
    for _ in range(4):
        one, two = [x, None], [x, None]
        eager.append((program(x, one), len(one)))
        calls.append((fast(x, two), len(two)))
    assert repr(eager) == repr(calls)


def test_results_of_subclasses_are_of_their_class():
    class Named(tangrad.Tensor):
        pass

    x = tangrad.ones(2).as_subclass(Named)
    with pytest.raises(RuntimeError, match="is a Named"):
        tangrad.compile(lambda x: x * 2, fullgraph=True)(x)
    fast = tangrad.compile(lambda x: x * 2 + 1)
    assert [type(fast(x)) for _ in range(4)] == [Named] * 4


@pytest.mark.parametrize(
    "seed",
    [
        lambda: tangrad.manual_seed(4),
        lambda: tangrad.default_generator.manual_seed(4),
        lambda: tangrad.set_rng_state(tangrad.zeros(16, dtype=tangrad.uint8)),
    ],
    ids=["default", "generator", "state"],
)
def test_a_run_that_seeds_a_generator_is_no_graph(seed):
    def program(x):
        seed()
        return x + tangrad.rand(2)

    x = tangrad.ones(2)
    wanted = program(x).tolist()
    tangrad.rand(3)
    with pytest.raises(RuntimeError, match="random generator is set|looked at the values"):
        tangrad.compile(program, fullgraph=True)(x)
    fast = tangrad.compile(program)
    assert [fast(x).tolist() for _ in range(4)] == [wanted] * 4


@pytest.mark.parametrize("shape", [(0, 2, 3), (1, 2, 3), (2, 1, 3)])
def test_results_have_eager_s_strides_also_where_they_do_not_matter(shape):
    def f(x):
        return x[:, 0].clone(), x[:, :1].clone().mul(1), (x * 2)[:, 0].clone()

    x = tangrad.ones(shape)
    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    for _ in range(3):
        found = [y.stride() for y in fast(x)]
    assert found == [y.stride() for y in f(x)]

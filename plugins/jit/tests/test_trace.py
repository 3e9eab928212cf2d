"""`tangrad.jit`: traced modules are modules, and damaged archives raise one family."""

from __future__ import annotations

import copy
import io
import pickle
import random
import zipfile

import pytest

import tangrad
from tangrad import jit, nn
from tangrad.serialization import SerializationError
from tangrad_jit.tracing.archive_writing import write


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        return {"out": self.head(x.flatten(1)), "mean": x.mean()}

    def twice(self, x):
        return self.forward(x)["out"] * 2


@pytest.fixture
def net():
    tangrad.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    return tangrad.randn(2, 2, 4, 4)


def same(a, b):
    return bool((a == b).all())


def save_as_before(traced, file):
    """Write the archive that earlier versions wrote of a trace, which are read for a while."""
    if isinstance(traced, jit.ScriptModule):
        write(file, None, traced.methods, module=traced)
    else:
        write(file, None, {"forward": traced._traced}, function=traced.name)


def test_a_traced_module_is_a_module(net, x):
    traced = jit.trace(net, x, strict=False)
    assert isinstance(traced, jit.ScriptModule)
    assert list(traced.state_dict()) == list(net.state_dict())
    assert traced.conv.weight is net.conv.weight
    found = traced(x)
    assert same(found["out"], net(x)["out"])
    found["out"].sum().backward()
    assert net.conv.weight.grad is not None
    with tangrad.no_grad():
        assert same(traced(x)["out"], net(x)["out"])
    assert traced.graph.findNode("aten::conv2d") is None
    assert traced.inlined_graph.findNode("aten::conv2d") is not None
    assert "(self.conv).forward(x)" in traced.code


def test_methods_are_traced_by_name(net, x):
    traced = jit.trace_module(net, {"forward": x, "twice": x}, strict=False)
    assert same(traced.twice(x), net.twice(x))


def test_a_function_is_traced(x):
    traced = jit.trace(lambda a, b: (a + b, [a * 2]), (x, x), strict=False)
    assert same(traced(x, x)[1][0], x * 2)
    assert jit.export_opnames(traced) == ["aten::add", "aten::mul"]


def test_values_that_python_looks_at_are_warned_of(x):
    with pytest.warns(jit.TracerWarning, match="test_trace.py"):
        jit.trace(lambda a: a * 2 if a.sum() > -1e9 else a, x)


def test_a_program_that_changes_is_found(x):
    state = [0]

    def f(a):
        state[0] += 1
        return a + state[0]

    with pytest.raises(jit.TracingCheckError, match="Graphs differed across invocations"):
        jit.trace(f, x)


@pytest.mark.filterwarnings("ignore:.*keeps it as a constant")
def test_results_that_are_not_the_program_s_are_told(x):
    def f(a):
        return a * 2 if float(a.sum()) > 0 else a

    with pytest.warns(jit.TracerWarning, match="Output nr 1. of the traced function does not"):
        jit.trace(f, x.abs(), check_inputs=[(-x.abs(),)])
    with pytest.warns(jit.TracerWarning, match="Trace had nondeterministic nodes"):
        jit.trace(lambda a: nn.functional.dropout(a, 0.5), x)


def test_other_sizes_are_refused(net, x):
    traced = jit.trace(net, x, strict=False)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        traced(tangrad.randn(2, 2, 5, 4))


def test_what_is_saved_is_loaded(net, x, tmp_path):
    traced = jit.trace(net, x, strict=False)
    jit.save(traced, tmp_path / "net.jit", _extra_files={"note": "hello"})
    extra = {"note": ""}
    loaded = jit.load(tmp_path / "net.jit", _extra_files=extra)
    assert extra == {"note": b"hello"}
    assert same(loaded(x)["out"], net(x)["out"])
    assert not loaded.training
    assert all(same(a, b) for a, b in zip(loaded.parameters(), net.parameters(), strict=True))
    assert jit.export_opnames(loaded) == jit.export_opnames(traced)


def test_a_frozen_module_has_no_parameters_and_no_norm(net, x):
    traced = jit.trace(net, x, strict=False)
    frozen = jit.freeze(traced)
    assert not list(frozen.parameters())
    assert "_batch_norm" not in jit.export_opnames(frozen)
    assert tangrad.allclose(frozen(x)["out"], net(x)["out"], atol=1e-5)
    fast = jit.optimize_for_inference(traced)
    assert tangrad.allclose(fast(x)["out"], net(x)["out"], atol=1e-5)
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(jit.trace(Net(), x, check_trace=False, strict=False))


def test_damaged_archives_raise_one_family(net, x):
    whole = io.BytesIO()
    save_as_before(jit.trace(net, x, strict=False), whole)
    data = whole.getvalue()
    dice = random.Random(0)
    for _ in range(60):
        wrong = bytearray(data)
        wrong[dice.randrange(len(wrong))] ^= 1 << dice.randrange(8)
        try:
            loaded = jit.load(io.BytesIO(bytes(wrong)))
        except SerializationError:
            continue
        assert same(loaded(x)["out"], net(x)["out"])
    for cut in range(0, len(data), 997):
        with pytest.raises(SerializationError):
            jit.load(io.BytesIO(data[:cut]))


def rewritten(data, name, change):
    """Return an archive with one member changed, checksums right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for item in old.namelist():
            content = old.read(item)
            new.writestr(item, change(content.decode()) if item == name else content)
    return io.BytesIO(out.getvalue())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("graphs/forward.txt", lambda text: text.replace("relu(", "__import__(")),
        ("graphs/forward.txt", lambda text: text.replace("return", "yield")),
        ("graphs/forward.txt", lambda text: text.replace("%0", "%99", 1)),
        ("structure.json", lambda text: text[:-5]),
        ("structure.json", lambda text: text.replace('"tensor"', '"code"')),
        ("format", lambda text: "tangrad.jit 99"),
    ],
)
def test_hostile_archives_are_refused(net, x, name, change):
    whole = io.BytesIO()
    save_as_before(jit.trace(net, x, strict=False), whole)
    with pytest.raises((SerializationError, RuntimeError)):
        jit.load(rewritten(whole.getvalue(), name, change))(x)


def test_names_of_scripts_mean_what_they_mean_outside_of_them(net):
    assert not jit.is_scripting()
    assert not jit.is_tracing()

    def own(x):
        return x

    assert jit.ignore(own) is own
    assert jit.ignore(drop=False)(own) is own
    assert jit.unused(own) is own
    assert jit.annotate(int, 3) == 3
    assert jit.wait(jit.fork(lambda a: a + 1, 2)) == 3
    with pytest.raises(ValueError, match="trace or script it first"):
        jit.save(net, io.BytesIO())


def test_a_traced_function_within_another_trace_is_followed():
    def program(x):
        y = x * 2
        y.add_(1)
        return nn.functional.dropout(y.relu_(), 0.5)

    inner = jit.trace(program, tangrad.randn(2, 3), check_trace=False)
    outer = jit.trace(lambda x: inner(x) + 1, tangrad.randn(2, 3), check_trace=False)
    x = tangrad.randn(2, 3)
    tangrad.manual_seed(1)
    found = outer(x)
    tangrad.manual_seed(1)
    assert found.equal(program(x) + 1)


def test_transforms_go_through_a_traced_function():
    traced = jit.trace(lambda x: (x * x).sin().sum(-1), tangrad.randn(3), check_trace=False)
    x = tangrad.randn(5, 3)
    assert tangrad.func.vmap(traced)(x).equal((x * x).sin().sum(-1))
    slopes = tangrad.func.vmap(tangrad.func.grad(traced))(x)
    tangrad.testing.assert_close(slopes, 2 * x * (x * x).cos())


def test_views_of_a_loaded_graph_begin_where_they_began(x):
    traced = jit.trace(lambda a: (a[1:, 1] * 2, a.transpose(0, 1)[1] + 1), x)
    file = io.BytesIO()
    traced.save(file)
    file.seek(0)
    loaded = jit.load(file)
    for _ in range(2):
        assert all(map(same, loaded(x), traced(x)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%1: float32[4, 2]", "%1: float32[1, 1]"),
        ("%1: float32[4, 2]", "%1: float64[4, 2]"),
        ("%2: float32[2] view of %1 at 8", "%2: float32[2] view of %1 at 80000"),
        ("%3: float32[2]", "%3: float32[2000000]"),
    ],
)
def test_a_graph_whose_types_are_not_its_ops_is_refused(old, new):
    file = io.BytesIO()
    save_as_before(jit.trace(lambda a: (a * 2)[1].exp(), tangrad.randn(4, 2)), file)
    with zipfile.ZipFile(file) as archive:
        assert old in archive.read("graphs/forward.txt").decode()
    with pytest.raises(SerializationError):
        jit.load(rewritten(file.getvalue(), "graphs/forward.txt", lambda t: t.replace(old, new)))


@pytest.mark.parametrize("seed", range(4))
def test_members_that_are_damaged_before_they_are_packed_raise_one_family(net, x, seed):
    whole = io.BytesIO()
    save_as_before(jit.trace(net, x, strict=False), whole)
    dice = random.Random(seed)
    with zipfile.ZipFile(whole) as archive:
        members = [n for n in archive.namelist() if not n.startswith("code/")]
        for _ in range(60):
            name = dice.choice(members)
            wrong = bytearray(archive.read(name))
            at = dice.randrange(len(wrong))
            digits = [k for k, c in enumerate(wrong) if c in b"0123456789"] or [at]
            if dice.random() < 0.5:
                wrong[dice.choice(digits)] = dice.choice(b"0123456789")
            elif dice.random() < 0.5:
                wrong[at] ^= 1 << dice.randrange(8)
            else:
                del wrong[at : at + dice.randrange(1, 20)]
            damaged = io.BytesIO()
            with zipfile.ZipFile(damaged, "w") as made:
                for member in archive.namelist():
                    made.writestr(member, bytes(wrong) if member == name else archive.read(member))
            try:
                loaded = jit.load(damaged)
            except SerializationError:
                continue
            with tangrad.no_grad():
                try:
                    loaded(x)  # what it says is a program, though maybe another one
                except (RuntimeError, KeyError, IndexError, TypeError):
                    continue


def test_compressed_members_are_refused(net, x):
    whole, packed = io.BytesIO(), io.BytesIO()
    save_as_before(jit.trace(net, x, strict=False), whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, old.read(member))
    with pytest.raises(SerializationError, match="compresses no member"):
        jit.load(packed)


def test_a_size_that_depends_on_values_is_the_example_s_or_refused():
    with pytest.warns(jit.TracerWarning, match="depends on values"):
        traced = jit.trace(lambda a: a[a > 2] * 2, tangrad.arange(6.0))
    assert traced(tangrad.arange(6.0).flip(0)).tolist() == [10.0, 8.0, 6.0]
    with pytest.raises(RuntimeError, match="test_trace.py.*depends on values"):
        traced(tangrad.arange(6.0) + 1)


def test_traced_modules_that_have_run_are_copied_and_pickled(net, x):
    traced = jit.trace(net, x, strict=False)
    with tangrad.no_grad():
        wanted = traced(x)["out"]
        for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
            assert same(other(x)["out"], wanted)


def through_a_file(traced):
    file = io.BytesIO()
    jit.save(traced, file)
    file.seek(0)
    return jit.load(file)


class Quoted(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = nn.ParameterDict({'a"b': tangrad.ones(2), "it's": tangrad.ones(2)})

    def forward(self, x):
        return x * self.held['a"b'] + self.held["it's"]


@pytest.mark.parametrize(
    "program",
    [
        Quoted(),
        lambda x: x * (1 + 2j),
        lambda x: x * float("inf") + float("-inf"),
        lambda x: x * 2**70 - 1e-300,
        lambda x: x.to(tangrad.bfloat16).sum((0,), keepdim=True),
    ],
)
def test_every_constant_and_name_is_saved(program):
    x = tangrad.arange(1.0, 3.0)
    found, wanted = through_a_file(jit.trace(program, x))(x), program(x)
    assert found.dtype == wanted.dtype
    assert repr(found.tolist()) == repr(wanted.tolist())


def test_parameters_that_are_one_stay_one():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    loaded = through_a_file(jit.trace(net, tangrad.ones(1, 2)))
    assert len(list(loaded.parameters())) == 3


@pytest.mark.parametrize("after", [lambda t: t, through_a_file])
def test_arguments_may_be_given_by_place_and_by_name(after):
    def f(x, y):
        return x - y

    a, b = tangrad.ones(2), tangrad.arange(2.0)
    for traced in (
        jit.trace(f, (a, b)),
        jit.trace(f, example_kwarg_inputs={"y": b, "x": a}),
    ):
        run = after(traced)
        for found in (run(a, b), run(a, y=b), run(x=a, y=b), run(y=b, x=a)):
            assert same(found, a - b)
        with pytest.raises(RuntimeError, match="as in the example|keys|missing value|twice"):
            run(a, b, x=a)


def test_a_function_whose_backward_is_lost_is_told():
    class Scaled(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    with pytest.warns(jit.TracerWarning, match="Scaled"):
        jit.trace(lambda x: Scaled.apply(x), tangrad.ones(2))


def test_a_bound_forward_is_traced_as_its_module():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = tangrad.randn(2, 3)
    traced = jit.trace(net.forward, x)
    assert [name for name, _ in traced.named_parameters()] == ["0.weight", "0.bias"]
    with tangrad.no_grad():
        net[0].weight.mul_(2)
    assert traced(x).tolist() == net(x).tolist()


def test_other_methods_of_modules_are_for_trace_module():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(tangrad.ones(3))

        def forward(self, x):
            return x * self.weight

        def twice(self, x):
            return x * self.weight * 2

    with pytest.raises(AttributeError, match="trace_module"):
        jit.trace(Scaled().twice, tangrad.ones(3))
    assert jit.trace(Scaled().forward, tangrad.ones(3))(tangrad.ones(3)).tolist() == [1.0] * 3


def test_writes_may_be_recorded_as_ops_that_make_new_tensors(x):
    def program(a, b):
        a += b
        return a.mul_(2)

    for outplace in (False, True):
        traced = jit.trace(program, (x, x), _force_outplace=outplace, check_trace=False)
        given = x.clone()
        found = traced(given, given)
        assert same(given, x) is outplace
        assert same(found, x * 4)
        assert ("aten::add_" in str(traced.graph)) is not outplace


@pytest.mark.parametrize(
    "function",
    [
        lambda s, d: s + (d.round() - d),
        lambda s, d: s * d,
        lambda s, d: d * d + s,
        lambda s, d: 1 / (s.exp() + d),
    ],
)
def test_a_detached_tensor_stands_beside_the_one_that_it_shows(function):
    def program(x):
        s = x * 2
        return function(s, s.detach())

    x = tangrad.tensor([0.3, -1.2, 2.6], requires_grad=True)
    traced = tangrad.jit.trace(program, (x,))
    wanted, found = (tangrad.autograd.grad(f(x).sum(), x)[0].tolist() for f in (program, traced))
    assert found == pytest.approx(wanted)


def test_a_program_may_hold_what_it_is_given():
    """Param stores look their tensors up while they are traced."""
    store = {"scale": tangrad.tensor([1.0, 2.0], requires_grad=True)}

    def program(scale, x):
        assert scale is store["scale"]
        return store["scale"].exp() * x

    x = tangrad.ones(2)
    traced = tangrad.jit.trace(program, (store["scale"], x), check_trace=False)
    assert traced(tangrad.zeros(2), x * 3).tolist() == [3, 3]


@pytest.mark.parametrize("check", [True, False])
def test_a_trace_writes_once_into_what_it_is_given(check):
    x = tangrad.zeros(3)
    traced = tangrad.jit.trace(lambda x: x.add_(1) * 2, (x,), check_trace=check)
    assert x.tolist() == [1, 1, 1]
    assert traced(tangrad.ones(3)).tolist() == [4, 4, 4]

"""`tangrad.jit`: traced modules are modules, and damaged archives raise one family."""

from __future__ import annotations

import io
import random
import zipfile

import pytest

import tangrad
from tangrad import jit, nn
from tangrad.serialization import SerializationError


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


def test_a_traced_module_is_a_module(net, x):
    traced = jit.trace(net, x)
    assert isinstance(traced, jit.ScriptModule)
    assert list(traced.state_dict()) == list(net.state_dict())
    assert traced.conv.weight is net.conv.weight
    found = traced(x)
    assert same(found["out"], net(x)["out"])
    found["out"].sum().backward()
    assert net.conv.weight.grad is not None
    with tangrad.no_grad():
        assert same(traced(x)["out"], net(x)["out"])
    assert traced.graph.nodes[0].module == "conv"
    assert "convolution" in traced.code


def test_methods_are_traced_by_name(net, x):
    traced = jit.trace_module(net, {"forward": x, "twice": x})
    assert same(traced.twice(x), net.twice(x))


def test_a_function_is_traced(x):
    traced = jit.trace(lambda a, b: (a + b, [a * 2]), (x, x))
    assert same(traced(x, x)[1][0], x * 2)
    assert "add_plain" in jit.export_opnames(traced)


def test_values_that_python_looks_at_are_warned_of(x):
    with pytest.warns(jit.TracerWarning, match="test_trace.py"):
        jit.trace(lambda a: a * 2 if a.sum() > -1e9 else a, x)


def test_a_program_that_changes_is_found(x):
    state = [0]

    def f(a):
        state[0] += 1
        return a + state[0]

    with (
        pytest.warns(jit.TracerWarning, match="another graph"),
        pytest.raises(jit.TracingCheckError),
    ):
        jit.trace(f, x)


def test_other_sizes_are_refused(net, x):
    traced = jit.trace(net, x)
    with pytest.raises(RuntimeError, match="holds for the sizes of its example"):
        traced(tangrad.randn(2, 2, 5, 4))


def test_what_is_saved_is_loaded(net, x, tmp_path):
    traced = jit.trace(net, x)
    jit.save(traced, tmp_path / "net.jit", _extra_files={"note": "hello"})
    extra = {"note": ""}
    loaded = jit.load(tmp_path / "net.jit", _extra_files=extra)
    assert extra == {"note": "hello"}
    assert same(loaded(x)["out"], net(x)["out"])
    assert not loaded.training
    assert all(same(a, b) for a, b in zip(loaded.parameters(), net.parameters(), strict=True))
    assert str(loaded.graph).count("=") == str(traced.graph).count("=")


def test_a_frozen_module_has_no_parameters_and_no_norm(net, x):
    traced = jit.trace(net, x)
    frozen = jit.freeze(traced)
    assert not list(frozen.parameters())
    assert "_batch_norm" not in jit.export_opnames(frozen)
    assert tangrad.allclose(frozen(x)["out"], net(x)["out"], atol=1e-5)
    fast = jit.optimize_for_inference(traced)
    assert tangrad.allclose(fast(x)["out"], net(x)["out"], atol=1e-5)
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(jit.trace(Net(), x, check_trace=False))


def test_damaged_archives_raise_one_family(net, x):
    whole = io.BytesIO()
    jit.save(jit.trace(net, x), whole)
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
    jit.save(jit.trace(net, x), whole)
    with pytest.raises((SerializationError, RuntimeError)):
        jit.load(rewritten(whole.getvalue(), name, change))(x)


def test_names_of_scripts_mean_what_they_mean_outside_of_them(net):
    assert jit.script(net) is net
    assert not jit.is_scripting()
    assert not jit.is_tracing()
    assert jit.ignore(abs) is abs
    assert jit.unused(drop=True)(abs) is abs
    assert jit.annotate(int, 3) == 3
    assert jit.wait(jit.fork(lambda a: a + 1, 2)) == 3
    with pytest.raises(NotImplementedError, match="script language"):
        jit.ScriptModule()
    with pytest.raises(ValueError, match="trace it first"):
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

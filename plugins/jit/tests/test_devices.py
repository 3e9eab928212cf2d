"""Fused groups on a device that compiles source: one kernel in its language, with eager's bits."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import tangrad
from tangrad import nn
from tangrad.devices import registry
from tangrad.plugin import get_driver
from tangrad_jit.codegen import Const, Group, GroupInput, Step
from tangrad_jit.codegen.rendered import render_group

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compiled_c_device" / "src"


@pytest.fixture(scope="module", autouse=True)  # tests elsewhere count the devices
def plain_c(tmp_path_factory):
    """Make the example's device known without installing a package."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    os.environ.setdefault("TANGRAD_KERNEL_CACHE", str(tmp_path_factory.mktemp("kernels")))
    sys.path.insert(0, str(EXAMPLE))
    registry.BUILTIN["plain_c"] = "tangrad_plain_c:Driver"
    yield
    del registry.BUILTIN["plain_c"]
    sys.path.remove(str(EXAMPLE))


@pytest.fixture
def launched(monkeypatch):
    """Return the list of kernels that are launched."""
    driver, found = get_driver("plain_c"), []
    launch = type(driver).launch

    def told(self, function, *args):
        found.append(function.__name__)
        launch(self, function, *args)

    monkeypatch.setattr(type(driver), "launch", told)
    return found


def compiled(function):
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def random(*shape, dtype=tangrad.float32):
    return tangrad.randn(*shape).to(dtype).to("plain_c")


PROGRAMS = {
    "chain": lambda x, row, column, one: ((x * 2 + 0.5).sigmoid() * x - x).relu(),
    "broadcast": lambda x, row, column, one: (x + column).tanh() * row - one,
    "several": lambda x, row, column, one: (y := x * column, y.exp() + row, (y - 1).abs()),
    "numbers": lambda x, row, column, one: (x * -0.0 + 0.0) / 3 + tangrad.where(x > 0, x, -1.5),
    "shapes": lambda x, row, column, one: (x.t() * 2 + x.t().cos(), (column * 3 - one) / 2),
}


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_group_has_the_bits_of_its_ops(name, dtype, launched):
    function = PROGRAMS[name]
    given = [random(*s, dtype=dtype) for s in [(6, 5), (6, 1), (5,), (1,)]]
    fast = compiled(function)
    wanted = function(*given)
    fast(*given)
    launched.clear()
    found = fast(*given)
    assert "group" in launched
    pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True)
    for a, b in pairs:
        assert (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape)
        assert repr(a.tolist()) == repr(b.tolist())


def test_a_group_is_one_launch(launched):
    def function(x, y):
        return ((x + y) * 2 - x / 3).exp().clamp(max=4.0)

    fast, x, y = compiled(function), random(40), random(40)
    fast(x, y)
    launched.clear()
    fast(x, y)
    assert launched == ["group"]
    assert "1 kernels" in str(tangrad.compile.explain(fast, x, y))


def test_random_numbers_are_drawn_in_a_group(launched):
    def function(x):
        return nn.functional.dropout(x * 2 + 1, 0.3) - x

    fast, x = compiled(function), random(6, 7)
    for seed in range(4):
        tangrad.manual_seed(seed)
        wanted = function(x).tolist()
        tangrad.manual_seed(seed)
        launched.clear()
        assert fast(x).tolist() == wanted
    assert launched == ["group"]


def test_a_training_step_is_eagers():
    def trained(wrap):
        tangrad.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).to("plain_c")
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = tangrad.randn(12, 6).to("plain_c"), (tangrad.arange(12) % 3).to("plain_c")

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x) * 1.5 + 0.1, y)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        return [run().item() for _ in range(5)]

    # Eager sums gradients of layers in one pass there (`one_pass`), a graph in several.
    assert trained(compiled) == pytest.approx(trained(lambda step: step), rel=1e-6)


def test_views_of_what_a_group_makes_are_seen():
    def function(x):
        y = (x * 2 + 1).sin()
        return y[1:], y.t(), (y * y).view(-1) + 1

    fast, x = compiled(function), random(4, 5)
    for _ in range(3):
        found, wanted = fast(x), function(x)
        assert [a.tolist() for a in found] == [a.tolist() for a in wanted]


def test_constants_that_are_equal_and_differ_are_told_apart():
    described = __import__("tangrad.plugin.render", fromlist=["describe"]).describe
    mul = described(tangrad.plugin.find_op("mul"))
    steps = (
        Step(mul, "float32", (0, Const(0.0)), {}),
        Step(mul, "float32", (0, Const(-0.0)), {}),
    )
    group = Group((GroupInput("float32", "full"),), steps, (1, 2))
    made = render_group(group, get_driver("plain_c"))
    outs, x = [random(1), random(1)], tangrad.ones(1, device="plain_c")
    made.run(outs, [x], 1, 1)
    assert [repr(t.item()) for t in outs] == ["0.0", "-0.0"]


def test_what_a_driver_computes_otherwise_stays_its_own(monkeypatch, launched):
    driver = get_driver("plain_c")
    monkeypatch.setattr(type(driver), "fuses", lambda self, op: op.name != "cosh")
    fast, x = compiled(lambda x: (x.cosh() + 1.25) * 2), random(3)
    fast(x)
    launched.clear()
    fast(x)
    assert "group" not in launched


def test_integers_divided_by_zero_are_reported_as_in_eager():
    x, zero = tangrad.arange(4, device="plain_c"), tangrad.zeros(4, dtype=tangrad.int64)
    fast, one = compiled(lambda x, y: (x + 1) // y * 2), zero.to("plain_c") + 1
    assert [fast(x, one).tolist() for _ in range(2)] == [[2, 4, 6, 8]] * 2
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fast(x, zero.to("plain_c"))

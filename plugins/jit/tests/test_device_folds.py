"""Fused groups with folds on devices that compile source, with one lane and with several."""

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
from tangrad_jit.codegen import rendered, rendered_rows

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [
    ROOT / "examples" / "compiled_c_device" / "src",
    ROOT / "plugins" / "source_kernels" / "tests",
]
DEVICES = {"plain_c": "tangrad_plain_c:Driver", "threaded": "threaded:ThreadedDriver"}
DTYPES = [
    pytest.param(dtype, id=dtype.name, marks=[pytest.mark.slow] if is_slow else [])
    for dtype, is_slow in {
        tangrad.float32: False,
        tangrad.float64: True,
        tangrad.float16: False,
        tangrad.bfloat16: True,
    }.items()
]
functional = nn.functional


@pytest.fixture(scope="module", autouse=True)  # tests elsewhere count the devices
def devices(tmp_path_factory):
    """Make the example's device and one with several lanes known without installing a package."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    os.environ.setdefault("TANGRAD_KERNEL_CACHE", str(tmp_path_factory.mktemp("kernels")))
    sys.path[:0] = map(str, FOLDERS)
    registry.BUILTIN.update(DEVICES)
    yield
    for name in DEVICES:
        del registry.BUILTIN[name]
    for folder in FOLDERS:
        sys.path.remove(str(folder))


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def launched(device, monkeypatch):
    """Return the list of kernels that are launched."""
    driver, found = get_driver(device), []
    launch = type(driver).launch

    def told(self, function, *args):
        found.append(function.__name__)
        launch(self, function, *args)

    monkeypatch.setattr(type(driver), "launch", told)
    return found


def compiled(function):
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def softmax(x, w, b):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def log_softmax(x, w, b):
    y = x - x.amax(-1, keepdim=True)
    return y - y.exp().sum(-1, keepdim=True).log()


def layer_norm(x, w, b):
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * (variance + 1e-5).rsqrt() * w + b


def rms_norm(x, w, b):
    return x * ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt() * w


def bias_gelu_sum(x, w, b):
    return functional.gelu(x + b).sum(-1)


def several(x, w, b):
    y = functional.silu(x * w)
    least, most = y.amin(-1), y.amax(-1, keepdim=True)
    return y, least, most, (y - most).abs().mean(-1), most * 2 + 1


def others(x, w, b):
    y = x * 0.5 + w
    variance, mean = tangrad.var_mean(y, -1, correction=0)
    return variance, mean, y.argmax(-1), y.norm(dim=-1), (y > 0).any(-1), y.std(-1, correction=0)


PROGRAMS = (softmax, log_softmax, layer_norm, rms_norm, bias_gelu_sum, several, others)
# (rows, columns): one lane a row, odd ones, several lanes, long rows of which some are in parts.
SIZES = [(3, 5), (7, 33), (1, 300), (2, 401), (5, 1)]


def given(device, rows, columns, dtype):
    tangrad.manual_seed(rows + columns)
    return [
        tangrad.randn(*s).to(dtype).to(device) for s in [(rows, columns), (columns,), (columns,)]
    ]


def texts(found):
    found = found if isinstance(found, tuple) else (found,)
    return [(v.dtype, v.shape, v.device, repr(v.tolist())) for v in found]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_group_has_the_bits_of_its_ops(program, dtype, launched, device):
    for rows, columns in SIZES:
        operands = given(device, rows, columns, dtype)
        wanted = program(*operands)
        fast = compiled(program)
        fast(*operands)
        launched.clear()
        found = fast(*operands)
        assert "rows" in launched
        assert texts(found) == texts(wanted), (rows, columns)


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_group_is_one_launch_and_told(program, dtype, launched, device):
    operands, fast = given(device, 6, 40, dtype), compiled(program)
    fast(*operands)
    launched.clear()
    fast(*operands)
    assert launched == ["rows"]
    told = str(tangrad.compile.explain(fast, *operands))
    assert "are 1 kernels" in told
    assert "group over 6 x 40" in told


def test_the_derivatives_are_eagers(launched, device):
    def step(x, w, b):
        return tangrad.autograd.grad((rms_norm(x, w, b) * b).sum(), (x,))[0]

    operands = given(device, 6, 40, tangrad.float32)
    operands[0].requires_grad_()
    fast = compiled(step)
    wanted = step(*operands)
    fast(*operands)
    launched.clear()
    assert texts(fast(*operands)) == texts(wanted)
    assert "rows" in launched


def test_rows_without_elements_are_eagers(device):
    for shape in ((0, 4), (3, 0)):
        x = tangrad.zeros(*shape, device=device)
        fast = compiled(lambda x: (x * 2).sum(-1) + 1)
        assert [texts(fast(x)) for _ in range(2)] == [texts((x * 2).sum(-1) + 1)] * 2


def test_dimensions_before_the_last_are_rows(launched, device):
    x, fast = given(device, 12, 17, tangrad.float32)[0].view(3, 4, 17), compiled(softmax)
    fast(x, None, None)
    launched.clear()
    assert texts(fast(x, None, None)) == texts(softmax(x, None, None))
    assert "rows" in launched


def test_other_sizes_have_the_lanes_and_parts_of_theirs(device):
    fast = tangrad.compile(rms_norm, fullgraph=True, dynamic=True, options={"measure": False})
    for rows, columns in ((4, 5), (3, 40), (2, 9), (6, 300), (5, 17), (3, 500)):
        operands = given(device, rows, columns, tangrad.float32)
        assert texts(fast(*operands)) == texts(rms_norm(*operands))


def test_rows_in_more_parts_than_a_group_folds_stay_the_devices(monkeypatch):
    monkeypatch.setattr(rendered_rows, "MOST_PARTS", 2)
    driver = get_driver("threaded")
    total = tangrad.plugin.find_op("sum")
    serves = [
        rendered.folds_in_groups(driver, total, "float32", 1, columns) for columns in (300, 500)
    ]
    assert serves == [True, False]
    operands = given("threaded", 1, 500, tangrad.float32)
    fast = compiled(bias_gelu_sum)
    fast(*operands)
    told = str(tangrad.compile.explain(fast, *operands)).splitlines()
    groups = [line for line in told if "group over 1 x 500" in line]
    assert groups
    assert not any("sum" in line for line in groups)
    assert texts(fast(*operands)) == texts(bias_gelu_sum(*operands))


def test_a_fold_that_a_driver_computes_otherwise_stays_its_own(monkeypatch, device, launched):
    driver = get_driver(device)
    monkeypatch.setattr(type(driver), "fuses", lambda self, op: op.name != "amin")
    fast, operands = (
        compiled(lambda x: (x * 3).amin(-1) + 1.5),
        given(device, 4, 21, tangrad.float32)[:1],
    )
    fast(*operands)
    launched.clear()
    fast(*operands)
    assert "rows" not in launched


def test_sums_of_integers_are_the_devices(device):
    x = tangrad.arange(12, device=device).to(tangrad.int32).view(3, 4)
    fast = compiled(lambda x: (x * 2).sum(-1) + 1)
    assert [texts(fast(x)) for _ in range(2)] == [texts((x * 2).sum(-1) + 1)] * 2


def test_random_numbers_are_drawn_before_a_fold(launched, device):
    def function(x):
        return functional.dropout(x * 2 + 1, 0.3).sum(-1)

    fast, x = compiled(function), given(device, 5, 23, tangrad.float32)[0]
    for seed in range(3):
        tangrad.manual_seed(seed)
        wanted = texts(function(x))
        tangrad.manual_seed(seed)
        launched.clear()
        assert texts(fast(x)) == wanted
    assert "rows" in launched

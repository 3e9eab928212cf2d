"""Every kernel gives the bits of the definition, on every level of instructions."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tangrad
from tangrad_quantization import ops

kernels = pytest.importorskip("tangrad_quantization._kernels")
on_cpu = tangrad.zeros(1)
LEVELS = ("scalar", "avx2", "vnni", "amx")


@pytest.fixture(params=LEVELS)
def level(request):
    before = kernels.level()
    try:
        kernels.set_level(request.param)
    except ValueError:
        pytest.skip(f"this machine lacks {request.param}")
    yield request.param
    kernels.set_level(before)


@pytest.mark.parametrize(("asked", "level"), [("baseline", "scalar"), ("avx2", "avx2")])
def test_the_level_follows_that_of_tangrad_cpu(asked, level):
    try:
        before = kernels.level()
        kernels.set_level(level)
        kernels.set_level(before)
    except ValueError:
        pytest.skip(f"this machine lacks {level}")
    code = "from tangrad_quantization import _kernels; print(_kernels.level())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TANGRAD_CPU_ISA": asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == level


def bytes_(rng, kind, *shape):
    """Return bytes: random, or the extreme ones that make sums of 16 bits overflow."""
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    made = rng.integers(low, high, shape)
    ends = rng.random(shape) < 0.3
    made[ends] = rng.choice([low, high - 1], ends.sum())
    return tangrad.from_numpy(made.astype(kind))


def columns(rng, count, zeros):
    scale = tangrad.from_numpy(rng.uniform(1e-6, 1e-3, count).astype("float32"))
    bias = tangrad.from_numpy(rng.uniform(-1e4, 1e4, count).astype("float32"))
    zero = tangrad.from_numpy(rng.integers(-9, 9, count).astype("int32")) if zeros else None
    return zero, scale, bias


SIZES = [
    *[(1, 4, 1), (1, 64, 64), (1, 257, 130), (3, 5, 17), (7, 36, 70), (50, 128, 33), (0, 4, 3)],
    *[(16, 64, 16), (33, 65, 100), (40, 200, 70), (31, 320, 64)],  # tiles, and what is left of them
    *[(33, 1100, 33), (130, 800, 17)],  # several stretches of the depth
]


@pytest.mark.parametrize("highest", [255, 127])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_products(level, size, zeros, highest):
    rng = np.random.default_rng(sum(size))
    rows, depth, count = size
    x, w = bytes_(rng, "uint8", rows, depth), bytes_(rng, "int8", count, depth)
    x = x.clamp(max=highest)
    zero, scale, bias = columns(rng, count, zeros)
    sums = w.to(tangrad.int32).sum(1).to(tangrad.int32)
    for low, high in ((0, 255), (-128, 127), (7, 200)):
        given = (x, ops.pack(w), sums, zero, scale, bias, 131, 7, low, high)
        assert tangrad.equal(ops.product(*given), ops._product(*given))


def test_one_large_number_among_small_ones_is_seen(level):
    """Where all numbers are below 128 AVX2 may take a shorter way; one that is not forbids it."""
    w = tangrad.full((16, 300), -128, dtype=tangrad.int8)
    sums = tangrad.full((16,), -128 * 300, dtype=tangrad.int32)
    one = tangrad.full((16,), 1e-5, dtype=tangrad.float32)
    for place in (0, 31, 32, 255, 256, 299):
        x = tangrad.full((5, 300), 127, dtype=tangrad.uint8)
        x[4, place] = 255
        given = (x, ops.pack(w), sums, None, one, None, 0, 200, 0, 255)
        assert tangrad.equal(ops.product(*given), ops._product(*given))


def test_sums_do_not_saturate(level):
    """255 * -128 twice is past the 16 bits in which AVX2 could add pairs of products."""
    x = tangrad.full((2, 4096), 255, dtype=tangrad.uint8)
    w = tangrad.full((16, 4096), -128, dtype=tangrad.int8)
    sums = tangrad.full((16,), -128 * 4096, dtype=tangrad.int32)
    one = tangrad.full((16,), 1e-6, dtype=tangrad.float32)
    got = ops.product(x, ops.pack(w), sums, None, one, None, 0, 200, 0, 255)
    assert got.unique().tolist() == [200 + round(-255 * 128 * 4096 * 1e-6)]


@pytest.mark.parametrize("size", [*SIZES[1:6], *SIZES[7:]])
@pytest.mark.parametrize("relu", [False, True])
def test_dynamic_products(level, size, relu):
    rng = np.random.default_rng(sum(size))
    rows, depth, count = size
    x = tangrad.from_numpy(rng.standard_normal((rows, depth)).astype("float32"))
    w = bytes_(rng, "int8", count, depth)
    zero, scale, bias = columns(rng, count, True)
    sums = w.to(tangrad.int32).sum(1).to(tangrad.int32)
    for factor in (1.0, 1e-7, 1e30, 0.0):
        given = (x * factor, ops.pack(w), sums, zero, scale, bias, True, relu)
        assert tangrad.equal(ops.product_dynamic(*given), ops._dynamic(*given))


def test_dynamic_products_refuse_what_is_not_finite(level):
    packed = ops.pack(tangrad.ones(1, 4, dtype=tangrad.int8))
    one, sums = tangrad.ones(1), tangrad.full((1,), 4, dtype=tangrad.int32)
    for wrong in (float("nan"), float("inf"), -float("inf")):
        x = tangrad.tensor([[1.0, wrong, 0.0, 2.0]])
        with pytest.raises(RuntimeError, match="NaN or infinity|not finite"):
            ops.product_dynamic(x, packed, sums, None, one, None, True, False)


CONVOLUTIONS = [
    # channels, columns, groups, kernel, stride, padding, dilation
    (3, 5, 1, (1, 3, 3), (1, 2, 1), (0, 1, 1), (1, 1, 1)),
    (8, 70, 1, (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    (6, 8, 2, (2, 2, 3), (1, 1, 2), (1, 0, 1), (1, 2, 1)),
    (70, 70, 70, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (130, 130, 130, (1, 2, 2), (1, 2, 1), (0, 0, 1), (1, 1, 2)),  # whole blocks and what is left
    (1, 16, 1, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),  # short lines of the input
    (64, 40, 1, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),  # tiles
    (4, 33, 1, (1, 3, 3), (1, 2, 2), (0, 1, 1), (1, 1, 2)),  # taps of a line apart
    (16, 100, 2, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),  # groups in whole fours
    (6, 65, 1, (2, 1, 1), (1, 2, 2), (1, 0, 0), (1, 1, 1)),  # lines that are no whole fours
    (72, 72, 72, (1, 5, 5), (1, 2, 2), (0, 2, 2), (1, 1, 1)),  # more lines than four
    (65, 65, 65, (2, 3, 3), (1, 1, 3), (1, 1, 1), (2, 1, 1)),
    (320, 320, 320, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),  # several tasks to a line
]


SMALL, LARGE = (2, 5, 6, 7), (2, 2, 19, 23)  # rows gathered at once, and by tasks


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("highest", [255, 127])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(level, case, highest, size):
    channels, count, groups, kernel, stride, padding, dilation = case
    rng = np.random.default_rng(channels)
    depth = channels // groups * int(np.prod(kernel))
    w = bytes_(rng, "int8", count, depth)
    if groups == channels == count:
        packed = w.t().contiguous()
    else:
        packed = tangrad.stack([ops.pack(part).flatten(1) for part in w.chunk(groups)])
    x = bytes_(rng, "uint8", *size, channels).clamp(max=highest)
    sums = w.to(tangrad.int32).sum(1).to(tangrad.int32)
    _, scale, bias = columns(rng, count, False)
    geometry, levels = (*kernel, *stride, *padding, *dilation), (128, 3, 0, 255)
    given = (x, packed, sums, None, scale, bias, geometry, levels)
    assert tangrad.equal(ops.convolution(*given), ops._convolution(*given))


@pytest.mark.parametrize("ends", [(0, 255), (-128, 127), (-5, 90), (7, 200)])
@pytest.mark.parametrize("depthwise", [False, True])
def test_convolutions_of_long_lines_clip_to_all_ends(level, depthwise, ends):
    """Lines are longer than what is taken at once, and sums go far beyond the integers."""
    rng = np.random.default_rng(5)
    channels, width = 67, 230
    w = bytes_(rng, "int8", channels, 9 if depthwise else 3 * channels)
    packed = w.t().contiguous() if depthwise else ops.pack(w).flatten(1)[None]
    kernel = (1, 3, 3) if depthwise else (1, 1, 3)
    x = bytes_(rng, "uint8", 1, 1, 3, width, channels)
    sums = w.to(tangrad.int32).sum(1).to(tangrad.int32)
    _, scale, bias = columns(rng, channels, False)
    geometry = (*kernel, 1, 1, 2, 0, kernel[1] // 2, 1, 1, 1, 1)
    for factor in (1.0, 1e6):
        given = (x, packed, sums, None, scale * factor, bias, geometry, (77, 3, *ends))
        assert tangrad.equal(ops.convolution(*given), ops._convolution(*given))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_element_by_element(level, kind):
    rng = np.random.default_rng(3)
    low, high = (0, 255) if kind == "uint8" else (-128, 127)
    a, b = bytes_(rng, kind, 700), bytes_(rng, kind, 700)
    for op, body in ((ops.sum_of_two, ops._sum), (ops.times, ops._times)):
        given = (a, b, 0.03125, 3, 0.7, -5 if low else 5, 0.011, 2, low, high)
        assert tangrad.equal(op(*given), body(*given))
    x = tangrad.from_numpy((rng.standard_normal(900) * 300).astype("float32"))
    x[:3] = tangrad.tensor([3e38, -3e38, 0.5])
    levels = ops.from_float(x, 1.0, 0, low, high)
    assert tangrad.equal(levels, ops.rounded(x, 0, low, high, levels.dtype))
    expected = (a.to(tangrad.int32) - 3).to(tangrad.float32) * 0.3
    assert tangrad.equal(ops.to_float(a, 0.3, 3), expected)
    table = tangrad.arange(255, -1, -1, dtype=tangrad.int32).to(tangrad.uint8)
    assert tangrad.equal(ops.lookup(a, table), 255 - a.view(tangrad.uint8))


GROUPS = [(256, 64), (256, 128), (96, 32), (192, 96), (32, 32)]  # of the depth: groups across lanes


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("depth", "group"), GROUPS)
def test_weights_in_groups_agree_to_rounding(level, bits, zeros, depth, group):
    rng = np.random.default_rng(bits)
    count = 71
    weight, scales, zero = grouped(rng, bits, zeros, count, depth, group)
    x = tangrad.from_numpy(rng.standard_normal((3, depth)).astype("float32"))
    got = ops.grouped_linear(x, weight, scales, zero, bits, group)
    exact = x.double() @ ops.group_weight(weight, scales, zero, bits, group).double().t()
    assert (got - exact).abs().max() < 2e-5 * exact.abs().max()


def grouped(rng, bits, zeros, count, depth, group):
    if bits == 8:
        weight = bytes_(rng, "int8", count, depth)
    else:
        weight = ops.pack_halves(tangrad.from_numpy(rng.integers(0, 16, (count, depth))))
    scales = tangrad.from_numpy(rng.uniform(0.01, 0.1, (count, depth // group)).astype("float32"))
    return weight, scales, scales * 3 if zeros else None


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 1e37])
def test_weights_in_groups_pass_on_what_is_not_finite(level, number):
    """What numbers become on their way must not overflow where the product does not."""
    rng = np.random.default_rng(0)
    weight, scales, _ = grouped(rng, 4, False, 8, 64, 32)
    x = tangrad.zeros(2, 64)
    x[0, 5], x[1, 3] = number, 1.0
    got = ops.grouped_linear(x, weight, scales, None, 4, 32)
    exact = x @ ops.group_weight(weight, scales, None, 4, 32).t()
    assert tangrad.allclose(got, exact, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_reference_device_gives_the_same_integers():
    from tangrad import nn
    from tangrad.ao import quantization as q

    tangrad.manual_seed(0)
    layers = [q.QuantStub(), nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 4), q.DeQuantStub()]
    model = nn.Sequential(*layers).eval()
    model.qconfig = q.default_qconfig
    prepared = q.prepare(model)
    prepared(tangrad.randn(3, 2, 6, 6))
    done, x = q.convert(prepared), tangrad.randn(2, 2, 6, 6)
    expected = done(x)
    found = done.to("reference")(x.to("reference"))
    assert found.device.type == "reference"
    assert tangrad.equal(found.cpu(), expected)
    small = q.quantize_dynamic(nn.Sequential(nn.Linear(6, 4)))
    x = tangrad.randn(3, 6)
    expected = small(x)
    assert tangrad.equal(small.to("reference")(x.to("reference")).cpu(), expected)

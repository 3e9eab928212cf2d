"""Images whose channels are neighbours in memory: the values and the order in memory of PyTorch."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.convolution import ordered_channels_last
from tangrad.ops.nn.convolution_channels_last import of_channels_last
from tangrad.utils._python_dispatch import TorchDispatchMode

CASES = {
    "one element": {"channels": 8, "maps": 5, "kernel": 1},
    "one element with bias": {"channels": 8, "maps": 5, "kernel": 1, "bias": True},
    "one element at a distance": {"channels": 4, "maps": 5, "kernel": 1, "stride": 2},
    "one element in groups": {"channels": 4, "maps": 6, "kernel": 1, "groups": 2},
    "several elements": {"channels": 3, "maps": 4, "kernel": 3, "padding": 1, "bias": True},
    "several at a distance": {"channels": 16, "maps": 4, "kernel": 3, "padding": 1, "stride": 2},
    "depthwise": {
        "channels": 24,
        "maps": 24,
        "kernel": 3,
        "padding": 1,
        "groups": 24,
        "bias": True,
    },
    "depthwise, few": {"channels": 5, "maps": 5, "kernel": 3, "padding": 1, "groups": 5},
    "depthwise, wide": {"channels": 90, "maps": 90, "kernel": 3, "padding": 1, "groups": 90},
    "depthwise at a distance": {
        "channels": 22,
        "maps": 22,
        "kernel": 5,
        "padding": 2,
        "groups": 22,
        "stride": 2,
    },
    "depthwise, dilated": {
        "channels": 36,
        "maps": 36,
        "kernel": 3,
        "padding": 2,
        "groups": 36,
        "dilation": 2,
    },
    "depthwise, padded beyond its reach": {
        "channels": 19,
        "maps": 19,
        "kernel": 2,
        "padding": 3,
        "groups": 19,
    },
    "depthwise with several maps": {"channels": 3, "maps": 6, "kernel": 3, "groups": 3},
    "depthwise without padding": {"channels": 17, "maps": 17, "kernel": (2, 3), "groups": 17},
}


def last(t, *shape):
    count = 1
    for size in shape:
        count *= size
    x = (t.arange(float(count)) % 13 - 6).reshape(shape)
    return x.to(memory_format=t.channels_last)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolutions_have_values_gradients_and_layout_of_pytorch(agree, name, dtype):
    case = dict(CASES[name])
    channels, maps, kernel = (case.pop(key) for key in ("channels", "maps", "kernel"))
    biased, groups = case.pop("bias", False), case.pop("groups", 1)
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel

    def program(t):
        kind = getattr(t, dtype)
        x = last(t, 2, channels, 6, 7).to(kind).requires_grad_()
        weight = (t.arange(float(maps * channels // groups * sizes[0] * sizes[1])) % 5 - 2).to(kind)
        weight = weight.reshape(maps, channels // groups, *sizes).requires_grad_()
        bias = t.arange(float(maps)).to(kind).requires_grad_() if biased else None
        y = t.nn.functional.conv2d(x, weight, bias, groups=groups, **case)
        y.backward(last(t, *y.shape).to(kind))
        gradients = [x.grad, weight.grad, bias.grad if biased else None]
        return [y.detach(), y.stride(), x.grad.stride(), gradients]

    agree(program)


def test_a_single_image_and_one_cut_out_of_another(agree):
    def program(t):
        weight = (t.arange(54.0) % 5).reshape(6, 1, 3, 3)
        x = last(t, 2, 6, 8, 9)
        f = t.nn.functional.conv2d
        parts = [x[0], x[:, :, 1:-1, 2:], x[:, :, ::2], x[:1].expand(3, 6, 8, 9)]
        found = [f(part, weight, padding=1, groups=6) for part in parts]
        return [*found, *(f(part, t.ones(2, 6, 1, 1)) for part in parts)]

    agree(program)


def test_second_derivatives_of_a_depthwise_convolution(agree):
    def program(t):
        x = last(t, 1, 18, 5, 5).double().requires_grad_()
        weight = (t.arange(162.0).double() % 7).reshape(18, 1, 3, 3).requires_grad_()
        y = t.nn.functional.conv2d(x, weight, padding=1, groups=18)
        first = t.autograd.grad((y**2).sum(), (x, weight), create_graph=True)
        return t.autograd.grad(sum((g**2).sum() for g in first), (x, weight))

    agree(program)


@pytest.mark.parametrize(("channels", "taken"), [(3, False), (15, False), (16, True)])
def test_depthwise_images_of_few_channels_are_laid_out_by_rows(channels, taken):
    x, weight = last(tangrad, 1, channels, 4, 5), tangrad.ones(channels, 1, 3, 3)
    windows = (1, 1), (0, 0), (1, 1)
    found = of_channels_last(x, weight, None, *windows, channels)
    assert (found is not None) is taken
    y = tangrad.nn.functional.conv2d(x, weight, None, *windows, channels)
    assert y.is_contiguous(memory_format=tangrad.channels_last)


@pytest.mark.parametrize("shape", [(2, 6, 5, 4), (3, 6), (1, 6, 3), (2, 6, 2, 2, 3), (0, 6, 2)])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("given", ["both", "weight", "none"])
def test_groups_of_channels_are_normalized_as_by_pytorch(agree, shape, groups, given):
    def program(t):
        count = 1
        for size in shape:
            count *= size
        x = (t.arange(float(count)) % 11 - 4).reshape(shape).requires_grad_()
        weight = t.linspace(-1, 2, 6).requires_grad_() if given != "none" else None
        bias = t.linspace(0, 1, 6).requires_grad_() if given == "both" else None
        y = t.nn.functional.group_norm(x, groups, weight, bias, eps=0.1)
        g = (t.arange(float(count)) % 7).reshape(shape)
        y.backward(g)
        others = [p.grad for p in (weight, bias) if p is not None]
        return [y.detach(), x.grad, others]

    agree(program)


def test_second_derivatives_of_normalized_groups(agree):
    def program(t):
        x = (t.arange(24.0).double() % 7).reshape(2, 4, 3).requires_grad_()
        weight = t.linspace(-1, 2, 4).double().requires_grad_()
        y = t.nn.functional.group_norm(x, 2, weight, eps=0.1)
        first = t.autograd.grad((y**3).sum(), (x, weight), create_graph=True)
        return t.autograd.grad(sum((g**2).sum() for g in first), (x, weight))

    agree(program)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_convolution_gives_the_same_in_either_order_in_memory(data):
    draw = data.draw
    small, kernels = st.integers(1, 3), st.integers(1, 4)
    kind = draw(st.sampled_from(["one group", "two groups", "depthwise"]))
    groups = {"one group": 1, "two groups": 2, "depthwise": draw(st.integers(1, 140))}[kind]
    channels = groups if kind == "depthwise" else groups * draw(small)
    maps = groups if kind == "depthwise" else groups * draw(small)
    kernel, stride = [(draw(kernels), draw(kernels)) for _ in range(2)]
    padding, dilation = (draw(st.integers(0, 3)), draw(st.integers(0, 3))), (draw(small), 1)
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    sizes = [n + draw(st.integers(0, 5)) for n in least]
    generator = tangrad.Generator().manual_seed(draw(st.integers(0, 99)))
    x, weight = (
        tangrad.randn(*shape, dtype=tangrad.float64, generator=generator)
        for shape in ((draw(small), channels, *sizes), (maps, channels // groups, *kernel))
    )

    def run(x):
        x, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = tangrad.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
        (y * y.detach().cos()).sum().backward()
        return y.detach(), x.grad, w.grad

    for one, other in zip(run(x), run(x.to(memory_format=tangrad.channels_last)), strict=True):
        tangrad.testing.assert_close(one, other)


# Called with the library's functions and images of 8 channels, 13 x 9.
RESIZED = {
    "max pooling": lambda f, x: f.max_pool2d(x, 2),
    "max pooling that overlaps": lambda f, x: f.max_pool2d(x, 3, 2, 1),
    "max pooling at a distance": lambda f, x: f.max_pool2d(x, (3, 2), 1, (1, 0), (2, 3)),
    "max pooling beyond the end": lambda f, x: f.max_pool2d(x, 3, 2, 0, 1, True),
    "mean pooling": lambda f, x: f.avg_pool2d(x, 2),
    "mean pooling with padding": lambda f, x: f.avg_pool2d(x, 3, 2, 1),
    "mean pooling without padding": lambda f, x: f.avg_pool2d(x, (3, 5), 2, 1, True, False),
    "mean pooling by a divisor": lambda f, x: f.avg_pool2d(x, 3, 2, 1, False, True, 7),
    "adaptive means": lambda f, x: f.adaptive_avg_pool2d(x, (5, 4)),
    "adaptive means of one row": lambda f, x: f.adaptive_avg_pool2d(x, (1, 9)),
    "nearest, repeated": lambda f, x: f.interpolate(x, scale_factor=2),
    "nearest": lambda f, x: f.interpolate(x, (7, 20)),
    "nearest of the same size": lambda f, x: f.interpolate(x, (13, 9)),
    "bilinear": lambda f, x: f.interpolate(x, (7, 20), mode="bilinear"),
    "bicubic": lambda f, x: f.interpolate(x, (20, 5), mode="bicubic"),
    "smoothed": lambda f, x: f.interpolate(x, (5, 4), mode="bilinear", antialias=True),
}


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_pooling_and_resampling_have_values_gradients_and_layout_of_pytorch(agree, name, dtype):
    if name == "smoothed" and dtype == "bfloat16":
        pytest.skip("PyTorch smooths no bfloat16")

    def check(t):
        x = last(t, 2, 8, 13, 9).to(getattr(t, dtype)).requires_grad_()
        y = RESIZED[name](t.nn.functional, x)
        with t.no_grad():
            alone = RESIZED[name](t.nn.functional, x)
        y.backward(y.detach())
        exact = dtype != "bfloat16"
        return [
            y.is_contiguous(memory_format=t.channels_last),
            alone.is_contiguous(memory_format=t.channels_last),
            bool((alone == y).all()),
            *((y.detach(), x.grad) if exact else (y.detach().float(),)),
        ]

    # PyTorch rounds between rows and columns, too: half a unit of numbers up to 8, twice.
    agree(check, tolerance=4e-2 if dtype == "bfloat16" else 3e-5)


@pytest.mark.parametrize("seed", range(20))
def test_rearranged_channels_have_values_and_layout_of_pytorch(agree, seed):
    drawn = random.Random(seed)
    samples, channels, height, width = (drawn.randint(2, 5) for _ in range(4))
    factor, cut = drawn.randint(2, 4), drawn.randint(0, 1)

    def program(torch):
        def last(*shape):
            count = 1
            for size in shape:
                count *= size
            x = torch.arange(float(count)).reshape(shape)
            return x.contiguous(memory_format=torch.channels_last)[:, :, cut:].requires_grad_()

        found = []
        for name, x in (
            ("channel_shuffle", last(samples, channels * factor, height, width)),
            ("pixel_shuffle", last(samples, channels * factor**2, height, width)),
            ("pixel_unshuffle", last(samples, channels, factor * height + cut, factor * width)),
        ):
            y = getattr(torch.nn.functional, name)(x, factor)
            by = torch.autograd.grad((y * y).sum(), x)[0]
            found += [list(y.stride()), y.detach(), by]
        return found

    agree(program)


@pytest.mark.parametrize("padding", [0, 1, (2, 1)])
def test_windows_of_images_are_cut_alike_in_either_order(agree, padding):
    def program(t):
        x = last(t, 2, 3, 5, 6).requires_grad_()
        columns = t.nn.functional.unfold(x, (3, 2), padding=padding, stride=2)
        columns.backward(t.arange(float(columns.numel())).reshape(columns.shape) % 5)
        return [columns.detach(), x.grad]

    agree(program)


def test_a_single_volume_may_lie_like_an_image():
    F, volume = tangrad.nn.functional, last(tangrad, 2, 4, 5, 6)
    for pooled in (
        lambda x: F.max_pool3d(x, 2),
        lambda x: F.avg_pool3d(x, 2),
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)),
        lambda x: F.adaptive_max_pool3d(x, 2),
    ):
        # Sums along dimensions are rounded otherwise than those of windows.
        tangrad.testing.assert_close(pooled(volume), pooled(volume.contiguous()))


def test_the_order_of_strides_is_told_alike_whether_or_not_a_program_is_recorded() -> None:
    # Sizes of a recorded program are not compared with one: strides alone tell it.
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for shape in itertools.product((0, 1, 2, 3), repeat=4):
        for order in itertools.permutations(range(4)):
            x = tangrad.empty([shape[d] for d in order]).permute([order.index(d) for d in range(4)])
            for y in (x, x[:, :, ::2], x[:, 1:]):
                with Mode():
                    recorded = ordered_channels_last(y)
                assert ordered_channels_last(y) == recorded

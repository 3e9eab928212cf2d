"""Position-sensitive regions and deformable convolution: definitions, devices, gradients, vmap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.vision.ops import (
    deform_conv2d,
    nms,
    ps_roi_align,
    ps_roi_pool,
    roi_align,
    roi_pool,
)
from tangrad_vision import quantized

POOLINGS: dict[str, Any] = {
    "roi_align": lambda x, r: roi_align(x, r, (2, 3), 0.5, 2, True),
    "roi_align, adaptive": lambda x, r: roi_align(x, r, (2, 3), 0.5),
    "roi_pool": lambda x, r: roi_pool(x, r, (2, 3), 0.5),
    "ps_roi_align": lambda x, r: ps_roi_align(x, r, (2, 3), 0.5, 2),
    "ps_roi_pool": lambda x, r: ps_roi_pool(x, r, (2, 3), 0.5),
}


def example(seed: int = 1, channels: int = 12) -> tuple[Any, Any]:
    """Return a map and regions: usual ones, partly outside, empty, far away, many in one place."""
    generator = np.random.default_rng(seed)
    maps = generator.standard_normal((2, channels, 9, 11))
    corners = generator.random((9, 2)) * 14
    rois = np.concatenate([corners, corners + generator.random((9, 2)) * 10], 1)
    rois[4] += 9
    rois[5, 2:] = rois[5, :2]
    rois[6] += 500
    pictures = np.array([[0, 1, 0, 1, 1, 0, 1, 0, 0]]).T
    return tangrad.tensor(maps), tangrad.tensor(np.concatenate([pictures, rois], 1))


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64])
@pytest.mark.parametrize("name", POOLINGS)
def test_kernels_agree_with_what_other_devices_compute(name: str, dtype: Any) -> None:
    maps, rois = (t.to(dtype) for t in example(channels=78))
    got = POOLINGS[name](maps, rois)
    expected = POOLINGS[name](maps.to("reference"), rois.to("reference"))
    tangrad.testing.assert_close(got, expected.cpu())


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_are_those_of_differences_and_of_other_devices(name: str) -> None:
    maps, rois = example()
    x = maps.clone().requires_grad_()
    weight = tangrad.randn(POOLINGS[name](maps, rois).shape, dtype=tangrad.float64)
    (POOLINGS[name](x, rois) * weight).sum().backward()
    y = maps.to("reference").requires_grad_()
    (POOLINGS[name](y, rois.to("reference")) * weight.to("reference")).sum().backward()
    tangrad.testing.assert_close(x.grad, y.grad.cpu())
    small = example(channels=6)[0][:, :, :5, :5].contiguous().requires_grad_()
    tangrad.autograd.gradcheck(lambda t: POOLINGS[name](t, rois[:4]), (small,))


@pytest.mark.parametrize("name", POOLINGS)
def test_a_batch_is_one_call_after_the_other(name: str) -> None:
    pairs = [example(seed) for seed in (1, 2, 3)]
    maps, rois = (tangrad.stack(side) for side in zip(*pairs, strict=True))
    got = tangrad.vmap(POOLINGS[name])(maps, rois)
    tangrad.testing.assert_close(got, tangrad.stack([POOLINGS[name](*pair) for pair in pairs]))
    shared = tangrad.vmap(POOLINGS[name], (0, None))(maps, rois[0])
    tangrad.testing.assert_close(shared, tangrad.stack([POOLINGS[name](m, rois[0]) for m in maps]))
    each = tangrad.vmap(tangrad.func.grad(lambda m, r: POOLINGS[name](m, r).square().sum()))
    alone = tangrad.func.grad(lambda m: POOLINGS[name](m, rois[1]).square().sum())(maps[1])
    tangrad.testing.assert_close(each(maps, rois)[1], alone)


@pytest.mark.parametrize("name", ["roi_align", "ps_roi_align", "ps_roi_pool"])
def test_forward_mode_follows_from_being_linear(name: str) -> None:
    maps, rois = example()
    along = tangrad.randn_like(maps)
    _, got = tangrad.func.jvp(lambda m: POOLINGS[name](m, rois), (maps,), (along,))
    tangrad.testing.assert_close(got, POOLINGS[name](along, rois))


def test_position_sensitive_cells_read_channels_of_their_own() -> None:
    maps, rois = example()
    whole = roi_align(maps, rois, (2, 3), 0.5, 2, True)
    got = ps_roi_align(maps, rois, (2, 3), 0.5, 2)
    for channel in range(2):
        for i in range(2):
            for j in range(3):
                expected = whole[:, (channel * 2 + i) * 3 + j, i, j]
                tangrad.testing.assert_close(got[:, channel, i, j], expected)


def test_position_sensitive_pooling_is_a_mean_of_whole_cells() -> None:
    maps, rois = example()
    got = ps_roi_pool(maps, rois, (2, 3), 0.5).numpy()
    for k, (picture, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (math.floor(c * 0.5 + 0.5) for c in corners)
        high, wide = max(y2 - y1, 1), max(x2 - x1, 1)
        for i in range(2):
            for j in range(3):
                y, x = ((min(max(start + math.floor(n * size / parts), 0), limit),
                         min(max(start + math.ceil((n + 1) * size / parts), 0), limit))
                        for start, n, size, parts, limit in (
                            (y1, i, high, 2, 8), (x1, j, wide, 3, 10)))  # fmt: skip
                for channel in range(2):
                    window = maps[int(picture), (channel * 2 + i) * 3 + j].numpy()[
                        slice(*y), slice(*x)
                    ]
                    expected = window.mean() if window.size else 0.0
                    assert got[k, channel, i, j] == pytest.approx(expected)


# --- deformable convolution


def deformable(masked: bool = True, dtype: Any = tangrad.float64) -> list[Any]:
    """Return input, offset, weight, bias, mask."""
    generator = np.random.default_rng(4)
    draw = lambda *shape: tangrad.tensor(generator.standard_normal(shape), dtype=dtype)  # noqa: E731
    return [
        draw(2, 6, 5, 6), draw(2, 2 * 2 * 6, 3, 3) * 1.5, draw(4, 3, 3, 2), draw(4),
        draw(2, 2 * 6, 3, 3) if masked else None,
    ]  # fmt: skip


def convolved(x: Any, offset: Any, weight: Any, bias: Any, mask: Any) -> Any:
    return deform_conv2d(x, offset, weight, bias, (2, 1), (1, 0), (1, 3), mask)


def by_loops(x: Any, offset: Any, weight: Any, bias: Any, mask: Any) -> Any:
    """Return the convolution, number by number."""
    x, offset, weight, bias = (t.numpy() for t in (x, offset, weight, bias))
    out = np.zeros((2, 4, 3, 3)) + bias[None, :, None, None]

    def at(plane: Any, y: float, z: float) -> float:
        total = 0.0
        for row in (math.floor(y), math.floor(y) + 1):
            for column in (math.floor(z), math.floor(z) + 1):
                if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                    total += plane[row, column] * (1 - abs(y - row)) * (1 - abs(z - column))
        return total

    for n, o, i, j in np.ndindex(*out.shape):
        for c, ky, kx in np.ndindex(3, 3, 2):
            channel = o // 2 * 3 + c
            tap = (channel // 3) * 6 + ky * 2 + kx
            y = i * 2 - 1 + ky + offset[n, 2 * tap, i, j]
            z = j + kx * 3 + offset[n, 2 * tap + 1, i, j]
            value = at(x[n, channel], y, z) if -1 < y < 5 and -1 < z < 6 else 0.0
            if mask is not None:
                value *= float(mask[n, tap, i, j])
            out[n, o, i, j] += weight[o, c, ky, kx] * value
    return out


@pytest.mark.parametrize("masked", [False, True])
def test_windows_are_moved_and_weighed(masked: bool) -> None:
    arguments = deformable(masked)
    got = convolved(*arguments)
    tangrad.testing.assert_close(got, tangrad.tensor(by_loops(*arguments)))
    moved = [None if t is None else t.to("reference") for t in arguments]
    tangrad.testing.assert_close(got, convolved(*moved).cpu())
    single = [None if t is None else t.float() for t in arguments]
    tangrad.testing.assert_close(convolved(*single), got.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_deformable_convolution(masked: bool) -> None:
    arguments = [t if t is None else t.requires_grad_() for t in deformable(masked)]
    given = [t for t in arguments if t is not None]
    rebuilt = lambda *t: convolved(*(t if masked else (*t, None)))  # noqa: E731
    tangrad.autograd.gradcheck(rebuilt, tuple(given), fast_mode=True)
    weight = tangrad.randn(2, 4, 3, 3, dtype=tangrad.float64)
    got = tangrad.autograd.grad((rebuilt(*given) * weight).sum(), given)
    moved = [t.detach().to("reference").requires_grad_() for t in given]
    there = tangrad.autograd.grad((rebuilt(*moved) * weight.to("reference")).sum(), moved)
    for a, b in zip(got, there, strict=True):
        tangrad.testing.assert_close(a, b.cpu())


def test_deformable_convolution_in_a_batch() -> None:
    x, offset, weight, bias, mask = deformable()
    many = tangrad.stack([x, x * 2, -x])
    got = tangrad.vmap(lambda t: convolved(t, offset, weight, bias, mask))(many)
    expected = tangrad.stack([convolved(t, offset, weight, bias, mask) for t in many])
    tangrad.testing.assert_close(got, expected)


# --- integers, and what cannot be


def test_quantized_regions_are_those_of_the_numbers_they_stand_for() -> None:
    generator = np.random.default_rng(2)
    x = tangrad.tensor(generator.integers(0, 256, (1, 3, 9, 9)), dtype=tangrad.uint8)
    rois = tangrad.tensor([[0, 2, 4, 14, 16], [0, 0, 0, 8, 30]], dtype=tangrad.uint8)
    got = quantized.roi_align(x, rois, 0.1, 7, 0.5, 0, (2, 2), 1.0, 2, True)
    numbers = roi_align((x.float() - 7) * 0.1, rois.float() * 0.5, 2, 1.0, 2, True)
    assert got.dtype == tangrad.uint8
    tangrad.testing.assert_close((got.float() - 7) * 0.1, numbers, rtol=0, atol=0.051)
    with pytest.raises(RuntimeError, match="Only one image per batch"):
        quantized.roi_align(x.repeat(2, 1, 1, 1), rois, 0.1, 7, 0.5, 0, (2, 2), 1.0, 2, True)


def test_quantized_boxes_stay_as_their_integers_do() -> None:
    corners = np.sort(np.random.default_rng(3).integers(0, 255, (40, 2, 2)), 1).reshape(40, 4)
    boxes = tangrad.tensor(corners, dtype=tangrad.uint8)
    scores = tangrad.arange(40, dtype=tangrad.uint8)
    expected = nms(boxes.float(), scores.float(), 0.4)
    assert quantized.nms(boxes, scores, 0.4).tolist() == expected.tolist()


def test_equal_scores_keep_their_order_and_nan_overlaps_nothing() -> None:
    boxes = tangrad.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1], [math.nan, 0, 1, 1], [5, 5, 5, 5]])
    assert nms(boxes, tangrad.ones(4), 0.5).tolist() == [0, 2, 3]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([0.0, 1, 1, math.nan, 3], r"box 1 is \(1, 1, nan, 3\), which is not finite"),
        ([0.0, 1, 1, math.inf, 3], "box 1 is .* not finite"),
        ([0.0, 1, 1, 1e30, 3], "farther than"),
        ([2.0, 1, 1, 2, 3], "beyond the batch of 2: box 1 is of picture 2"),
        ([-1.0, 1, 1, 2, 3], "beyond the batch of 2: box 1 is of picture -1"),
    ],
)
def test_boxes_that_cannot_be_are_named(
    name: str, box: list[float], message: str, device: str
) -> None:
    maps, rois = example()
    rois[1] = tangrad.tensor(box)
    with pytest.raises(RuntimeError, match=f"{name.partition(',')[0]}: .*{message}"):
        POOLINGS[name](maps.to(device), rois.to(device))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: lambda t: t[0]}, "4-dimensional input"),
        ({1: lambda t: t[:, :7]}, "offset.shape"),
        ({1: lambda t: t[:, :, :2]}, r"offset has shape .*expected \(2, 24, 3, 3\)"),
        ({2: lambda t: t[:3]}, "do not divide into 2 groups"),
        ({2: lambda t: t.float()}, "weight is tangrad.float32 and input tangrad.float64"),
        ({3: lambda t: t[:2]}, "the bias has shape"),
        ({4: lambda t: t[:, :4]}, r"mask\.shape\[1\] is not valid: it is 4"),
        ({4: lambda t: t[:, :4], 2: lambda t: t.float()}, r"mask\.shape\[1\] is not valid"),
    ],
)
def test_what_does_not_fit_a_deformable_convolution(changed: Any, message: str) -> None:
    arguments = [changed.get(k, lambda t: t)(t) for k, t in enumerate(deformable())]
    with pytest.raises(RuntimeError, match=message):
        convolved(*arguments)


def test_channels_have_to_fit_position_sensitive_cells() -> None:
    maps, rois = example(channels=5)
    with pytest.raises(RuntimeError, match="multiple of pooling height"):
        ps_roi_align(maps, rois, (2, 3))
    with pytest.raises(RuntimeError, match="give at least 1"):
        roi_align(maps, rois, (0, 3))

"""Boxes and regions against their definitions, written as loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.vision.ops import nms, roi_align, roi_pool
from tangrad_vision.regions import gradient_of


def boxes(count: int, size: float, *, generator: Any) -> Any:
    """Return boxes (x1, y1, x2, y2) in a square."""
    corner = generator.random((count, 2)) * size * 0.7
    return np.concatenate([corner, corner + generator.random((count, 2)) * size * 0.5], 1)


def suppressed(corners: Any, scores: Any, threshold: float) -> list[int]:
    """Return which boxes stay, pair by pair."""

    def area(b: Any) -> float:
        return float((b[2] - b[0]) * (b[3] - b[1]))

    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        a = corners[i]
        for j in kept:
            b = corners[j]
            width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
            height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
            if width * height / (area(a) + area(b) - width * height) > threshold:
                break
        else:
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_boxes_that_overlap_a_better_one_go(threshold: float) -> None:
    generator = np.random.default_rng(0)
    corners, scores = boxes(60, 10, generator=generator), generator.random(60)
    got = nms(tangrad.tensor(corners), tangrad.tensor(scores), threshold)
    assert got.dtype == tangrad.int64
    assert got.tolist() == suppressed(corners, scores, threshold)


def test_no_boxes_leave_none() -> None:
    assert nms(tangrad.zeros(0, 4), tangrad.zeros(0), 0.5).shape == (0,)


def aligned_at(plane: Any, y: float, x: float) -> Any:
    """Return a map (C, H, W) interpolated at one place; zero outside."""
    _, rows, columns = plane.shape
    if not (-1 <= y <= rows and -1 <= x <= columns):
        return np.zeros(plane.shape[0])
    y, x = max(y, 0), max(x, 0)
    y0, x0 = min(int(y), rows - 1), min(int(x), columns - 1)
    y1, x1 = min(y0 + 1, rows - 1), min(x0 + 1, columns - 1)
    y, x = (y0 if y0 >= rows - 1 else y), (x0 if x0 >= columns - 1 else x)
    dy, dx = y - y0, x - x0
    return (
        plane[:, y0, x0] * (1 - dy) * (1 - dx)
        + plane[:, y0, x1] * (1 - dy) * dx
        + plane[:, y1, x0] * dy * (1 - dx)
        + plane[:, y1, x1] * dy * dx
    )


def aligned_by_loops(
    maps: Any, rois: Any, size: int, scale: float, ratio: int, aligned: bool
) -> Any:
    """Return what `roi_align` gives, sample by sample."""
    out = np.zeros((len(rois), maps.shape[1], size, size))
    shift = 0.5 if aligned else 0.0
    for k, (picture, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (c * scale - shift for c in corners)
        wide, high = x2 - x1, y2 - y1
        if not aligned:
            wide, high = max(wide, 1.0), max(high, 1.0)
        ny = ratio if ratio > 0 else math.ceil(high / size)
        nx = ratio if ratio > 0 else math.ceil(wide / size)
        for i in range(size):
            for j in range(size):
                samples = [
                    aligned_at(
                        maps[int(picture)],
                        y1 + (i + (a + 0.5) / ny) * high / size,
                        x1 + (j + (b + 0.5) / nx) * wide / size,
                    )
                    for a in range(ny)
                    for b in range(nx)
                ]
                if samples:
                    out[k, :, i, j] = np.mean(samples, 0)
    return out


def example() -> tuple[Any, Any]:
    """Return a map and regions, one of them partly outside, one of them empty."""
    generator = np.random.default_rng(1)
    maps = generator.standard_normal((2, 3, 9, 11))
    corners = boxes(6, 20, generator=generator)
    corners[4] += 9
    corners[5, 2:] = corners[5, :2]
    return maps, np.concatenate([np.array([[0, 1, 0, 1, 1, 0]]).T, corners], 1)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_aligned_regions_are_means_of_interpolated_samples(aligned: bool, ratio: int) -> None:
    maps, rois = example()
    got = roi_align(tangrad.tensor(maps), tangrad.tensor(rois), 3, 0.5, ratio, aligned)
    expected = tangrad.tensor(aligned_by_loops(maps, rois, 3, 0.5, ratio, aligned))
    tangrad.testing.assert_close(got, expected)


def test_pooled_regions_are_maxima_of_their_cells() -> None:
    maps, rois = example()
    got = roi_pool(tangrad.tensor(maps), tangrad.tensor(rois), (2, 3), 0.5).numpy()
    for k, (picture, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (math.floor(c * 0.5 + 0.5) for c in corners)
        wide, high = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
        for i in range(2):
            for j in range(3):
                rows = slice(y1 + math.floor(i * high / 2), y1 + math.ceil((i + 1) * high / 2))
                columns = slice(x1 + math.floor(j * wide / 3), x1 + math.ceil((j + 1) * wide / 3))
                window = maps[int(picture)][:, rows, columns].reshape(3, -1)
                expected = window.max(1) if window.size else np.zeros(3)
                np.testing.assert_allclose(got[k, :, i, j], expected)


@pytest.mark.parametrize("op", [roi_align, roi_pool])
def test_derivatives_are_those_of_differences(op: Any) -> None:
    maps, rois = example()
    regions = tangrad.tensor(rois)
    tangrad.autograd.gradcheck(
        lambda x: op(x, regions, 2, 0.5), (tangrad.tensor(maps, requires_grad=True),)
    )


@pytest.mark.parametrize("op", [roi_align, roi_pool])
def test_no_regions_have_no_results(op: Any) -> None:
    assert op(tangrad.ones(1, 2, 4, 4), tangrad.zeros(0, 5), 2).shape == (0, 2, 2, 2)


def test_the_gradient_of_no_regions_is_zero() -> None:
    got = gradient_of(
        "roi_align", tangrad.zeros(0, 2, 2, 2), tangrad.zeros(0, 5), (1, 2, 4, 4), 1.0, 2
    )
    assert got.shape == (1, 2, 4, 4)
    assert not got.any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nms(tangrad.ones(3), tangrad.ones(3), 0.5), "boxes should be a 2d tensor"),
        (lambda: nms(tangrad.ones(3, 5), tangrad.ones(3), 0.5), "should have 4 elements"),
        (lambda: nms(tangrad.ones(3, 4), tangrad.ones(2), 0.5), "same number of elements"),
        (lambda: nms(tangrad.ones(3, 4), tangrad.ones(3).double(), 0.5), "same type as scores"),
        (lambda: roi_align(tangrad.ones(1, 1, 2), tangrad.ones(1, 5), 2), "must have 4 dimensions"),
        (lambda: roi_align(tangrad.ones(1, 1, 2, 2), tangrad.ones(1, 4), 2), r"Tensor\[K, 5\]"),
        (lambda: roi_pool(tangrad.ones(1, 1, 2, 2), tangrad.ones(1, 5).double(), 2), "same type"),
        (lambda: roi_align(tangrad.ones(1, 1, 2, 2), tangrad.ones(1, 5), 2), "beyond the batch"),
        (
            lambda: roi_align(tangrad.ones(1, 1, 2, 2), tangrad.zeros(1, 5), 2, float("nan")),
            "spatial_scale is nan; give a finite number",
        ),
        (
            lambda: roi_pool(tangrad.ones(1, 1, 2, 2), tangrad.zeros(1, 5), 2, float("inf")),
            "spatial_scale is inf; give a finite number",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()

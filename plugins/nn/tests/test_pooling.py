"""Pooling: what a window sees at borders, and which element it passes the gradient to."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tangrad
from tangrad.nn import functional as F


def test_max_pool_passes_the_gradient_to_the_greatest() -> None:
    x = tangrad.tensor([[[1.0, 5.0], [3.0, 2.0]]], requires_grad=True)
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[0, 1], [0, 0]]]


def test_padding_never_wins() -> None:
    x = tangrad.full((1, 2, 2), -7.0)
    assert F.max_pool2d(x, 2, 1, 1).tolist() == tangrad.full((1, 3, 3), -7.0).tolist()


def test_a_nan_wins() -> None:
    x = tangrad.tensor([[[1.0, math.nan], [3.0, 2.0]]])
    assert math.isnan(F.max_pool2d(x, 2).item())


def test_indices_are_positions_in_the_image() -> None:
    x = tangrad.arange(16.0).reshape(1, 4, 4)
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    assert values.flatten().tolist() == indices.flatten().tolist() == [5, 7, 13, 15]


def test_ceil_mode_adds_a_window_that_reaches_out() -> None:
    x = tangrad.arange(5.0).reshape(1, 1, 5)
    assert F.max_pool2d(x, (1, 2)).tolist() == [[[1, 3]]]
    assert F.max_pool2d(x, (1, 2), ceil_mode=True).tolist() == [[[1, 3, 4]]]


def test_average_counts_padding_or_not() -> None:
    x = tangrad.ones(1, 2, 2)
    assert F.avg_pool2d(x, 2, 2, 1)[0].tolist() == [[0.25, 0.25], [0.25, 0.25]]
    without = F.avg_pool2d(x, 2, 2, 1, count_include_pad=False)
    assert without[0].tolist() == [[1, 1], [1, 1]]


def test_adaptive_windows_may_overlap() -> None:
    x = tangrad.tensor([[[0.0, 1.0, 2.0]]])
    assert F.adaptive_avg_pool2d(x, (1, 2)).tolist() == [[[0.5, 1.5]]]


def test_too_much_padding_is_refused() -> None:
    with pytest.raises(RuntimeError, match="at most half of effective kernel size"):
        F.max_pool2d(tangrad.ones(1, 4, 4), 2, 2, 2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_refused_maximum_is_named_with_its_dimensions(rank: int) -> None:
    with pytest.raises(RuntimeError, match=f"max_pool{rank}d: Given input size"):
        getattr(F, f"max_pool{rank}d")(tangrad.ones((1,) + (2,) * rank), 5)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_averages_of_every_geometry_are_those_of_torch(
    padding: int, include: bool, ceil_mode: bool
) -> None:
    options = {"padding": padding, "ceil_mode": ceil_mode, "count_include_pad": include}
    results = [
        library.nn.functional.avg_pool1d(library.arange(8.0).reshape(1, 8), 3, 2, **options)
        for library in (tangrad, torch)
    ]
    assert results[0].flatten().tolist() == pytest.approx(results[1].flatten().tolist())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("adaptive_avg_pool1d", (0, 10)),
        ("adaptive_avg_pool1d", (1, 0, 10)),
        ("adaptive_avg_pool1d", (1, 2, 0)),
        ("adaptive_avg_pool2d", (0, 10, 10)),
        ("adaptive_avg_pool2d", (1, 0, 10, 10)),
        ("adaptive_avg_pool2d", (1, 2, 0, 10)),
        ("adaptive_avg_pool3d", (0, 4, 4, 4)),
        ("adaptive_max_pool2d", (0, 10, 10)),
        ("adaptive_max_pool2d", (0, 2, 10, 10)),
        ("adaptive_max_pool2d", (1, 0, 10, 10)),
    ],
)
def test_empty_inputs_are_pooled_where_pytorch_pools_them(name, shape):
    outcomes = []
    for lib in (tangrad, torch):
        try:
            outcomes.append(tuple(getattr(lib.nn.functional, name)(lib.ones(shape), 3).shape))
        except RuntimeError as error:
            outcomes.append("non-zero size for non-batch dimensions" in str(error))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] is not False


@pytest.mark.parametrize(("spatial", "out"), [(2, (0, 1)), (2, (0, 0)), (3, (1, 0, 2))])
def test_windows_at_random_distances_may_be_none(spatial, out):
    x = tangrad.ones((1, 2) + (4,) * spatial, requires_grad=True)
    pool = getattr(tangrad.nn, f"FractionalMaxPool{spatial}d")
    values, indices = pool(2, output_size=out, return_indices=True)(x)
    assert values.shape == indices.shape == (1, 2, *out)
    assert indices.dtype == tangrad.int64
    values.sum().backward()
    assert not x.grad.any()


@pytest.mark.parametrize(
    "part", [(slice(None), slice(None, None, 2)), (slice(None, None, 2),), (0, None)]
)
@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: lib.nn.functional.conv2d(x, lib.ones(6, x.shape[1], 3, 3)),
        lambda lib, x: lib.nn.functional.avg_pool2d(x, 2),
        lambda lib, x: lib.nn.functional.max_pool2d(x, 2),
        lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 3),
        lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2),
    ],
    ids=["conv2d", "avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "interpolate"],
)
def test_parts_of_images_stored_channels_last_give_such_images(function, part):
    strides = []
    for lib in (tangrad, torch):
        x = lib.ones(4, 8, 8, 8).to(memory_format=lib.channels_last)[part]
        strides.append(tuple(function(lib, x).stride()))
    assert strides[0] == strides[1]


def test_a_single_volume_is_pooled_as_it_is_stored() -> None:
    x = tangrad.randn(2, 4, 5, 6, 7).contiguous(memory_format=tangrad.channels_last_3d)
    for pooled, single in zip(
        F.max_pool3d(x, 2, return_indices=True),
        F.max_pool3d(x[0].clone(), 2, return_indices=True),
        strict=True,
    ):
        assert single.stride() == pooled[0].stride()
        assert single.equal(pooled[0])


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: F.max_pool2d(x, 2, 0), "stride must be greater than zero"),
    (lambda x: F.avg_pool2d(x, 2, 0), "stride must be greater than zero"),
    (lambda x: F.max_pool2d(x, 0, 1), "kernel_size must be greater than zero"),
    (lambda x: F.fractional_max_pool2d(x, (2,), output_size=2), "kernel_size must either be"),
    (lambda x: F.fractional_max_pool2d(x, 2, output_size=(2,)), "output_size must either be"),
    (
        lambda x: F.fractional_max_pool2d(x, 2, output_size=(4, 1)),
        "pool height 2 too large relative to input height 4",
    ),
    (
        lambda x: F.fractional_max_pool2d(x, 2, 2, _random_samples=tangrad.rand(0, 1, 2)),
        "Expect _random_samples",
    ),
    (
        lambda x: F.conv2d(x, tangrad.ones(1, 1, 5, 5)),
        r"size per channel: \(4 x 4\)\. Kernel size: \(5 x 5\)\.",
    ),
    (lambda x: F.conv2d(x.double(), tangrad.ones(1, 1, 5, 5)), "DoubleTensor.*FloatTensor"),
    (
        lambda x: tangrad.grid_sampler(x, tangrad.ones(2, 1, 1, 2), 0, 0, False),
        "expected grid and input to have same batch size",
    ),
])  # fmt: skip
def test_windows_that_cannot_be_are_told_of(call: Any, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        call(tangrad.ones(1, 1, 4, 4))


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_backward_from_no_windows_is_refused(kind, rank):
    for lib in (tangrad, torch):
        pool = getattr(lib.nn.functional, f"adaptive_{kind}_pool{rank}d")
        x = lib.ones((1, 4, *[5] * rank), requires_grad=True)
        y = pool(x, 0)
        assert y.numel() == 0
        with pytest.raises(RuntimeError, match="Expected grad_output to have non-zero size"):
            y.sum().backward()
        pool(lib.ones((0, 4, *[5] * rank), requires_grad=True), 2).sum().backward()


def test_the_mean_of_pictures_keeps_their_channels_last():
    for lib in (tangrad, torch):
        x = lib.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=lib.channels_last)
        y = lib.nn.functional.adaptive_avg_pool2d(x, 1)
        assert tuple(y.stride()) == (3, 1, 3, 3)
        assert y.flatten().tolist() == [9.5, 29.5, 49.5, 69.5, 89.5, 109.5]


def test_sizes_of_resampling_are_whole_numbers():
    for lib in (tangrad, torch):
        resample = lib.nn.functional.interpolate
        assert tuple(resample(lib.ones(1, 1, 2), (lib.tensor(4),)).shape) == (1, 1, 4)
        with pytest.raises(TypeError, match="expected size to be one of int or"):
            resample(lib.ones(1, 1, 2), (lib.tensor(4.0),))


def test_a_parameter_that_becomes_sparse_is_another():
    for lib in (tangrad, torch):
        layer = lib.nn.Linear(3, 2, bias=False)
        before = layer.weight
        layer._apply(lambda t: t.to_sparse())
        assert layer.weight is not before
        assert layer.weight.layout is lib.sparse_coo


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_averages_of_many_windows_make_no_matrix(
    monkeypatch: pytest.MonkeyPatch, kernel: int, dtype: str
) -> None:
    monkeypatch.setattr("tangrad.ops.nn.pooling.channels_last.summed_lines", None)
    x = tangrad.arange(100_000).remainder(7).to(getattr(tangrad, dtype)).reshape(1, 1, -1)
    x.requires_grad_()
    found = F.avg_pool1d(x, kernel, 2, kernel // 2)
    expected = torch.nn.functional.avg_pool1d(
        torch.tensor(x.double().tolist()), kernel, 2, kernel // 2
    )
    tangrad.testing.assert_close(
        found.double(), tangrad.tensor(expected.tolist()).double(), rtol=4e-3, atol=0
    )
    found.double().sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0, 2].item() == pytest.approx(1 / kernel, rel=4e-3)

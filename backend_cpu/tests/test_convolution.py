"""Convolution and its adjoints agree with the reference device for any geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.convolution import convolution, convolution_input, convolution_weight
from tangrad_cpu import _kernels

# Of the largest result: sums of up to a few thousand products, then one rounding.
TOLERANCE = {"float32": 2e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}


def draw_tensor(data: st.DataObject, shape: tuple[int, ...], dtype: str) -> Any:
    """Return a tensor of the shape whose dimensions lie in memory in any order."""
    order = data.draw(st.permutations(range(len(shape))))
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).standard_normal([shape[d] for d in order])
    kind = getattr(tangrad, dtype)
    return tangrad.from_numpy(values).to(kind).permute(tuple(np.argsort(order).tolist()))


def expect_close(got: Any, expected: Any, dtype: str) -> None:
    exact = expected.cpu().double().numpy()
    size = TOLERANCE[dtype] * (1 + np.abs(exact).max(initial=0))
    np.testing.assert_allclose(got.double().numpy(), exact, rtol=0, atol=size)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3), st.sampled_from(sorted(TOLERANCE)), st.data())
def test_agrees_with_the_reference(spatial: int, dtype: str, data: st.DataObject) -> None:
    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(spatial))

    groups = data.draw(st.sampled_from([1, 1, 2, 5]))
    images = data.draw(st.integers(0, 3))
    inside, outside = (data.draw(st.sampled_from([1, 2, 3, 17])) for _ in range(2))
    kernel, stride, padding, dilation = sizes(1, 4), sizes(1, 3), sizes(0, 3), sizes(1, 3)
    out = sizes(1, 70 if spatial == 1 else 12 if spatial == 2 else 4)
    rest = [data.draw(st.integers(0, s - 1)) for s in stride]
    size = tuple(
        (o - 1) * s + (k - 1) * d + 1 + r - 2 * p
        for o, s, k, d, r, p in zip(out, stride, kernel, dilation, rest, padding, strict=True)
    )
    padding = tuple(p if n > 0 else 0 for n, p in zip(size, padding, strict=True))
    size = tuple(
        n if n > 0 else (o - 1) * s + (k - 1) * d + 1
        for n, o, s, k, d in zip(size, out, stride, kernel, dilation, strict=True)
    )
    shapes = {
        "input": (images, inside * groups, *size),
        "weight": (outside * groups, inside, *kernel),
        "grad": (images, outside * groups, *out),
    }
    operands = {name: draw_tensor(data, shape, dtype) for name, shape in shapes.items()}
    exact = {name: x.double().to("reference") for name, x in operands.items()}
    geometry = (stride, padding, dilation, groups)
    calls: list[tuple[Callable[..., Any], str, str, tuple[Any, ...]]] = [
        (convolution, "input", "weight", ()),
        (convolution_input, "weight", "grad", (shapes["input"],)),
        (convolution_weight, "input", "grad", (shapes["weight"],)),
    ]
    for function, first, second, shape in calls:
        got = function(operands[first], operands[second], *shape, *geometry)
        expected = function(exact[first], exact[second], *shape, *geometry)
        assert got.shape == expected.shape
        expect_close(got, expected, dtype)


def test_images_without_spatial_dimensions_are_products() -> None:
    for dtype, channels in (("bfloat16", 1), ("float16", 3), ("float32", 1)):
        kind = getattr(tangrad, dtype)
        x, weight = tangrad.randn(2, channels).to(kind), tangrad.randn(channels, 1).to(kind)
        for _ in range(20):  # what lies beside the shape in memory differs from call to call
            got = convolution(x, weight, (), (), (), channels)
            expect_close(got, x.double() * weight[:, 0].double(), dtype)


CASES = {
    "dense": ((2, 70, 19, 23), (300, 70, 3, 3), 1),
    "small images": ((9, 60, 7, 7), (300, 60, 3, 3), 1),
    "one image": ((1, 8, 64, 64), (24, 8, 3, 3), 1),
    "groups": ((2, 64, 15, 15), (64, 16, 3, 3), 4),
    "depthwise": ((2, 33, 31, 29), (66, 1, 3, 3), 33),
}


def all_faces(x: Any, weight: Any, stride: int, groups: int) -> list[Any]:
    geometry = ((stride,) * 2, (1, 1), (1, 1), groups)
    y = convolution(x, weight, *geometry)
    return [
        y,
        convolution_input(weight, y, tuple(x.shape), *geometry),
        convolution_weight(x, y, tuple(weight.shape), *geometry),
    ]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stride", [1, 2])
def test_large_ones_agree_with_the_reference(case: str, stride: int) -> None:
    shape, weight_shape, groups = CASES[case]
    x, weight = tangrad.randn(shape), tangrad.randn(weight_shape)
    exact = all_faces(x.to("reference"), weight.to("reference"), stride, groups)
    for got, expected in zip(all_faces(x, weight, stride, groups), exact, strict=True):
        expect_close(got, expected, "float32")


# Maps and channels, sizes of the gradient, kernel, padding: some are a convolution with the padded
# gradient, others sums of products, of planes or of pixels.
UNKNOWN_INPUTS = [
    (8, 64, (8, 8, 8), (3, 3, 3), (0, 0, 0)),
    (64, 32, (5, 6, 7), (3, 2, 3), (0, 0, 1)),
    (64, 16, (7, 7), (4, 4), (0, 0)),
    (16, 64, (7, 9), (4, 4), (1, 1)),
    (128, 1, (12, 11), (5, 5), (2, 0)),
    (5, 40, (3, 3), (5, 5), (0, 0)),
    (32, 48, (16,), (9,), (0,)),
    (32, 64, (100,), (9,), (3,)),
    (24, 16, (9, 14), (4, 3), (1, 0)),
    (256, 40, (7, 7), (3, 3), (0, 0)),
]


@pytest.mark.parametrize("case", UNKNOWN_INPUTS, ids=str)
@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
@pytest.mark.parametrize(
    ("groups", "dilation", "stride"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)]
)
def test_inputs_agree_with_the_reference_whatever_way_is_taken(
    case: Any, dtype: str, groups: int, dilation: int, stride: int
) -> None:
    maps, channels, out, kernel, padding = case
    size = tuple(
        (n - 1) * stride + (k - 1) * dilation + 1 - 2 * p
        for n, k, p in zip(out, kernel, padding, strict=True)
    )
    rng = np.random.default_rng(7)
    weight, grad = (
        tangrad.from_numpy(rng.standard_normal(shape)).to(getattr(tangrad, dtype))
        for shape in ((maps * groups, channels, *kernel), (2, maps * groups, *out))
    )
    steps = ((stride,) * len(out), padding, (dilation,) * len(out), groups)
    shape = (2, channels * groups, *size)
    got = convolution_input(weight, grad, shape, *steps)
    weight, grad = (x.double().to("reference") for x in (weight, grad))
    expect_close(got, convolution_input(weight, grad, shape, *steps), dtype)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.sampled_from(["float32", "bfloat16"]), st.data())
def test_results_of_the_input_size(spatial: int, dtype: str, data: st.DataObject) -> None:
    """Panels of positions that span images, and many runs of channels and blocks of maps."""

    def sizes(values: list[int]) -> tuple[int, ...]:
        return tuple(data.draw(st.sampled_from(values)) for _ in range(spatial))

    kernel, dilation = sizes([1, 3] if spatial > 1 else [1, 3, 9]), sizes([1, 2])
    padding = tuple((k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True))
    size = sizes({1: [15, 16, 17, 49, 70], 2: [4, 5, 7, 9], 3: [2, 3, 4]}[spatial])
    images, inside, outside = (
        data.draw(st.sampled_from(values)) for values in ([1, 2, 9], [4, 40, 130], [5, 14, 70])
    )
    x = draw_tensor(data, (images, inside, *size), dtype)
    weight = draw_tensor(data, (outside, inside, *kernel), dtype)
    geometry = ((1,) * spatial, padding, dilation, 1)
    exact = convolution(x.double().to("reference"), weight.double().to("reference"), *geometry)
    expect_close(convolution(x, weight, *geometry), exact, dtype)


@pytest.mark.parametrize("place", [(0, 0), (3, 6), (6, 6)])
def test_padding_hides_the_neighbouring_rows_and_images(place: tuple[int, int]) -> None:
    x, weight = tangrad.ones(5, 4, 7, 7), tangrad.ones(6, 4, 3, 3)
    x[(2, 1, *place)] = float("nan")
    got = convolution(x, weight, (1, 1), (1, 1), (1, 1), 1).numpy()
    row, column = place
    expected = np.zeros(got.shape, dtype=bool)
    expected[2, :, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = True
    np.testing.assert_array_equal(np.isnan(got), expected)


def test_an_infinity_reaches_only_the_taps_that_see_it() -> None:
    x, grad = tangrad.randn(1, 2, 6, 6), tangrad.randn(1, 2, 4, 4)
    x[0, 1, 2, 5] = float("inf")
    arguments = ((2, 1, 3, 3), (1, 1), (0, 0), (1, 1), 2)
    got = convolution_weight(x, grad, *arguments)
    expected = convolution_weight(x.to("reference"), grad.to("reference"), *arguments).cpu()
    assert np.isfinite(got.numpy()).sum() == 15
    np.testing.assert_array_equal(np.isfinite(got.numpy()), np.isfinite(expected.numpy()))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = _kernels.get_num_threads()
    yield _kernels.set_num_threads
    _kernels.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_results_do_not_depend_on_the_number_of_threads(
    case: str, threads: Callable[[int], None]
) -> None:
    shape, weight_shape, groups = CASES[case]
    x, weight = tangrad.randn(shape), tangrad.randn(weight_shape)
    found = []
    for number in (1, 2, 4):
        threads(number)
        found.append([y.numpy().tobytes() for y in all_faces(x, weight, 1, groups)])
    assert found[0] == found[1] == found[2]


def fails_without_scratch(face: Callable[[], Any], calls: int) -> bool:
    """Say whether the face raises when working memory is refused after so many calls."""
    _kernels.fail_scratch_after(calls)
    try:
        face()
    except MemoryError as error:
        return "working space" in str(error)
    finally:
        _kernels.fail_scratch_after(-1)
    return False


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["groups", "depthwise"])
def test_missing_working_memory_is_an_error(case: str, dtype: str) -> None:
    shape, weight_shape, groups = CASES[case]
    kind = getattr(tangrad, dtype)
    x, weight = tangrad.randn(shape).to(kind), tangrad.randn(weight_shape).to(kind)
    y, _, _ = expected = all_faces(x, weight, 1, groups)
    before = [t.float().numpy().tobytes() for t in (x, weight, y)]
    geometry = ((1, 1), (1, 1), (1, 1), groups)
    faces = [
        lambda: convolution(x, weight, *geometry),
        lambda: convolution_input(weight, y, shape, *geometry),
        lambda: convolution_weight(x, y, weight_shape, *geometry),
    ]
    for face, result in zip(faces, expected, strict=True):
        failures = 0
        while fails_without_scratch(face, failures):
            failures += 1
        assert failures > 0
        assert face().float().numpy().tobytes() == result.float().numpy().tobytes()
    assert before == [t.float().numpy().tobytes() for t in (x, weight, y)]


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_missing_working_memory_for_pixels_is_an_error(calls: int) -> None:
    weight, grad = tangrad.rand(64, 32, 4, 4), tangrad.rand(2, 64, 7, 7)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="convolution_input"):
            convolution_input(weight, grad, (2, 32, 14, 14), (2, 2), (1, 1), (1, 1), 1)
    finally:
        _kernels.fail_scratch_after(-1)


def test_inputs_of_pixels_do_not_depend_on_the_number_of_threads() -> None:
    weight, grad = tangrad.rand(64, 40, 4, 4), tangrad.rand(3, 64, 19, 18)
    before, found = _kernels.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            made = convolution_input(weight, grad, (3, 40, 38, 36), (2, 2), (1, 1), (1, 1), 1)
            assert made.is_contiguous()
            found.append(made.numpy().tobytes())
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_shapes_that_do_not_belong_together_are_an_error() -> None:
    weight, grad = tangrad.randn(3, 2, 2), tangrad.randn(1, 3, 9)
    with pytest.raises(RuntimeError, match="convolution_input"):
        convolution_input(weight, grad, (1, 2, 5), (1,), (0,), (1,), 1)
    with pytest.raises(RuntimeError, match="convolution_weight"):
        convolution_weight(tangrad.randn(1, 2, 5), grad, (3, 2, 2), (1,), (0,), (1,), 1)

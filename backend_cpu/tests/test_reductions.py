"""Reductions agree with NumPy for any geometry, level and number of threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

SIZES = st.sampled_from([0, 1, 2, 3, 7, 16, 17, 63, 64, 65, 255, 257, 300, 1100])


@st.composite
def tensors(draw: st.DrawFn, dtype: str = "float32") -> tuple[tangrad.Tensor, np.ndarray]:
    """Give a tensor of any geometry and an array of the same elements."""
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    while math.prod(shape) > 200_000:
        shape[shape.index(max(shape))] //= 16
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array = rng.integers(-9, 10, shape).astype(dtype)
    order = draw(st.permutations(range(len(shape))))
    step = draw(st.sampled_from([1, 1, 2]))
    tensor = tangrad.from_numpy(array.copy()).permute(order)[::step]
    return tensor, array.transpose(order)[::step]


def some_dims(draw: st.DrawFn, ndim: int) -> tuple[int, ...]:
    return tuple(sorted(draw(st.sets(st.integers(0, ndim - 1), min_size=1))))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_sums_of_integers_are_exact_in_every_geometry(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "float16", "complex64"]))
    tensor, array = data.draw(tensors(dtype))
    dims = some_dims(data.draw, array.ndim)
    wide = {"float16": "float64"}.get(dtype, dtype)
    expected = array.astype(wide).sum(dims).astype(array.dtype)
    np.testing.assert_array_equal(tensor.sum(dims).numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16", "bool"])
@pytest.mark.parametrize("shape", [(300, 5003), (8_400_011,), (3, 1_400_001), (260, 16384)])
def test_rows_beyond_the_caches_are_read_as_far_streams(shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape)
    array.reshape(-1)[-1] = 2
    tensor = tangrad.from_numpy(array).to(getattr(tangrad, dtype))
    count = (array != 0) if dtype == "bool" else array
    total = tensor.sum(-1, dtype=tangrad.int64 if dtype in ("int32", "bool") else tangrad.float64)
    np.testing.assert_array_equal(total.numpy(), count.sum(-1))
    assert tensor.amax(-1).to(tangrad.int64).flatten()[-1].item() == count.max()
    if dtype in ("float32", "float64", "int32"):
        np.testing.assert_array_equal(tensor.sum(-1).numpy(), count.sum(-1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_element_of_a_row_counts_once_at_every_length(dtype: str) -> None:
    for length in [*range(1, 140), *range(250, 300), 511, 513, 1000, 1024, 4099]:
        x = tangrad.ones(3, length + 1).to(getattr(tangrad, dtype))[:, 1:]
        places = {0, length - 1, length // 2, length * 7 // 8}
        for place in places:
            x[1, place] = 3
            assert x.amax(1).tolist() == [1, 3, 1] if length > 1 else x.amax(1)[1] == 3
            assert x.aminmax(dim=1).max.tolist() == [1, 3, 1]
            assert x.aminmax(dim=1).min.tolist() == [1, 1 if length > 1 else 3, 1]
            assert x.double().sum(1).tolist() == [length, length + 2, length]
            assert abs(x.float().mean(1)[1].item() - (length + 2) / length) < 1e-6
            x[1, place] = float("nan")
            assert np.isnan(x.amin(1).tolist()).tolist() == [False, True, False]
            for extreme in x.aminmax(dim=1):
                assert np.isnan(extreme.tolist()).tolist() == [False, True, False]
            assert np.isnan(x.sum(1).tolist()).tolist() == [False, True, False]
            rounding = length * 2.0 ** (-8 if dtype == "bfloat16" else -11)  # half a unit
            assert abs(x.nansum(1)[1].item() - (length - 1)) <= rounding
            x[1, place] = 1


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_extremes_and_truth_in_every_geometry(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "int8", "uint8", "float16"]))
    tensor, array = data.draw(tensors(dtype))
    dims = some_dims(data.draw, array.ndim)
    np.testing.assert_array_equal(tensor.any(dims).numpy(), (array != 0).any(dims))
    np.testing.assert_array_equal(tensor.all(dims).numpy(), (array != 0).all(dims))
    counted = np.asarray((array != 0).sum(dims), "int64")
    np.testing.assert_array_equal(tensor.count_nonzero(dims).numpy(), counted)
    if array.size:
        np.testing.assert_array_equal(tensor.amax(dims).numpy(), array.max(dims))
        np.testing.assert_array_equal(tensor.amin(dims).numpy(), array.min(dims))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_first_extreme_is_found_in_every_geometry(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "int8", "int16", "float16"]))
    tensor, array = data.draw(tensors(dtype))
    dim = data.draw(st.integers(0, array.ndim - 1))
    if array.size == 0:
        return
    np.testing.assert_array_equal(tensor.argmax(dim).numpy(), array.argmax(dim))
    np.testing.assert_array_equal(tensor.argmin(dim).numpy(), array.argmin(dim))
    values, indices = tensor.max(dim)
    np.testing.assert_array_equal(values.numpy(), array.max(dim))
    np.testing.assert_array_equal(indices.numpy(), array.argmax(dim))
    assert tensor.argmax().item() == array.argmax()


@pytest.mark.parametrize("length", [1, 5, 40, 300, 5000, 400_000])
@pytest.mark.parametrize("place", [0.0, 0.4, 1.0])
def test_the_first_nan_is_the_extreme(length: int, place: float) -> None:
    array = np.random.default_rng(0).standard_normal(length).astype("float32")
    first = int(place * (length - 1))
    array[first] = np.nan
    array[-1] = np.nan
    tensor = tangrad.from_numpy(array)
    assert tensor.argmax().item() == first
    assert tensor.argmin().item() == first
    assert math.isnan(tensor.max().item())
    assert math.isnan(tensor.min().item())
    columns = tangrad.from_numpy(np.stack([array] * 3, 1).copy())
    assert columns.argmax(0).tolist() == [first] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sum_of_millions_of_elements_is_accurate(dtype: str) -> None:
    array = np.random.default_rng(1).random(2_000_000).astype(dtype)
    exact = math.fsum(array.tolist())
    # Rounding the result costs half a unit; the partial sums of float64 are 512 rows deep.
    bound = {"float32": 2.0**-24, "float64": 2.0**-50}[dtype]
    assert abs(tangrad.from_numpy(array).sum().item() - exact) <= bound * exact
    columns = tangrad.from_numpy(array.reshape(-1, 10).copy()).sum(0).double()
    assert abs(columns.sum().item() - exact) <= 2 * bound * exact


@pytest.mark.parametrize("p", [3.0, 0.5, -2.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((7, 5), 1), ((300, 16), 1), ((16, 300), 0), ((70, 33), 1), ((9, 130), 1), ((130, 3, 4), 1)],
)
def test_powers_are_added_along_any_dimension(
    shape: tuple[int, ...], dim: int, dtype: str, p: float
) -> None:
    values = np.random.default_rng(3).uniform(0.5, 2, shape).astype("float32")
    x = tangrad.tensor(values).to(getattr(tangrad, dtype))
    values = x.double().numpy()
    x[0], values[0] = -x[0], -values[0]
    wanted = (np.abs(values) ** p).sum(dim) ** (1 / p)
    for laid in (x, x.t().contiguous().t() if x.ndim == 2 else x):
        found = tangrad.linalg.vector_norm(laid, p, dim).double().numpy()
        limit = {"float32": 4e-7, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
        np.testing.assert_allclose(found, wanted, rtol=limit)


@pytest.mark.parametrize("p", [3.0, 0.5, -2.0])
def test_powers_of_what_is_not_finite(p: float) -> None:
    rows = np.array([[np.nan, 1], [np.inf, 1], [0, 0], [-np.inf, 0], [1e-15, 2]] * 40, "float32")
    found = tangrad.linalg.vector_norm(tangrad.tensor(rows), p, 1).numpy()
    with np.errstate(all="ignore"):
        wanted = (np.abs(rows.astype(float)) ** p).sum(1) ** (1 / p)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(2)
    shapes = [(3_000_000,), (3000, 1000), (1_000_000, 3), (3, 1_000_000), (40, 50, 700)]
    found = []
    before = _kernels.get_num_threads()
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            rng = np.random.default_rng(2)
            results = []
            for shape in shapes:
                x = tangrad.from_numpy(rng.standard_normal(shape))
                for dim in (None, *range(x.ndim)):
                    results += [x.sum(dim), x.std(dim), x.argmax(dim)]
            found.append([r.numpy().tobytes() for r in results])
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error_and_leaves_operands() -> None:
    x = tangrad.ones(4_000_000)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            x.sum()
    finally:
        _kernels.fail_scratch_after(-1)
    assert x.sum().item() == 4_000_000


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_every_level_gives_the_same_answers(level: str) -> None:
    code = (
        "import numpy as np, tangrad\n"
        "x = np.random.default_rng(3).integers(-99, 99, (70, 1300)).astype('float32')\n"
        "for v, a in ((tangrad.from_numpy(x), x), (tangrad.from_numpy(x).T, x.T)):\n"
        "    for dim in (0, 1):\n"
        "        assert (v.sum(dim).numpy() == a.sum(dim)).all()\n"
        "        assert (v.amax(dim).numpy() == a.max(dim)).all()\n"
        "        assert (v.argmin(dim).numpy() == a.argmin(dim)).all()\n"
        "        assert np.allclose(v.std(dim).numpy(), a.std(dim, ddof=1), rtol=1e-5)\n"
        "    assert v.half().sum(0).dtype is tangrad.float16\n"
    )
    environment = os.environ | {"TANGRAD_CPU_ISA": level}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_a_vector_is_folded_in_the_order_of_a_row(level: str) -> None:
    # Queued calls fold a vector as the only row of a matrix, and their bits are eager's.
    code = (
        "import tangrad\n"
        "for dtype in (tangrad.float32, tangrad.float64):\n"
        "    for n in range(1, 140):\n"
        "        rows = tangrad.rand(5, n, dtype=dtype)\n"
        "        for name in ('sum', 'prod', 'norm', 'logsumexp'):\n"
        "            dim = {'dim': 0} if name == 'logsumexp' else {}\n"
        "            vectors = [getattr(row, name)(**dim).item() for row in rows.unbind()]\n"
        "            assert getattr(rows, name)(dim=1).tolist() == vectors, (dtype, n, name)\n"
    )
    environment = os.environ | {"TANGRAD_CPU_ISA": level}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["amax", "amin", "sum"])
@pytest.mark.parametrize("columns", [4096, 700, 64, 3])
def test_every_float16_is_folded_as_the_float32_it_equals(name: str, columns: int) -> None:
    """Subnormal numbers, infinities and NaN too, by rows and by columns."""
    patterns = np.arange(1 << 16, dtype=np.uint16)[: (1 << 16) // columns * columns]
    halves = patterns.view(np.float16).reshape(-1, columns)
    ours, wide = tangrad.from_numpy(halves), tangrad.from_numpy(halves.astype(np.float32))
    for dim in (0, 1, (0, 1)):
        found = getattr(ours, name)(dim)
        wanted = getattr(wide, name)(dim).half()
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("size", [64, 100, 2048, 5000, 70_000])
@pytest.mark.parametrize(
    "some",
    [
        [1e-30, 1e-30, 1e30, 1e30],
        [1e30, 1e30, 1e-30, 1e-30],
        [1e-20, 1e-20, 1e20, 1e20],
        [1e-45, 3e38, 1e3, 2.3e3],
    ],
)
def test_no_partial_product_of_float32_leaves_the_range_before_the_product_does(
    size: int, some: list[float]
) -> None:
    """Four numbers are multiplied in float32 where that loses nothing but places."""
    array = np.random.default_rng(size).choice([-1.0, 1.0], size).astype(np.float32)
    for at, value in enumerate(some):
        array[at:128:64] = value
    # As far apart as those that are multiplied first.
    apart = np.ones(size, np.float32)
    places = size // 4 * np.arange(4)
    apart[places] = some
    for row in (array, apart, apart[::-1].copy(), np.sort(array)):
        wanted = np.prod(row.astype(np.longdouble)).astype(np.float32)
        found = tangrad.from_numpy(row).prod().item()
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, math.nan, 1e-45])
@pytest.mark.parametrize("at", [0, 17, 4095, 69_999])
def test_one_number_decides_a_product_wherever_it_stands(value: float, at: int) -> None:
    array = np.full(70_000, -1, np.float32)
    array[at] = value
    np.testing.assert_array_equal(
        np.float32(tangrad.from_numpy(array).prod().item()), array.prod(dtype=np.float32)
    )

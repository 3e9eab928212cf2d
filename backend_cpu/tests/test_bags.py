"""Rows summed and compared in bags: large enough for several tasks, in any order of the bags."""

import numpy as np
import pytest

import tangrad
from tangrad.ops.nn.embedding_bag import _bag_sum, bag_argmax

SHAPES = [(40, 3, 500, 7), (300, 200, 2000, 31), (50, 64, 4000, 900), (9, 17, 30, 1)]


def _table(rows, width, dtype):
    return np.random.default_rng(5).standard_normal((rows, width)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("rows", "width", "places", "count"), SHAPES)
def test_sums_are_those_of_the_steps(rows, width, places, count, in_order, weighted, dtype):
    rng = np.random.default_rng(3)
    table = _table(rows, width, dtype)
    index, bags = rng.integers(0, rows, places), rng.integers(0, count + 1, places)
    bags = np.sort(bags) if in_order else bags
    factors = rng.random(places).astype(dtype)
    expected = np.zeros((count + 1, width))
    np.add.at(expected, bags, table[index] * (factors[:, None] if weighted else 1.0))
    given = tangrad.tensor(factors) if weighted else None
    found = _bag_sum(
        tangrad.tensor(table), tangrad.tensor(index), tangrad.tensor(bags), count, given
    )
    tolerance = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(found.numpy(), expected[:count], rtol=tolerance, atol=tolerance * 9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_column_counts_once_at_every_width(weighted, dtype):
    rng = np.random.default_rng(8)
    index, bags = rng.integers(0, 20, 90), rng.integers(0, 4, 90)
    factors = rng.integers(1, 4, 90).astype(dtype)
    for width in range(1, 140):
        table = rng.integers(-9, 10, (20, width)).astype(dtype)
        expected = np.zeros((4, width))
        np.add.at(expected, bags, table[index] * (factors[:, None] if weighted else 1.0))
        given = tangrad.tensor(factors) if weighted else None
        found = _bag_sum(
            tangrad.tensor(table), tangrad.tensor(index), tangrad.tensor(bags), 4, given
        )
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("step", [1, 2])
def test_indices_of_any_type_and_step_are_read(index, step):
    rows = tangrad.tensor(np.arange(24.0).reshape(8, 3))
    places = tangrad.tensor(np.arange(8).astype(index))[::step]
    bags = tangrad.zeros(len(places), dtype=tangrad.int64)
    assert (_bag_sum(rows, places, bags, 1, None)[0] == rows[::step].sum(0)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "width", "places", "count"), SHAPES)
def test_greatest_is_the_first_and_nan_before_all(rows, width, places, count, transposed, dtype):
    rng = np.random.default_rng(4)
    x = rng.integers(-3, 3, (places, width)).astype(dtype)
    x[rng.random(x.shape) < 0.01] = np.nan
    bags = rng.integers(0, count + 1, places)
    expected = np.full((count, width), -1)
    for bag in range(count):
        (inside,) = np.nonzero(bags == bag)
        if inside.size:
            expected[bag] = inside[x[inside].argmax(0)]  # NumPy's argmax takes the first NaN
    given = tangrad.tensor(x.T.copy()).t() if transposed else tangrad.tensor(x)
    found = bag_argmax(given, tangrad.tensor(bags), count)
    assert (found.numpy() == expected).all()


@pytest.mark.parametrize("index", [-1, 4])
def test_a_row_that_does_not_exist_is_told(index):
    places = tangrad.tensor([[0, 1], [index, 2]])
    with pytest.raises(RuntimeError, match=f"embedding_bag.*index {index} is out of bounds"):
        tangrad.nn.functional.embedding_bag(places, tangrad.ones(4, 3))


def test_threads_change_no_bit():
    rng = np.random.default_rng(6)
    table, index = (
        tangrad.tensor(_table(100, 96, "float32")),
        tangrad.tensor(rng.integers(0, 100, 9000)),
    )
    offsets = tangrad.tensor(np.arange(0, 9000, 30))
    results = []
    before = tangrad.get_num_threads()
    try:
        for threads in (1, 2, 4):
            tangrad.set_num_threads(threads)
            for mode in ("sum", "max"):
                results.append(
                    tangrad.nn.functional.embedding_bag(index, table, offsets, mode=mode)
                )
    finally:
        tangrad.set_num_threads(before)
    for k in (2, 4):
        assert (results[0] == results[k]).all()
        assert (results[1] == results[k + 1]).all()

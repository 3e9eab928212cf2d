"""Reads and writes at indexed places agree with the core's reference and never leave the memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_copies import DTYPES, check, made, views

import tangrad
from tangrad_cpu import _kernels

DEVICES = ("cpu", "reference")
SHAPE = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


def integers(values, shape, device, dtype=tangrad.int64):
    return tangrad.tensor(values, dtype=dtype, device=device).reshape(shape)


def numel(shape):
    count = 1
    for size in shape:
        count *= size
    return count


@st.composite
def problems(draw):
    """Draw a tensor's shape and view, a dimension, and an index for gather and scatter."""
    shape = draw(SHAPE)
    change = draw(views(shape).filter(lambda f: made(shape, tangrad.int8, "cpu") is not None))
    seen = tuple(change(made(shape, tangrad.int8, "cpu")).shape)
    if 0 in seen:
        change, seen = (lambda x: x), shape
    dim = draw(st.integers(0, len(seen) - 1))
    index_shape = tuple(
        draw(st.integers(1, 7)) if d == dim else draw(st.integers(1, n)) for d, n in enumerate(seen)
    )
    count = numel(index_shape)
    values = draw(st.lists(st.integers(0, seen[dim] - 1), min_size=count, max_size=count))
    return shape, change, seen, dim, index_shape, values


@settings(deadline=None, max_examples=120)
@given(
    problems(),
    st.sampled_from(DTYPES),
    st.sampled_from([tangrad.int64, tangrad.int32]),
    st.booleans(),
)
def test_gather_and_scatter(problem, dtype, index_dtype, expanded):
    shape, change, _, dim, index_shape, values = problem

    def results(device):
        x = change(made(shape, dtype, device))
        index = integers(values, index_shape, device, index_dtype)
        if expanded:
            index = index.narrow(0, 0, 1).expand(index_shape)
            if dim == 0:
                index = index.contiguous()
        source = made(index_shape, dtype, device)
        yield x.gather(dim, index)
        yield x.scatter(dim, index, 1)
        yield x.scatter(dim, index, source)
        yield x.scatter_add(dim, index, source)
        yield x.clone().scatter_add_(dim, index, source)
        if dtype not in (tangrad.float16, tangrad.bfloat16):
            yield x.scatter(dim, index, source, reduce="multiply")
        if not dtype.is_complex:
            yield x.scatter_reduce(dim, index, source, "amax")
            yield x.scatter_reduce(dim, index, source, "amin", include_self=False)

    for ours, theirs in zip(results("cpu"), results("reference"), strict=True):
        check(ours, theirs)


@settings(deadline=None, max_examples=120)
@given(problems(), st.sampled_from(DTYPES))
def test_lists_of_indices(problem, dtype):
    shape, change, seen, dim, _, values = problem

    def results(device):
        x = change(made(shape, dtype, device))
        index = integers(values, (-1,), device)
        wide = tuple(len(values) if d == dim else n for d, n in enumerate(seen))
        source = made(wide, dtype, device)
        yield x.index_select(dim, index)
        yield x.index_fill(dim, index - seen[dim], 1)
        yield x.index_copy(dim, index, source)
        yield x.index_add(dim, index, source)
        yield x.clone().index_add_(dim, index, source)
        if dtype not in (tangrad.bool, tangrad.float16, tangrad.bfloat16):
            yield x.index_add(dim, index, source, alpha=2)

    for ours, theirs in zip(results("cpu"), results("reference"), strict=True):
        check(ours, theirs)


@settings(deadline=None, max_examples=120)
@given(st.data(), SHAPE, st.sampled_from(DTYPES))
def test_advanced_indexing(data, shape, dtype):
    change = data.draw(st.permutations(range(len(shape))))
    seen = [shape[d] for d in change]
    picked = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    used = data.draw(st.lists(st.booleans(), min_size=len(seen), max_size=len(seen)))
    used[0] = used[0] or not any(used)
    count = numel(picked)
    lists = [
        data.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)) if use else None
        for n, use in zip(seen, used, strict=True)
    ]

    def results(device):
        x = made(shape, dtype, device).permute(change)
        places = [None if v is None else integers(v, picked, device) for v in lists]
        key = tuple(slice(None) if p is None else p for p in places)
        read = x[key]
        yield read
        values = made(tuple(read.shape), dtype, device)
        for accumulate in (False, True):
            yield tangrad.index_put(x, places, values, accumulate)
            yield tangrad.index_put(x, places, made((), dtype, device), accumulate)

    for ours, theirs in zip(results("cpu"), results("reference"), strict=True):
        check(ours, theirs)


@settings(deadline=None, max_examples=80)
@given(st.data(), SHAPE, st.sampled_from(DTYPES))
def test_masks(data, shape, dtype):
    change = data.draw(views(shape))
    bits = data.draw(st.lists(st.booleans(), min_size=numel(shape), max_size=numel(shape)))

    def results(device):
        x = change(made(shape, dtype, device))
        mask = change(tangrad.tensor(bits, dtype=tangrad.bool, device=device).reshape(shape))
        yield x.masked_select(mask)
        yield tangrad.nonzero(mask)
        yield tangrad.nonzero(x)
        yield x.masked_scatter(mask, made(shape, dtype, device))

    for ours, theirs in zip(results("cpu"), results("reference"), strict=True):
        check(ours, theirs)


def test_large_problems_are_cut_among_threads():
    def results(device):
        x = made((400, 300), tangrad.float32, device)
        rows = (made((900,), tangrad.int64, device) * 3) % 400
        grid = ((made((500, 300), tangrad.int64, device)) * 5) % 400
        yield x.index_select(0, rows)
        yield x.index_select(1, rows % 300)
        yield x.gather(0, grid)
        yield x.scatter_add(0, grid, made((500, 300), tangrad.float32, device))
        yield x.index_add(0, rows, made((900, 300), tangrad.float32, device))
        yield x[rows, rows % 300]
        yield tangrad.nonzero(x > 0)
        yield x.masked_select(x > 0)
        yield tangrad.bincount(rows)

    reference = list(results("reference"))
    before = tangrad.get_num_threads()
    try:
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            for ours, theirs in zip(results("cpu"), reference, strict=True):
                check(ours, theirs)
    finally:
        tangrad.set_num_threads(before)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrong", [3, -1, -4, 2**40, -(2**62)])
def test_an_index_out_of_range_is_refused_and_nothing_is_written(device, wrong):
    x = made((3, 4), tangrad.float32, device)
    want = x.tolist()
    one = integers([0, wrong], (2,), device)
    table = integers([0, wrong], (2, 1), device)
    source = made((2, 4), tangrad.float32, device)
    message = f"index {wrong} is out of bounds for dimension 0 with size 3"
    cases = [
        (RuntimeError, lambda: x.gather(0, table)),
        (RuntimeError, lambda: x.scatter_(0, table, 1)),
        (RuntimeError, lambda: x.scatter_add_(0, table, source)),
        (IndexError, lambda: x.index_select(0, one)),
        (RuntimeError, lambda: x.index_add_(0, one, source)),  # IndexError of a vector
        (IndexError, lambda: x.index_copy_(0, one, source)),
    ]
    if wrong != -1:
        cases += [
            (IndexError, lambda: x[one]),
            (IndexError, lambda: x.index_put_((one,), source, accumulate=True)),
            (IndexError, lambda: x.index_fill_(0, one, 1)),
        ]
    for kind, call in cases:
        with pytest.raises(kind, match=message):
            call()
        assert x.tolist() == want


def test_halves_are_added_in_float32_and_rounded_once():
    ones = tangrad.ones(1000, dtype=tangrad.bfloat16, device="cpu")
    index = tangrad.zeros(1000, dtype=tangrad.int64, device="cpu")
    total = tangrad.zeros(1, dtype=tangrad.bfloat16, device="cpu")
    assert total.index_add(0, index, ones).item() == 1000
    assert total.scatter_add(0, index, ones).item() == 1000
    assert tangrad.index_put(total, (index,), ones, True).item() == 1000


@pytest.mark.parametrize("name", ["index_copy_", "index_add_"])
def test_sources_that_share_memory_with_the_target_are_refused(name):
    x = made((4, 3), tangrad.float32, "cpu")
    before = x.tolist()
    with pytest.raises(RuntimeError, match="single memory location"):
        getattr(x, name)(0, integers([3, 2, 1, 0], (4,), "cpu"), x)
    assert x.tolist() == before


def test_no_memory_is_an_exception():
    x = tangrad.zeros(5, dtype=tangrad.bfloat16, device="cpu")
    index = integers([1, 2], (2,), "cpu")
    source = made((2,), tangrad.bfloat16, "cpu")
    for calls in (0, 1):
        _kernels.fail_scratch_after(calls)
        try:
            with pytest.raises(MemoryError, match="index_add"):
                x.index_add_(0, index, source)
        finally:
            _kernels.fail_scratch_after(-1)
        assert x.tolist() == [0] * 5


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64], ids=str)
def test_nan_is_the_extreme_of_a_place(dtype):
    nan = float("nan")
    x = tangrad.tensor([1.0, nan, 3.0, 4.0], dtype=dtype)
    source = tangrad.tensor([nan, 9.0, 2.0, nan, 5.0], dtype=dtype)
    for reduce, last in (("amax", 5.0), ("amin", 4.0)):
        found = x.scatter_reduce(0, tangrad.tensor([0, 1, 2, 2, 3]), source, reduce)
        assert found.isnan().tolist() == [True, True, True, False]
        assert found[3] == last


def test_gradient_of_embedding():
    def gradient(device):
        table = made((11, 5), tangrad.float32, device).requires_grad_()
        rows = integers([3, 3, 0, 10, 3], (5,), device)
        out = tangrad.nn.functional.embedding(rows, table)
        out.backward(made((5, 5), tangrad.float32, device))
        return table.grad

    check(*map(gradient, DEVICES))


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_levels(level):
    if os.environ.get("TANGRAD_CPU_ISA") == level:
        pytest.skip("already running at this level")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            __file__,
            "-k",
            "not levels",
            "-p",
            "no:cacheprovider",
        ],
        env={**os.environ, "TANGRAD_CPU_ISA": level},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_index_is_read_where_there_is_none() -> None:
    # An index without elements may have any strides, zero among them.
    none = tangrad.empty(1, dtype=tangrad.int64).as_strided((0,), (0,))
    x = tangrad.arange(5.0)
    assert tangrad.take(x, none).shape == (0,)
    assert x[none].shape == (0,)
    assert x.index_select(0, none).shape == (0,)
    assert x.index_put((none,), tangrad.empty(0)).equal(x)
    assert x.index_add(0, none, tangrad.empty(0)).equal(x)

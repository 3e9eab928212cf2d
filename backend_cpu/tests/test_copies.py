"""Copies, casts and rearrangements agree with the reference, at every level and alignment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

NAMES = (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 "
    "float32 float64 float16 bfloat16 complex64 complex128"
).split()
DTYPES = [getattr(tangrad, name) for name in NAMES]
SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
# Sizes around the edges of tiles, blocks and tasks.
LONG = st.sampled_from([1, 15, 16, 17, 63, 64, 65, 130, 511, 513])


def made(shape, dtype, device):
    """Return numbers that all dtypes hold, signed where the dtype is."""
    count = 1
    for size in shape:
        count *= size
    numbers = [(7 * i) % 101 for i in range(count)]
    if dtype.is_floating_point or dtype.is_complex:
        numbers = [x - 50.25 for x in numbers]
    return tangrad.tensor(numbers, dtype=tangrad.float64, device=device).to(dtype).reshape(shape)


def both(shape, dtype, change=lambda x: x):
    return change(made(shape, dtype, "cpu")), change(made(shape, dtype, "reference"))


def check(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.tolist() == theirs.tolist()


@st.composite
def views(draw, shape):
    """Draw what makes a view: a permutation, steps and starts."""
    order = draw(st.permutations(range(len(shape))))
    cuts = [slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 3))) for _ in shape]
    return lambda x: x.permute(order)[tuple(cuts)] if shape else x


@pytest.mark.parametrize("size", range(2, 9))
@pytest.mark.parametrize("windows", [31, 32, 511, 512, 513, 1100, 70_000])
@pytest.mark.parametrize("dtype", [tangrad.uint8, tangrad.float32, tangrad.complex128], ids=str)
def test_short_windows_are_copied_in_every_number(size, windows, dtype):
    """Rows shorter than a vector go column by column, by blocks, and by parts for threads."""
    ours, theirs = both((2, 2 * windows + size - 2), dtype, lambda x: x.unfold(1, size, 2))
    check(ours.contiguous(), theirs.contiguous())


@pytest.mark.parametrize("columns", [5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 513])
@pytest.mark.parametrize("rows", [1, 3, 40, 3000])
@pytest.mark.parametrize("dtype", [tangrad.uint8, tangrad.float32, tangrad.complex128], ids=str)
def test_short_rows_are_copied_whole(columns, rows, dtype):
    ours, theirs = both((2, rows, columns + 3), dtype, lambda x: x[:, :, 1 : columns + 1])
    check(ours.contiguous(), theirs.contiguous())
    ours, theirs = both((2, rows, columns), dtype, lambda x: tangrad.constant_pad_nd(x, (1, 2), 7))
    check(ours, theirs)


@settings(deadline=None, max_examples=150)
@given(st.data(), SHAPES, st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_any_view_is_cast_as_the_reference_does(data, shape, source, target):
    change = data.draw(views(shape))
    ours, theirs = both(shape, source, change)
    check(ours.to(target, copy=True), theirs.to(target, copy=True))


@pytest.mark.parametrize("target", DTYPES, ids=NAMES)
@pytest.mark.parametrize("source", DTYPES, ids=NAMES)
def test_pairs_of_dtypes(source, target):
    for change in (lambda x: x, lambda x: x.t(), lambda x: x[:, ::2]):
        ours, theirs = both((67, 35), source, change)
        check(ours.to(target), theirs.to(target))


@settings(deadline=None, max_examples=60)
@given(LONG, LONG, st.sampled_from(DTYPES), st.sampled_from([None, "float32", "bfloat16"]))
def test_transposes(rows, columns, dtype, target):
    target = dtype if target is None else getattr(tangrad, target)
    ours, theirs = both((rows, columns), dtype, lambda x: x.t())
    check(ours.to(target).contiguous(), theirs.to(target).contiguous())


@settings(deadline=None, max_examples=80)
@given(st.data(), st.integers(1, 40), st.integers(1, 40), st.sampled_from(DTYPES))
def test_many_small_matrices_are_transposed(data, rows, columns, dtype):
    """Also such as are cut out of larger ones, in two dimensions, and at odd distances."""
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(2))
    cut = data.draw(st.integers(0, 2))
    ours, theirs = both(
        (*shape, rows + cut, columns + cut), dtype, lambda x: x[..., cut:, :columns].mT
    )
    check(ours.contiguous(), theirs.contiguous())
    order = data.draw(st.permutations(range(4)))
    check(ours.permute(order).contiguous(), theirs.permute(order).contiguous())


def test_many_small_matrices_are_transposed_by_any_number_of_threads():
    x = made((2, 90, 70, 4, 16), tangrad.float32, "cpu")
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 3):
            tangrad.set_num_threads(threads)
            found.append(x.mT.contiguous())
    finally:
        tangrad.set_num_threads(before)
    assert tangrad.equal(*found)
    assert tangrad.equal(found[0].mT.contiguous(), x)


SPECIAL = [
    0.0,
    -0.0,
    float("inf"),
    float("-inf"),
    6e-8,
    1e-40,
    65504.0,
    65519.9,
    65520.0,
    3e9,
    -3e9,
]
SPECIAL += [
    1.0009765625,
    1.00048828125,
    1.00390625,
    1.01171875,
    2.0**63,
    -(2.0**63),
    1e30,
    1.5e-45,
    5.96e-8,
]


@pytest.mark.parametrize("target", DTYPES, ids=NAMES)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_extreme_numbers_round_and_wrap_as_in_the_core(source, target):
    numbers = SPECIAL * 5
    out = [
        tangrad.tensor(numbers, dtype=tangrad.float64, device=device)
        .to(getattr(tangrad, source))
        .to(target)
        .tolist()
        for device in ("cpu", "reference")
    ]
    assert list(map(str, out[0])) == list(map(str, out[1]))


def test_nan_stays_nan_through_halves():
    x = tangrad.tensor([float("nan")] * 19, device="cpu")
    for half in (tangrad.float16, tangrad.bfloat16):
        assert x.to(half).to(tangrad.float32).isnan().all()


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "complex128"])
def test_unaligned_memory(dtype, offset):
    import numpy as np

    raw = np.zeros(4096 + offset, np.uint8)
    array = raw[offset:].view(dtype).reshape(16, -1)
    array[...] = np.arange(array.size).reshape(array.shape)
    x = tangrad.from_numpy(array)
    assert x.t().contiguous().tolist() == array.T.tolist()
    assert (
        x.to(tangrad.bfloat16).float().tolist() == x.float().to(tangrad.bfloat16).float().tolist()
    )
    assert tangrad.cat([x, x], 1).tolist() == np.concatenate([array, array], 1).tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_overlapping_views_are_read_before_written(size, at, start, step, turn, dense):
    def moved(x):
        # Dense views of one another are refused by each device; elements apart are written by each.
        places = x if dense else x[::2]
        try:
            if turn:
                square = places[:36].unflatten(0, (6, 6))
                square.copy_(square.t())
            else:
                count = min(size, (72 - start) // step, 72 - at)
                places[at : at + count].copy_(places[start : start + step * count : step][:count])
        except RuntimeError as error:
            if "single memory location" not in str(error):
                raise
            return x.new_full((), -1)
        return x

    check(*both((72 if dense else 144,), tangrad.float32, lambda x: moved(x.clone())))


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.sampled_from(DTYPES))
def test_cat(data, shape, dtype):
    dim = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for _ in range(data.draw(st.integers(1, 5))):
        part = list(shape)
        part[dim] = data.draw(st.integers(0, 4))
        other = data.draw(st.sampled_from([dtype, tangrad.float32]))
        parts.append((tuple(part), other))
    results = [
        tangrad.cat([made(part, kind, device) for part, kind in parts], dim)
        for device in ("cpu", "reference")
    ]
    check(*results)


def test_cat_of_many_and_of_large_parts():
    for count, shape in ((100, (3,)), (5, (300, 70))):
        parts = [made(shape, tangrad.int32, "cpu") + i for i in range(count)]
        flat = [x for part in parts for x in part.flatten().tolist()]
        assert tangrad.cat(parts).flatten().tolist() == flat


@settings(deadline=None, max_examples=80)
@given(st.data(), st.lists(st.integers(0, 7), min_size=2, max_size=4), st.sampled_from(DTYPES))
def test_rearrangements(data, shape, dtype):
    change = data.draw(views(shape))
    diagonal = data.draw(st.integers(-8, 8))
    dim = data.draw(st.integers(0, len(shape) - 1))
    ours, theirs = both(tuple(shape), dtype, change)
    pad = [data.draw(st.integers(-min(1, n // 2), 2)) for n in reversed(ours.shape) for _ in "ab"]
    for op in (
        lambda x: x.tril(diagonal),
        lambda x: x.triu(diagonal),
        lambda x: x.clone().tril_(diagonal),
        lambda x: x.flip((dim,)),
        lambda x: x.clone().fill_(3),
        lambda x: tangrad.constant_pad_nd(x, pad, 1),
        lambda x: x.repeat((2,) * x.ndim),
    ):
        check(op(ours), op(theirs))


@pytest.mark.parametrize("value", [2, 2.5, True, 1 + 2j])
def test_fill_takes_every_kind_of_number(value):
    for dtype in (tangrad.complex64, tangrad.complex128, tangrad.float32, tangrad.int64):
        if isinstance(value, complex) and not dtype.is_complex:
            continue
        check(
            *(
                tangrad.zeros(3, 2, dtype=dtype, device=d).t().fill_(value)
                for d in ("cpu", "reference")
            )
        )


def test_adjoints_of_views():
    def gradient(device, view):
        x = made((5, 6, 7), tangrad.float32, device).requires_grad_()
        y = view(x)
        y.backward(made(tuple(y.shape), tangrad.float32, device))
        return x.grad

    for view in (
        lambda x: x[1:4],
        lambda x: x[:, ::3],
        lambda x: x[:, -2],
        lambda x: x.diagonal(1, 0, 2),
        lambda x: x.unfold(1, 3, 2),
        lambda x: x.unfold(2, 2, 1),
    ):
        check(gradient("cpu", view), gradient("reference", view))


def test_threads_change_nothing():
    x = made((700, 300), tangrad.float32, "cpu")
    before = tangrad.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            results.append([x.t().contiguous(), x.to(tangrad.bfloat16), tangrad.cat([x, x], 1)])
    finally:
        tangrad.set_num_threads(before)
    for one in results[1:]:
        assert all((a == b).all() for a, b in zip(one, results[0], strict=True))


def test_no_memory_is_an_exception_and_leaves_the_target():
    x = made((60, 120), tangrad.float32, "cpu")
    want = x.tolist()
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="copy_"):
            x[:, ::2].copy_(x[:, ::2].t())
    finally:
        _kernels.fail_scratch_after(-1)
    assert x.tolist() == want


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_levels(level):
    if os.environ.get("TANGRAD_CPU_ISA") == level:
        pytest.skip("already running at this level")
    code = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        __file__,
        "-k",
        "pairs or transposes or extreme",
    ]
    done = subprocess.run(
        [*code, "-p", "no:cacheprovider"],
        env={**os.environ, "TANGRAD_CPU_ISA": level},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]

"""Steps of optimizers on the CPU: the bits of their tensor code, whatever the level or threads."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad_cpu import _kernels

SHAPES = [(3, 4), (5,), (), (0,), (300, 7), (200, 201)]
LEVELS = [name for name, runs in _kernels.levels().items() if runs]
DTYPES = ("float32", "float64", "float16", "bfloat16")


def lists(dtype: str, device: str, count: int, shapes: Any = SHAPES) -> list[list[Any]]:
    random = np.random.default_rng(7)
    made = []
    for place in range(count):
        row = []
        for shape in shapes:
            values = random.standard_normal(shape)
            values = np.abs(values) if place >= 3 else values
            tensor = tangrad.from_numpy(np.asarray(values)).to(getattr(tangrad, dtype))
            row.append(tensor.to(device))
        made.append(row)
    return made


def assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(itertools.chain(*a), itertools.chain(*b), strict=True):
        assert bool((x.to("cpu") == y.to("cpu")).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_has_the_bits_of_its_tensor_code(
    dtype: str, decoupled: bool, amsgrad: bool, maximize: bool, weight_decay: float
) -> None:
    step = tangrad._fused_adamw_ if decoupled else tangrad._fused_adam_
    sides = []
    for device in ("cpu", "reference"):
        made = lists(dtype, device, 5)
        steps = [tangrad.tensor(2.0 + i % 2, device=device) for i in range(len(SHAPES))]
        largest = made[4] if amsgrad else []
        how = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": weight_decay}
        step(*made[:4], largest, steps, amsgrad=amsgrad, maximize=maximize, **how)
        sides.append(made)
    assert_same_bits(*sides)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("is_first_step", [False, True])
@pytest.mark.parametrize(("weight_decay", "maximize"), [(0.0, True), (0.1, False)])
def test_sgd_has_the_bits_of_its_tensor_code(
    dtype: str,
    momentum: float,
    nesterov: bool,
    is_first_step: bool,
    weight_decay: float,
    maximize: bool,
) -> None:
    sides = []
    for device in ("cpu", "reference"):
        made = lists(dtype, device, 3)
        tangrad._fused_sgd_(
            *made[:2],
            made[2] if momentum else [],
            weight_decay=weight_decay,
            momentum=momentum,
            lr=0.1,
            dampening=0.25,
            nesterov=nesterov,
            maximize=maximize,
            is_first_step=is_first_step,
        )
        sides.append(made)
    assert_same_bits(*sides)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lists_have_the_bits_of_their_tensor_code(dtype: str) -> None:
    sides = []
    for device in ("cpu", "reference"):
        made = lists(dtype, device, 2)
        kind = getattr(tangrad, dtype)
        tangrad._foreach_add_(made[0], 0.3)
        tangrad._foreach_mul_(made[0], 1.7)
        tangrad._foreach_mul_(made[0], tangrad.tensor(0.9, dtype=kind, device=device))
        tangrad._foreach_add_(made[0], made[1], alpha=-0.7)
        tangrad._foreach_add_(made[1], [float(i) for i in range(len(SHAPES))])
        sides.append(made)
    assert_same_bits(*sides)
    tangrad._foreach_zero_(sides[0][0])
    assert all(not bool(t.any()) for t in sides[0][0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_norms_are_those_of_each_tensor(dtype: str, order: float) -> None:
    (made,) = lists(dtype, "cpu", 1)
    if dtype == "float16":
        made = [t * 0.01 for t in made]  # a sum of 40,000 of them fits
    expected = np.array([np.linalg.norm(t.double().numpy().ravel(), order) for t in made])
    close = {"float32": 1e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    with tangrad.no_grad():  # with it, each norm is an op of its own
        found = np.array([float(n) for n in tangrad._foreach_norm(made, order)])
    assert np.allclose(found, expected, rtol=close)
    total = float(tangrad._total_norm(made, order))
    assert np.isclose(total, np.linalg.norm(expected, order), rtol=close)


def test_what_is_no_plain_row_is_left_to_tensor_code() -> None:
    """Gaps, other orders of memory, other dtypes, other lengths."""
    x, y = tangrad.ones(4, 6), tangrad.ones(6, 4)
    gaps, crossed = x[:, ::2], y.t()
    mixed = [gaps, crossed, tangrad.ones(3, dtype=tangrad.float64)]
    other = [tangrad.arange(12.0).reshape(4, 3), tangrad.arange(24.0).reshape(4, 6), mixed[2] * 2]
    tangrad._foreach_add_(mixed, other)
    assert bool((gaps == other[0] + 1).all())
    assert bool((crossed == other[1] + 1).all())
    assert bool((x[:, 1::2] == 1).all())
    assert bool((mixed[2] == 3).all())
    with pytest.raises(RuntimeError, match="same number"):
        tangrad._foreach_add_([x], [x, x])


def test_channels_last_parameters_are_rows_too() -> None:
    made = [
        tangrad.randn(2, 3, 4, 5).contiguous(memory_format=tangrad.channels_last) for _ in range(2)
    ]
    expected = made[0] - 0.1 * made[1]
    tangrad._foreach_add_([made[0]], [made[1]], alpha=-0.1)
    assert bool(((made[0] - expected).abs() < 1e-6).all())
    assert made[0].is_contiguous(memory_format=tangrad.channels_last)


PROGRAM = """
import hashlib
import tangrad
from tangrad_cpu import _kernels
for threads in (1, 2, 4):
    tangrad.manual_seed(3)
    sizes = [7, 50000, 1, 300000, 12]
    params, grads, m, v = ([tangrad.rand(n) for n in sizes] for _ in range(4))
    _kernels.set_num_threads(threads)
    steps = [tangrad.tensor(4.0) for _ in sizes]
    tangrad._fused_adamw_(params, grads, m, v, [], steps, lr=0.1, beta1=0.9, beta2=0.99,
                          weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
    with tangrad.no_grad():
        norms = tangrad.stack(tangrad._foreach_norm(params))
    print(_kernels.level(), *[hashlib.sha256(t.numpy().tobytes()).hexdigest()
                              for t in (*params, *m, *v, norms)])
"""


def test_levels_and_threads_give_the_same_bits() -> None:
    seen = []
    for level in LEVELS:
        environment = {**os.environ, "TANGRAD_CPU_ISA": level}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            assert line.split()[0] == level
            seen.append(line.split()[1:])
    assert len(seen) == 3 * len(LEVELS)
    assert all(digests == seen[0] for digests in seen)


def test_no_working_memory_is_an_error_and_changes_nothing() -> None:
    x = tangrad.ones(5)
    tangrad._foreach_add_([x], 1)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="_foreach_add_"):
            tangrad._foreach_add_([x], 1)
    finally:
        _kernels.fail_scratch_after(-1)
    assert bool((x == 2).all())

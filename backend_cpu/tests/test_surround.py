"""Padding by elements of the tensor itself, against the definition's tensor code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.plugin import find_op
from tangrad_cpu import _kernels

by_places = find_op("_pad_by_places")
MODES = st.sampled_from(["reflect", "replicate", "circular"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=5),
    MODES,
    st.data(),
    st.sampled_from(["float32", "uint8", "complex128", "bfloat16"]),
    st.permutations(range(5)),
)
def test_every_place(shape: Any, mode: Any, data: Any, dtype: str, order: Any) -> None:
    padded = data.draw(st.integers(1, min(3, len(shape))))
    pad: list[int] = []
    for size in reversed(shape[-padded:]):
        most = {"reflect": size - 1, "replicate": 30, "circular": size}[mode]
        pad += [data.draw(st.integers(0, most)) for _ in range(2)]
        if data.draw(st.booleans()) and mode == "replicate" and size > 1:
            pad[-1] = -1
    order = [d for d in order if d < len(shape)]
    drawn = np.random.default_rng(1).integers(0, 250, [shape[d] for d in order])
    x = tangrad.from_numpy(drawn).to(getattr(tangrad, dtype))
    x = x.permute([order.index(d) for d in range(len(shape))])
    found = by_places(x, pad, mode)
    assert found.equal(by_places.definition.decompose(x, pad, mode))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_images_with_channels_last_stay_so(mode: Any) -> None:
    x = tangrad.rand(2, 3, 5, 6)
    last = x.contiguous(memory_format=tangrad.channels_last)
    expected = tangrad.nn.functional.pad(x, (2, 1, 0, 3), mode)
    found = tangrad.nn.functional.pad(last, (2, 1, 0, 3), mode)
    assert found.equal(expected)
    assert found.is_contiguous(memory_format=tangrad.channels_last)


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    x = tangrad.rand(4, 8, 60, 70)
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            found.append(by_places(x, (3, 4, 5, 6), "reflect").numpy().tobytes())
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.rand(2, 3, 4)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="pad"):
            by_places(x, (1, 1), "reflect")
    finally:
        _kernels.fail_scratch_after(-1)

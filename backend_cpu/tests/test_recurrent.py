"""Recurrent layers by their kernel agree with their steps, whatever the sizes and layouts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad import nn
from tangrad_cpu import _kernels

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
KINDS = {
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
# (steps, sequences, hidden): too few steps to pack the weight, one row by several panels, more
# sequences than one task takes.
SIZES = [(1, 1, 5), (3, 4, 2), (6, 1, 40), (5, 7, 33), (9, 40, 70)]


def made(kind: str, hidden: int, dtype: str, **options: Any) -> Any:
    layer, own = KINDS[kind]
    tangrad.manual_seed(3)
    return layer(4, hidden, bidirectional=True, dtype=getattr(tangrad, dtype), **own, **options)


def run(model: Any, x: Any, lengths: list[int] | None) -> list[Any]:
    """Return outputs, states and gradients, as tensors of the device `reference`."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    given_x = x
    if lengths is not None:
        given_x = nn.utils.rnn.pack_padded_sequence(
            x, lengths, enforce_sorted=False, batch_first=model.batch_first
        )
    output, states = model(given_x)
    data = output if lengths is None else output.data
    found = [data, *(states if isinstance(states, tuple) else (states,))]
    sum((y * y).sum() for y in found).backward()
    found += [x.grad, *(p.grad for p in model.parameters())]
    return [y.detach().to("reference") for y in found]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(SIZES),
    st.sampled_from(sorted(TOLERANCE)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_results_and_gradients(
    kind: str, sizes: tuple[int, int, int], dtype: str, packed: bool, bias: bool, first: bool
) -> None:
    steps, batch, hidden = sizes
    model = made(kind, hidden, dtype, bias=bias, batch_first=first)
    x = tangrad.randn(
        (batch, steps, 4) if first else (steps, batch, 4), dtype=model.all_weights[0][0].dtype
    )
    lengths = [1 + 7 * k % steps for k in range(batch)] if packed else None
    ours = run(model, x, lengths)
    expected = run(model.to("reference"), x.to("reference"), lengths)
    for a, b in zip(ours, expected, strict=True):
        tangrad.testing.assert_close(a, b, rtol=TOLERANCE[dtype], atol=20 * TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_threads(kind: str) -> None:
    model, x = made(kind, 70, "float32"), tangrad.randn(40, 40, 4)
    before, found = _kernels.get_num_threads(), []
    try:
        for threads in (1, 3):
            _kernels.set_num_threads(threads)
            found.append(run(model, x, None))
    finally:
        _kernels.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("steps", [2, 6])
@pytest.mark.parametrize("calls", [0, 1])
def test_missing_working_memory_is_an_error(steps: int, calls: int) -> None:
    model, x = nn.LSTM(40, 40), tangrad.randn(steps, 1, 40)
    entering, states = tangrad.randn(steps, 1, 160), tangrad.zeros(2, 1, 40)
    op = tangrad.ops.lookup("_recurrent_layer")
    arguments = (entering, states, model.weight_hh_l0.detach(), None, None, "LSTM", False)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="working space"):
            op(*arguments)
    finally:
        _kernels.fail_scratch_after(-1)
    assert op(*arguments)[0].shape == (steps, 1, 40)
    assert model(x)[0].shape == (steps, 1, 40)

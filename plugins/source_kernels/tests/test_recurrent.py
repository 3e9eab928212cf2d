"""Recurrent layers on devices that compile: a step is a product and a kernel, and never leaves."""

from __future__ import annotations

import pytest
import torch
from beside_torch import assert_same, moved

import tangrad
from tangrad.plugin import fallback_calls, find_op

NEAR = {"rtol": 2e-5, "atol": 2e-6}


def layers(kind: str, device: str, **how: object):
    """Return a layer of torch, and one with its weights on the device."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(3, 4, **how)
    mine = getattr(tangrad.nn, kind)(3, 4, **how).to(device)
    with tangrad.no_grad():
        for p, q in zip(theirs.parameters(), mine.parameters(), strict=True):
            q.copy_(moved(p.detach(), device))
    return theirs, mine


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_and_its_gradients_are_those_of_torch(
    device: str, kind: str, bidirectional: bool
) -> None:
    before = dict(fallback_calls())
    theirs, mine = layers(kind, device, bidirectional=bidirectional)
    x = torch.randn(5, 2, 3)
    y = moved(x, device).requires_grad_()
    x.requires_grad_()
    found, expected = mine(y)[0], theirs(x)[0]
    assert_same(found, expected, **NEAR)
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    assert_same(y.grad, x.grad, **NEAR)
    for p, q in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert_same(q.grad, p.grad, **NEAR)
    assert fallback_calls() == before


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_sequences_of_different_lengths_end_each_at_its_own_time(device: str, kind: str) -> None:
    theirs, mine = layers(kind, device, bidirectional=True)
    x = torch.randn(4, 3, 3)
    y = moved(x, device).requires_grad_()
    x.requires_grad_()
    results = []
    for framework, layer, given in ((torch, theirs, x), (tangrad, mine, y)):
        pack = framework.nn.utils.rnn.pack_padded_sequence(given, [4, 2, 1])
        output, last = layer(pack)
        last = last[0] if kind == "LSTM" else last
        (output.data.sum() + (last * last).sum()).backward()
        results.append((output.data, last, given.grad))
    for expected, found in zip(*results, strict=True):
        assert_same(found, expected, **NEAR)


@pytest.mark.parametrize("mode", ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"])
@pytest.mark.parametrize("dtype", [tangrad.float16, tangrad.bfloat16])
@pytest.mark.parametrize("sizes", [None, [2, 2, 1]])
def test_halves_are_rounded_once_at_the_end(
    device: str, mode: str, dtype: tangrad.dtype, sizes: list[int] | None
) -> None:
    """Results are those of the same operands in float32, rounded."""
    before = dict(fallback_calls())
    count, gates, kept = {"LSTM": (2, 4, 5), "GRU": (1, 3, 4)}.get(mode, (1, 1, 0))
    lead = (3, 2) if sizes is None else (5,)
    tangrad.manual_seed(5)

    def given(*shape: int) -> tangrad.Tensor:
        return tangrad.randn(*shape).to(dtype).to(device)

    run, back = map(find_op, ("_recurrent_layer", "_recurrent_layer_backward"))
    bias = given(gates * 3)
    forward = [given(*lead, gates * 3), given(count, 2, 3), given(gates * 3, 3), bias]
    backward = [given(*lead, 3), given(count, 2, 3), *forward[1:3], given(*lead, 3).tanh()]
    backward.append(given(*lead, kept * 3).sigmoid())
    for op, tensors in ((run, forward), (back, backward)):
        found = op(*tensors, sizes, mode, False)
        expected = op(*(t.float() for t in tensors), sizes, mode, False)
        for mine, wide in zip(found, expected, strict=True):
            assert mine.dtype == dtype
            assert mine.equal(wide.to(dtype))
    assert fallback_calls() == before

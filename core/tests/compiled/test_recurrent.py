"""Recurrent layers on devices that compile: a step is a product and a kernel, and never leaves."""

from __future__ import annotations

import pytest
import torch
from beside_torch import assert_same, moved

import tangrad
from tangrad.plugin import fallback_calls

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

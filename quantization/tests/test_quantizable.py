"""LSTM and attention, observed inside and quantized, beside PyTorch's."""

import numpy as np
import pytest
import torch
from quantized_pairs import data, models, ours, quiet, theirs

import tangrad
import tangrad.ao.nn.quantizable as our_quantizable


def converted(make, *shapes):
    """Prepare, show and convert a model on both sides; return both outputs of fresh data."""
    outputs = []
    for side, q, model in zip((torch, tangrad), (theirs, ours), models(make), strict=True):
        model.eval()
        model.qconfig = q.default_qconfig
        made = quiet(q.prepare, model)
        for seed in range(2):
            shown = [data(*s, seed=seed + n) for n, s in enumerate(shapes)]
            quiet(made, *map(side.from_numpy, shown))
        done = quiet(q.convert, made)
        inputs = [side.from_numpy(data(*s, seed=9 + n)) for n, s in enumerate(shapes)]
        outputs.append((done, quiet(done, *inputs)))
    return outputs


def recurrent(**arguments):
    def make(nn, q):
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
                self.lstm = nn.LSTM(6, 5, **arguments)

            def forward(self, x):
                output, (h, c) = self.lstm(self.quant(x))
                return self.dequant(output), self.dequant(h), self.dequant(c)

        return M()

    return make


@pytest.mark.parametrize(
    "arguments", [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True}], ids=str
)
def test_an_lstm_is_quantized_to_pytorchs_integers(arguments):
    (_, expected), (model, found) = converted(recurrent(**arguments), (4, 3, 6))
    assert type(model.lstm) is tangrad.ao.nn.quantized.LSTM
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=0, atol=1e-6)


def attention(**arguments):
    def make(nn, q):
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
                self.attention = nn.MultiheadAttention(8, 2, **arguments)

            def forward(self, x, y):
                y = self.quant(y)
                output, weights = self.attention(self.quant(x), y, y)
                return self.dequant(output), self.dequant(weights)

        return M()

    return make


@pytest.mark.parametrize("arguments", [{}, {"bias": False}, {"kdim": 4, "vdim": 4}], ids=str)
def test_attention_is_quantized_to_pytorchs_integers(arguments):
    other = (5, 3, arguments.get("kdim", 8))
    (_, expected), (model, found) = converted(attention(**arguments), (4, 3, 8), other)
    assert type(model.attention) is tangrad.ao.nn.quantized.MultiheadAttention
    np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=0, atol=1e-6)
    # Weights are a mean of two heads, and PyTorch rounds halves up: at most one step.
    step = float(model.attention.quant_attn_output_weights.scale)
    np.testing.assert_allclose(found[1].numpy(), expected[1].numpy(), rtol=0, atol=1.01 * step)


def test_observable_attention_computes_what_float_attention_does():
    plain = tangrad.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True).eval()
    plain.qconfig = ours.default_qconfig
    made = quiet(our_quantizable.MultiheadAttention.from_float, plain)
    x, y = tangrad.from_numpy(data(4, 3, 8)), tangrad.from_numpy(data(5, 3, 8, seed=1))
    mask = tangrad.from_numpy(data(4, 5) > 1.0)
    padding = tangrad.tensor([[False] * 4 + [True]] * 3)
    for extra in ({}, {"attn_mask": mask}, {"key_padding_mask": padding}):
        for a, b in zip(plain(x, y, y, **extra), made(x, y, y, **extra), strict=True):
            assert a.allclose(b, atol=1e-5)
    with pytest.raises(RuntimeError, match="attn_mask: expected shape"):
        made(x, y, y, attn_mask=mask[:2])
    with pytest.raises(AssertionError, match="key_padding_mask: expected shape"):
        made(x, y, y, key_padding_mask=padding[:1])


def test_heads_stay_apart_with_the_batch_in_front():
    plain = tangrad.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    plain.qconfig = ours.default_qconfig
    made = quiet(our_quantizable.MultiheadAttention.from_float, plain)
    x = tangrad.from_numpy(data(3, 4, 8))
    assert made(x, x, x)[0].allclose(plain(x, x, x)[0], atol=1e-5)


def test_quantized_attention_becomes_float_again():
    _, (model, _) = converted(attention(), (4, 3, 8), (5, 3, 8))
    twin = model.attention.dequantize()
    assert type(twin) is tangrad.nn.MultiheadAttention
    assert tangrad.equal(twin.in_proj_weight[:8], model.attention.linear_Q.weight().dequantize())


def test_a_gate_may_have_a_layer_of_its_own():
    cell = tangrad.nn.LSTMCell(6, 5)
    cell.qconfig = ours.default_qconfig
    whole = our_quantizable.LSTMCell.from_float(cell)
    split = our_quantizable.LSTMCell.from_float(cell, split_gates=True)
    x = tangrad.from_numpy(data(3, 6))
    for a, b, c in zip(cell(x), whole(x), split(x), strict=True):
        assert a.allclose(b, atol=1e-6)
        assert a.allclose(c, atol=1e-6)


def test_what_is_not_observed_is_not_converted():
    with pytest.raises(NotImplementedError, match="from_observed"):
        tangrad.ao.nn.quantized.LSTM.from_float(tangrad.nn.LSTM(2, 2))
    with pytest.raises(AssertionError, match="must have qconfig"):
        our_quantizable.LSTM.from_float(tangrad.nn.LSTM(2, 2))
    with pytest.raises(ValueError, match="dropout"):
        our_quantizable.LSTM(2, 2, dropout=2.0)

"""`nn.attention.bias`: causal masks of both corners, beside PyTorch's."""

import importlib
import warnings

import numpy as np
import pytest
import torch

import tangrad

SIDES = (torch, tangrad)


def bias_of(side):
    return importlib.import_module(f"{side.__name__}.nn.attention.bias")


def attended(side, corner, queries, keys):
    rng = np.random.default_rng(0)
    q, k, v = (
        side.from_numpy(rng.standard_normal((2, 3, n, 8)).astype("f")).requires_grad_()
        for n in (queries, keys, keys)
    )
    bias = getattr(bias_of(side), f"causal_{corner}")(queries, keys)
    out = side.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    out.square().sum().backward()
    return [x.detach().numpy() for x in (out, q.grad, k.grad, v.grad)]


@pytest.mark.parametrize("corner", ["upper_left", "lower_right"])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 5), (1, 6)])
def test_attention_is_pytorchs(corner, queries, keys):
    for a, b in zip(*(attended(side, corner, queries, keys) for side in SIDES), strict=True):
        assert np.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("corner", ["upper_left", "lower_right"])
def test_the_mask_is_made_where_it_is_asked_for(corner):
    shown = []
    for side in SIDES:
        bias = getattr(bias_of(side), f"causal_{corner}")(2, 4)
        shown.append(repr(bias))
    assert shown[0] == shown[1]
    assert tuple(bias.shape) == (2, 4)
    assert bias.dtype == tangrad.bool
    assert (bias | False).tolist() == bias._materialize().tolist()
    assert tangrad.where(bias, 1, 0).sum() == bias._materialize().sum()


@pytest.mark.parametrize("side", SIDES)
def test_rows_without_a_key_are_warned_of(side):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        bias_of(side).causal_lower_right(5, 3)
    assert any("NaN" in str(w.message) for w in told)


def test_bad_input_is_named():
    bias = bias_of(tangrad)
    q = tangrad.ones(1, 3, 4)
    attend = tangrad.nn.functional.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="2 queries and 4 keys, there are 3 and 3"):
        attend(q, q, q, bias.causal_upper_left(2, 4))
    with pytest.raises(ValueError, match="causal=True"):
        attend(q, q, q, bias.causal_upper_left(3, 3), is_causal=True)
    with pytest.raises(RuntimeError, match="two sizes"):
        bias.causal_upper_left(3)
    with pytest.raises(TypeError, match="CausalVariant, got int"):
        bias.CausalBias(1, 2, 3)

"""The same model and data in PyTorch and here."""

from __future__ import annotations

import warnings

import numpy as np
import torch

import tangrad
import tangrad.ao.quantization as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.quantization as theirs

torch.backends.quantized.engine = "fbgemm"


def data(*shape, seed=0, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * scale + offset).astype("float32")


def both(array):
    return torch.from_numpy(array), tangrad.from_numpy(array)


def translated(arguments):
    """Return keyword arguments, in which texts name dtypes and schemes, for each side."""
    return [
        {k: getattr(side, v) if isinstance(v, str) else v for k, v in arguments.items()}
        for side in (torch, tangrad)
    ]


def models(make, seed=0):
    """Return `make(nn, quantization)` of both sides, with the same parameters."""
    torch.manual_seed(seed)
    their_model, our_model = make(torch.nn, theirs), make(tangrad.nn, ours)
    state = {k: tangrad.from_numpy(v.numpy()) for k, v in their_model.state_dict().items()}
    our_model.load_state_dict(state)
    return their_model, our_model


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def same(a, b):
    return np.array_equal(a.detach().numpy(), b.detach().numpy())

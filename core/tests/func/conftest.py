"""Shared by the tests of function transforms: the same program on tangrad and on torch."""

from __future__ import annotations

import warnings

import pytest

import tangrad

SEED = 7


def inputs_of(framework, *shapes):
    """Return the same float64 tensors of the framework for the same shapes."""
    import numpy as np

    random = np.random.default_rng(SEED)
    return tuple(
        framework.tensor(random.uniform(-1.5, 1.5, shape).tolist(), dtype=framework.float64)
        for shape in shapes
    )


def leaves(value):
    """Return the tensors in nested containers."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


@pytest.fixture
def same():
    """Assert that `program(framework, *inputs)` gives torch's values and shapes on tangrad."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")

    def check(program, *shapes, tolerance=1e-9):
        ours = leaves(program(tangrad, *inputs_of(tangrad, *shapes)))
        with warnings.catch_warnings():
            # torch's forward mode loads its decompositions through torch.jit, which is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            theirs = leaves(program(torch, *inputs_of(torch, *shapes)))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert tuple(a.shape) == tuple(b.shape)
            want = torch.tensor(a.tolist(), dtype=b.dtype).reshape(b.shape)
            torch.testing.assert_close(
                want, b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
            )

    return check

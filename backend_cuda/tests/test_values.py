"""Values that kernels once had wrong, as the whole conformance kit found."""

from __future__ import annotations


def test_a_reduction_has_a_real_parameter_beside_complex_elements(run):
    run(
        """
import tangrad
for dtype in (tangrad.complex64, tangrad.complex128):
    x = tangrad.arange(24.0).reshape(4, 6).to(dtype) * (1 - 2j)
    for f in (lambda x: x.std(), lambda x: x.var(dim=1), lambda x: x.std(dim=0, correction=0)):
        assert tangrad.allclose(f(x.cuda()).cpu(), f(x)), dtype
"""
    )


def test_arcsine_loses_no_digits_far_from_zero(run):
    run(
        """
import numpy as np
import tangrad
line = np.array([-1e3, -20, -1.5, -1, -0.0, 0.0, 1e-3, 1, 2, 20, 1e3])
z = np.empty((11, 11), np.complex64)
z.real, z.imag = line[:, None], line
for name in ("arcsin", "arcsinh", "arccos"):
    ours = getattr(tangrad, name)(tangrad.from_numpy(z.copy()).cuda()).cpu().numpy()
    exact = getattr(np, name)(z.astype(np.complex128))
    assert (abs(ours - exact) <= 1e-6 * np.maximum(1, abs(exact))).all(), name
"""
    )


def test_booleans_are_added_by_an_index_with_a_factor(run):
    run(
        """
import tangrad
x = tangrad.zeros(3, 4, dtype=tangrad.bool)
source, places = tangrad.ones(3, 2, dtype=tangrad.bool), tangrad.tensor([3, 1])
ours = x.cuda().index_add(1, places.cuda(), source.cuda(), alpha=2)
assert ours.tolist() == [[False, True, False, True]] * 3
"""
    )

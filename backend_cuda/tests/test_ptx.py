"""NVRTC's own PTX computes what the CPU does, thread by thread, without a race."""

from __future__ import annotations

import pytest

PROGRAM = """
import tangrad
F = tangrad.nn.functional
x = tangrad.arange(60.0).reshape(6, 10) / 7 - 3
y = x.T.contiguous().T

def same(work, *args, exact=False):
    here, there = work(*args), work(*(a.cuda() for a in args)).cpu()
    close = here.equal(there) if exact else here.allclose(there, rtol=2e-6, atol=1e-7)
    assert close, (here, there)

"""
FAMILIES = {
    "integers and copies": """
same(lambda a: (a * 3 - 1) % 5, tangrad.arange(77), exact=True)
same(lambda a: a[:, ::2].contiguous(), x, exact=True)
same(lambda a: a.half().double(), x, exact=True)
""",
    "pointwise": "same(lambda a, b: (a.exp() + b.tanh()) * a.relu(), x, y)",
    "reductions": "same(lambda a: a.sum(0), x)\nsame(lambda a: a.sum(), x)\n"
    "same(lambda a: a.amax(1), x, exact=True)",
    "softmax": "same(lambda a: F.softmax(a, 1), x)",
    "products": "same(lambda a, b: a @ b.T, x, y)",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_results_of_the_cpu(run, family):
    assert run(PROGRAM + FAMILIES[family], engine="ptx", races=True) == ""

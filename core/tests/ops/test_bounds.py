"""Clamps in every form."""

import pytest


@pytest.mark.parametrize("form", ["clamp", "clamp_", "clip", "clip_", "out"])
def test_a_clamp_without_bounds_is_refused(agree, form):
    def program(F):
        x = F.tensor([1.0, 2.0])
        return F.clamp(x, out=F.empty(2)) if form == "out" else getattr(x, form)()

    agree(program, message=False)


@pytest.mark.parametrize("bounds", [{"min": 0.0}, {"min": -0.0}, {"max": 0.0}, {"max": -0.0}])
def test_a_bound_leaves_the_sign_of_a_zero(agree, bounds):
    def program(F):
        x = F.tensor([0.0, -0.0] * 20)
        return [F.signbit(F.clamp(y, **bounds)) for y in (x, x.double())]

    agree(program)

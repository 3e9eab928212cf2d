"""Clamps in every form."""

import pytest


@pytest.mark.parametrize("form", ["clamp", "clamp_", "clip", "clip_", "out"])
def test_a_clamp_without_bounds_is_refused(agree, form):
    def program(F):
        x = F.tensor([1.0, 2.0])
        return F.clamp(x, out=F.empty(2)) if form == "out" else getattr(x, form)()

    agree(program, message=False)

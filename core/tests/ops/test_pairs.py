"""Comparisons and distances that look at a part of their elements at a time."""

import pytest


@pytest.mark.parametrize("place", [None, 0, 300, 5999])
def test_equal_finds_a_difference_anywhere(agree, place):
    def program(F):
        x = F.arange(6000.0).reshape(20, 300)
        y = x.clone()
        if place is not None:
            y.view(-1)[place] = float("nan")
        return [F.equal(x, y), F.equal(y, y), F.equal(x.t(), y.t())]

    agree(program)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_many_rows_agree_with_their_gradients(agree, p):
    def program(F):
        flat = F.arange(180.0 * 100, dtype=F.float64)
        x = F.sin(flat * flat).reshape(180, 100).requires_grad_()
        found = F.pdist(x, p)
        (found * found).sum().backward()
        return [found, x.grad]

    agree(program)

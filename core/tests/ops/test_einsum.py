"""Random equations against NumPy: repeated, broadcast, empty and missing labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[Any]]:
    labels = "abcdef"[: draw(st.integers(1, 6))]
    sizes = {c: draw(st.sampled_from([1, 2, 3, 0])) for c in labels}
    terms = [
        "".join(draw(st.lists(st.sampled_from(labels), max_size=4)))
        for _ in range(draw(st.sampled_from([1, 2, 2, 2, 2, 3])))
    ]
    used = sorted(set("".join(terms)))
    output = draw(st.permutations(used)) if used else []
    output = output[: draw(st.integers(0, len(output)))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = []
    for term in terms:
        x = rng.integers(-4, 5, [sizes[c] for c in term]).astype("float64")
        arrays.append(x.T.copy().T if draw(st.booleans()) else x)
    return ",".join(terms) + "->" + "".join(output), arrays


@settings(max_examples=300, deadline=None)
@given(equations())
def test_sums_are_numpys(case: tuple[str, list[Any]]) -> None:
    equation, arrays = case
    found = tangrad.einsum(equation, *map(tangrad.from_numpy, arrays))
    np.testing.assert_array_equal(found.numpy(), np.einsum(equation, *arrays))


@pytest.mark.parametrize(("equation", "one", "other"), [
    ("bij,bjk->bik", (1, 2, 3), (4, 3, 2)), ("ij,jk->ik", (2, 1), (3, 2)),
    ("bhqd,bhkd->bhqk", (2, 1, 2, 3), (2, 2, 4, 3)), ("...d,de->...e", (2, 2, 3), (3, 2)),
])  # fmt: skip
def test_a_size_of_one_is_broadcast_in_products(
    equation: str, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    a, b = (tangrad.arange(float(np.prod(n))).reshape(n) for n in (one, other))
    terms = equation.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, (one, other), strict=True):
        for c, n in zip(term.replace("...", "xy"), shape, strict=True):
            sizes[c] = max(n, sizes.get(c, 1))
    full = [
        x.expand([sizes[c] for c in term.replace("...", "xy")])
        for term, x in zip(terms, (a, b), strict=True)
    ]
    assert tangrad.einsum(equation, a, b).equal(tangrad.einsum(equation, *full))


def test_derivatives_of_products_pass_numerical_checks() -> None:
    given_ = [tangrad.rand(2, 3, 2, dtype=tangrad.float64, requires_grad=True) for _ in range(2)]
    for output in itertools.islice(itertools.permutations("bik"), 6):
        equation = f"bij,bkj->{''.join(output)}"
        f = lambda a, b, e=equation: tangrad.einsum(e, a, b)  # noqa: E731
        assert tangrad.autograd.gradcheck(f, given_)
        assert tangrad.autograd.gradgradcheck(f, given_)


def test_one_operand_gives_a_view_of_it() -> None:
    x = tangrad.zeros(2, 3)
    turned = tangrad.einsum("ij->ji", x)
    turned[2, 1] = 5
    assert x[1, 2] == 5
    assert tangrad.einsum("ij->ij", x) is not x

"""`functorch.einops.rearrange`: dimensions named in an expression, beside PyTorch's and einops'."""

from __future__ import annotations

import pytest
import torch
from functorch.einops import rearrange as theirs

import tangrad
from tangrad.compat.functorch.einops import rearrange

PATTERNS: list[tuple[str, dict[str, int]]] = [
    ("a b c -> c a b", {}),
    ("a b c -> (c 1 a) b", {}),
    ("a (b d) c -> d a b c", {"b": 3}),
    ("(a d) ... -> d ... a", {"d": 2}),
    ("a ... -> (... a) 1", {}),
    ("a ... c -> c () (a ...)", {}),
    ("a b c ... -> c b ... a", {}),
    ("... -> (...)", {}),
    ("a é C -> a é C", {}),
    ("a b c -> a b c", {"b": 3}),
]


@pytest.mark.parametrize(("pattern", "sizes"), PATTERNS)
def test_dimensions_stand_where_the_expression_says(pattern: str, sizes: dict[str, int]) -> None:
    x = tangrad.arange(24).reshape(2, 3, 4)
    found = rearrange(x, pattern, **sizes)
    expected = theirs(torch.arange(24).reshape(2, 3, 4), pattern, **sizes)
    assert found.tolist() == expected.tolist()


def test_moved_dimensions_are_a_view_whose_gradient_flows() -> None:
    x = tangrad.ones(2, 3, 4, requires_grad=True)
    y = rearrange(x, "a b c -> c a b")
    assert y._base is x or y.data_ptr() == x.data_ptr()
    (y * tangrad.arange(4.0).reshape(4, 1, 1)).sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0].tolist() == [0, 1, 2, 3]


def test_a_sequence_of_tensors_is_stacked() -> None:
    parts = [tangrad.full((2,), float(k)) for k in range(3)]
    assert rearrange(parts, "n ... -> ... n").tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("pattern", "sizes", "words"),
    [
        ("a b c", {}, "one '->'"),
        ("a b c -> a b", {}, r"\['c'\] stand on one side"),
        ("a a c -> a c", {}, "twice"),
        ("... ... -> ...", {}, "twice"),
        ("a ((b)) c -> a b c", {}, "parentheses"),
        ("a (b c -> a b c", {}, "parentheses"),
        ("a b) c -> a b c", {}, "parentheses"),
        ("a (... c) -> a ... c", {"c": 2}, "left side"),
        ("a _b c -> a _b c", {}, "'_b'.* no name"),
        ("a b 4 -> a b", {}, "'4'.* no name"),
        ("a .. c -> a c", {}, "no name"),
        ("a b -> b a", {}, "begins with 2 dimensions, but the tensor has 3"),
        ("a b c d ... -> d c b a ...", {}, "begins with 5 dimensions"),
        ("1 b c -> b c", {}, "dimension of size 2"),
        ("a (b d) c -> a b d c", {}, "all but one of their sizes"),
        ("a (b d) c -> a b d c", {"b": 2}, "size 3 is not made up of"),
        ("a (b d) c -> a b d c", {"b": 0}, "size 3 is not made up of"),
        ("a b c -> a b c", {"a": 5}, "size 2 is not made up of"),
        ("a b c -> a b c", {"q": 2}, r"axes_lengths has \['q'\]"),
    ],
)
def test_an_expression_that_does_not_fit_is_refused(
    pattern: str, sizes: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        rearrange(tangrad.zeros(2, 3, 4), pattern, **sizes)

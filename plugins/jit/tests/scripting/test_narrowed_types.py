"""Variables whose type a condition narrows: after it they have what they are declared with."""

from typing import List, Union  # noqa: UP035

import pytest

import tangrad

# ruff: noqa: SIM102, UP006, UP007


def first(sizes: Union[int, List[int]]):
    if isinstance(sizes, list):
        if len(sizes) == 0:
            return -1
    if isinstance(sizes, int):
        return sizes
    return sizes[0]


def exchanged(sizes: Union[int, List[int]], changes: bool):
    if changes:
        if isinstance(sizes, list):
            sizes = 3
        else:
            sizes = [1]
    return sizes


def test_a_name_that_both_branches_only_narrow_is_of_its_own_type_after_them():
    scripted = tangrad.jit.script(first)
    assert [scripted(given) for given in (3, [4, 5], [])] == [3, 4, -1]


def test_a_name_takes_any_of_its_types_in_a_branch():
    scripted = tangrad.jit.script(exchanged)
    assert scripted(2, True) == [1]
    assert scripted([2], True) == 3
    assert scripted(2, False) == 2


def after_a_literal(o: int | None) -> int:
    if True and (o is None):
        raise ValueError
    return o + 1


def reset_after_a_literal(o: int | None) -> int:
    if True and (o is None):
        raise ValueError
    for _ in range(2):
        o = tangrad.jit.annotate(int | None, None)
    return 0 if o is None else o


def test_a_literal_beside_a_test_for_none_hides_what_it_tells_where_it_fails():
    with pytest.raises(RuntimeError, match=r"Optional\[int\]"):
        tangrad.jit.script(after_a_literal)
    assert tangrad.jit.script(reset_after_a_literal)(3) == 0

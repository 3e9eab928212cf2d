"""Variables whose type a condition narrows: after it they have what they are declared with."""

from typing import List, Union  # noqa: UP035

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

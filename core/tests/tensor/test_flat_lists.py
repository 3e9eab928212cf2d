"""Flat lists of Python numbers, which the compiled core makes tensors of by itself."""

from __future__ import annotations

import pytest

FLAT_LISTS = [
    [1.0, 2.5],
    [1, 2],
    [1e300, -1e300],
    [float("nan"), float("inf"), -0.0],
    [2**63 - 1, -(2**63)],
    [1, 2.0],
    [True, 1],
    [1.0, True],
    [],
]


@pytest.mark.parametrize("numbers", FLAT_LISTS, ids=repr)
@pytest.mark.parametrize("default", ["float32", "float64", "float16"])
def test_flat_list_becomes_what_torch_makes_of_it(agree, numbers, default):
    def program(fw):
        before = fw.get_default_dtype()
        fw.set_default_dtype(getattr(fw, default))
        try:
            made = fw.tensor(numbers)
        finally:
            fw.set_default_dtype(before)
        return str(made.dtype).rpartition(".")[2], list(made.shape), str(made.tolist())

    agree(program)


def test_flat_list_with_an_integer_too_large_is_refused(agree):
    agree(lambda fw: fw.tensor([1, 2**63]), message=False)

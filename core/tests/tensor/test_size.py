"""`Size` is a tuple that stays a `Size`."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import tangrad
from tangrad.tensor.size import Size


def test_slices_sums_and_products_are_sizes():
    size = Size([2, 3])
    for result in (size[:1], size + (4,), (4,) + size, size * 2, 2 * size):
        assert type(result) is Size
    assert (4,) + size == (4, 2, 3)
    assert type(size[0]) is int


def test_a_size_equals_the_tuple_of_its_sizes():
    assert Size([2, 3]) == (2, 3)
    assert hash(Size([2, 3])) == hash((2, 3))


def test_numel_multiplies():
    assert Size([2, 3, 4]).numel() == 24
    assert Size().numel() == 1
    assert Size([2, 0]).numel() == 0


def test_repr_is_laid_out_as_in_torch():
    assert repr(Size([2, 3])) == "tangrad.Size([2, 3])"
    assert repr(Size()) == "tangrad.Size([])"


def test_copies_and_pickles_are_sizes():
    size = Size([2, 3])
    for twin in (copy.copy(size), copy.deepcopy(size), pickle.loads(pickle.dumps(size))):
        assert type(twin) is Size
        assert twin == size


@pytest.mark.parametrize("sizes", [[1.5], ["a"], [None]])
def test_only_integers_are_sizes(sizes):
    with pytest.raises(TypeError, match="item 0"):
        Size(sizes)


def test_only_tuples_are_appended():
    with pytest.raises(TypeError, match="concatenate tuple"):
        Size([2]) + [1]


def test_a_slice_is_a_size_however_it_is_asked_for():
    class Named(Size):
        def __getitem__(self, key):
            return super().__getitem__(key)

    size = Named([2, 3, 4])
    assert size[1] == 3
    assert type(size[1:]) is type(Size.__getitem__(size, slice(1, 3))) is Size
    assert size[1:] == Size.__getitem__(size, slice(1, 3)) == (3, 4)


@pytest.mark.parametrize(
    ("key", "kind"), [(2, IndexError), (-3, IndexError), ("a", TypeError), (None, TypeError)]
)
def test_what_is_no_place_in_a_size_is_refused(key, kind):
    with pytest.raises(kind, match="tuple ind"):
        Size([2, 3])[key]


@pytest.mark.parametrize("library", [torch, tangrad])
def test_arrays_count_with_the_sizes(library):
    size, steps = library.Size([2, 3]), np.array([1, 2])
    for result in (size + steps, steps + size, size * steps * 1, size - steps + 2 * steps):
        assert type(result) is np.ndarray
    assert (size + steps).tolist() == [3, 5]
    assert (size * steps).tolist() == [2, 6]
    for other in ([1], 1, library.ones(2)):
        with pytest.raises(TypeError, match="can only concatenate tuple"):
            size + other

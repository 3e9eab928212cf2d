"""Reading and writing by index, for indices that Hypothesis draws, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.tensor.indexing import getitem

SHAPE = (3, 1, 4)
SLICES = st.slices(4).filter(lambda s: s.step is None or s.step > 0)
SIMPLE = st.one_of(st.integers(-4, 4), SLICES, st.none(), st.just(...), st.booleans(),
                   st.lists(st.integers(-3, 2), min_size=0, max_size=3).map(lambda v: ("index", v)),
                   st.just(("mask", None)))  # fmt: skip
INDICES = st.one_of(SIMPLE, st.lists(SIMPLE, max_size=5).map(tuple))


def made(index: Any, library: Any, source: Any) -> Any:
    """Make an index of one of the libraries of its description."""
    if isinstance(index, tuple) and len(index) == 2 and index[0] == "index":
        return library.tensor(index[1], dtype=library.int64)
    if isinstance(index, tuple) and len(index) == 2 and index[0] == "mask":
        return source > 5
    if isinstance(index, tuple):
        return tuple(made(i, library, source) for i in index)
    return index


def outcome(action: Any) -> Any:
    """Return what an action gives, or the type of what it raises."""
    try:
        return action()
    except (IndexError, RuntimeError, ValueError, TypeError) as error:
        return type(error)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(INDICES)
def test_reading_gives_what_torch_gives(index: Any) -> None:
    values = np.arange(12.0).reshape(SHAPE)
    results = []
    for library in (tangrad, torch):
        source = library.from_numpy(values)
        results.append(outcome(lambda t=source, lib=library: t[made(index, lib, t)]))
    ours, theirs = results
    if isinstance(theirs, type):
        assert isinstance(ours, type), f"{index} gives {ours}, torch raises {theirs}"
        return
    assert not isinstance(ours, type), f"{index} raises {ours}, torch gives {theirs}"
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.tolist() == theirs.tolist()
    assert ours._is_view() == theirs._is_view()


@settings(max_examples=400, deadline=None, derandomize=True)
@given(INDICES, st.sampled_from(["number", "whole", "row"]))
def test_writing_leaves_what_torch_leaves(index: Any, kind: str) -> None:
    targets, results = [], []
    for library in (tangrad, torch):
        target = library.arange(12.0).reshape(SHAPE)
        value = {"number": -1.0, "whole": library.full((1,), -2.0), "row": library.arange(4.0) - 9}[
            kind
        ]

        def write(t: Any = target, v: Any = value, lib: Any = library) -> None:
            t[made(index, lib, t)] = v

        results.append(outcome(write))
        targets.append(target)
    assert (results[0] is None) == (results[1] is None), (
        f"{index}: {results[0]}, torch {results[1]}"
    )
    if results[1] is None and not repeats(index):
        assert targets[0].tolist() == targets[1].tolist()


def repeats(index: Any) -> bool:
    """Tell whether an index may name a place twice, so that the order of writes decides."""
    parts = index if isinstance(index, tuple) and index[:1] != ("index",) else (index,)
    lists = [[n % 3 for n in p[1]] for p in parts if isinstance(p, tuple) and p[:1] == ("index",)]
    return any(len(set(v)) < len(v) for v in lists)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(INDICES, st.booleans())
def test_the_usual_forms_in_c_give_what_the_general_code_gives(index: Any, recorded: bool) -> None:
    values = tangrad.arange(12.0).reshape(SHAPE).requires_grad_(recorded)
    chosen = made(index, tangrad, values.detach())
    results = [
        outcome(lambda form=form: form(values, chosen)) for form in (getitem, lambda t, i: t[i])
    ]
    if isinstance(results[0], type):
        assert results[1] is results[0]
        return
    general, usual = results
    assert (usual.shape, usual.stride(), usual._is_view()) == (
        general.shape,
        general.stride(),
        general._is_view(),
    )
    assert usual.tolist() == general.tolist()
    assert usual.requires_grad == general.requires_grad
    if recorded:
        seed = tangrad.ones_like(usual)
        ours, theirs = (tangrad.autograd.grad(y, values, seed)[0] for y in (usual, general))
        assert ours.tolist() == theirs.tolist()


def test_assignment_to_leaves_and_their_gradients_are_as_of_torch() -> None:
    for write in (0, slice(1), ([0, 2],)):
        results = []
        for library in (tangrad, torch):
            index = library.tensor(write[0]) if isinstance(write, tuple) else write
            leaf = library.ones(3, requires_grad=True)
            results.append(outcome(lambda t=leaf, i=index: t.__setitem__(i, 2.0)))
            y = leaf * 2
            y[index] = 5.0
            y.sum().backward()
            results.append(leaf.grad.tolist())
        assert results[:2] == results[2:]


LISTS = st.lists(st.one_of(st.integers(-5, 4), st.integers(-5, 4), st.booleans()), max_size=4)
OTHERS = st.one_of(st.integers(-4, 4), SLICES, st.none(), st.just(...))
WITH_LISTS = st.one_of(LISTS, st.lists(st.one_of(LISTS, OTHERS), min_size=1, max_size=4).map(tuple))


def with_tensors(index: Any) -> Any:
    """Return an index with its lists as tensors."""
    if isinstance(index, tuple):
        return tuple(with_tensors(i) for i in index)
    if isinstance(index, list) and index:
        kind = tangrad.bool if all(isinstance(i, bool) for i in index) else tangrad.int64
        return tangrad.tensor(index, dtype=kind)
    return tangrad.tensor([], dtype=tangrad.int64) if index == [] else index


@settings(max_examples=300, deadline=None, derandomize=True)
@given(WITH_LISTS, st.sampled_from([7, 0.5, True, None]))
def test_lists_stand_for_tensors_of_their_numbers(index: Any, number: Any) -> None:
    results = []
    for way in (index, with_tensors(index)):
        source = tangrad.arange(12.0).reshape(SHAPE)
        read = outcome(lambda t=source, i=way: t[i])
        value = read if number is None and not isinstance(read, type) else number or 1
        written = outcome(lambda t=source, i=way, v=value: t.__setitem__(i, v))
        shown = read if isinstance(read, type) else (read.shape, read.tolist())
        results.append((shown, written, source.tolist()))
    assert results[0] == results[1]


def test_lists_beyond_64_bits_are_refused() -> None:
    x = tangrad.zeros(3)
    for action in (lambda: x[[2**70]], lambda: x.__setitem__([0, 2**70], 1)):
        assert isinstance(outcome(action), type)


def test_gradients_pass_through_lists() -> None:
    x = tangrad.arange(6.0).reshape(3, 2).requires_grad_()
    x[[0, 2, 0]].sum().backward()
    assert x.grad.tolist() == [[2, 2], [0, 0], [1, 1]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), st.booleans())
def test_values_are_put_where_torch_puts_them(data: Any, accumulate: bool) -> None:
    size = data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    kinds = data.draw(st.lists(st.sampled_from(["int64", "int64", "int32"]), max_size=4))
    numbers = [
        np.array(data.draw(st.permutations(range(-2, 2))))[: int(np.prod(size))] for _ in kinds
    ]
    results = []
    for library in (tangrad, torch):
        target = library.arange(4.0**3).reshape(4, 4, 4)
        places = tuple(
            library.tensor(n.reshape(size).tolist()).to(getattr(library, kind))
            for kind, n in zip(kinds, numbers, strict=True)
        )
        value = library.tensor(-5.0)
        done = outcome(lambda t=target, p=places, v=value: t.index_put_(p, v, accumulate))
        results.append((isinstance(done, type), target.tolist()))
    assert results[0] == results[1]

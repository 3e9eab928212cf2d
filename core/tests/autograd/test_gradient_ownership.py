"""Whose memory the gradient of a leaf is: nobody else's, and no copy where nobody else has it."""

from __future__ import annotations

import random

import pytest
import torch

import tangrad
from tangrad.autograd import Function

given: list[int] = []


class Made(Function):
    """Give a gradient that is made in backward, and note where it is."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        made = grad * 2
        given.append(made.data_ptr())
        return made


def places(*tensors: tangrad.Tensor) -> set[int]:
    return {t.data_ptr() for t in tensors}


def test_a_gradient_that_nobody_else_has_is_not_copied():
    x = tangrad.ones(3, requires_grad=True)
    Made.apply(x).sum().backward()
    assert x.grad.data_ptr() == given[-1]


def test_leaves_that_get_one_gradient_have_memory_of_their_own():
    a, b = (tangrad.ones(3, requires_grad=True) for _ in range(2))
    ((a + b) * 2).sum().backward()
    assert len(places(a.grad, b.grad)) == 2
    a.grad.zero_()
    assert b.grad.tolist() == [2, 2, 2]


def test_the_gradient_that_a_program_gave_stays_its_own():
    a, b, g = (
        tangrad.ones(3, requires_grad=True),
        tangrad.ones(3, requires_grad=True),
        tangrad.ones(3),
    )
    (a + b).backward(g)
    assert len(places(a.grad, b.grad, g)) == 3
    c = tangrad.ones(3, requires_grad=True)
    c.view(3).backward(g)
    assert c.grad.data_ptr() != g.data_ptr()


def test_a_retained_gradient_is_not_the_leaf_s():
    x = tangrad.ones(3, requires_grad=True)
    y = x * 1.0
    y.retain_grad()
    (y * 3).sum().backward()
    assert y.grad.data_ptr() != x.grad.data_ptr()


def test_a_part_of_a_larger_memory_does_not_keep_it_alive():
    x = tangrad.ones(2, requires_grad=True)
    tangrad.cat([x, tangrad.ones(1000)]).exp().sum().backward()
    assert x.grad.untyped_storage().nbytes() == 8


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_strided_views_are_those_of_torch(seed):
    drawn = random.Random(seed)
    rows, columns, start = drawn.randint(1, 5), drawn.randint(1, 5), drawn.randint(0, 3)
    size = (drawn.randint(0, 3), drawn.randint(1, 4))
    # One step in three lets elements share a place.
    stride = (drawn.choice([1, 4, 7]), drawn.choice([0, 1, 2]))
    offset = drawn.choice([None, 0, 2, 5])

    def found(library, graph):
        base = library.arange(60.0, dtype=library.float64)
        x = base.as_strided((rows, columns), (columns + start, 1), start).requires_grad_()
        y = (
            (x * 1.0).as_strided(size, stride, 0)
            if offset is None
            else x.as_strided(size, stride, offset)
        )
        weights = library.arange(float(y.numel()), dtype=library.float64).reshape(y.shape) + 1
        by = library.autograd.grad(y, x, weights, create_graph=graph)[0]
        return by.tolist(), by.is_contiguous()

    if (
        offset is None
        and size[0]
        and (size[0] - 1) * stride[0] + (size[1] - 1) * stride[1] >= rows * columns
    ):
        return  # beyond the product's storage
    assert found(tangrad, False)[0] == found(torch, False)[0]
    assert found(tangrad, False)[0] == found(tangrad, True)[0]

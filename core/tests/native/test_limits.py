"""Inputs at the edge: empty, huge, overlapping, impossible."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad

HUGE = 1 << 33


@pytest.mark.parametrize("make", [
    lambda: tangrad.empty(1 << 50),
    lambda: tangrad.zeros(1 << 45, 2),
    lambda: tangrad.empty(1 << 62, dtype=tangrad.float64),
    lambda: tangrad.ones(1).expand(1 << 45) + 1,
    lambda: tangrad.ones(1).expand(1 << 45).clone(),
    lambda: tangrad.arange(1 << 50),
])  # fmt: skip
def test_absurd_sizes_are_out_of_memory(make: Any) -> None:
    with pytest.raises(tangrad.OutOfMemoryError, match=r"(?i)out of memory|bytes"):
        make()
    assert tangrad.ones(2).sum().item() == 2


def test_sizes_whose_product_overflows_are_refused() -> None:
    with pytest.raises(RuntimeError, match="overflow"):
        tangrad.empty(1 << 40, 1 << 40)


def test_meta_tensors_may_be_larger_than_memory() -> None:
    x = tangrad.empty(3, HUGE, device="meta")
    assert (x + x).shape == (3, HUGE)
    assert x.sum(1).shape == (3,)
    assert x.t().reshape(-1).shape == (3 * HUGE,)
    assert (x.numel(), x[1].storage_offset()) == (3 * HUGE, HUGE)
    assert (x @ tangrad.empty(HUGE, 2, device="meta")).shape == (3, 2)


def test_broadcast_views_may_be_larger_than_memory() -> None:
    x = tangrad.arange(2.0).unsqueeze(1).expand(2, HUGE)
    assert x.numel() == 2 * HUGE
    assert x[1, HUGE - 1].item() == 1.0
    assert x[:, HUGE - 3 :].tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("make", [
    lambda x: x.as_strided((2,), (-1,)),
    lambda x: tangrad.empty_strided((2,), (-1,)),
    lambda x: x.as_strided((100,), (1,)),
    lambda x: x.as_strided((2,), (1,), 1000),
    lambda x: x.as_strided((2,), (1 << 62,)),
    lambda x: x.expand(-3, 4),
    lambda x: x.view(1 << 62, 4),
])  # fmt: skip
def test_impossible_geometry_is_refused(make: Any) -> None:
    with pytest.raises(RuntimeError):
        make(tangrad.ones(4))


@pytest.mark.parametrize("target", [
    lambda x: x.expand(2, 4),
    lambda x: x.unfold(0, 2, 1),
    lambda x: x.as_strided((2, 2), (1, 1)),
])  # fmt: skip
def test_a_tensor_whose_elements_overlap_is_not_written(target: Any) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        target(tangrad.ones(4)).add_(1)


def test_writes_over_part_of_what_is_read_are_refused() -> None:
    for write in (lambda x: x[1:].copy_(x[:-1]), lambda x: x[1:].add_(x[:-1])):
        x = tangrad.arange(5.0)
        with pytest.raises(RuntimeError, match="single memory location"):
            write(x)
        assert x.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("write", [
    lambda x, i: x.scatter_(0, i, x[:3]),
    lambda x, i: i.scatter_(0, i, 1),
    lambda x, i: x.scatter_add_(0, i, x[:3]),
    lambda x, i: x.index_add_(0, i, x[:3]),
    lambda x, i: x.index_copy_(0, i, x[:3]),
    lambda x, i: i.index_copy_(0, i, i.clone()),
    lambda x, i: i.index_fill_(0, i, 0),
    lambda x, i: x.index_put_((i,), x[:3]),
    lambda x, i: i.index_put_((i,), i.clone()),
    lambda x, i: x.put_(i, x[:3]),
    lambda x, i: x.expand(2, 6).put_(i, x[:3].clone()),
    lambda x, i: x.masked_scatter_(x > 2, x),
])  # fmt: skip
def test_places_and_sources_share_no_memory_with_what_is_written(write: Any) -> None:
    with pytest.raises(RuntimeError, match="unsupported operation.*single memory location"):
        write(tangrad.arange(6.0), tangrad.tensor([2, 1, 0]))
    x = tangrad.arange(6.0)
    x.scatter_(0, tangrad.tensor([2, 1, 0]), x[:3].clone())
    assert x.tolist() == [2, 1, 0, 3, 4, 5]
    assert tangrad.scatter(x, 0, tangrad.tensor([0]), 9.0, out=x)[0] == 9


def test_operands_between_each_other_are_read_before_they_are_written() -> None:
    x = tangrad.arange(10.0)
    every_second = x[::2]
    every_second[1:].copy_(every_second[:-1])
    assert every_second.tolist() == [0, 0, 2, 4, 6]
    every_second[1:].add_(every_second[:-1])
    assert every_second.tolist() == [0, 0, 2, 6, 10]


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (0, 0)])
def test_empty_tensors_take_part(shape: tuple[int, ...]) -> None:
    x = tangrad.empty(shape, requires_grad=True)
    y = (x * 2 + 1).exp().reshape(-1)
    y.sum().backward()
    assert (y.numel(), x.grad.shape, x.sum().item(), x.prod().item()) == (0, shape, 0.0, 1.0)
    assert tangrad.cat([x, x]).numel() == 0


@pytest.mark.parametrize("call", [
    lambda x: x.max(), lambda x: x.argmin(), lambda x: x.max(0), lambda x: x.amax(0),
])  # fmt: skip
def test_reductions_without_identity_refuse_nothing_to_reduce(call: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        call(tangrad.empty(0, 3))


def test_nan_and_infinity_pass_through() -> None:
    x = tangrad.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert str(tangrad.maximum(x, tangrad.ones(4)).tolist()) == "[nan, inf, 1.0, 1.0]"
    assert str(x.max().item()) == "nan"
    assert (x == x).tolist() == [False, True, True, True]
    assert x.isfinite().tolist() == [False, False, False, True]


@pytest.mark.parametrize("seed", [-(1 << 63), -1, 0, (1 << 64) - 1])
def test_seeds_of_64_bits_are_accepted(seed: int) -> None:
    tangrad.manual_seed(seed)
    first = tangrad.rand(3).tolist()
    tangrad.manual_seed(seed)
    assert tangrad.rand(3).tolist() == first


@pytest.mark.parametrize("seed", [1 << 64, -(1 << 63) - 1, "a"])
def test_other_seeds_are_refused(seed: Any) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        tangrad.manual_seed(seed)


def test_dimensions_have_a_limit() -> None:
    with pytest.raises(RuntimeError, match=r"dimensions|64"):
        tangrad.ones((1,) * 70)
    assert tangrad.ones((1,) * 20).sum().item() == 1

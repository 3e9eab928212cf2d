"""Scaled dot product attention: masks, causality, shared heads."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.nn import functional as F
from tangrad.plugin import find_op


def test_equal_keys_average_the_values() -> None:
    query, key = tangrad.ones(1, 2), tangrad.ones(4, 2)
    value = tangrad.arange(4.0).reshape(4, 1)
    result = F.scaled_dot_product_attention(query, key, value)
    assert result.flatten().tolist() == pytest.approx([1.5])


def test_a_causal_query_sees_no_later_key() -> None:
    ones, value = tangrad.ones(3, 2), tangrad.tensor([[0.0], [2.0], [4.0]])
    result = F.scaled_dot_product_attention(ones, ones, value, is_causal=True)
    assert result.flatten().tolist() == pytest.approx([0, 1, 2])


def test_a_query_that_sees_nothing_gives_zero() -> None:
    ones = tangrad.ones(2, 2)
    mask = tangrad.tensor([[True, True], [False, False]])
    result = F.scaled_dot_product_attention(ones, ones, ones, mask)
    assert result.flatten().tolist() == pytest.approx([1, 1, 0, 0])


def test_the_gradient_of_a_hidden_query_is_zero_and_no_nan() -> None:
    query = tangrad.ones(2, 2, requires_grad=True)
    ones, mask = tangrad.ones(2, 2), tangrad.tensor([[False, False], [True, False]])
    F.scaled_dot_product_attention(query, ones, ones, mask).sum().backward()
    assert query.grad[0].tolist() == [0, 0]


def test_gradients_by_a_mask_hold_where_it_hides_every_key_by_the_least_number() -> None:
    tangrad.manual_seed(0)
    least = tangrad.finfo(tangrad.float32).min
    inputs = [tangrad.randn(3, 4, requires_grad=True) for _ in range(3)]
    mask = tangrad.tensor([[least] * 3, [least, 0.5, least], [0.1, 0.2, 0.3]], requires_grad=True)
    inputs.append(mask)
    query, key, value = inputs[:3]
    by_hand = (query @ key.T / 2 + mask).softmax(-1) @ value
    weighting = tangrad.randn(3, 4)
    expected = tangrad.autograd.grad(by_hand, inputs, weighting)
    result = F.scaled_dot_product_attention(*inputs)
    found = tangrad.autograd.grad(result, inputs, weighting)
    for mine, true in zip((result, *found), (by_hand, *expected), strict=True):
        tangrad.testing.assert_close(mine, true)


def test_the_reference_averages_values_of_keys_that_are_hidden_by_the_least_number() -> None:
    ones, value = tangrad.ones(1, 2), tangrad.tensor([[1.0], [3.0]])
    mask = tangrad.full((1, 2), tangrad.finfo(tangrad.float32).min)
    given = [ones, tangrad.ones(2, 2), value, mask, False, 1.0]
    result, _ = find_op("_attention").definition.decomposed(given)
    assert result.item() == 2


def test_groups_of_heads_share_keys() -> None:
    tangrad.manual_seed(0)
    query, key = tangrad.randn(1, 4, 2, 3), tangrad.randn(1, 2, 5, 3)
    shared = F.scaled_dot_product_attention(query, key, key, enable_gqa=True)
    repeated = key.repeat_interleave(2, 1)
    assert shared.tolist() == F.scaled_dot_product_attention(query, repeated, repeated).tolist()


def test_mask_and_causality_exclude_each_other() -> None:
    ones = tangrad.ones(2, 2)
    with pytest.raises(RuntimeError, match="should not be set when is_causal"):
        F.scaled_dot_product_attention(ones, ones, ones, ones, is_causal=True)


def test_backward_finds_its_way_from_a_step_with_seven_inputs() -> None:
    def numbers(*shape: int) -> tangrad.Tensor:
        return tangrad.ones(shape, requires_grad=True)

    given = [numbers(3, 2), numbers(3, 4), numbers(2, 4), numbers(2, 2), None, numbers(3, 2)]
    pair = numbers(2, 3)
    sums = pair.unbind()[0]  # the first of several results, as all others are
    made = find_op("_attention_backward")(*given, sums, False, 0.5)
    step = made[0].grad_fn
    assert [number for _, number in step.next_functions] == [0] * 7
    assert step.next_functions[6][0] is sums.grad_fn
    sum(t.sum() for t in made).backward()
    assert pair.grad is not None
    assert pair.grad[1].tolist() == [0.0] * 3

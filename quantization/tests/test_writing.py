"""Quantized tensors that are ordered, written to and looked at, beside PyTorch's."""

import pytest
import torch
from quantized_pairs import both, data, same

import tangrad

DTYPES = ["quint8", "qint8"]


def pair(dtype="quint8", shape=(4, 6), scale=0.05, zero=17):
    x, y = both(data(*shape, scale=2))
    return (
        torch.quantize_per_tensor(x, scale, zero, getattr(torch, dtype)),
        tangrad.quantize_per_tensor(y, scale, zero, getattr(tangrad, dtype)),
    )


def agree(a, b):
    assert same(a.int_repr(), b.int_repr())
    assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point())


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_ordered_as_their_numbers_are(dtype):
    a, b = pair(dtype)
    for name in ("max", "min"):
        agree(getattr(a, name)(), getattr(b, name)())
        for mine, other in zip(getattr(b, name)(1), getattr(a, name)(1), strict=True):
            same_or_equal(other, mine)
    for call in (lambda x: x.sort(1), lambda x: x.sort(0, descending=True), lambda x: x.topk(3)):
        for mine, other in zip(call(b), call(a), strict=True):
            if other.is_quantized:
                agree(other, mine)
    assert type(b.sort()).__name__ == "sort"


def same_or_equal(other, mine):
    if other.is_quantized:
        agree(other, mine)
    else:
        assert other.shape == mine.shape


WRITES = {
    "fill": lambda side, q: q.fill_(1.23),
    "fill beyond": lambda side, q: q.fill_(1e6),
    "fill of a row": lambda side, q: q[1].fill_(0.4),
    "a row of numbers": lambda side, q: q.__setitem__(0, side.ones(6) * 0.3),
    "a number at a place": lambda side, q: q.__setitem__((1, 2), 0.7),
    "numbers at places": lambda side, q: q.index_put_(
        (side.tensor([0, 3]), side.tensor([5, 1])), side.tensor([0.5, -0.3])
    ),
    "a mask": lambda side, q: q.__setitem__(q.dequantize() > 0.2, 0.1),
    "masked fill": lambda side, q: q.masked_fill_(q.dequantize() < 0, 0.25),
    "a quantized row": lambda side, q: q[2].copy_(q[0]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_is_quantized_and_seen_through_views(name, dtype):
    a, b = pair(dtype)
    whole = b.view(-1)
    WRITES[name](torch, a)
    WRITES[name](tangrad, b)
    agree(a, b)
    assert same(a.reshape(-1).int_repr(), whole.int_repr())


def test_a_copied_tensor_shares_nothing_afterwards():
    first, second = pair()[1], pair(scale=0.2, zero=3)[1]
    first.copy_(second)
    before = first.int_repr()
    second.fill_(0.0)
    assert same(before, first.int_repr())
    assert (first.q_scale(), first.q_zero_point()) == (0.2, 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_writing_are_pytorchs(dtype):
    a, b = pair(dtype)
    for call in (
        lambda side, q: side.nn.functional.threshold(q, 0.3, 0.05),
        lambda side, q: side.nn.functional.pad(q, (1, 2, 0, 1), "constant", 0.4),
        lambda side, q: q.masked_fill(q.dequantize() > 0.5, 0.0),
        lambda side, q: q.index_put((side.tensor([0]), side.tensor([1])), side.tensor(2.0)),
    ):
        agree(call(torch, a), call(tangrad, b))


def test_moved_tensors_tell_the_order_in_memory():
    a, b = pair(shape=(2, 3, 4, 5))
    for call in (
        lambda x, side: x,
        lambda x, side: x.permute(0, 2, 3, 1),
        lambda x, side: x.transpose(1, 2),
        lambda x, side: x.contiguous(memory_format=side.channels_last),
    ):
        mine, other = call(b, tangrad), call(a, torch)
        assert mine.stride() == other.stride()
        assert mine.stride(1) == other.stride(1)
        assert mine.is_contiguous() == other.is_contiguous()
        assert mine.is_contiguous(memory_format=tangrad.channels_last) == other.is_contiguous(
            memory_format=torch.channels_last
        )
        assert mine.contiguous().is_contiguous()


def test_text_is_pytorchs():
    for a, b in (pair(), pair("qint8", (2, 2))):
        assert repr(b) == repr(a).replace("torch.", "tangrad.")
    x, y = both(data(2, 3))
    a = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.zeros(2), 0, torch.quint8)
    b = tangrad.quantize_per_channel(
        y, tangrad.tensor([0.1, 0.2]), tangrad.zeros(2), 0, tangrad.quint8
    )
    assert "size=(2, 3), dtype=tangrad.quint8" in repr(b)
    assert "layout" not in repr(b)
    assert same(a.int_repr(), b.int_repr())


def test_a_list_is_dequantized():
    a, b = pair()
    found, expected = tangrad.dequantize([b, b]), torch.dequantize([a, a])
    assert isinstance(found, tuple)
    assert all(same(mine, other) for mine, other in zip(found, expected, strict=True))


def test_what_cannot_be_written_is_refused():
    b = pair()[1]
    with pytest.raises(RuntimeError, match="accumulate"):
        b.index_put_((tangrad.tensor([0]),), tangrad.ones(6), accumulate=True)
    with pytest.raises(RuntimeError, match="one of its dtype"):
        b.copy_(pair("qint8")[1])
    with pytest.raises(RuntimeError, match="broadcast"):
        b.masked_fill_(tangrad.ones(2, 4, 6).bool(), 0.0)
    scales, zeros = tangrad.ones(4), tangrad.zeros(4)
    packed = tangrad.quantize_per_channel(tangrad.ones(4, 8), scales, zeros, 0, tangrad.quint4x2)
    with pytest.raises((RuntimeError, NotImplementedError), match="fill_"):
        packed.fill_(1.0)

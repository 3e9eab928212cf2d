"""The order in memory that results take over, and memory given for them."""

from __future__ import annotations

import pytest
import torch

import tangrad


def strides_of_joined(library, formats):
    parts = [library.ones(2, 3, 4, 4).to(memory_format=getattr(library, name)) for name in formats]
    return tuple(library.cat(parts, 1).stride())


@pytest.mark.parametrize(
    "formats",
    [
        ("channels_last", "channels_last"),
        ("channels_last", "contiguous_format"),
        ("contiguous_format", "channels_last"),
    ],
)
def test_cat_takes_over_a_memory_format_that_all_have(formats):
    assert strides_of_joined(tangrad, formats) == strides_of_joined(torch, formats)


@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize(
    "call",
    [
        lambda library, x: x.flip(3),
        lambda library, x: library.sort(x, 1)[0],
        lambda library, x: library.sort(x, -1)[1],
        lambda library, x: library.constant_pad_nd(x, (1, 2, 0, 1), 3.0),
    ],
    ids=["flip", "sorted values", "places of sorted values", "constant_pad_nd"],
)
def test_reversed_sorted_and_padded_images_keep_their_channels_last(call, rank):
    def result(library):
        x = library.arange(float(2 * 3 * 4 ** (rank - 2))).reshape((2, 3, *[4] * (rank - 2)))
        wanted = library.channels_last if rank == 4 else library.channels_last_3d
        return call(library, x.contiguous(memory_format=wanted))

    ours, theirs = result(tangrad), result(torch)
    assert tuple(ours.stride()) == tuple(theirs.stride())
    assert ours.tolist() == theirs.tolist()


def test_a_conversion_to_the_suggested_format_is_the_tensor_itself():
    for library in (torch, tangrad):
        x = library.ones(4, 6).t()
        assert x.to(memory_format=library.contiguous_format) is x
        y = library.ones(2, 3, 4, 4).to(memory_format=library.channels_last)[:, :, ::2]
        assert y.to(memory_format=library.channels_last) is y


@pytest.mark.parametrize("name", ["rand", "randn", "randperm"])
def test_random_numbers_are_drawn_into_out(name):
    out = tangrad.empty(0, dtype=tangrad.int64 if name == "randperm" else tangrad.float32)
    assert getattr(tangrad, name)(5, out=out) is out
    assert out.shape == (5,)


def test_slices_listed_along_the_last_dimension_keep_torchs_strides():
    values = [[1, 2, 1], [3, 4, 3]]
    ours, expected = (lib.unique(lib.tensor(values), dim=1) for lib in (tangrad, torch))
    assert (ours.tolist(), ours.stride()) == (expected.tolist(), expected.stride())


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("case", ["empty input", "input", "part of an input", "index"])
def test_out_that_shares_memory_with_an_input_once_resized_is_refused(case):
    for library in (torch, tangrad):
        x, y, places = library.zeros(0), library.ones(4, 6), library.tensor([2, 1, 0])
        call = {
            "empty input": lambda x=x, y=y, t=library: t.cat((x, y), out=x),
            "input": lambda x=x, y=y, t=library: t.cat((x, y), out=y),
            "part of an input": lambda y=y, t=library: t.cat((y, y + 1), out=y[:2]),
            "index": lambda p=places, t=library: t.gather(p.clone(), 0, p[1:], out=p[:1]),
        }[case]
        with pytest.raises(RuntimeError, match="single memory location"):
            call()


@pytest.mark.parametrize("of", ["a number", "a tensor", "a leaf", "channels_last"])
def test_masked_fill_gives_what_can_be_viewed(of):
    found = []
    for library in (torch, tangrad):
        x = library.arange(24.0).reshape(2, 3, 4)
        if of == "channels_last":
            x = x.reshape(1, 2, 3, 4).to(memory_format=library.channels_last)
        x.requires_grad_(of == "a leaf")
        x = x.transpose(0, 1) if of != "channels_last" else x
        value = library.tensor(2.0) if of == "a tensor" else 2.0
        result = x.masked_fill(x > 3, value)
        found.append((result.stride(), result.view(-1).tolist()))
    assert found[0] == found[1]


def test_padded_pictures_keep_their_channels_last() -> None:
    for lib in (tangrad, torch):
        for shape, form in (((1, 2, 5, 3), "channels_last"), ((2, 2, 3, 1, 4), "channels_last_3d")):
            x = lib.ones(shape)
            assert lib.constant_pad_nd(x, [1, 2], 0.5).is_contiguous()
            x = x.contiguous(memory_format=getattr(lib, form))
            padded = lib.constant_pad_nd(x, [1, 2], 0.5)
            assert padded.is_contiguous(memory_format=getattr(lib, form))


RESULTS = {
    "exp": lambda t, x: x.exp(),
    "plus a row": lambda t, x: x + t.zeros(x.shape[-1]),
    "a row plus it": lambda t, x: t.zeros(x.shape[-1]) + x,
    "plus a tensor": lambda t, x: x + t.zeros(tuple(x.shape)),
    "where": lambda t, x: t.where(x > 0, x, x),
    "clone": lambda t, x: x.clone(),
    "converted": lambda t, x: x.double(),
    "empty_like": lambda t, x: t.empty_like(x),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_dimensions_of_one_element_have_the_strides_of_pytorch(kind):
    import itertools

    def lying(library, shape, order, step):
        sizes = [shape[d] for d in order]
        sizes[-1] *= step
        return library.zeros(sizes)[..., ::step].permute(*map(order.index, range(len(shape))))

    shapes = [
        (2, 1),
        (1, 3),
        (1, 1),
        (2, 1, 3),
        (1, 3, 1),
        (1, 2, 1, 3),
        (2, 3, 1, 1),
        (5, 2, 1, 5),
    ]
    for shape in shapes:
        for order, step in itertools.product(itertools.permutations(range(len(shape))), (1, 2)):
            ours, theirs = (
                RESULTS[kind](library, lying(library, shape, order, step))
                for library in (tangrad, torch)
            )
            assert tuple(ours.stride()) == theirs.stride(), (shape, order, step)


@pytest.mark.parametrize("rank", [4, 5])
def test_stacked_images_lie_as_those_of_torch(rank):
    def found(library, dim, mixed):
        last = library.channels_last if rank == 4 else library.channels_last_3d
        x = library.arange(2.0 * 3 * 4 * 5 * (6 if rank == 5 else 1))
        x = x.reshape((2, 3, 4, 5, 6)[:rank])
        parts = [x.contiguous(memory_format=last), (x + 1).contiguous(memory_format=last)]
        parts[1] = x if mixed else parts[1]
        result = library.stack(parts, dim)
        return tuple(result.stride()), result.tolist()

    for dim in range(-rank - 1, rank + 1):
        for mixed in (False, True):
            assert found(tangrad, dim, mixed) == found(torch, dim, mixed)


def test_a_tensor_that_is_not_broadcast_is_handed_on_itself(agree):
    def program(t):
        a, b = t.ones(2, 3, requires_grad=True), t.ones(3, requires_grad=True)
        first, second = t.broadcast_tensors(a, b)
        return first is a, second is b, t.broadcast_tensors(b)[0] is b

    agree(program)
    assert program(tangrad) == (True, False, True)

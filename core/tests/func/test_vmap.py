"""vmap: where batches go in and out, what it refuses, random numbers."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.func import grad, vmap


def test_batch_dimension_of_each_argument(same):
    same(lambda t, a, b: t.vmap(lambda x, y: x * y.sum(), (1, 0))(a, b), (3, 5), (5, 2))
    same(lambda t, a, b: t.vmap(lambda x, y: x @ y, (-1, None))(a, b), (3, 4, 5), (4, 2))


def test_in_dims_as_tree(same):
    def program(t, a, b):
        return t.vmap(lambda d, pair: d["x"] + pair[0] * pair[1], ({"x": 1}, (0, None)))(
            {"x": a}, (b, 2.0)
        )

    same(program, (4, 3), (3, 4))


def test_batch_dimension_of_outputs(same):
    same(lambda t, a: t.vmap(lambda x: (x, x.sum()), out_dims=(1, 0))(a), (3, 5))
    same(lambda t, a: t.vmap(lambda x: {"y": x * 2}, out_dims=-1)(a), (3, 5))


def test_output_without_batch_is_expanded(same):
    same(lambda t, a, b: t.vmap(lambda x: b)(a), (3, 5), (2,))


def test_chunks_give_the_same(same):
    same(lambda t, a: t.vmap(lambda x: x.sin().sum(), chunk_size=2)(a), (5, 3))
    same(lambda t, a: t.vmap(lambda x: x.sin(), 1, 1, chunk_size=2)(a), (3, 5))


def test_empty_batch():
    x = tangrad.ones(0, 3)
    assert vmap(lambda v: (v * 2).sum(0))(x).shape == (0,)
    assert vmap(lambda v: v.max())(x).shape == (0,)


def test_keyword_arguments_are_not_batched(same):
    same(lambda t, a, b: t.vmap(lambda x, *, y: x * y)(a, y=b), (3, 2), (3, 2))


def test_result_type_of_scalars_promotes_as_in_one_sample():
    x, y = tangrad.ones(3, dtype=tangrad.float64), tangrad.ones(4, dtype=tangrad.float32)
    assert vmap(lambda a: a * y)(x).dtype is tangrad.float32
    assert (
        vmap(lambda a: a * tangrad.tensor(2.0, dtype=tangrad.float32))(x).dtype is tangrad.float64
    )


def test_indexing_by_a_batched_index(same):
    def program(t, a):
        rows = t.tensor([0, 2, 1])
        columns = t.tensor([[0, 1], [3, 3], [2, 0]])
        return (
            t.vmap(lambda x, i: x[i], (None, 0))(a, rows),
            t.vmap(lambda x, i: x[:, i], (None, 0))(a, columns),
            t.vmap(lambda x, i: x[i])(a, columns),
        )

    same(program, (3, 4))


PROGRAMS = {
    "cat": lambda t, x: t.cat([x, t.ones(1, 4, dtype=x.dtype)], 0),
    "sort": lambda t, x: x.sort(0, descending=True),
    "argmax": lambda t, x: x.argmax(),
    "argmax along dim": lambda t, x: x.argmax(1, keepdim=True),
    "sum of all": lambda t, x: x.sum(),
    "any": lambda t, x: (x > 1).any(),
    "cumsum of scalar": lambda t, x: x[0, 0].cumsum(0),
    "sum of scalar": lambda t, x: x[0, 0].sum(0),
    "flip nothing": lambda t, x: x.flip(()),
    "squeeze": lambda t, x: x.unsqueeze(1).squeeze(),
    "expand": lambda t, x: x[:1].expand(5, 4),
    "view": lambda t, x: (x * 1).contiguous().view(-1),
    "unbind": lambda t, x: x.unbind(1),
    "movedim": lambda t, x: x.movedim(0, -1),
    "softmax": lambda t, x: x.softmax(-1),
    "as_strided": lambda t, x: x.as_strided((2, 2), (1, 4)),
    "conv2d": lambda t, x: t.nn.functional.conv2d(
        x.reshape(1, 1, 3, 4), x[:2, :2].reshape(1, 1, 2, 2)
    ),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x.reshape(1, 3, 4), 2),
    "embedding": lambda t, x: t.nn.functional.embedding(t.tensor([0, 2]), x),
    "new_zeros and write": lambda t, x: x.new_zeros(3).add_(x.sum(1)),
    "full_like and write": lambda t, x: t.full_like(x, 2.0).mul_(x),
    "tril": lambda t, x: x.tril(-1),
    "pad": lambda t, x: t.nn.functional.pad(x, (1, 2)),
    "isnan": lambda t, x: t.isnan(x),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_batched_ops(same, program):
    same(lambda t, a: t.vmap(lambda x: program(t, x), 2)(a), (3, 4, 5))
    same(lambda t, a: t.vmap(t.vmap(lambda x: program(t, x), 1), 2)(a), (3, 2, 2, 4))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "got no inputs"),
        ((1.0,), {}, "the input is of type"),
        ((tangrad.ones(3),), {"in_dims": None}, "expected `in_dims` to be int or"),
        ((tangrad.ones(3),), {"in_dims": (None,)}, "at least one Tensor"),
        ((tangrad.ones(3),), {"in_dims": 1}, "dimensionality 1"),
        ((tangrad.ones(3),), {"in_dims": (0, 0)}, "not compatible with the structure"),
        ((tangrad.ones(3), tangrad.ones(4)), {}, "same size in the mapped dimension"),
        (
            (tangrad.ones(3),),
            {"out_dims": (0, 1)},
            "not compatible with the structure of `outputs`",
        ),
    ],
)
def test_wrong_dims_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        vmap(lambda *xs: xs[0] * 2, **options)(*arguments)


def test_output_that_is_no_tensor_is_refused():
    with pytest.raises(ValueError, match="must only return Tensors"):
        vmap(lambda x: 3)(tangrad.ones(3))


def test_values_of_samples_cannot_be_read():
    x = tangrad.ones(3)
    for read in (lambda v: v.item(), lambda v: bool(v > 0), lambda v: v.tolist(), float):
        with pytest.raises(RuntimeError, match="data-dependent control flow"):
            vmap(read)(x)


def test_shapes_that_depend_on_values_are_refused():
    with pytest.raises(RuntimeError, match="dynamic shape"):
        vmap(lambda x: x.nonzero())(tangrad.ones(3, 2))


# --- random numbers
# --------------------------------------------------------------------------------


def draw(x):
    return x * 0 + tangrad.randn(4)


def test_random_operations_raise_by_default():
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(draw)(tangrad.zeros(3, 4))


def test_samples_draw_the_same():
    drawn = vmap(draw, randomness="same")(tangrad.zeros(3, 4))
    assert (drawn == drawn[0]).all()
    assert len(set(drawn[0].tolist())) == 4


def test_samples_draw_differently():
    drawn = vmap(draw, randomness="different")(tangrad.zeros(3, 4))
    assert len(set(drawn.flatten().tolist())) == 12


@pytest.mark.parametrize(
    "sample",
    [
        lambda x: tangrad.bernoulli(tangrad.full((40,), 0.5)) + 0 * x,
        lambda x: tangrad.randperm(6) + 0 * x.sum(),
        lambda x: tangrad.rand_like(x),
        lambda x: x.clone().normal_(),
        lambda x: tangrad.nn.functional.dropout(x + 1, 0.5),
    ],
    ids=["bernoulli", "randperm", "rand_like", "normal_", "dropout"],
)
def test_randomness_of_each_kind(sample):
    x = tangrad.full((2, 40), 0.5)
    same, different = vmap(sample, randomness="same")(x), vmap(sample, randomness="different")(x)
    assert (same[0] == same[1]).all()
    assert not (different[0] == different[1]).all() or different.shape[1] == 6


def test_dropout_of_each_sample_has_its_own_gradient():
    def f(x):
        return tangrad.nn.functional.dropout(x, 0.5).sum()

    grads = vmap(grad(f), randomness="different")(tangrad.ones(2, 60))
    assert set(grads.flatten().tolist()) == {0, 2}
    assert not (grads[0] == grads[1]).all()


def test_random_write_that_cannot_differ_is_refused():
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        vmap(lambda x: tangrad.zeros(2).normal_() + x, randomness="different")(tangrad.ones(3, 2))


def test_what_is_no_tensor_passes_where_no_batch_is_wanted():
    found = vmap(lambda x: (x, "text", None), out_dims=(0, None, None))(tangrad.ones(3))
    assert found[0].tolist() == [1, 1, 1]
    assert found[1:] == ("text", None)
    with pytest.raises(ValueError, match="must only return Tensors"):
        vmap(lambda x: (x, "text"))(tangrad.ones(3))


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (tangrad.dot, ((3, 3), (3, 3, 3)), "1D tensors expected"),
        (tangrad.dot, ((3, 2, 3), (3, 2, 3)), "1D tensors expected"),
        (tangrad.dot, ((3, 1), (3, 2)), "inconsistent tensor size"),
        (tangrad.vdot, ((3, 2, 3), (3, 2, 3)), "1D tensors expected"),
        (tangrad.mm, ((3, 3), (3, 3)), "must be a 2D tensor, got 1D"),
        (tangrad.mv, ((3, 3), (3,)), r"expected, got 1, 1, 0"),
        (tangrad.bmm, ((3, 3), (3, 3)), "must be a 3D tensor, got 1D"),
        (lambda a, b: a.addmm_(b, tangrad.ones(3, 3)), ((3, 3), (3, 3)), "must be a 2D tensor"),
    ],
)
def test_samples_of_a_wrong_shape_are_refused_as_without_a_batch(function, shapes, message):
    given = [tangrad.ones(shape) for shape in shapes]
    with pytest.raises(RuntimeError, match=message):
        vmap(function)(*given)
    with pytest.raises(RuntimeError, match=message):
        function(*(x[0] for x in given))


def test_chunks_draw_the_same_only_where_samples_do():
    def draw(x):
        return x + tangrad.rand(3)

    def rows(randomness):
        mapped = vmap(draw, randomness=randomness, chunk_size=2)
        return {tuple(row) for row in mapped(tangrad.zeros(5, 3)).tolist()}

    assert len(rows("same")) == 1
    assert len(rows("different")) == 5
    assert rows("same") != rows("same")


@pytest.mark.parametrize("name", ["random_", "cauchy_", "log_normal_"])
def test_a_tensor_without_a_batch_is_not_filled_differently(name):
    shared = tangrad.ones(2)
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        vmap(lambda x: getattr(shared, name)() + x, randomness="different")(tangrad.ones(3, 2))
    assert shared.tolist() == [1, 1]


def test_places_are_not_drawn_alike_from_weights_that_differ():
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor"):
        vmap(lambda w: w.multinomial(1), randomness="same")(tangrad.ones(3, 4))
    shared = tangrad.ones(400)
    places = vmap(lambda x: shared.multinomial(9) + x, randomness="same")(tangrad.zeros(3, 9))
    assert places[0].equal(places[2])

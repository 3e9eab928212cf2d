"""Ops over lists of tensors."""

import numpy as np
import pytest

import tangrad

LISTS = [[1, 0, 1], [1, 1]], [[1, 1, 0], [0, 1]]
CALLS = {
    "a number": lambda t, a, b: t._foreach_add([a, b], 1),
    "a number each": lambda t, a, b: t._foreach_mul([a, b], [2, 0.5]),
    "a tensor each": lambda t, a, b: t._foreach_add([a, b], [b, a], alpha=2),
    "a tensor": lambda t, a, b: t._foreach_div([a, b], t.tensor(2.0)),
    "in place": lambda t, a, b: (t._foreach_sub_([a, b], [b.clone(), a.clone()]), a, b),
    "unary": lambda t, a, b: (t._foreach_neg([a, b]), t._foreach_abs_([a, b]), a),
    "norm": lambda t, a, b: t._foreach_norm([a, b], 1, dtype=t.float64),
    "max": lambda t, a, b: t._foreach_max([a, b]),
    "lerp": lambda t, a, b: t._foreach_lerp([a, b], [b, a], 0.3),
    "lerp by name": lambda t, a, b: t._foreach_lerp([a, b], [b, a], weight=0.3),
    "addcmul": lambda t, a, b: t._foreach_addcmul([a, b], [b, a], [a, a], 0.5),
    "addcdiv, numbers": lambda t, a, b: t._foreach_addcdiv([a, b], [b, a], [a, a], scalars=[1, 2]),
    "addcdiv, tensor": lambda t, a, b: t._foreach_addcdiv([a], [b], [a], t.tensor([2.0])),
    "pow": lambda t, a, b: (t._foreach_pow([a, b], 2), t._foreach_pow(2.0, [a, b])),
    "a bound": lambda t, a, b: (t._foreach_maximum([a, b], 0.1), t._foreach_minimum([a], [b])),
    "copy": lambda t, a, b: (t._foreach_copy_([a], [b]), a),
    "zero": lambda t, a, b: (t._foreach_zero_([a]), a),
    "no list": lambda t, a, b: t._foreach_add([], 1),
    "another length": lambda t, a, b: t._foreach_add([a], [a, b]),
    "no such form": lambda t, a, b: t._foreach_clone_([a]),
    "no such op": lambda t, a, b: t._foreach_matmul([a]),
    "max of nothing": lambda t, a, b: t._foreach_max([a[:0]]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_op_is_applied_to_each(agree, name):
    agree(lambda t: CALLS[name](t, t.tensor([1.0, -2.0]), t.tensor([0.5, 3.0])), message=False)


FORMS = {
    "alone": lambda a, b: (a,),
    "lists": lambda a, b: (a, b),
    "a number": lambda a, b: (a, 2),
    "a fraction": lambda a, b: (a, 0.5),
    "three lists": lambda a, b: (a, b, b),
    "lists and a fraction": lambda a, b: (a, b, 0.25),
    "numbers": lambda a, b: (a, [0.5, 2.0]),
}
# Ours take what their ops take: numbers to copy, a list to compare with; there are no powers' sums.
OTHERS = {"_foreach_copy_", "_foreach_max", "_foreach_powsum"}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "bfloat16", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_every_op_takes_every_dtype_as_in_pytorch(form, dtype):
    torch = pytest.importorskip("torch", reason="torch is the oracle")

    def run(t, name):
        a, b = ([t.tensor(x).to(getattr(t, dtype)) for x in both] for both in LISTS)
        try:
            made = getattr(t, name)(*FORMS[form](a, b))
        except (RuntimeError, TypeError, IndexError, ValueError):
            return None
        return [[str(x.dtype).partition(".")[2], x.tolist()] for x in made or a]

    def alike(ours, theirs):
        if ours is None or theirs is None:
            return ours is theirs
        pairs = zip(ours, theirs, strict=True)
        return all(
            kind == other and np.allclose(x, y, rtol=1e-2, atol=1e-2, equal_nan=True)
            for (kind, x), (other, y) in pairs
        )

    names = [n for n in dir(torch) if n.startswith("_foreach_") and n not in OTHERS]
    assert [n for n in names if not alike(run(tangrad, n), run(torch, n))] == []


def test_gradients_pass(agree):
    def gradient(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        a, b = t._foreach_mul([x, x], [3.0, 4.0])
        (a * b).sum().backward()
        return x.grad

    agree(gradient)


@pytest.mark.parametrize(
    ("name", "second"),
    [("_foreach_mul", [1.0]), ("_foreach_mul_", []), ("_foreach_pow", [2.0]), ("_foreach_add", [])],
)
def test_numbers_are_as_many_as_tensors(name, second):
    torch = pytest.importorskip("torch")
    for t in (tangrad, torch):
        with pytest.raises(RuntimeError, match="must have same number of elements as scalar list"):
            getattr(t, name)([t.ones(1), t.ones(1)], second)


def test_calls_in_place_return_the_list_that_they_were_given():
    given = [tangrad.ones(2), tangrad.ones(1)]
    for name, operands in (("add", (1.0,)), ("mul", (2.0,)), ("zero", ()), ("neg", ())):
        assert getattr(tangrad, f"_foreach_{name}_")(given, *operands) is given
    assert [x.tolist() for x in given] == [[0.0, 0.0], [0.0]]


@pytest.mark.parametrize("name", ["_foreach_add_", "_foreach_mul_", "_foreach_div_"])
def test_lists_hold_a_tensor_at_least(name):
    torch = pytest.importorskip("torch")
    for t in (tangrad, torch):
        with pytest.raises(RuntimeError, match="at least one tensor"):
            getattr(t, name)([], [])


@pytest.mark.parametrize("shape", [(), (2, 1)])
def test_packed_numbers_are_a_vector(shape):
    torch = pytest.importorskip("torch")
    for t in (tangrad, torch):
        x = [t.ones(2), t.ones(3)]
        with pytest.raises(RuntimeError, match=f"of dimension 1. Got {len(shape)} instead"):
            t._foreach_addcmul(x, x, x, t.ones(shape))

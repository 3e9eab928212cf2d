"""functionalize: the results of torch's, and no op below that writes to what others see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.func import functionalize, grad, jvp, vmap
from tangrad.utils._python_dispatch import TorchDispatchMode

torch = pytest.importorskip("torch")


class Names(TorchDispatchMode):
    """Keep the names of the ops that reach the kernels, and whether one wrote to an argument."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def in_place(x):
    y = x.clone()
    y.add_(1).mul_(x)
    y[0] = 3.0
    y[1:].neg_()
    return y


def through_views(x):
    y = x * 1
    y.t().select(0, 1).fill_(2.0)
    y.view(-1)[::2].sub_(1)
    y.diagonal().copy_(y[0])
    parts = y.split(2)
    parts[0].mul_(3)
    y.unbind(1)[2].zero_()
    return y, parts[0], y.permute(1, 0)


def written_argument(x):
    x.mul_(2)
    view = x[0]
    x.add_(1)
    return view, x


def chained_views(x):
    y = x.clone()
    first = y.transpose(0, 1)
    second = first[1:].unsqueeze(0)
    second.add_(10)
    y.squeeze().mul_(first.t())
    return first, second, y


PROGRAMS = [in_place, through_views, written_argument, chained_views]


def values(result):
    result = result if isinstance(result, tuple) else (result,)
    return [r.tolist() for r in result]


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_and_arguments_are_those_of_torch(program, remove):
    ours, theirs = tangrad.arange(9.0).reshape(3, 3), torch.arange(9.0).reshape(3, 3)
    plain = theirs.clone()
    assert values(functionalize(program, remove=remove)(ours)) == values(program(plain))
    assert ours.tolist() == plain.tolist()
    torch.func.functionalize(program, remove=remove)(theirs)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("program", [in_place, through_views, chained_views])
def test_no_op_below_writes(program):
    with Names() as seen:
        functionalize(program)(tangrad.arange(9.0).reshape(3, 3))
    written = {name.partition(".")[0] for name in seen.names if "_." in name or name.endswith("_")}
    assert seen.names
    assert written <= {"fill_", "zero_"}, "which write to a copy that nobody else sees"


def test_out_is_a_write():
    def program(x):
        out = x.clone()
        tangrad.add(x, 1, out=out[0:2].view(2, 3)[:, :]) if x.shape[0] == 2 else None
        tangrad.exp(x, out=out)
        return out

    x = tangrad.ones(2, 3)
    assert functionalize(program)(x).tolist() == x.exp().tolist()


def test_complex_views_are_put_back():
    def program(framework):
        def run(z):
            z = z.clone()
            framework.view_as_real(z)[..., 0].mul_(3)
            z.imag.add_(1)
            z.conj().mul_(2j)
            return z

        return run

    data = [1 + 2j, -3 + 0.5j]
    ours = functionalize(program(tangrad))(tangrad.tensor(data))
    assert ours.tolist() == program(torch)(torch.tensor(data)).tolist()


def test_it_nests_with_the_other_transforms():
    x = tangrad.tensor([[0.5, 1.0], [2.0, -1.0]], dtype=tangrad.float64)

    def loss(x):
        y = x.sin()
        y[0].mul_(x[0])
        return y.sum()

    expected = grad(loss)(x)
    assert tangrad.equal(grad(functionalize(loss))(x), expected)
    assert tangrad.equal(functionalize(grad(loss))(x), expected)
    ours = jvp(functionalize(loss), (x,), (tangrad.ones_like(x),))
    assert tangrad.allclose(ours[1], jvp(loss, (x,), (tangrad.ones_like(x),))[1])
    rows = vmap(functionalize(in_place))(x)
    assert tangrad.equal(rows, tangrad.stack([in_place(row) for row in x]))
    assert tangrad.equal(functionalize(vmap(in_place))(x), rows)


def test_a_captured_tensor_is_not_written():
    captured = tangrad.zeros(3)
    with pytest.raises(RuntimeError, match="mutating a non-functional tensor"):
        functionalize(lambda x: captured.add_(x))(tangrad.ones(3))
    assert captured.tolist() == [0.0, 0.0, 0.0]


def test_wrong_arguments_are_refused():
    with pytest.raises(RuntimeError, match="Valid options for `remove`"):
        functionalize(in_place, remove="everything")
    with pytest.raises(RuntimeError, match="single memory location"):
        functionalize(lambda x: x.expand(3, 2).add_(1))(tangrad.ones(2))


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["whole", "row", "column", "slice", "flat", "diagonal", "part"]),
        st.sampled_from(["add_", "mul_", "fill_", "copy_"]),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(WRITES)
@settings(max_examples=60, deadline=None)
def test_any_program_of_views_and_writes(writes):
    looks = {
        "whole": lambda y, k: y,
        "row": lambda y, k: y[k],
        "column": lambda y, k: y.select(1, k),
        "slice": lambda y, k: y[k:],
        "flat": lambda y, k: y.view(-1)[k::2],
        "diagonal": lambda y, k: y.t().diagonal(k - 1),
        "part": lambda y, k: y.unbind(1)[k],
    }

    def program(x):
        y = x.clone()
        kept = y.t()
        for look, write, k in writes:
            view = looks[look](y, k)
            getattr(view, write)(x.sum() if write == "copy_" else k + 1)
        return y, kept

    x = tangrad.arange(9.0).reshape(3, 3)
    assert values(functionalize(program)(x)) == values(program(x))

"""Dual numbers written through views: the base, and every other view of it, has the tangent."""

from __future__ import annotations

import importlib

import pytest

import tangrad
from tangrad.autograd import gradcheck

VIEWS = {
    "transpose": lambda F, y: y.t()[0],
    "row": lambda F, y: y[1],
    "column": lambda F, y: y[:, 0],
    "view of a view": lambda F, y: y.view(4)[::2].view(2),
    "diagonal": lambda F, y: y.diagonal(),
    "strides": lambda F, y: y.as_strided((2,), (1,), 2),
    "strides of a view": lambda F, y: y[0].as_strided((2,), (1,), 1),
    "chunk": lambda F, y: y.chunk(2)[1].reshape(2),
    "split": lambda F, y: y.split([1, 1], 1)[0].squeeze(1),
    "unbind": lambda F, y: y.unbind(1)[1],
    "expanded": lambda F, y: y.expand(1, 2, 2)[0, 1],
    "unfold": lambda F, y: y.view(4).unfold(0, 2, 2)[1],
    "real part": lambda F, y: F.view_as_complex(y).real,
    "imaginary part of the conjugate": lambda F, y: F.view_as_complex(y).conj().imag,
    "negated": lambda F, y: F.view_as_complex(y).conj().imag[:],
}
WRITES = {
    "copy_": lambda F, v, d: v.copy_(d),
    "setitem": lambda F, v, d: v.__setitem__(slice(None), d),
    "one element": lambda F, v, d: v.__setitem__(1, d[0]),
    "mul_": lambda F, v, d: v.mul_(d),
    "index_put_": lambda F, v, d: v.index_put_((F.tensor([1, 0]),), d),
    "masked_fill_": lambda F, v, d: v.masked_fill_(F.tensor([True, False]), d[1]),
    "index_add_": lambda F, v, d: v.index_add_(0, F.tensor([1]), d[:1]),
    "twice": lambda F, v, d: v.add_(d).sub_(d[0] * d),
}


def dual_numbers(F):
    return importlib.import_module(f"{F.__name__}.autograd.forward_ad")


def shown(F, x):
    tangent = dual_numbers(F).unpack_dual(x).tangent
    plain = F.zeros(tuple(x.shape)) if tangent is None else tangent
    return [plain.resolve_conj().resolve_neg(), x.resolve_conj().resolve_neg()]


def make(F):
    return dual_numbers(F).make_dual(F.tensor([2.0, 3.0]), F.tensor([5.0, 7.0]))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_tangent_written_through_a_view_is_the_bases(agree, view, write):
    def program(F):
        with dual_numbers(F).dual_level():
            y = F.tensor([[1.0, 2.0], [3.0, 4.0]])
            earlier = y.t(), view(F, y)
            write(F, view(F, y), make(F))
            return [shown(F, x) for x in (y, *earlier, y * y)]

    agree(program)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_functions_that_write_through_views_pass_gradcheck(view, write):
    def function(d):
        y = tangrad.ones(2, 2, dtype=d.dtype)
        write(tangrad, view(tangrad, y), d)
        return y * y

    d = tangrad.tensor([2.0, 3.0], dtype=tangrad.float64, requires_grad=True)
    several = "chunk" in str(view) or view in (VIEWS["chunk"], VIEWS["split"], VIEWS["unbind"])
    if not several:  # the pieces of those may not be written where gradients are recorded
        assert gradcheck(function, (d,))
    with tangrad.autograd.forward_ad.dual_level(), tangrad.no_grad():
        tangent = tangrad.autograd.forward_ad.unpack_dual(function(dual(d))).tangent
    step = 1e-6 * tangrad.tensor([5.0, 7.0], dtype=d.dtype)
    with tangrad.no_grad():
        wanted = (function(d + step) - function(d - step)) / 2e-6
    assert tangrad.allclose(tangent, wanted, atol=1e-6)


def dual(d):
    tangent = tangrad.tensor([5.0, 7.0], dtype=d.dtype)
    return tangrad.autograd.forward_ad.make_dual(d.detach(), tangent)


def test_forward_mode_is_checked_through_views():
    def function(d):
        y = tangrad.zeros(2, 2, dtype=d.dtype)
        y.t()[0] = d
        y[0].mul_(d)
        return y.sin()

    d = tangrad.tensor([2.0, 3.0], dtype=tangrad.float64, requires_grad=True)
    assert gradcheck(function, (d,), check_forward_ad=True)


@pytest.mark.parametrize(
    "made",
    [lambda d: d.data, lambda d: d.detach(), lambda d: (d * 2).data, lambda d: d[:1].data],
    ids=["data", "detach", "data of a result", "data of a view"],
)
def test_data_has_no_tangent(agree, made):
    def program(F):
        with dual_numbers(F).dual_level():
            plain = made(make(F))
            plain.add_(1)
            return dual_numbers(F).unpack_dual(plain).tangent is None, plain

    agree(program)


def test_memory_that_is_not_the_bases_has_no_tangent(agree):
    def program(F):
        with dual_numbers(F).dual_level():
            y = F.zeros(2, 2)
            others = y.detach(), y.data, y.clone()
            y[0] = make(F)
            primal = dual_numbers(F).unpack_dual(y).primal
            return [shown(F, x) for x in (*others, primal[0], primal.view(4))]

    agree(program)


def test_a_tensor_that_takes_another_shape_in_place_is_no_view_of_itself():
    with tangrad.autograd.forward_ad.dual_level():
        x = make(tangrad)
        y = x * 1
        y.unsqueeze_(0)
        assert y._base is None
        y[0, 0] = x[1]
        assert shown(tangrad, y)[0].tolist() == [[7.0, 7.0]]
    x = tangrad.func.grad(lambda x: (x * 1).unsqueeze_(0).t_().sum())(tangrad.ones(2))
    assert x.tolist() == [1, 1]


def test_gradients_go_back_through_tangents_that_were_written():
    """Reverse over forward mode: the tangent of y depends on x."""
    x = tangrad.tensor([2.0, 3.0], requires_grad=True)
    with tangrad.autograd.forward_ad.dual_level():
        y = tangrad.zeros(2, 2)
        y.t()[0] = tangrad.autograd.forward_ad.make_dual(x, x * x)
        tangent = tangrad.autograd.forward_ad.unpack_dual(y).tangent
        (found,) = tangrad.autograd.grad(tangent.sum(), x)
    assert found.tolist() == [4, 6]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("look", [
    lambda x: x.expand(2, -1)[0],
    lambda x: x.expand(2, -1)[:1],
    lambda x: x.expand(2, -1).chunk(2, 0)[1],
    lambda x: x.expand(3, 2, -1).select(1, 0)[2],
])  # fmt: skip
def test_a_write_into_one_place_of_an_expanded_view_is_the_tangent_of_its_base(look, recorded):
    found = []
    for lib in (tangrad, pytest.importorskip("torch")):
        dual = importlib.import_module(f"{lib.__name__}.autograd.forward_ad")
        with dual.dual_level():
            x = dual.make_dual(lib.ones(2), lib.tensor([3.0, 4.0])) * 1
            with lib.set_grad_enabled(recorded):
                look(x).mul_(-1.5)
            found.append(dual.unpack_dual(x).tangent.tolist())
    assert found[0] == found[1]


def test_a_tangent_that_lies_as_its_primal_does_is_taken_itself(agree):
    def program(F):
        ways = [lambda x: x, lambda x: x.conj(), lambda x: x._neg_view(), lambda x: x.mT]
        taken = []
        with dual_numbers(F).dual_level():
            for primal in ways:
                for tangent in ways:
                    t = tangent(F.ones(2, 2, dtype=F.complex64) * (1 + 2j))
                    dual = dual_numbers(F).make_dual(primal(F.zeros(2, 2, dtype=F.complex64)), t)
                    unpacked = dual_numbers(F).unpack_dual(dual).tangent
                    taken += [unpacked is t, (unpacked == t).all().item()]
                    taken.append([dual_numbers(F).unpack_dual(dual.imag).tangent.tolist()])
            empty = F.ones(1)[:0]
            dual = dual_numbers(F).make_dual(F.ones(1)[1:], empty)
            taken.append(dual_numbers(F).unpack_dual(dual).tangent is empty)
            part = dual_numbers(F).make_dual(F.zeros(3)[:2], F.ones(2))
            taken.append(
                dual_numbers(F).unpack_dual(part.as_strided((3,), (1,), 0)).tangent.tolist()
            )
        return taken

    agree(program)


def test_a_write_into_a_dual_writes_its_tangent(agree):
    def program(F):
        x, t = F.tensor([2.0, 3.0]), F.tensor([5.0, 7.0])
        with dual_numbers(F).dual_level():
            dual = dual_numbers(F).make_dual(x, t)
            more = dual + 1
            same = F.zeros(2)
            same.copy_(dual)
            dual *= 2
            return [x, t, *(dual_numbers(F).unpack_dual(v).tangent for v in (dual, more, same))]

    agree(program)


def test_detach_in_place_ends_both_histories(agree):
    def program(F):
        with dual_numbers(F).dual_level():
            dual = dual_numbers(F).make_dual(F.ones(2, requires_grad=True), F.ones(2)).clone()
            dual.detach_()
            primal, tangent = dual_numbers(F).unpack_dual(dual * 2)
            return primal.requires_grad, tangent is None

    agree(program)


def test_an_op_without_a_derivative_is_named_in_forward_mode():
    refused = pytest.raises(NotImplementedError, match="forward AD with igamma that does not")
    with dual_numbers(tangrad).dual_level(), refused:
        tangrad.igamma(make(tangrad), make(tangrad))


def test_a_tangent_has_no_tangent_itself():
    fw = dual_numbers(tangrad)
    assert fw._current_level == -1
    with fw.dual_level():
        assert fw._current_level == 0
        with pytest.raises(RuntimeError, match="forward gradient at the same level"):
            fw.make_dual(tangrad.ones(2), make(tangrad))


@pytest.mark.parametrize("name", ["zero_", "uniform_", "normal_", "exponential_"])
def test_overwritten_by_what_is_constant_a_dual_has_a_tangent_of_zeros(agree, name):
    def program(F):
        with dual_numbers(F).dual_level():
            dual = dual_numbers(F).make_dual(F.ones(2), F.ones(2))
            return dual_numbers(F).unpack_dual(getattr(dual, name)()).tangent

    agree(program)


def test_numbers_drawn_about_a_dual_do_not_move_with_it():
    x = tangrad.ones(3)
    for draw in (lambda x: tangrad.normal(x, 1.0), lambda x: tangrad.normal(x, x)):
        assert tangrad.func.jvp(draw, (x,), (x,))[1].tolist() == [0, 0, 0]


def test_parameters_written_by_dual_numbers_take_gradients_after_the_level():
    forward_ad = dual_numbers(tangrad)
    weight = tangrad.nn.Parameter(tangrad.tensor([1.0, 2.0]))
    for _ in range(3):
        with forward_ad.dual_level():
            step = forward_ad.make_dual(tangrad.ones(2), tangrad.ones(2))
            with tangrad.no_grad():
                weight.sub_(step)
        weight.grad = None
        (weight * 4).sum().backward()
        assert weight.grad.tolist() == [4.0, 4.0]
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(weight).tangent is None


def test_what_dual_numbers_wrote_keeps_its_history_after_the_level():
    forward_ad = dual_numbers(tangrad)
    x = tangrad.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    part = y[:1]
    with forward_ad.dual_level():
        part.mul_(forward_ad.make_dual(tangrad.tensor([3.0]), tangrad.ones(1)))
    assert part._base is y
    y.sum().backward()
    assert y.tolist() == [6.0, 4.0]
    assert x.grad.tolist() == [6.0, 2.0]

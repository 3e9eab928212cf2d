"""Conjugate and negative views: bits of memory are shown only where they mean what is seen."""

from __future__ import annotations

import pytest

import tangrad


def test_the_imaginary_part_of_a_conjugate_is_a_negative_view(agree):
    def program(F):
        x = F.tensor([1 + 2j, 3 - 4j])
        part = x.conj().imag
        part.add_(1)
        return x, part, part.is_neg(), part.is_conj(), x.conj().real.is_neg()

    agree(program)


def test_the_gradient_goes_through_the_imaginary_part_of_a_conjugate(agree):
    def program(F):
        x = F.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        (x.conj().imag * F.tensor([2.0, 3.0])).sum().backward()
        return x.grad

    agree(program)


def test_under_vmap_the_imaginary_part_of_a_conjugate_is_negated():
    x = tangrad.tensor([1 + 2j, 3 - 4j])
    assert tangrad.vmap(lambda x: x.conj().imag * 2)(x).tolist() == [-4, 8]


def test_bits_of_a_negative_view_are_not_seen_as_another_dtype(agree):
    x = lambda F: F.tensor([1 + 2j]).conj().imag  # noqa: E731
    agree(lambda F: x(F).view(F.int32), message=False)
    agree(lambda F: x(F).resolve_neg().view(F.int32))


def test_a_conjugate_is_not_seen_as_pairs(agree):
    x = lambda F: F.tensor([1 + 2j]).conj()  # noqa: E731
    agree(lambda F: F.view_as_real(x(F)), message=False)
    agree(lambda F: F.view_as_real(x(F).resolve_conj()))


def test_writes_into_pairs_seen_as_complex_take_conjugate_values(agree):
    def program(F):
        x = F.zeros(2, 2, requires_grad=True)
        y = x * 1
        z = F.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        F.view_as_complex(y).copy_(z.conj())
        (y * F.arange(4.0).reshape(2, 2)).sum().backward()
        return y, z.grad

    agree(program)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "lbfgs"])
def test_a_gradient_that_is_a_conjugate_steps_like_its_copy(name):
    kind = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "lbfgs": "LBFGS"}[name]

    def stepped(gradient):
        x = tangrad.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        x.grad = gradient
        optimizer = getattr(tangrad.optim, kind)([x], lr=0.1)
        optimizer.step(*[lambda: x.abs().sum().detach()] * (kind == "LBFGS"))
        return x.detach().tolist()

    gradient = tangrad.tensor([1 - 1j, 2j]).conj()
    assert stepped(gradient) == stepped(gradient.resolve_conj())


@pytest.mark.parametrize("flag", [3, "yes", None])
def test_whether_a_gradient_is_required_is_a_bool(agree, flag):
    agree(lambda F: F.ones(2).requires_grad_(flag), message=False)
    agree(lambda F: setattr(F.ones(2), "requires_grad", flag), message=False)


def test_to_preserve_the_format_is_what_a_contiguous_tensor_does(agree):
    def program(F, x):
        kept = x.contiguous(memory_format=F.preserve_format)
        return kept is x, x.is_contiguous(memory_format=F.preserve_format)

    agree(lambda F: program(F, F.ones(2, 3)))
    agree(lambda F: program(F, F.ones(1).as_strided((0, 2), (0, 0))))
    agree(lambda F: F.ones(2, 3).t().is_contiguous(memory_format=F.preserve_format))
    agree(lambda F: program(F, F.ones(2, 3).t()), message=False)


_WRITES = {
    "the imaginary part": lambda F, y, w: y.imag.copy_(w.real),
    "the real part": lambda F, y, w: y.real.mul_(w.abs()),
    "the imaginary part of the conjugate": lambda F, y, w: y.conj().imag.mul_(w.real),
    "a part of the pairs": lambda F, y, w: F.view_as_real(y)[1:, 0].add_(w.imag[:1]),
    "the conjugate": lambda F, y, w: y.conj().mul_(w).add_(w),
    "a part of the conjugate": lambda F, y, w: y.conj()[:1].copy_(w[1:]),
    "pairs of pairs": lambda F, y, w: F.view_as_complex(F.view_as_real(y)[:1]).mul_(w[:1]),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_writes_into_views_of_other_numbers_have_derivatives(agree, write):
    def program(F):
        x = F.tensor([1 + 1j, 2 - 1j], dtype=F.complex128, requires_grad=True)
        w = F.tensor([1 + 2j, 3 - 4j], dtype=F.complex128, requires_grad=True)
        y = x * (2 + 1j)
        before = y.conj()
        write(F, y, w)
        loss = (y * y).abs().sum() + (before.real**3).sum()
        first = F.autograd.grad(loss, (x, w), create_graph=True)
        second = F.autograd.grad(sum((g * g.conj()).real.sum() for g in first), (x, w))
        return [F.view_as_real(g.resolve_conj()) for g in (*first, *second)]

    agree(program)


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_transforms_see_writes_into_views_of_other_numbers(write):
    def loss(x, w):
        y = x * (2 + 1j)
        write(tangrad, y, w)
        return (y * y).abs().sum()

    x = tangrad.tensor([1 + 1j, 2 - 1j], dtype=tangrad.complex128)
    w = tangrad.tensor([1 + 2j, 3 - 4j], dtype=tangrad.complex128)
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    wanted = tangrad.autograd.grad(loss(*leaves), leaves)
    for g, want in zip(tangrad.func.grad(loss, (0, 1))(x, w), wanted, strict=True):
        assert g.allclose(want)
    batched = tangrad.vmap(tangrad.func.grad(loss, (0, 1)))(x.expand(2, 2), w.expand(2, 2))
    for g, want in zip(batched, wanted, strict=True):
        assert g.allclose(want.expand(2, 2))
    directions = tangrad.tensor([1 - 2j, 0.5j]), tangrad.tensor([2j, 1 + 1j])
    tangent = tangrad.func.jvp(loss, (x, w), tuple(d.to(x.dtype) for d in directions))[1]
    assert tangent.allclose(
        sum((g.conj() * d).real.sum() for g, d in zip(wanted, directions, strict=True))
    )
    assert tangrad.func.functionalize(loss)(x, w).allclose(loss(x, w))


_TARGETS = {
    "fill_": lambda F, v: v.fill_(2),
    "add_": lambda F, v: v.add_(F.ones(2, dtype=v.dtype)),
    "copy_": lambda F, v: v.copy_(F.ones(2, dtype=F.int32)),
    "index_add_": lambda F, v: v.index_add_(0, F.tensor([0]), F.ones(1, dtype=v.dtype)),
    "scatter_": lambda F, v: v.scatter_(0, F.tensor([1]), 3),
    "setitem": lambda F, v: v.__setitem__(0, 7),
    "masked_fill_": lambda F, v: v.masked_fill_(F.tensor([True, False]), 5),
    "cumsum_": lambda F, v: v.cumsum_(0),
    "add, out=": lambda F, v: F.add(v.clone(), 1, out=v),
    "sum, out=": lambda F, v: F.sum(F.ones(2, 2, dtype=v.dtype), 0, out=v),
    "mv, out=": lambda F, v: F.mv(F.ones(2, 2, dtype=v.dtype), v.clone(), out=v),
}
_VIEWS = {
    "conjugate": lambda F, x: x.conj(),
    "imaginary part of the conjugate": lambda F, x: x.conj().imag,
}


@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
@pytest.mark.parametrize("write", _TARGETS.values(), ids=_TARGETS)
def test_memory_takes_what_a_lazy_view_shows_after_a_write(agree, view, write):
    def program(F):
        x = F.tensor([1 + 2j, 3 - 4j])
        shown = view(F, x)
        write(F, shown)
        return x, shown

    agree(program)

"""Ops that convert masks and integers to the dtype of their other operands are part of groups."""

from __future__ import annotations

import pytest

import tangrad

pytest.importorskip("tangrad_cpu", reason="groups are of compiled kernels")

from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() is None, reason="no kernels for this processor")

FLOATS = (tangrad.float32, tangrad.float64, tangrad.bfloat16, tangrad.float16)
OTHERS = (tangrad.bool, tangrad.uint8, tangrad.int8, tangrad.int16, tangrad.int32, tangrad.int64)


def compiled(function):
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def masked(x, other):
    return (x.tanh() + 1) * other / 0.75 - x


def swapped(x, other):
    return (other * x.sigmoid()).maximum(other + x) / other


def same(a, b):
    equal = (a == b) | ((a != a) & (b != b))
    return a.dtype == b.dtype and bool(equal.all())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("program", [masked, swapped])
def test_they_have_eager_s_bits(program, dtype, other):
    for shape, lie in (((7, 33), (7, 33)), ((7, 33), (33,)), ((4, 64), (4, 1)), ((5, 9), ())):
        x = tangrad.randn(*shape).to(dtype)
        given = tangrad.randint(0, 100, lie).to(other)
        fast = compiled(program)
        for _ in range(2):
            assert same(fast(x, given), program(x, given)), (shape, lie)


def test_a_mask_leaves_one_kernel_and_nothing_for_python():
    fast, x = compiled(masked), tangrad.randn(6, 8)
    fast(x, x > 0)
    (plan,) = fast.compiled.executables[0].plans
    assert [str(group) for group in plan.groups] == [
        "group over 6 x 8: tanh add_plain mul true_divide sub_plain"
    ]
    assert "python" not in plan.steps


def test_large_integers_are_rounded_as_eager_rounds_them():
    x = tangrad.tensor([1.0, 0.5, 3.0])
    large = tangrad.tensor([2**24 + 1, 2**53 + 1, -(2**62) - 12345])
    assert same(compiled(masked)(x, large), masked(x, large))


def test_two_floating_dtypes_are_not_of_one_group():
    def program(x, y):
        return (x + 1) * y + 2

    fast, x = compiled(program), tangrad.randn(3, 4)
    y = x.double()
    assert same(fast(x, y), program(x, y))
    assert same(fast(x, y), program(x, y))


def test_gradients_beside_a_mask_are_eager_s():
    x, keep = tangrad.randn(6, 8, requires_grad=True), tangrad.rand(6, 8) < 0.5
    fast = compiled(masked)
    for _ in range(3):
        (found,) = tangrad.autograd.grad(fast(x, keep).sum(), x)
        (wanted,) = tangrad.autograd.grad(masked(x, keep).sum(), x)
        assert tangrad.equal(found, wanted)

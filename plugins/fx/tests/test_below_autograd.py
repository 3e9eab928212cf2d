"""`make_fx`, batch norms folded into convolutions, and questions about symbolic sizes."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.fx.experimental import optimization, symbolic_shapes
from tangrad.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from tangrad.tensor.symbolic import ShapeEnv


def test_a_derivative_is_part_of_the_graph() -> None:
    def gradient(x):  # type: ignore[no-untyped-def]
        leaf = x.detach().requires_grad_()
        return tangrad.autograd.grad((leaf.sin() * leaf).sum(), leaf)[0]

    x = tangrad.randn(3)
    traced = make_fx(gradient)(x)
    y = tangrad.randn(3)
    tangrad.testing.assert_close(traced(y), gradient(y))
    assert get_proxy_mode() is None


def test_tensors_of_the_function_itself_are_constants() -> None:
    weight = tangrad.randn(3)
    traced = make_fx(lambda x: x * weight)(tangrad.ones(3))
    assert "_tensor_constant0" in dict(traced.named_buffers())
    tangrad.testing.assert_close(traced(tangrad.ones(3)), weight)


def test_sizes_that_vary_are_refused_with_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match=r"tangrad\[jit\]"):
        make_fx(tangrad.sin, tracing_mode="symbolic")
    with pytest.raises(ValueError, match="Unexpected tracing type"):
        make_fx(tangrad.sin, tracing_mode="other")


def test_batch_norms_are_folded_into_convolutions() -> None:
    layers = tangrad.nn.Conv2d(2, 3, 3), tangrad.nn.BatchNorm2d(3), tangrad.nn.ReLU()
    model = tangrad.nn.Sequential(*layers).eval()
    model[1].running_mean.uniform_()
    fused = optimization.fuse(model)
    assert not any(isinstance(m, tangrad.nn.BatchNorm2d) for m in fused.modules() if m.training)
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["0", "2"]
    x = tangrad.randn(1, 2, 5, 5)
    tangrad.testing.assert_close(fused(x), model(x))


def test_dropouts_are_taken_out() -> None:
    model = tangrad.nn.Sequential(tangrad.nn.Linear(2, 2), tangrad.nn.Dropout(0.9))
    x = tangrad.ones(1, 2)
    tangrad.testing.assert_close(optimization.remove_dropout(model)(x), model[0](x))


def test_conditions_on_symbols_are_not_known() -> None:
    n = ShapeEnv().symbol(4, "n")
    assert symbolic_shapes.is_symbolic(n)
    assert not symbolic_shapes.is_symbolic(4)
    assert not symbolic_shapes.guard_or_false(n == 4)
    assert symbolic_shapes.guard_or_true(n == 5)
    assert symbolic_shapes.statically_known_true(4 == 4)
    assert symbolic_shapes.free_symbols((n + 1, 3)) == {"n"}
    assert symbolic_shapes.hint_int(n) == 4


def test_sizes_are_compared_one_by_one() -> None:
    assert symbolic_shapes.sym_eq((1, 2), (1, 2))
    assert not symbolic_shapes.sym_eq((1, 2), (1, 3))
    assert not symbolic_shapes.sym_eq((1,), (1, 3))
    with pytest.raises(AssertionError, match="unexpected sym_eq"):
        symbolic_shapes.sym_eq(1, (1,))
    with pytest.raises(AssertionError, match="unrecognized scalar"):
        symbolic_shapes.guard_scalar("x")

"""Sparse, lazily negated, inference-mode tensors: right, or refused."""

from __future__ import annotations

import pytest

import tangrad


def compiled(function, fullgraph=False):
    return tangrad.compile(function, fullgraph=fullgraph, options={"measure": False})


def twice(x):
    return x * 2


def of_inference_mode():
    with tangrad.inference_mode():
        return tangrad.randn(3)


def sparse():
    pytest.importorskip("tangrad_sparse")
    return tangrad.eye(3).to_sparse()


ODD = {
    "sparse": sparse,
    "conjugated": lambda: tangrad.randn(3, dtype=tangrad.complex64).conj(),
    "negated": lambda: tangrad.randn(3, dtype=tangrad.complex64).conj().imag,
    "made in inference mode": of_inference_mode,
}


def plain(t):
    return t.to_dense() if t.layout != tangrad.strided else t.resolve_conj().resolve_neg()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_argument_is_computed_as_it_is_by_default(name):
    fast, x = compiled(twice), ODD[name]()
    for _ in range(3):
        assert tangrad.equal(plain(fast(x)), plain(twice(x)))


@pytest.mark.parametrize("name", ODD)
def test_an_odd_argument_is_refused_as_one_graph(name):
    with pytest.raises(RuntimeError, match="cannot be in a graph"):
        compiled(twice, fullgraph=True)(ODD[name]())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            lambda: tangrad.empty(6)[::2],
            lambda: tangrad.randn(3, dtype=tangrad.complex64).conj().imag,
        ),
        (lambda: tangrad.randn(3, dtype=tangrad.complex64), ODD["conjugated"]),
        (lambda: tangrad.randn(3, 3), ODD["sparse"]),
    ],
)
def test_a_graph_is_not_run_on_an_odd_tensor_of_its_argument_s_geometry(before, after):
    fast = compiled(twice)
    for _ in range(3):
        fast(before())
    x = after()
    for _ in range(2):
        assert tangrad.equal(plain(fast(x)), plain(twice(x)))


def test_a_held_tensor_that_is_given_lazily_negated_memory_is_noticed():
    held = tangrad.randn(6)[::2]
    fast = compiled(lambda x: x * held)
    x = tangrad.randn(3)
    for _ in range(3):
        fast(x)
    held.data = tangrad.randn(3, dtype=tangrad.complex64).conj().imag
    assert held.is_neg()
    assert tangrad.equal(fast(x), x * held)


def test_memory_allocated_in_inference_mode_within_a_call_is_that_of_a_graph():
    def f(x):
        with tangrad.inference_mode():
            return x + tangrad.zeros_like(x)

    fast, x = compiled(f, fullgraph=True), tangrad.randn(3)
    for _ in range(3):
        made = fast(x)
        assert tangrad.equal(made, x)
        assert made.is_inference()


def test_a_graph_that_writes_has_as_many_inputs_as_it_needs():
    held = [tangrad.zeros(1) for _ in range(600)]

    def f(x):
        for t in held:
            t.add_(x)
        return x * 2

    fast, x = compiled(f, fullgraph=True), tangrad.ones(1)
    for _ in range(3):
        fast(x)
    assert {t.item() for t in held} == {3.0}

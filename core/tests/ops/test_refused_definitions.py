"""Definitions of packages are checked when they are made: the message names op and field."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.ops.definition.checking import check_definition
from tangrad.plugin import all_ops, composite, op, pointwise, reduction, view

MADE = {
    "no parameters": (lambda: pointwise("f -> Tensor", "x"), "is no schema: write one as"),
    "no parenthesis": (lambda: pointwise("f(Tensor x -> Tensor", "x"), "is no schema"),
    "no result": (lambda: pointwise("f(Tensor x) -> ", "x"), "'' are no results"),
    "a wrong result": (lambda: pointwise("f(Tensor x) -> Tensr", "x"), "'Tensr' are no results"),
    "no type": (lambda: pointwise("f(x) -> Tensor", "x"), "'x' of .* has no type"),
    "an unknown type": (
        lambda: pointwise("f(Tensr x) -> Tensor", "x"),
        "'f': type of parameter 'x', 'Tensr' is unknown; did you mean 'Tensor'",
    ),
    "a name twice": (
        lambda: pointwise("f(Tensor x, Scalar x) -> Tensor", "x"),
        "'f': two parameters are called 'x'",
    ),
    "a default that is none": (
        lambda: pointwise("f(Tensor x, float p=abc) -> Tensor", "x * p"),
        "'float p=abc' of .* has no default that is a number",
    ),
    "a word of dtypes": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", dtypes="floatin complex"),
        "dtypes: word 'floatin' is unknown; did you mean 'floating'",
    ),
    "a promotion": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", promote="floats"),
        "'f': promote 'floats' is unknown; did you mean 'float'",
    ),
    "a dtype of results": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", results=("flaot32",)),
        "results: dtype 'flaot32' is unknown; did you mean 'float32'",
    ),
    "too many results": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", results=("promoted", "bool")),
        "results has 2 dtypes, the schema 1 results",
    ),
    "an expression": (lambda: pointwise("f(Tensor x) -> Tensor", "x +* 2"), "'f': expression: "),
    "a name in an expression": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x * y"),
        "'f': expression: .*y",
    ),
    "a partial derivative": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", partials={"x": "cosh(z)"}),
        "'f': partials of 'x': .*z",
    ),
    "a partial derivative of nothing": (
        lambda: pointwise("f(Tensor x) -> Tensor", "x", partials={"y": "1"}),
        "'f': partials: input 'y' is unknown; known: x|did you mean",
    ),
    "a map": (
        lambda: reduction(
            "f(Tensor x, dim[]? dim=None) -> Tensor", map="x *", combine="a + b", identity=0
        ),
        "'f': map: ",
    ),
    "a name in a combination": (
        lambda: reduction(
            "f(Tensor x, dim[]? dim=None) -> Tensor", map="x", combine="a + c", identity=0
        ),
        "'f': combine: .*c",
    ),
    "what a shape rule asks for": (
        lambda: op("f(Tensor x) -> Tensor", shape=lambda y: y.shape),
        "'f': shape asks for 'y' is unknown",
    ),
    "what a derivative asks for": (
        lambda: op("f(Tensor xs) -> Tensor", vjp={"xs": lambda g, sx: g}),
        "'f': vjp of xs asks for 'sx' is unknown; known: g, ",
    ),
    "a derivative of nothing": (
        lambda: op("f(Tensor x) -> Tensor", vjp={"y": lambda g: g}),
        "'f': vjp: input 'y' is unknown",
    ),
    "a reason without a colon": (
        lambda: op("f(Tensor x) -> Tensor", vjp="nothing"),
        "'f': vjp is {input: rule}, or 'none: reason'",
    ),
    "what a reference asks for": (
        lambda: op("f(Tensor x) -> Tensor", reference=lambda np, y: y),
        "'f': reference asks for 'y' is unknown",
    ),
    "what a geometry asks for": (
        lambda: view("f(Tensor self) -> Tensor", geometry=lambda x: (x.shape, x.stride(), 0)),
        "'f': geometry asks for 'x' is unknown",
    ),
    "a linear input": (
        lambda: op("f(Tensor x) -> Tensor", linear=("y",)),
        "'f': linear: input 'y' is unknown",
    ),
    "a type of a composite": (
        lambda: composite("f(Tensor x, integer n) -> Tensor")(lambda x, n: x),
        "type of parameter 'n', 'integer' is unknown",
    ),
}


@pytest.mark.parametrize(("make", "message"), MADE.values(), ids=MADE)
def test_it_is_refused_when_it_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    assert not hasattr(tangrad, "f")


def test_the_definitions_of_tangrad_itself_hold():
    for made in all_ops().values():
        check_definition(made.definition)


def test_a_reference_whose_result_has_another_shape_is_told():
    made = op("test::halves(Tensor x) -> Tensor", reference=lambda np, x: x[: len(x) // 2])
    with pytest.raises(RuntimeError, match=r"'test::halves' returned .* \(2,\); .* say \(4,\)"):
        made(tangrad.ones(4, device="reference"))


def test_a_reference_with_too_few_results_is_told():
    made = op(
        "test::pair(Tensor x) -> (Tensor first, Tensor second)",
        shape=lambda x: (x.shape, x.shape),
        reference=lambda np, x: np.sqrt(x),
    )
    with pytest.raises(RuntimeError, match=r"returned 1 results .* say \(4,\), \(4,\)"):
        made(tangrad.ones(4, device="reference"))


def test_a_gradient_of_wrong_shape_names_the_op():
    made = op(
        "test::same(Tensor x) -> Tensor",
        reference=lambda np, x: np.array(x),
        vjp={"x": lambda g: g.sum().expand(3, 5)},
    )
    x = tangrad.ones(2, 4, device="reference", requires_grad=True)
    with pytest.raises(RuntimeError, match=r"rule of the op 'test::same' .* shape \[3, 5\]"):
        made(x).sum().backward()
    assert made(x.detach()).cpu().tolist() == [[1.0] * 4] * 2

"""Derivatives: against mpmath, against PyTorch's autograd, complex numbers, higher orders."""

import mpmath
import numpy as np
import pytest
from primitive_cases import SCALAR_PRIMITIVES, expression, smooth_operands
from scalar_oracle import oracle_of

from tangrad.expr import DerivativeError, parse
from tangrad.expr.primitives import PRIMITIVES

REAL = [name for name in SCALAR_PRIMITIVES if "f" in PRIMITIVES[name].kinds]
REAL = [name for name in REAL if name not in ("angle", "complex")]
DIFFERENTIABLE = [
    (name, k)
    for name in REAL
    for k, text in enumerate(PRIMITIVES[name].d)
    if not text.startswith("!") and PRIMITIVES[name].operands[k] == "t"
]
STEPS = {"lt", "le", "gt", "ge", "eq", "ne"}


def typed(e, dtype="float64", **own):
    return e.typed(dict.fromkeys(e.inputs, dtype) | own, dtype)


def run(e, *arrays, dtype="float64", **own):
    return typed(e, dtype, **own).numpy()(*arrays)


def central_difference(e, operands, k, **own):
    """Differentiate numerically with 300 bits."""
    f = oracle_of(typed(e, **own), 300)
    mp = mpmath.mp.clone()
    mp.prec = 300
    h = mp.mpf(2) ** -80
    found = []
    for row in zip(*operands, strict=True):
        row = [bool(v) if isinstance(v, np.bool_) else mp.mpf(float(v)) for v in row]
        up, down = list(row), list(row)
        up[k], down[k] = row[k] + h, row[k] - h
        found.append(float((mp.mpf(f(*up)[0]) - mp.mpf(f(*down)[0])) / (2 * h)))
    return np.array(found)


def first_types(name):
    return {"a": "bool"} if PRIMITIVES[name].operands[0] == "c" else {}


@pytest.mark.parametrize(("name", "k"), DIFFERENTIABLE)
def test_partial_is_the_limit_of_differences(name, k):
    e, operands = expression(name), smooth_operands(name, 12)
    expected = central_difference(e, operands, k, **first_types(name))
    (actual,) = run(e.partial("abc"[k]), *operands, **first_types(name))
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("name", "k"), DIFFERENTIABLE)
def test_second_partial_is_the_limit_of_differences(name, k):
    try:
        first = expression(name).partial("abc"[k])
        second = first.partial("abc"[k])
    except DerivativeError as error:
        pytest.skip(str(error))
    operands = smooth_operands(name, 6)
    if name not in STEPS and "where" not in first.source and "sgn" not in first.source:
        (actual,) = run(second, *operands, **first_types(name))
        expected = central_difference(first, operands, k, **first_types(name))
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-13)


# PyTorch's name of each primitive, where it has one with a derivative.
TORCH = {
    name: name
    for name in (
        "add sub mul fmod remainder pow neg abs reciprocal square hypot maximum minimum fmax fmin"
        " sign sgn floor ceil trunc round frac copysign exp exp2 expm1 log log2 log10 log1p sqrt"
        " rsqrt sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2 erf erfc"
        " erfinv lgamma digamma xlogy"
    ).split()
} | {"truediv": "true_divide"}


def against_autograd(e, function, arrays, dtype):
    """Compare vjp, its vjp, and jvp with PyTorch for random cotangents."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = function(*leaves)
    g = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    g.requires_grad_(True)
    grads = torch.autograd.grad(y, leaves, g, create_graph=True, allow_unused=True)
    vjp = e.vjp(e.inputs)
    names = dict(zip(e.inputs, arrays, strict=True)) | {"g": g.detach().numpy()}
    g_type = str(names["g"].dtype)
    actual = run(vjp, *(names[n] for n in vjp.inputs), dtype=dtype, g=g_type)
    close(actual, grads)
    first, by = grads[0], vjp.select([0])
    by = [name for name in ("g", *e.inputs) if name in by.free]
    if not first.requires_grad or not by:
        return
    h = rng.normal(size=first.shape).astype(dtype)
    leaf = dict(zip(e.inputs, leaves, strict=True)) | {"g": g}
    wrt = [leaf[name] for name in by]
    second = torch.autograd.grad(first, wrt, torch.tensor(h), allow_unused=True)
    twice = vjp.select([0]).vjp(by, "h")
    names["h"] = h
    close(run(twice, *(names[n] for n in twice.inputs), dtype=dtype, g=g_type), second)


def close(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        b = np.zeros_like(a) if b is None else b.detach().resolve_conj().numpy(force=True)
        if b.dtype.kind == "f":
            a = a.real
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", TORCH)
def test_vjp_agrees_with_autograd(name):
    torch = pytest.importorskip("torch")
    against_autograd(
        expression(name), getattr(torch, TORCH[name]), smooth_operands(name, 20), "float64"
    )


COMPLEX = [name for name in TORCH if "c" in PRIMITIVES[name].kinds] + [
    "angle",
    "real",
    "imag",
    "conj",
]


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_vjp_follows_the_convention_of_pytorch(name):
    torch = pytest.importorskip("torch")
    if not hasattr(torch, TORCH.get(name, name)):
        pytest.skip(f"torch.{name} does not exist")
    rng = np.random.default_rng(3)
    # In the right half plane PyTorch's derivative of acosh has the right sign.
    arrays = [
        rng.uniform(0.2, 2, 20) + 1j * rng.uniform(0.2, 2, 20)
        for _ in range(PRIMITIVES[name].arity)
    ]
    function = getattr(torch, TORCH.get(name, name))
    try:
        function(torch.ones(1, dtype=torch.complex128), *[torch.ones(1)] * (len(arrays) - 1))
    except RuntimeError as error:
        pytest.skip(f"PyTorch: {error}")
    against_autograd(expression(name), function, arrays, "complex128")


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("abs(z) * z", lambda z: z.abs() * z),
        ("angle(z) * exp(z)", lambda z: z.angle() * z.exp()),
        ("conj(z) * tanh(z)", lambda z: z.conj() * z.tanh()),
        ("complex(imag(z), real(z))", lambda z: __import__("torch").complex(z.imag, z.real)),
        ("real(z) * sgn(z) ** 2", lambda z: z.real * z.sgn() ** 2),
        ("where(real(z) > 0, z * z, conj(z))", lambda z: (z * z).where(z.real > 0, z.conj())),
    ],
)
def test_functions_that_are_not_holomorphic(source, function):
    rng = np.random.default_rng(4)
    array = rng.normal(size=20) + 1j * rng.normal(size=20)
    against_autograd(parse(source, ("z",)), function, [array], "complex128")


def test_complex_functions_of_real_numbers_have_real_gradients():
    torch = pytest.importorskip("torch")
    a, b = np.random.default_rng(0).normal(size=(2, 9))
    leaves = [torch.tensor(x, requires_grad=True) for x in (a, b)]
    z = torch.complex(*leaves)
    y = z.abs() * z.exp()
    g = np.random.default_rng(1).normal(size=9) * (1 + 2j)
    expected = torch.autograd.grad(y, leaves, torch.tensor(g))
    e = parse("z = complex(a, b); abs(z) * exp(z)", ("a", "b")).vjp(("a", "b"))
    program = e.typed({"g": "complex128", "a": "float64", "b": "float64"}, "float64")
    # g stays complex in a real computation, and the gradients come out real.
    assert program.result_types == ("float64", "float64")
    close(program.numpy()(g, a, b), expected)


def test_an_overflow_in_the_branch_not_taken_does_no_harm():
    elu = parse("where(x > 0, x, alpha * expm1(x))", ("x",), ("alpha",))
    x = np.array([1000.0, -1000.0, 0.5])
    (value,) = typed(elu.partial("x")).numpy()(x, alpha=1.0)
    np.testing.assert_array_equal(value, [1, 0, 1])


def test_outputs_are_summed_and_each_has_its_cotangent():
    e = parse("a * b; a + b", ("a", "b")).vjp(("a", "b"))
    assert e.inputs == ("g0", "g1", "a", "b")
    assert run(e, *np.float64([2, 3, 5, 7])) == (2 * 7 + 3, 2 * 5 + 3)


def test_jvp_takes_tangents_first():
    e = parse("a * b; exp(a)", ("a", "b", "unused")).jvp(("a", "b"))
    assert e.inputs == ("a_t", "b_t", "a", "b")
    value = run(e, *np.float64([2, 3, 0, 7]))
    assert value == (2 * 7, 2)


def test_jvp_of_what_is_not_holomorphic():
    z, t = np.array([1 + 2j]), np.array([0.3 - 0.1j])
    (value,) = run(parse("abs(z)", ("z",)).jvp(("z",)), t, z, dtype="complex128")
    assert value.real == pytest.approx((np.conj(z) * t).real / abs(z))


def test_gradients_of_half_inputs_are_typed_like_any_expression():
    e = parse("tanh(x)", ("x",)).vjp(("x",))
    assert e.typed({"g": "bfloat16", "x": "bfloat16"}, "float32", ["bfloat16"]).result_types == (
        "bfloat16",
    )


def test_casts_pass_gradients_on_between_floats_and_stop_them_at_integers():
    e = parse("cast(x, 'float16') * x + cast(x, 'int64')", ("x",))
    x = np.array([1.3])
    (value,) = run(e.partial("x"), x)
    assert value == x + x.astype(np.float16)


def test_structural_zeros_and_ones_disappear():
    assert parse("x + 3", ("x",)).partial("x").constant() == 1
    assert parse("floor(x) + (x > 1)", ("x",)).partial("x").constant() == 0
    assert parse("x * y", ("x", "y")).partial("x").is_identity_of() == "y"
    assert parse("x + y", ("x", "y")).vjp(("x",)).is_identity_of() == "g"


@pytest.mark.parametrize("source", ["nextafter(x, 1)", "polygamma(x, 2)", "zeta(x, 2)"])
def test_what_has_no_derivative_says_why(source):
    with pytest.raises(DerivativeError, match="has no derivative: "):
        parse(source, ("x",)).vjp(("x",))
    assert parse(f"where({source} > 0, x, 1)", ("x",)).partial("x") is not None


def test_what_is_needed_for_its_type_only_is_not_read():
    second = parse("conj(x) * y", ("x", "y")).vjp(("y",), "g").vjp(("g",), "h")
    gradient = parse("conj(x) * y", ("x", "y")).vjp(("x",))
    assert gradient.free == {"g", "x", "y"}
    assert gradient.read == {"g", "y"}
    assert second.read == {"h", "x"}


def test_terms_of_absent_names_disappear():
    e = parse("where(x > 0, a * x - b / y, -conj(b) + a)", ("a", "b", "x", "y"))
    assert e.without(["b"]).free == {"a", "x"}
    assert e.without(["a"]).free == {"b", "x", "y"}
    assert e.without(["a", "b"]).constant() == 0
    assert e.without(["a"]).source == "where((x > 0), (-(b / y)), (-conj(b)))"


def test_parameters_have_derivatives_too():
    e = parse("x ** n", ("x",), ("n",)).partial("n")
    assert typed(e).numpy()(np.array([2.0]), n=3)[0] == pytest.approx(8 * np.log(2))


@pytest.mark.parametrize("x", [0.0, 2.0, -1.0])
@pytest.mark.parametrize("n", [0.0, 1.0, 2.0, 0.5, -1.0])
def test_powers_at_the_edges_agree_with_autograd(x, n):
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (x, n)]
    expected = torch.autograd.grad(torch.pow(*leaves), leaves, torch.ones(1, dtype=torch.float64))
    e = parse("x ** n", ("x", "n")).vjp(("x", "n"))
    actual = run(e, np.ones(1), np.array([x]), np.array([n]))
    close(actual, expected)

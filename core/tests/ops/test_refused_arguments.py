"""Arguments that would lose something, or mean nothing, are refused as PyTorch refuses them."""

import pytest
import torch

import tangrad

REFUSED = {
    "an imaginary number in a real tensor": lambda t: t.ones(2).fill_(1j),
    "an imaginary number in a single half": lambda t: t.scalar_tensor(1 + 1j, dtype=t.float16),
    "an imaginary number as an element": lambda t: t.zeros(2).bfloat16().__setitem__(0, 1j),
    "an imaginary number at some indices": lambda t: t.ones(2).index_fill(0, t.tensor([0]), 1j),
    "imaginary points of a real line": lambda t: t.linspace(0, 1j, 5, dtype=t.float32),
    "random numbers beyond an unsigned dtype": lambda t: t.empty(2, dtype=t.uint16).random_(
        0, 2**20
    ),
    "random numbers beyond halves": lambda t: t.empty(2, dtype=t.float16).random_(-(2**20), 2**20),
    "a permutation with repetitions": lambda t: t.randperm(257, dtype=t.uint8),
    "a permutation that halves round": lambda t: t.randperm(2050, dtype=t.float16),
    "a step between dtypes": lambda t: t.heaviside(t.ones(2), t.ones(2, dtype=t.int64)),
    "rows of nothing, none of them": lambda t: t.unique(t.ones(0, 0), dim=0),
    "no element as a complex number": lambda t: complex(t.ones(0)),
    "a tensor to be moved by the constructor": lambda t: t.Tensor(t.ones(2), device="cpu"),
    "gradients of nothing": lambda t: t.autograd.grad(t.ones(1, requires_grad=True) * 2, []),
    "a tensor as the rate of many steps at once": lambda t: t.optim.Adam(
        [t.ones(2)], lr=t.tensor(0.1), foreach=True
    ),
}


def refusal(t, case):
    with pytest.raises(Exception) as caught:
        REFUSED[case](t)
    return caught.type


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_by_an_exception_of_pytorchs_type(case):
    assert refusal(tangrad, case) is refusal(torch, case)


def sharing(t):
    x = t.ones(2)
    return [
        x.untyped_storage()._cdata == y.untyped_storage()._cdata for y in (x.view(1, 2), x.clone())
    ]


TAKEN = {
    "the longest permutation": lambda t: max(t.randperm(256, dtype=t.uint8).tolist()),
    "chances": lambda t: t.ones(3).bernoulli_(t.tensor([0.0, 1.0, 0.0])).tolist(),
    "chances for rows": lambda t: (
        t.ones(2, 3, dtype=t.int64).bernoulli_(p=t.tensor([0.0, 1.0, 0.0])).tolist()
    ),
    "no chance": lambda t: t.ones(3).bernoulli_(0.0).tolist(),
    "a size by name": lambda t: list(t.ones(1).new(size=(2, 3)).shape),
    "a capsule": lambda t: t.asarray(t.utils.dlpack.to_dlpack(t.tensor([1.0, 2.0]))).tolist(),
    "gradients for out": lambda t: t.empty(2, out=t.empty(2), requires_grad=True).requires_grad,
    "a complex number that is real": lambda t: t.ones(2).fill_(2 + 0j).tolist(),
    "who shares a storage": sharing,
}


@pytest.mark.parametrize("case", TAKEN)
def test_is_taken_as_by_pytorch(case):
    assert TAKEN[case](tangrad) == TAKEN[case](torch)


@pytest.mark.parametrize("shape", [(4, 1), (2, 2, 3), (6,), (3, 2)])
def test_a_mask_does_not_grow_the_tensor_that_is_written(shape):
    x = tangrad.zeros(2, 3)
    mask = tangrad.ones(shape, dtype=tangrad.bool)
    with pytest.raises(RuntimeError, match="broadcast"):
        x.masked_scatter_(mask, tangrad.ones(20))
    assert x.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert x.masked_scatter_(tangrad.ones(3) > 0, tangrad.ones(20)).sum() == 6


def test_random_integers_that_the_dtype_rounds_are_warned_of():
    with pytest.warns(UserWarning, match="out of bounds"):
        tangrad.ones(2).random_(0, 2**24 + 5)


both = pytest.mark.parametrize("t", [tangrad, torch], ids=["tangrad", "torch"])


@both
def test_a_number_passes_a_function_of_tensors(t):
    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value

        @staticmethod
        def backward(ctx, g):
            return g

    assert (Same.apply(3.0), Same.apply("text")) == (3.0, "text")
    assert Same.apply(t.ones(1, requires_grad=True)).requires_grad


@both
def test_a_class_is_decorated_by_its_making_and_a_warning(t):
    with pytest.warns(FutureWarning, match="Decorating classes"):

        @t.no_grad()
        class Made:
            def __init__(self):
                self.recording = t.is_grad_enabled()

    assert not Made().recording


REFUSED = {
    "take_along_dim": (
        lambda t: t.ones(3).take_along_dim(t.zeros(3, dtype=t.bool), 0),
        "dtype of indices should be Long",
    ),
    "unravel_index": (
        lambda t: t.unravel_index(t.tensor(0), (1, 2, 2.0)),
        "expected 'shape' sequence to only contain ints",
    ),
    "tensor_split": (
        lambda t: t.ones(3).tensor_split(t.tensor(1.0)),
        "tensor_split expected tensor_indices_or_sections to have dtype of long, but got Float",
    ),
    "view of another dtype": (
        lambda t: t.ones(3, dtype=t.complex64).conj().view(t.float32),
        "not supported for conjugate view tensors",
    ),
    "addcdiv": (
        lambda t: t.addcdiv(*[t.ones(2, dtype=t.int64)] * 3),
        "Integer division.+is no longer supported",
    ),
    "an assignment": (lambda t: assigned(t), "shape mismatch"),
}


def assigned(t):
    x = t.arange(4)
    x[x > -1] = t.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("kind", REFUSED)
def test_words_that_programs_match_are_in_refusals(kind):
    call, words = REFUSED[kind]
    for library in (tangrad, torch):
        with pytest.raises((RuntimeError, TypeError), match=words):
            call(library)


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "nansum"])
def test_a_dtype_other_than_that_of_out_is_refused(name):
    x, out = tangrad.ones(3, 2), tangrad.zeros(3 if "cum" not in name else (3, 2))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float64"):
        getattr(tangrad, name)(x, 1, out=out, dtype=tangrad.float64)
    assert not out.any()
    assert getattr(tangrad, name)(x, 1, out=out, dtype=tangrad.float32) is out


@pytest.mark.parametrize("name", ["any", "all"])
def test_truth_goes_to_bool_alone(name):
    with pytest.raises(RuntimeError, match=f"{name} only supports bool tensor for result, got"):
        getattr(tangrad, name)(tangrad.ones(3), out=tangrad.empty(()))


def test_a_complex_number_is_no_real_one():
    for kind in (int, float):
        assert kind(tangrad.tensor(2 + 0j)) == 2
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            kind(tangrad.tensor(1.5j))


@pytest.mark.parametrize(
    ("weights", "words"),
    [([1.0, -1.0], "negative"), ([1.0, float("nan")], "negative"), ([0.0, 0.0], "sum to zero")],
)
def test_weights_of_observations_are_checked(agree, weights, words):
    def program(t):
        return t.cov(t.ones(3, 2), aweights=t.tensor(weights))

    agree(program, message=False)
    with pytest.raises(RuntimeError, match=words):
        program(tangrad)

"""`complex32`: computed in complex64, rounded once; the same as PyTorch where that computes."""

from __future__ import annotations

import warnings

import pytest

import tangrad
from tangrad.plugin import FallbackWarning

torch = pytest.importorskip("torch")

OPERATIONS = {
    "add": lambda f, c: c + c,
    "mul": lambda f, c: c * c,
    "number": lambda f, c: c + 1.5,
    "neg": lambda f, c: -c,
    "conj": lambda f, c: c.conj(),
    "abs": lambda f, c: c.abs(),
    "sgn": lambda f, c: c.sgn(),
    "eq": lambda f, c: c == c.conj(),
    "isnan": lambda f, c: c.isnan(),
    "real": lambda f, c: c.real,
    "as real": lambda f, c: f.view_as_real(c),
    "wide": lambda f, c: c.to(f.complex64),
    "with float": lambda f, c: c * f.ones(2),
    "with half": lambda f, c: c + f.ones(2, dtype=f.half),
    "half": lambda f, c: f.ones(2).half().chalf(),
    "outer": lambda f, c: f.outer(c, c),
    "addcmul": lambda f, c: f.addcmul(c, c, c),
    "cat": lambda f, c: f.cat([c, c]),
    "fill": lambda f, c: c.clone().fill_(1j),
    "mask": lambda f, c: c[c.real > 1],
    "index": lambda f, c: c.index_select(0, f.tensor([1])),
    "where": lambda f, c: f.where(c.real > 1, c, c.conj()),
    "zeros": lambda f, c: f.zeros(2, dtype=f.chalf),
    "repr": lambda f, c: repr(c).replace("torch", "f").replace("tangrad", "f"),
    "finfo": lambda f, c: f.finfo(f.complex32).max,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_computes_what_pytorch_computes(name):
    def run(framework):
        c = framework.tensor([1 + 2j, 3 - 0.1j], dtype=framework.complex32)
        result = OPERATIONS[name](framework, c)
        if not hasattr(result, "dtype"):
            return result
        return str(result.dtype).partition(".")[2], result.resolve_conj().tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(torch)
        warnings.simplefilter("ignore", FallbackWarning)
        assert run(tangrad) == expected


@pytest.mark.filterwarnings("ignore::tangrad.plugin.FallbackWarning")
def test_it_is_differentiated_and_assigned():
    c = tangrad.tensor([1 + 2j, 3 - 1j], dtype=tangrad.complex32, requires_grad=True)
    (c * c).abs().sum().backward()
    assert c.grad.dtype is tangrad.complex32
    x = c.detach()
    x[0] = 7j
    assert x.tolist() == [7j, 3 - 1j]
    assert tangrad.promote_types(tangrad.complex32, tangrad.bfloat16) is tangrad.complex64


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex32"])
def test_parts_have_the_dtype_that_to_complex_is_asked_of(name):
    found, expected = (getattr(f, name).to_complex() for f in (tangrad, torch))
    assert str(found).partition(".")[2] == str(expected).partition(".")[2]


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float8_e5m2"])
def test_no_complex_number_has_integers_for_parts(name):
    with pytest.raises(RuntimeError, match=f"no complex dtype has parts of .*{name}"):
        getattr(tangrad, name).to_complex()

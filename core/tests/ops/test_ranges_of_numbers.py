"""Numbers that a dtype has no place for: refused where they become elements, cut in casts."""

import math

import pytest

import tangrad

REFUSED = [
    ("float32", 1e300),
    ("float16", 70000),
    ("complex64", 1e300),
    ("int32", 2**40),
    ("int64", math.inf),
    ("int64", math.nan),
    ("int8", 127.5),
    ("uint8", 300),
    ("uint8", -256),
    ("uint8", -1.5),
]
TAKEN = [
    ("float32", math.inf),
    ("float32", 3.4028234663852886e38),
    ("bfloat16", -math.inf),
    ("uint8", -1),
    ("int8", 1.5),
    ("bool", 1e300),
    ("complex64", 2),
]
WRITERS = {
    "fill_": lambda t, x, number: x.fill_(number),
    "full": lambda t, x, number: t.full((2, 3), number, dtype=x.dtype),
    "full_like": lambda t, x, number: t.full_like(x, number),
    "masked_fill": lambda t, x, number: x.masked_fill(x == x, number),
    "index_fill": lambda t, x, number: x.index_fill(0, t.tensor([0]), number),
    "scatter": lambda t, x, number: x.scatter(0, t.tensor([[0]]), number),
    "fill_diagonal_": lambda t, x, number: x.fill_diagonal_(number),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("dtype", "number"), [*REFUSED, *TAKEN])
def test_a_number_becomes_an_element_where_it_fits(agree, name, dtype, number):
    def program(t):
        return WRITERS[name](t, t.zeros(2, 3, dtype=getattr(t, dtype)), number)

    agree(program, message=False)


INDICES = {
    "number": lambda t: 0,
    "slice": lambda t: slice(1, None),
    "everything": lambda t: ...,
    "places": lambda t: t.tensor([0, 2]),
    "mask": lambda t: t.tensor([True, False, True]),
    "new dimension": lambda t: (None, 1),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(
    ("dtype", "number"), [*REFUSED, *TAKEN, ("float16", 1e300), ("bfloat16", 1e39)]
)
def test_an_assigned_number_fits_or_is_a_half_that_overflows(agree, index, dtype, number):
    def program(t):
        x = t.zeros(3, dtype=getattr(t, dtype))
        x[INDICES[index](t)] = number
        return x

    agree(program, message=False)


def test_the_refusal_names_the_op_the_number_and_the_dtype():
    with pytest.raises(RuntimeError, match=r"fill_: value 1e\+300 .*float32 without overflow"):
        tangrad.zeros(2).fill_(1e300)


LARGE = [math.inf, -math.inf, math.nan, 3e9, -3e9, 1e20, 2.0**31, -(2.0**31), 70000.5, -1.5]


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("repeats", [1, 100])
def test_a_float_that_an_integer_does_not_hold_becomes_the_least_int32_first(
    agree, source, dtype, repeats
):
    def program(t):
        x = t.tensor(LARGE * repeats).to(getattr(t, source))
        written = t.zeros(len(LARGE) * repeats, dtype=getattr(t, dtype)).copy_(x)
        strided = x.reshape(repeats, -1).t().to(getattr(t, dtype))
        return x.to(getattr(t, dtype)), written, strided

    agree(_without_warnings(program), tolerance=0)


def _without_warnings(program):
    import warnings

    def run(t):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program(t)

    return run

"""What factories do with out=, and the bounds of what is drawn."""

import pytest
import torch

import tangrad

SEQUENCES = {
    "arange": lambda F, out: F.arange(0, 4, out=out),
    "range": lambda F, out: F.range(0, 3, out=out),
    "linspace": lambda F, out: F.linspace(0, 3, 4, out=out),
    "logspace": lambda F, out: F.logspace(0, 3, 4, base=2, out=out),
}
DRAWS = {
    "rand": lambda F, out: F.rand(2, 3, out=out),
    "randn": lambda F, out: F.randn(2, 3, out=out),
    "randint": lambda F, out: F.randint(5, (2, 3), out=out),
    "randint between": lambda F, out: F.randint(2, 5, (2, 3), out=out),
    "randperm": lambda F, out: F.randperm(5, out=out),
}


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("size", [(2, 2), (4,), (0,), (1, 4)])
def test_a_sequence_keeps_the_shape_of_out(agree, name, size):
    def program(F):
        whole = F.zeros(*size, 2)
        out = whole[..., 0]
        given = SEQUENCES[name](F, out)
        return [given is out, list(out.shape), out, whole]

    agree(program)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in DRAWS),
        *((name, "int64") for name in DRAWS if name not in ("rand", "randn")),
    ],
)
def test_draws_into_out(agree, name, dtype):
    def program(F):
        F.manual_seed(3)
        out = F.empty(0, dtype=getattr(F, dtype))
        given = DRAWS[name](F, out)
        return [given is out, list(out.shape), str(out.dtype)]

    agree(program)


@pytest.mark.parametrize("bounds", [(-1, 3), (0, 300), (0, 256), (255, 256)])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int8", "int64"])
def test_integers_are_drawn_within_the_dtype(agree, dtype, bounds):
    agree(
        lambda F: F.zeros(0, dtype=getattr(F, dtype)).random_(*bounds).numel(),
        message=False,
    )


@pytest.mark.parametrize("bounds", [(0, 1e39), (-3e38, 3e38), (-1e38, 1e38)])
def test_uniform_bounds_are_of_the_dtype(agree, bounds):
    agree(lambda F: F.zeros(0).uniform_(*bounds).numel(), message=False)


def test_roll_without_dims_and_grids_of_one_dtype(agree):
    agree(lambda F: F.arange(6).reshape(2, 3).roll(1, None))
    agree(
        lambda F: F.meshgrid(F.ones(2), F.ones(2, dtype=F.int64), indexing="ij"),
        message=False,
    )


def test_dtypes_that_do_not_fit_are_named_as_programs_match_them() -> None:
    for lib in (torch, tangrad):
        x = lib.ones(3)
        with pytest.raises(RuntimeError, match="expected scalar_type Double but found Float"):
            lib.logcumsumexp(x.double(), 0, out=lib.empty(3))
        short = lib.empty(3, dtype=lib.int16)
        with pytest.raises(RuntimeError, match="expected scalar_type Float but found Short"):
            lib.cummax(x, 0, out=(short, lib.empty(3, dtype=lib.int64)))

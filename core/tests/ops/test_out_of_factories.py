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


FACTORIES = {
    **DRAWS,
    "zeros": lambda F, out, **given: F.zeros(3, out=out, **given),
    "ones": lambda F, out, **given: F.ones(3, out=out, **given),
    "empty": lambda F, out, **given: F.empty(3, out=out, **given),
    "full": lambda F, out, **given: F.full((3,), 2.0, out=out, **given),
    "eye": lambda F, out, **given: F.eye(3, out=out, **given),
    "rand": lambda F, out, **given: F.rand(3, out=out, **given),
    "randn": lambda F, out, **given: F.randn(3, out=out, **given),
    "randint": lambda F, out, **given: F.randint(5, (3,), out=out, **given),
    "randint between": lambda F, out, **given: F.randint(2, 5, (3,), out=out, **given),
    "randperm": lambda F, out, **given: F.randperm(3, out=out, **given),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_layout_that_out_does_not_have_is_refused(name):
    for F in (torch, tangrad):
        out = F.full((3, 3) if name == "eye" else (3,), 7.0)
        with pytest.raises(RuntimeError, match="layout"):
            FACTORIES[name](F, out, layout=F.sparse_coo)
        assert out.eq(7).all()
        assert FACTORIES[name](F, out, layout=F.strided).layout is F.strided


@pytest.mark.parametrize("name", ["rand", "randn", "randint", "randperm", "normal"])
def test_draws_do_not_ignore_a_layout(name):
    arguments = {"randint": (5, (3,)), "randperm": (3,), "normal": (0.0, 1.0, (3,))}
    for F in (torch, tangrad):
        with pytest.raises(RuntimeError):
            getattr(F, name)(*arguments.get(name, (3,)), layout=F.sparse_coo)


def test_integers_of_complex_dtypes_are_refused():
    for F in (torch, tangrad):
        with pytest.raises(RuntimeError):
            F.randint(6, (2,), dtype=F.complex64)
        with pytest.raises(RuntimeError):
            F.randint(2, 6, (2,), out=F.zeros(2, dtype=F.complex128))
        with pytest.raises(RuntimeError):
            F.randint_like(F.zeros(2, dtype=F.complex64), 6)
        with pytest.raises(RuntimeError):
            F.zeros(2, dtype=F.complex64).random_()


@pytest.mark.parametrize("index", [[], [0, 0]])
def test_index_select_takes_one_index_of_a_number(index):
    for F in (torch, tangrad):
        with pytest.raises(RuntimeError, match="can have only 1 value"):
            F.index_select(F.tensor(1.0), 0, F.tensor(index, dtype=F.int64))
        assert F.index_select(F.tensor(1.0), 0, F.tensor([0])).item() == 1

"""Sobol's sequence, beside PyTorch's."""

import copy
import pickle

import pytest
import torch

import tangrad


@pytest.fixture
def same_numbers():
    tangrad.random.set_engine("mt19937")
    yield
    tangrad.random.set_engine("philox")


def engine(t, *args, **kwargs):
    return t.quasirandom.SobolEngine(*args, **kwargs)


def test_all_direction_numbers_are_pytorchs():
    ours, theirs = (engine(t, 5715).sobolstate for t in (tangrad, torch))
    assert ours.numpy().tobytes() == theirs.numpy().tobytes()


DRAWS = {
    "one by one": lambda e: [e.draw() for _ in range(5)],
    "at once": lambda e: e.draw(40),
    "in parts": lambda e: [e.draw(3), e.draw(1), e.draw(0), e.draw(9), e.num_generated],
    "by powers of 2": lambda e: [e.draw_base2(2), e.draw_base2(2), e.draw_base2(3)],
    "no power of 2": lambda e: [e.draw(3), e.draw_base2(1)],
    "again": lambda e: [e.draw(3), e.reset().draw(4)],
    "later": lambda e: [e.fast_forward(5).draw(2), e.fast_forward(1000).draw(2), e.num_generated],
    "after one": lambda e: [e.draw(), e.fast_forward(1).draw(2), e.fast_forward(0).draw(1)],
    "printed": repr,
    "state": lambda e: [e.draw(6), e.quasi, e.shift, e.sobolstate],
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 7}, {"scramble": True}])
@pytest.mark.parametrize("dimension", [1, 2, 21])
def test_points_are_pytorchs(agree, same_numbers, draw, options, dimension):
    def program(t):
        t.manual_seed(1)
        return DRAWS[draw](engine(t, dimension, **options))

    agree(program, tolerance=0)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int64"])
def test_points_have_the_dtype_asked_for(agree, name):
    agree(lambda t: engine(t, 3).draw(9, dtype=getattr(t, name)), tolerance=0, message=False)


def test_points_are_written_where_they_are_to(agree):
    def program(t):
        out = t.empty(1)
        made = engine(t, 2).draw(3, out=out)
        return made is out, out

    agree(program)


@pytest.mark.parametrize("dimension", [0, -1, 21202])
def test_too_many_dimensions_are_refused(agree, dimension):
    agree(lambda t: engine(t, dimension), message=False)


def test_the_sequence_ends():
    e = engine(tangrad, 2).fast_forward(2**30 - 1)
    assert e.draw(1).shape == (1, 2)
    with pytest.raises(ValueError, match="has 2"):
        e.draw(1)
    with pytest.raises(ValueError, match="negative"):
        e.draw(-1)


def test_copies_go_on_where_they_were():
    e = engine(tangrad, 4, scramble=True, seed=3)
    e.draw(5)
    copies = [copy.deepcopy(e), pickle.loads(pickle.dumps(e))]
    expected = e.draw(3).tolist()
    assert [c.draw(3).tolist() for c in copies] == [expected] * 2


def test_more_dimensions_than_there_are_numbers_for_are_refused():
    assert tangrad.quasirandom.SobolEngine.MAXDIM == 5715
    with pytest.raises(ValueError, match=r"\[1, 5715\], got 5716"):
        engine(tangrad, 5716)


def test_pickles_name_what_was_in_the_core_as_before():
    kind = tangrad.quasirandom.SobolEngine
    assert kind.__module__ == "tangrad.quasirandom"
    assert b"tangrad_quasirandom" not in pickle.dumps(engine(tangrad, 2))
    assert pickle.loads(b"\x80\x02ctangrad.quasirandom\nSobolEngine\n.") is kind

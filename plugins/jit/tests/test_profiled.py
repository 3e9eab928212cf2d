"""What a compiled function runs is what a profile of it shows."""

from importlib.util import find_spec

import pytest

import tangrad
from tangrad import profiler

pytestmark = pytest.mark.skipif(
    find_spec("tangrad_profiler") is None, reason="needs tangrad-profiler"
)


def keys(call):
    with profiler.profile() as prof:
        call()
    return {row.key for row in prof.key_averages()}


@pytest.mark.skipif(find_spec("tangrad_cpu") is None, reason="groups are of compiled kernels")
def test_a_graph_is_one_phase_and_its_ops_are_not_the_program_s():
    def program(x):
        return (x * 2 + 1).exp()

    fast, x = tangrad.compile(program, options={"measure": False}), tangrad.ones(64)
    expected = fast(x)
    assert fast.compiled.executables
    found = keys(lambda: fast(x))
    assert any(key.startswith("compiled program: 1 kernel of ") for key in found)
    assert not {"aten::mul", "aten::exp"} & found
    with profiler.profile():
        assert tangrad.equal(fast(x), expected)


def test_a_call_without_a_graph_shows_the_program_s_ops():
    fast = tangrad.compile(lambda x: (x * 2).exp())
    assert {"aten::mul", "aten::exp"} <= keys(lambda: fast(tangrad.ones(3)))

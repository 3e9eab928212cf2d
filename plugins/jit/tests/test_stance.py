"""`compiler.set_stance`: as PyTorch's, as a function, a context manager and a decorator."""

import sys

import pytest
import torch

import tangrad
from tangrad_jit.compiling.stance import NAMES


@pytest.fixture(autouse=True)
def default():
    yield
    tangrad.compiler.set_stance("default")


def function(x):
    return x * 2 + 1


@pytest.fixture
def counted():
    """A compiled function, and of each run of its Python, unless recorded, the elements."""
    calls = []

    def watch(frame, event, argument):
        if event == "call" and frame.f_code is function.__code__:
            calls.append(len(frame.f_locals["x"]))

    before = sys.getprofile()
    sys.setprofile(watch)
    yield tangrad.compile(function, fullgraph=True, options={"measure": False}), calls
    sys.setprofile(before)


def graphs(compiled):
    return len(compiled.compiled.executables)


def test_names_are_pytorchs():
    for name in NAMES:
        with torch.compiler.set_stance(name):
            pass
    with pytest.raises(RuntimeError, match="unknown stance 'eager'"):
        tangrad.compiler.set_stance("eager")
    with pytest.raises(NotImplementedError, match="force_backend='inductor'"):
        tangrad.compiler.set_stance(force_backend="inductor")


def test_forced_eager_runs_python_and_leaves_graphs_alone(counted):
    compiled, calls = counted
    x = tangrad.ones(3)
    with tangrad.compiler.set_stance("force_eager"):
        assert compiled(x).tolist() == [3.0] * 3
        assert compiled(x).tolist() == [3.0] * 3
        assert graphs(compiled) == 0
    assert calls == [3, 3]
    compiled(x)
    compiled(x)
    assert graphs(compiled) == 1
    assert calls == [3, 3]
    tangrad.compiler.set_stance("default", force_backend="eager")
    compiled(x)
    assert calls == [3, 3, 3]


def test_calls_that_no_graph_serves_run_as_they_are(counted):
    compiled, calls = counted
    compiled(tangrad.ones(3))
    with tangrad.compiler.set_stance("eager_on_recompile"):
        compiled(tangrad.ones(3))
        compiled(tangrad.ones(4))
        compiled(tangrad.ones(4))
    assert calls == [4, 4]
    assert graphs(compiled) == 1


def test_calls_that_no_graph_serves_are_refused(counted):
    compiled, _ = counted
    tangrad.compiler.set_stance("fail_on_recompile")
    with pytest.raises(RuntimeError, match="its first.*fail_on_recompile"):
        compiled(tangrad.ones(3))
    tangrad.compiler.set_stance("default")
    compiled(tangrad.ones(3))
    with tangrad.compiler.set_stance("fail_on_recompile"):
        assert compiled(tangrad.ones(3)).tolist() == [3.0] * 3
        with pytest.raises(RuntimeError, match="function.*fail_on_recompile"):
            compiled(tangrad.ones(3, dtype=tangrad.float64))


def test_the_first_call_runs_as_it_is(counted):
    compiled, calls = counted
    with tangrad.compiler.set_stance("eager_then_compile"):
        compiled(tangrad.ones(3))
        assert graphs(compiled) == 0
        compiled(tangrad.ones(3))
        assert graphs(compiled) == 1
    assert calls == [3]


def test_a_decorated_function_has_a_stance_of_its_own(counted):
    compiled, calls = counted

    @tangrad.compiler.set_stance("force_eager")
    def outer(x):
        return compiled(x)

    outer(tangrad.ones(3))
    assert graphs(compiled) == 0
    compiled(tangrad.ones(3))
    assert graphs(compiled) == 1
    with tangrad.compiler.set_stance("force_eager"):
        with tangrad.compiler.set_stance("default"):
            compiled(tangrad.ones(3))
        outer(tangrad.ones(3))
        compiled(tangrad.ones(3))
    assert calls == [3, 3, 3]


def test_options_of_inductor_are_accepted_and_others_are_not():
    options = {"triton.cudagraphs": True, "shape_padding": True, "epilogue_fusion": True}
    assert tangrad.compile(lambda x: x + 1, options=options)(tangrad.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="Unexpected optimization option chekc"):
        tangrad.compile(lambda x: x + 1, options={"chekc": 0.1})

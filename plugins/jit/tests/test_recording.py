"""What a recording looks at, and when: the program's own code, however its ops end."""

import dis
import time

import pytest

import tangrad
from tangrad import nn
from tangrad_jit.capture.bytecode import instructions, name_of
from tangrad_jit.capture.errors import CaptureError
from tangrad_jit.graph.types import TensorType, type_of

LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")


def compiled(function, **options):
    return tangrad.compile(function, fullgraph=True, options={"measure": False}, **options)


def some_code():
    """Return code objects with long arguments, attributes, methods and calls."""
    wide = "\n".join(f"name{k}.attribute{k}.method{k}(other{k})" for k in range(300))
    yield compile(wide, "wide.py", "exec")
    for function in (nn.Module.train, pytest.approx, dis.dis):
        yield function.__code__


def test_names_that_code_loads_are_those_that_dis_tells():
    for code in some_code():
        found = [(n, name_of(code, n, a)) for n, a in instructions(code) if n in LOADS]
        told = [(i.opname, i.argval) for i in dis.get_instructions(code) if i.opname in LOADS]
        assert found == told


def test_after_an_op_has_raised_the_program_is_watched():
    def f(x):
        try:
            x.reshape(5)
        except RuntimeError:
            time.time()
        return x * 2

    with pytest.raises(CaptureError, match="time"):
        compiled(f)(tangrad.ones(3))


def test_between_two_ops_the_program_is_watched():
    def f(x):
        y = x * 2
        time.time()
        return y + 1

    with pytest.raises(CaptureError, match="time"):
        compiled(f)(tangrad.ones(3))


def test_code_that_runs_after_ops_is_guarded():
    scale = [2.0]

    def late(x):
        return x * scale[0]

    def f(x):
        return late(x + 1)

    g, x = compiled(f), tangrad.ones(3)
    assert g(x).tolist() == [4.0] * 3
    scale[0] = 3.0
    assert g(x).tolist() == [6.0] * 3


def test_a_dict_is_compared_after_each_change():
    settings = {"scale": 2.0, "shift": 1.0}

    def f(x):
        return x * settings["scale"] + settings["shift"]

    g, x = compiled(f, dynamic=False), tangrad.ones(3)
    for scale in (2.0, 2.0, 5.0, 2.0, 5.0, 5.0):
        settings["scale"] = scale
        assert g(x).tolist() == [scale + 1.0] * 3
    del settings["shift"]
    with pytest.raises(KeyError):
        g(x)


def test_what_a_module_holds_is_compared_after_each_change():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    g, x = compiled(model), tangrad.ones(1, 2)
    for bias in (1.0, -1.0, 3.0):
        model[0].bias = nn.Parameter(tangrad.full((2,), bias))
        assert tangrad.equal(g(x), model(x))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    assert tangrad.equal(g(x), model(x))


def test_an_argument_that_is_lazily_negated_is_another():
    def f(x):
        return x * 2

    g = tangrad.compile(f, options={"measure": False})
    z = tangrad.tensor([1 + 2j, 3 + 4j])
    plain, lazy = z.imag, z.conj().imag
    for x in (plain, lazy, plain, lazy):
        assert g(x).tolist() == f(x).tolist()


def test_tensors_of_one_geometry_have_one_type():
    x = tangrad.ones(2, 3)
    assert type_of(x) is type_of(tangrad.zeros(2, 3))
    assert type_of(x) == TensorType("float32", (2, 3), (3, 1))
    assert type_of(x.t()) == TensorType("float32", (3, 2), (1, 3))
    assert type_of(x) != type_of(x.double())
    assert type_of(x) != type_of(x.to("meta"))


def test_a_node_has_the_line_of_its_call():
    def f(x):
        y = x * 2
        return y + 1

    g = compiled(f)
    g(tangrad.ones(3))
    first = f.__code__.co_firstlineno
    lines = [node.line for node in g.compiled.executables[0].recorded.nodes]
    assert lines == [f"test_recording.py:{first + 1}", f"test_recording.py:{first + 2}"]

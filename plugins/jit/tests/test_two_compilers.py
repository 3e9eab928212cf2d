"""Back ends made of two compilers, registered by name, and chosen by default."""

import subprocess
import sys

import pytest

import tangrad
from tangrad._dynamo.backends.common import aot_autograd
from tangrad._dynamo.backends.registry import lookup_backend, register_backend
from tangrad_jit.compiling import backends
from tangrad_jit.functorch_compile import aot_function, aot_module, make_boxed_compiler, nop

pytest.importorskip("tangrad_fx")


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    monkeypatch.setattr(backends, "_registered", {})
    monkeypatch.setattr(backends, "_default", None)


def counting(told, name):
    def compiler(graph_module, example_inputs):
        told.append((name, len(example_inputs)))
        return graph_module.forward

    return compiler


def gradient_of(function, x):
    x = x.clone().requires_grad_()
    for _ in range(3):
        x.grad = None
        function(x).backward()
    return x.grad


def test_results_and_derivatives_go_to_compilers_of_their_own():
    told = []
    backend = aot_autograd(
        fw_compiler=counting(told, "forward"), bw_compiler=counting(told, "backward")
    )

    def program(x):
        return (tangrad.sin(x) * x).sum()

    x = tangrad.arange(4.0)
    wanted = gradient_of(program, x)
    assert tangrad.equal(gradient_of(tangrad.compile(program, backend=backend), x), wanted)
    assert [name for name, _ in told] == ["forward", "backward"]
    both = []
    single = aot_autograd(fw_compiler=counting(both, "forward"))
    assert tangrad.equal(gradient_of(tangrad.compile(program, backend=single), x), wanted)
    assert len(both) == 2


@pytest.mark.parametrize("compiler", [nop, make_boxed_compiler(nop)])
def test_functions_and_modules_are_handed_over(compiler):
    def program(x):
        return (tangrad.sin(x) * x).sum()

    x = tangrad.arange(4.0)
    found = gradient_of(aot_function(program, fw_compiler=compiler, bw_compiler=compiler), x)
    assert tangrad.equal(found, gradient_of(program, x))
    model = tangrad.nn.Linear(4, 2)
    assert tangrad.equal(aot_module(model, compiler)(x), model(x))


def test_functorch_shows_them():
    program = "from functorch.compile import aot_function, make_boxed_func; print(aot_function)"
    code = f"from tangrad.compat import stand_in; stand_in.install()\n{program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "aot_function" in done.stdout, done.stderr


def test_a_back_end_is_found_by_the_name_it_was_given():
    told = []

    @register_backend
    def mine(graph_module, example_inputs):
        told.append(len(example_inputs))
        return graph_module.forward

    assert lookup_backend("mine") is mine
    assert "mine" in tangrad.compiler.list_backends()
    compiled = tangrad.compile(lambda x: x * 3, backend="mine")
    for _ in range(3):
        assert compiled(tangrad.ones(2)).tolist() == [3.0, 3.0]
    assert told == [1]
    for taken in ("mine", "eager", "inductor"):
        with pytest.raises(ValueError, match=f"there is a back end '{taken}'"):
            register_backend(nop, name=taken)


def test_the_default_back_end_is_chosen():
    told = []
    assert tangrad.compiler.get_default_backend() == "tangrad"
    register_backend(counting(told, "mine"), name="mine")
    tangrad.compiler.set_default_backend("mine")
    assert tangrad.compiler.get_default_backend() == "mine"
    compiled = tangrad.compile(lambda x: x * 3)
    for _ in range(3):
        compiled(tangrad.ones(2))
    assert told == [("mine", 1)]
    with pytest.raises(LookupError, match="nobody"):
        tangrad.compiler.set_default_backend("nobody")
    assert tangrad.compiler.get_default_backend() == "mine"

"""Scripts that a traced program calls keep their branches and loops, as in PyTorch."""

import io
import warnings

import pytest
import script_sides
import torch

import tangrad
from tangrad import jit

pytestmark = pytest.mark.filterwarnings("ignore")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    WANTED = script_sides.load(torch, "traced_cases_torch", "traced_cases.py")
    OURS = script_sides.load(tangrad, "traced_cases_tangrad", "traced_cases.py")


def reloaded(traced, reader):
    """Return what a side reads of what another has saved."""
    file = io.BytesIO()
    if isinstance(traced, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        torch.jit.save(traced, file)
    else:
        jit.save(traced, file)
    file.seek(0)
    return reader.jit.load(file)


def forms(wanted, ours):
    """Yield ours as it is, and saved and loaded both ways, with the side whose tensors it takes."""
    yield ours, tangrad
    yield reloaded(ours, tangrad), tangrad
    yield reloaded(ours, torch), torch
    yield reloaded(wanted, tangrad), tangrad


def compare(wanted, ours, inputs, names=("__call__",)):
    for form, side in forms(wanted, ours):
        of_side = [one[0 if side is torch else 1] for one in inputs]
        for given, (of_torch, _) in zip(of_side, inputs, strict=True):
            for name in names:
                found = script_sides.outcome(getattr(form, name), given)
                right = script_sides.outcome(getattr(wanted, name), of_torch)
                assert script_sides.close(found, right), (name, found, right)


@pytest.mark.parametrize("k", range(len(WANTED.CASES)), ids=[c[0] for c in WANTED.CASES])
def test_scripts_that_a_traced_function_calls_branch(k):
    (_, wanted, theirs), (_, ours, inputs) = WANTED.CASES[k], OURS.CASES[k]
    compare(
        torch.jit.trace(wanted, tuple(theirs[0])),
        jit.trace(ours, tuple(inputs[0])),
        list(zip(theirs, inputs, strict=True)),
    )


@pytest.mark.parametrize(("name", "make"), WANTED.MODULES, ids=[m[0] for m in WANTED.MODULES])
@pytest.mark.parametrize("training", [False, True])
def test_scripted_modules_in_a_traced_one_branch(name, make, training):
    wanted, ours = make().train(training), dict(OURS.MODULES)[name]().train(training)
    traced = [
        torch.jit.trace(wanted, WANTED.up(2, 3), check_trace=False),
        jit.trace(ours, OURS.up(2, 3), check_trace=False),
    ]
    inputs = [
        ([WANTED.up(2, 3)], [OURS.up(2, 3)]),
        ([-WANTED.up(2, 3)], [-OURS.up(2, 3)]),
        ([-WANTED.up(4, 3)], [-OURS.up(4, 3)]),
    ]
    if not training:
        compare(*traced, inputs)
        return
    for one, other in inputs:
        assert script_sides.close(
            script_sides.outcome(traced[1], other), script_sides.outcome(traced[0], one)
        )
    for key, value in traced[0].state_dict().items():
        assert script_sides.close(
            script_sides.plain(traced[1].state_dict()[key]), script_sides.plain(value)
        )


def test_methods_by_name_branch():
    inputs = {"forward": "up", "twice": "up"}
    traced = [
        side.jit.trace_module(
            cases.Around().eval(), {name: cases.up(2, 3) for name in inputs}, check_trace=False
        )
        for side, cases in ((torch, WANTED), (tangrad, OURS))
    ]
    given = [([WANTED.up(2, 3) * s], [OURS.up(2, 3) * s]) for s in (1, -1)]
    compare(*traced, given, ["forward", "twice"])


def test_scripts_around_traces_that_call_scripts_branch():
    inputs = [([WANTED.up(3) * s], [OURS.up(3) * s]) for s in (1, 5, -1)]
    compare(WANTED.scripted_around, OURS.scripted_around, inputs)
    around = [
        side.jit.script(
            cases.ScriptAround(
                side.jit.trace(cases.Around().eval(), cases.up(2, 3), check_trace=False)
            )
        )
        for side, cases in ((torch, WANTED), (tangrad, OURS))
    ]
    compare(*around, [([WANTED.up(2, 3) * s], [OURS.up(2, 3) * s]) for s in (1, 5, -1)])


def test_gradients_go_through_the_branch_that_is_taken():
    found = []
    for side, cases in ((torch, WANTED), (tangrad, OURS)):
        traced = side.jit.trace(cases.Around().eval(), cases.up(2, 3), check_trace=False)
        x = (-cases.up(2, 3)).requires_grad_()
        traced(x).sum().backward()
        found.append([x.grad.tolist(), traced.inner.weight.grad.tolist()])
    assert found[0] == found[1]


def test_the_graph_has_the_call_and_inlined_its_branch():
    traced = jit.trace(OURS.function, OURS.up(3))
    assert traced.graph.findNode("prim::CallFunction") is not None
    assert traced.graph.findNode("prim::If") is None
    assert traced.inlined_graph.findNode("prim::If") is not None
    assert ".turned(_v1, 2)" in traced.code


def test_a_result_that_becomes_a_constant_is_told():
    @jit.script
    def label(x) -> str:
        return "a" if bool(x.sum() > 0) else "b"

    def program(x):
        return x + 1 if label(x) == "a" else x

    with pytest.warns(jit.TracerWarning, match="a result of a script"):
        jit.trace(program, tangrad.ones(2))


def test_a_script_beside_what_no_program_has_is_refused():
    with pytest.raises(RuntimeError, match="calls scripts"):
        jit.trace(lambda x, n: OURS.turned(x) * n, (tangrad.ones(2), 3))
    other = OURS.Branching()
    scripted = jit.script(other)
    with pytest.raises(RuntimeError, match="no module inside"):
        jit.trace(lambda x: scripted(x), tangrad.ones(2, 3))


class Marked(tangrad.Tensor):
    pass


def in_autocast(x):
    with tangrad.autocast("cpu", dtype=tangrad.bfloat16):
        return x @ x


@pytest.mark.parametrize(
    "program",
    [
        lambda x: tangrad.func.vmap(lambda row: row.sum(-1) + row[0])(x) * 2,
        lambda x: tangrad.func.grad(lambda y: (y * y).sum())(x),
        lambda x: (x.as_subclass(Marked) * 2).sum(),
        in_autocast,
    ],
    ids=["vmap", "grad", "subclass", "autocast"],
)
def test_what_no_program_shows_is_in_the_graph_of_the_example_alone(program):
    traced = jit.trace(program, tangrad.randn(3, 3), check_trace=False)
    x = tangrad.randn(3, 3)
    assert not hasattr(traced, "script_unit")
    tangrad.testing.assert_close(traced(x), program(x), check_dtype=True)
    with pytest.raises(RuntimeError, match="calls scripts"):
        jit.trace(lambda x: program(OURS.turned(x)), x, check_trace=False)


def test_a_constant_that_needs_a_gradient_is_refused_beside_scripts():
    held = tangrad.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad as a constant"):
        jit.trace(lambda x: OURS.turned(x) + OURS.turned(held), tangrad.ones(3))

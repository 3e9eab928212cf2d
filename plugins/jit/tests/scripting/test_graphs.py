"""Graphs and code of scripts."""

import pytest
from script_sides import OURS

import tangrad

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("case", OURS.CASES, ids=lambda case: case[0].__name__)
def test_every_function_has_a_graph_and_code(case):
    scripted = tangrad.jit.script(case[0])
    assert str(scripted.graph).startswith("graph(")
    assert str(scripted.inlined_graph).startswith("graph(")
    assert f"def {case[0].__name__}(" in scripted.code


def test_branches_and_loops_hand_variables_on():
    graph = tangrad.jit.script(OURS.loops).graph
    loop = graph.findNode("prim::Loop")
    body = next(loop.blocks())
    carried = len(list(loop.outputs()))
    assert len(list(body.inputs())) == carried + 1
    assert len(list(body.outputs())) == carried + 1
    assert graph.findAllNodes("prim::If")


def test_calls_are_inlined():
    scripted = tangrad.jit.script(OURS.classes)
    assert scripted.graph.findNode("prim::CallMethod") is not None
    assert scripted.inlined_graph.findNode("prim::CallMethod") is None

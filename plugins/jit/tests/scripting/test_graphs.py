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


def doubled(x, flag: bool):
    a = x + 1
    if flag:
        a = a - 1
    return x, a


def test_uses_stand_in_the_order_of_the_program():
    graph = tangrad.jit.script(doubled).graph
    uses = next(graph.inputs()).uses()
    assert [use.user.kind() for use in uses] == ["aten::add", "prim::TupleConstruct"]
    assert uses[1].isAfter(uses[0])
    assert not uses[0].isAfter(uses[1])
    condition = [*graph.inputs()][1]
    assert [use.user.kind() for use in condition.uses()] == ["prim::If"]
    made = graph.findNode("prim::If").output()
    assert [use.offset for use in made.uses()] == [1]
    assert next(graph.outputs()).node().kind() == "prim::TupleConstruct"
    assert graph.returnNode().kind() == "prim::Return"


def test_a_copy_is_a_graph_of_its_own():
    graph = tangrad.jit.script(doubled).graph
    other = graph.copy()
    assert str(other) == str(graph)
    next(other.inputs()).rename("other")
    assert str(other) != str(graph)
    assert [use.user for use in next(other.inputs()).uses()][0] in [*other.nodes()]  # noqa: RUF015


def test_nodes_find_nodes_in_their_blocks():
    graph = tangrad.jit.script(OURS.loops).graph
    loop = graph.findNode("prim::Loop")
    assert loop.findNode("prim::If") is not None
    assert loop.findAllNodes("prim::Loop") == []


def test_places_can_be_hidden():
    graph = tangrad.jit.script(doubled).graph
    assert f"# {__file__}" in repr(graph)
    with tangrad.jit._hide_source_ranges():
        assert "# " not in repr(graph)
        assert f"# {__file__}" in graph.str(print_source_ranges=True)
    assert f"# {__file__}" in repr(graph)


def test_constants_stand_once_and_first():
    def one_and_one(flag: bool):
        if flag:
            return [1, 1]
        return [1, 2]

    text = str(tangrad.jit.script(one_and_one).graph)
    assert text.count("prim::Constant[value=1]") == 1
    assert text.index("prim::Constant") < text.index("prim::If")


def test_known_conditions_leave_no_branch():
    def one():
        if 1 == 1:
            return 1
        else:  # noqa: RET505
            return 2

    assert tangrad.jit.script(one).graph.findNode("prim::If") is None


def test_branches_and_loops_give_values_in_the_order_of_their_use():
    def ordered(flag: bool, n: int):
        b, a = 2, 1
        if flag:
            a = 3
            b = 4
        c, d = a, b
        for _ in range(n):
            d = d + 1
            c = c + 1
        return c, d, b

    graph = tangrad.jit.script(ordered).graph
    for kind in ("prim::If", "prim::Loop"):
        uses = [value.uses()[0].position for value in graph.findNode(kind).outputs()]
        assert uses == sorted(uses)
    assert tangrad.jit.script(ordered)(True, 2) == ordered(True, 2)


def test_graphs_have_one_form_of_what_may_be_written_in_several():
    def program(x, y, yes: bool):
        return tangrad.rsub(y, x), tangrad.subtract(x, y), yes is True, True is not yes

    graph = tangrad.jit.script(program).graph
    kinds = [node.kind() for node in graph.nodes() if node.kind().startswith("aten::")]
    assert kinds == ["aten::sub", "aten::sub", "aten::eq", "aten::ne"]
    assert [len(list(node.inputs())) for node in graph.findAllNodes("aten::sub")] == [3, 3]


def test_graphs_of_traces_show_names_types_and_constants_in_their_places():
    def program(given):
        shifted = given + 2
        return shifted.view(given.size(0), -1) * shifted

    traced = tangrad.jit.trace(program, tangrad.ones(2, 3))
    text = str(traced.graph)
    assert "%shifted.1 : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)" in text
    assert text.index("aten::add") < text.index("value=0")
    for part in ("aten::size", "aten::view", "aten::mul"):
        assert part in text
    runs = str(traced.graph_for(tangrad.ones(2, 3)))
    assert runs.index("prim::Constant[value=0]") < runs.index("aten::add")


def test_graphs_take_constants_names_and_another_order_of_inputs():
    def program(x, y):
        return (x + y) * 3

    graph = tangrad.jit.script(program).graph.copy()
    with graph.insert_point_guard(graph.findNode("aten::add")):
        with graph.insert_point_guard(graph.findNode("aten::mul")):
            inner = graph.insertConstant("inner")
        graph.insertConstant("outer")
    text = str(graph)
    assert text.index("outer") < text.index("aten::add") < text.index("inner")
    assert (inner.toIValue(), graph.findNode("aten::add").output().toIValue()) == ("inner", None)
    first, second = graph.param_node().outputs()
    first.setDebugName("first")
    graph.permuteInputs([1, 0])
    assert list(graph.inputs()) == [second, first]
    with pytest.raises(ValueError, match="cannot be a constant"):
        graph.insertConstant(object())


def test_values_of_traces_know_their_sizes():
    traced = tangrad.jit.trace(lambda x: x.t().sum(), tangrad.ones(2, 3))
    (given,) = traced.graph.inputs()
    assert (given.type().sizes(), given.type().strides()) == ([2, 3], [3, 1])
    assert next(iter(traced.graph.outputs())).type().sizes() == []
    (plain,) = tangrad.jit.script(lambda_like).graph.inputs()
    assert (plain.type().sizes(), plain.type().strides()) == (None, None)


def lambda_like(x):
    return x + 1

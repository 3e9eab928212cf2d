"""Passes beside PyTorch's: parts that can run as one, constants folded, repetitions removed."""

import importlib
import operator
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad

SIDES = ("torch", "tangrad")


def both(path):
    return [importlib.import_module(f"{side}.fx.{path}") for side in SIDES]


class Chain(tangrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = tangrad.nn.Linear(4, 4)
        self.param = tangrad.nn.Parameter(tangrad.ones(4))

    def forward(self, a, b, c):
        add = a + b
        linear_1 = self.linear(add)
        add_1 = add + c
        add_2 = add_1 + self.param
        add_3 = add_1 + linear_1
        add_4 = add_2 + add_3
        relu = add_4.relu()
        return add_4, relu + tangrad.relu(add_2)


def traced(module):
    return tangrad.fx.symbolic_trace(module)


def inputs(*shape, count=3):
    return [tangrad.from_numpy(x) for x in np.random.default_rng(0).random((count, *shape), "f")]


def supports(*names):
    from tangrad.fx.passes.operator_support import create_op_support

    return create_op_support(lambda modules, node: node.name in names or node.target in names)


def same(a, b):
    a, b = (x if isinstance(x, (tuple, list)) else (x,) for x in (a, b))
    return all(tangrad.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (
            ("add", "add_1", "add_2", "add_3", "add_4"),
            [["add"], ["add_1", "add_2", "add_3", "add_4"]],
        ),
        ((operator.add,), None),
        (("relu", "relu_1", "add_5"), None),
        (("linear",), []),
    ],
)
def test_supported_nodes_become_few_parts(names, parts):
    from tangrad.fx.passes.infra.partitioner import CapabilityBasedPartitioner

    module = Chain()
    graph_module, wanted = traced(module), module(*inputs(2, 4))
    partitioner = CapabilityBasedPartitioner(
        graph_module, supports(*names), allows_single_node_partition=names != ("linear",)
    )
    found = partitioner.propose_partitions()
    if parts is not None:
        assert [[n.name for n in p.nodes] for p in found] == parts
    fused = partitioner.fuse_partitions(found)
    fused.graph.lint()
    assert same(fused(*inputs(2, 4)), wanted)
    called = [n for n in fused.graph.nodes if str(n.target).startswith("fused_")]
    assert len(called) == len(found)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_graphs_are_cut_into_parts_that_run(data):
    """Every supported node is in one part, as many parts as PyTorch finds, and values stay."""
    count = data.draw(st.integers(2, 14))
    edges = [
        (data.draw(st.integers(-2, k - 1)), data.draw(st.integers(-2, k - 1))) for k in range(count)
    ]
    supported = {f"n{k}" for k in range(count) if data.draw(st.booleans())}
    found = []
    for side in (torch, tangrad):
        fx = importlib.import_module(f"{side.__name__}.fx")
        partitioner = importlib.import_module(f"{side.__name__}.fx.passes.infra.partitioner")
        support = importlib.import_module(f"{side.__name__}.fx.passes.operator_support")
        graph = fx.Graph()
        nodes = [graph.placeholder("x"), graph.placeholder("y")]
        for k, (i, j) in enumerate(edges):
            node = graph.call_function(operator.add, (nodes[i + 2], nodes[j + 2]))
            node.name = f"n{k}" if side is torch else node.name
            nodes.append(node)
        names = {node: f"n{k}" for k, node in enumerate(nodes[2:])}
        unused = [n for n in nodes[2:] if not n.users]
        graph.output(tuple(unused))
        module = fx.GraphModule(side.nn.Module(), graph)
        given_x, given_y = side.tensor([1.0, 2.0]), side.tensor([3.0, 5.0])
        wanted = module(given_x, given_y)
        made = partitioner.CapabilityBasedPartitioner(
            module,
            support.create_op_support(lambda modules, node: names.get(node) in supported),  # noqa: B023
            allows_single_node_partition=True,
        )
        parts = made.propose_partitions()
        found.append(parts)
        assert {names[n] for p in parts for n in p.nodes} == supported
        made.fuse_partitions(parts)
        for a, b in zip(module(given_x, given_y), wanted, strict=True):
            assert side.equal(a, b)
    assert len(found[1]) == len(found[0])


def test_items_of_a_tuple_stay_where_it_is_made():
    from tangrad.fx.passes.infra.partitioner import CapabilityBasedPartitioner

    def program(x):
        first, second = tangrad.chunk(x + 1, 2)
        return first * 2, second.exp()

    graph_module = traced(program)
    x = tangrad.arange(6.0)
    wanted = program(x)
    partitioner = CapabilityBasedPartitioner(
        graph_module, supports("chunk", operator.mul), allows_single_node_partition=True
    )
    first, second = partitioner.propose_partitions()
    assert [n.name for n in first.nodes] == ["chunk", "getitem", "getitem_1"]
    assert [n.name for n in second.nodes] == ["mul"]
    fused = partitioner.fuse_partitions([first, second])
    assert same(fused(x), wanted)


def test_parts_of_what_computes_nothing_are_left_alone():
    from tangrad.fx.passes.infra.partitioner import CapabilityBasedPartitioner

    def program(x):
        return tangrad.relu(tangrad.permute(x, (1, 0)))

    graph_module = traced(program)
    partitioner = CapabilityBasedPartitioner(
        graph_module,
        supports("permute", "relu"),
        non_compute_ops=["torch.permute", "tangrad.permute"],
    )
    assert partitioner.propose_partitions() == []
    alone = CapabilityBasedPartitioner(
        graph_module,
        supports("permute", "relu"),
        allows_single_node_partition=True,
        non_compute_ops=["torch.permute", "tangrad.permute"],
    )
    parts = alone.propose_partitions()
    alone.remove_bookend_non_compute_ops(parts)
    assert [[n.name for n in p.nodes] for p in parts] == [["relu"]]


def test_support_by_name_and_dtype():
    from tangrad.fx.passes import operator_support as support
    from tangrad.fx.passes.shape_prop import ShapeProp
    from tangrad.fx.passes.tools_common import get_node_target

    def program(x):
        return tangrad.relu(x.long()) + tangrad.relu(x)

    graph_module = traced(program)
    ShapeProp(graph_module).propagate(tangrad.ones(2))
    modules = dict(graph_module.named_modules())
    relus = [n for n in graph_module.graph.nodes if n.name.startswith("relu")]
    name = get_node_target(modules, relus[0])
    floats = support.OperatorSupport({name: ([[tangrad.float32]], {})})
    anything = support.OperatorSupport({name: None})
    assert [floats.is_node_supported(modules, n) for n in relus] == [False, True]
    assert all(anything.is_node_supported(modules, n) for n in relus)
    declined = support.OpSupports.decline_if_input_dtype(tangrad.int64)
    unnamed = support.OpSupports.decline_if_node_in_names({relus[1].name})
    asked = support.chain(anything, declined), support.any_chain(declined, unnamed)
    assert [asked[0].is_node_supported(modules, n) for n in relus] == [False, True]
    assert [asked[1].is_node_supported(modules, n) for n in relus] == [True, True]


def test_parts_that_leave_and_return_are_refused():
    from tangrad.fx.passes.utils.fuser_utils import (
        fuse_as_graphmodule,
        topo_sort,
        validate_partition,
    )

    graph_module = traced(Chain())
    nodes = {n.name: n for n in graph_module.graph.nodes}
    circle = [nodes["add"], nodes["add_3"]]
    assert not validate_partition(circle)
    assert validate_partition([nodes["add_1"], nodes["add_2"]])
    assert topo_sort([nodes["add_2"], nodes["add_1"]]) == [nodes["add_1"], nodes["add_2"]]
    with pytest.raises(RuntimeError, match="cycles"):
        fuse_as_graphmodule(graph_module, circle, "part")
    with pytest.raises(RuntimeError, match="not of the module"):
        fuse_as_graphmodule(traced(Chain()), circle, "part")
    with pytest.raises(RuntimeError, match="placeholder"):
        fuse_as_graphmodule(graph_module, [nodes["a"]], "part")


def test_constants_are_computed_once():
    from tangrad.fx.experimental.const_fold import split_const_subgraphs

    class Net(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = tangrad.nn.Parameter(tangrad.arange(3.0))
            self.b = tangrad.nn.Parameter(tangrad.ones(3))

        def forward(self, x):
            total = self.a + self.b
            return x * total, x + tangrad.exp(self.a), x - self.a

    module = Net()
    x = tangrad.tensor([1.0, 2.0, 3.0])
    folded = split_const_subgraphs(module)
    targets = [str(n.target) for n in folded.graph.nodes]
    assert sum("exp" in t for t in targets) == 0
    assert same(folded(x), module(x))
    assert folded.has_folding_been_run
    assert same(folded(x), module(x))
    with pytest.raises(RuntimeError, match="folded already"):
        folded.run_folding()
    one = split_const_subgraphs(
        module, skip_folding_node_fn=lambda node: node.target is not operator.add
    )
    assert same(one(x), module(x))
    assert sum("exp" in str(n.target) for n in one.graph.nodes) == 1


def test_a_module_without_constants_stays():
    from tangrad.fx.experimental.const_fold import split_const_subgraphs

    folded = split_const_subgraphs(tangrad.fx.symbolic_trace(lambda x: x + 1))
    assert folded.const_subgraph_module is None
    assert same(folded(tangrad.ones(2)), tangrad.ones(2) + 1)


def test_repetitions_are_computed_once():
    from tangrad.fx.passes.dialect.common.cse_pass import CSEPass

    def program(x):
        a, b = tangrad.exp(x), tangrad.exp(x)
        noise = tangrad.rand_like(x) - tangrad.rand_like(x)
        return a * 2 + b * 2, x * 1, x * 1.0, noise

    made, modified = CSEPass()(traced(program))
    assert modified
    names = [getattr(n.target, "__name__", n.target) for n in made.graph.nodes]
    assert names.count("exp") == 1
    assert names.count("mul") == 3
    assert names.count("rand_like") == 2
    x = tangrad.tensor([1, 2])
    found, wanted = made(x.float()), program(x.float())
    assert same(found[:3], wanted[:3])
    assert not CSEPass()(made)[1]


def test_shapes_are_noted_without_data():
    from tangrad.fx.passes.fake_tensor_prop import FakeTensorProp

    graph_module = traced(Chain())
    FakeTensorProp(graph_module).propagate(*inputs(2, 4))
    for node in graph_module.graph.nodes:
        if node.op not in ("output", "get_attr"):
            assert tuple(node.meta["tensor_meta"].shape) == (2, 4)
            assert type(node.meta["val"]).__name__ == "FakeTensor"


@pytest.mark.parametrize("side", SIDES)
def test_graphs_are_split_by_tags(side):
    fx = importlib.import_module(f"{side}.fx")
    split_by_tags = importlib.import_module(f"{side}.fx.passes.split_utils").split_by_tags
    whole = importlib.import_module(side)

    class Net(whole.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = whole.nn.Linear(3, 3), whole.nn.Linear(3, 3)

        def forward(self, x, y):
            a = self.first(x)
            b = self.second(a + y)
            return a, b * 2

    module = Net()
    graph_module = fx.symbolic_trace(module)
    for node in graph_module.graph.nodes:
        node.tag = "late" if node.name in ("second", "mul") else "early"
    made, paths = split_by_tags(graph_module, ["early", "late"], return_fqn_mapping=True)
    assert paths == {"first": "early.first", "second": "late.second"}
    assert [n.target for n in made.graph.nodes if n.op == "call_module"] == ["early", "late"]
    x, y = whole.rand(2, 3), whole.rand(2, 3)
    for a, b in zip(made(x, y), module(x, y), strict=True):
        assert whole.equal(a, b)


def test_nodes_without_a_tag_are_refused():
    from tangrad.fx.passes.split_utils import split_by_tags

    graph_module = traced(Chain())
    with pytest.raises(RuntimeError, match="add has tag None"):
        split_by_tags(graph_module, ["one"])
    for node in graph_module.graph.nodes:
        node.tag = "one" if node.name == "add_4" else "two"
    with pytest.raises(RuntimeError, match="later part two"):
        split_by_tags(graph_module, ["one", "two"])


def test_exported_nodes_are_found_by_their_modules():
    from tangrad.fx.passes.utils.source_matcher_utils import (
        check_subgraphs_connected,
        get_source_partitions,
    )

    model = tangrad.nn.Sequential(
        tangrad.nn.Linear(3, 4), tangrad.nn.ReLU(), tangrad.nn.Linear(4, 2)
    )
    graph = tangrad.export.export(model, (tangrad.ones(2, 3),)).graph
    found = get_source_partitions(graph, [tangrad.nn.Linear, tangrad.nn.ReLU])
    assert len(found[tangrad.nn.Linear]) == 2
    (relu,) = found[tangrad.nn.ReLU]
    first, second = found[tangrad.nn.Linear]
    assert check_subgraphs_connected(first, relu)
    assert check_subgraphs_connected(relu, second)
    assert not check_subgraphs_connected(first, second)
    assert relu.input_nodes == first.output_nodes


def test_graphs_are_compared():
    from tangrad.fx.passes.utils.common import compare_graphs

    one, other = traced(lambda x: tangrad.exp(x) + 1), traced(lambda z: tangrad.exp(z) + 1)
    assert compare_graphs(one.graph, other.graph)
    assert not compare_graphs(one.graph, traced(lambda x: tangrad.exp(x) * 1).graph)


def test_types_of_tensors_are_pytorchs():
    for side in both("tensor_type"):
        Dyn, TensorType = side.Dyn, side.TensorType
        assert TensorType((1, Dyn)) == TensorType((1, Dyn))
        assert str(TensorType[1, 2]) == "TensorType[(1, 2)]"
        assert str(Dyn) == "Dyn"
        assert side.is_consistent(TensorType((1, Dyn, 3)), TensorType((Dyn, 2, 3)))
        assert not side.is_consistent(TensorType((1, 2)), TensorType((1, 3)))
        assert side.is_more_precise(TensorType((1, 2)), TensorType((1, Dyn)))
        assert not side.is_more_precise(TensorType((1, Dyn)), TensorType((1, 2)))
        assert side.is_consistent(3, Dyn)
        assert side.is_more_precise(3, Dyn)
        assert not side.is_more_precise(Dyn, 3)


@pytest.mark.parametrize(
    "path",
    [
        *("passes.shape_prop", "passes.infra.partitioner", "passes.utils.matcher_utils"),
        *("operator_schemas", "experimental.const_fold", "passes.dialect.common.cse_pass"),
    ],
)
def test_modules_are_there_without_an_import_of_their_own(path):
    program = f"import tangrad; print(tangrad.fx.{path}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == f"tangrad_fx.{path}", done.stderr

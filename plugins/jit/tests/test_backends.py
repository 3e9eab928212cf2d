"""What a third party's back end is given: a module of a graph whose nodes call public ops."""

import pytest

import tangrad
from tangrad import nn
from tangrad.nn import functional as F

pytest.importorskip("tangrad_fx")


def settled(compiled, *args):
    """Return what a call gives whose graph there is: a first run may find what it depends on."""
    for _ in range(3):
        compiled(*args)
    return compiled(*args)


class Seen:
    """A back end that keeps what it is given and runs it as it is."""

    def __init__(self, change=None):
        self.targets, self.kwargs, self.change = [], [], change

    def __call__(self, graph_module, example_inputs):
        for node in graph_module.graph.nodes:
            if node.op == "call_function":
                self.targets.append(node.target)
                self.kwargs.append(dict(node.kwargs))
                if self.change is not None:
                    self.change(node)
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module.forward


def test_nodes_call_the_ops_that_a_program_names():
    backend = Seen()
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    x = tangrad.ones(2, 4)
    with tangrad.no_grad():
        compiled = tangrad.compile(model, backend=backend)
        assert tangrad.equal(settled(compiled, x), model(x))
    assert backend.targets == [F.linear, tangrad.relu]


def test_one_case_of_an_op_is_that_op():
    backend = Seen()

    def program(x, y):
        return tangrad.add(x + y, y, alpha=2) - x, tangrad.sum(x, 0, dtype=tangrad.float64)

    compiled = tangrad.compile(program, backend=backend)
    x, y = tangrad.arange(4.0), tangrad.full((4,), 0.5)
    for a, b in zip(settled(compiled, x, y), program(x, y), strict=True):
        assert tangrad.equal(a, b)
    assert backend.targets == [tangrad.add, tangrad.add, tangrad.sub, tangrad.sum]
    assert backend.kwargs == [{}, {"alpha": 2}, {}, {"dtype": tangrad.float64}]


def test_a_back_end_may_change_the_program():
    def change(node):
        if node.target is tangrad.relu:
            node.target = tangrad.sigmoid

    compiled = tangrad.compile(lambda x: tangrad.relu(x) + 1, backend=Seen(change))
    x = tangrad.tensor([-1.0, 0.0, 2.0])
    assert tangrad.equal(settled(compiled, x), tangrad.sigmoid(x) + 1)


def test_graphs_of_back_ends_can_be_cut_into_parts():
    from tangrad.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from tangrad.fx.passes.operator_support import create_op_support

    ran = []

    def backend(graph_module, example_inputs):
        support = create_op_support(lambda modules, node: node.target in (tangrad.exp, tangrad.mul))
        partitioner = CapabilityBasedPartitioner(graph_module, support)
        fused = partitioner.partition_and_fuse()
        for name, part in fused.named_children():
            part.register_forward_pre_hook(lambda module, args, name=name: ran.append(name))
        return fused.forward

    def program(x):
        return tangrad.exp(x) * 2, tangrad.sin(x)

    compiled = tangrad.compile(program, backend=backend)
    x = tangrad.arange(3.0)
    for a, b in zip(settled(compiled, x), program(x), strict=True):
        assert tangrad.equal(a, b)
    assert set(ran) == {"fused_0"}


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_lists_of_any_length_reach_a_back_end(rows):
    def program(x):
        return tangrad.split(x, 2), tangrad.unbind(x)

    compiled = tangrad.compile(program, backend="eager")
    x = tangrad.arange(3.0 * rows).reshape(rows, 3)
    for found, wanted in zip(settled(compiled, x), program(x), strict=True):
        assert [t.tolist() for t in found] == [t.tolist() for t in wanted]


class Adding:
    """A back end whose results tell that they are its own, and that keeps what it was given."""

    def __init__(self):
        self.calls, self.given, self.compiling = 0, [], []

    def __call__(self, graph_module, example_inputs, **given):
        self.given.append(given)
        self.compiling.append(tangrad.compiler.is_compiling())

        def run(*inputs):
            self.calls += 1
            return [result + 100 for result in graph_module.forward(*inputs)]

        return run


@pytest.mark.parametrize(
    "program",
    [
        lambda x: tangrad.relu(x) * 2,
        lambda x: F.dropout(x, 0.5),
        lambda x: x.exp().sum() if tangrad.compiler.is_compiling() else x,
    ],
)
def test_the_first_call_returns_what_the_back_end_gives(program):
    backend, x = Adding(), tangrad.linspace(-1, 1, 6)
    compiled = tangrad.compile(program, backend=backend)
    tangrad.manual_seed(3)
    found = [compiled(x) for _ in range(3)]
    assert backend.calls == 3
    assert backend.compiling == [True]
    tangrad.manual_seed(3)
    wanted = [tangrad.compile(program, backend="eager")(x) + 100 for _ in range(3)]
    assert all(map(tangrad.equal, found, wanted))


def test_a_call_that_writes_runs_once():
    backend, model = Adding(), nn.BatchNorm1d(2)
    compiled = tangrad.compile(model, backend=backend)
    for count in range(1, 4):
        compiled(tangrad.randn(4, 2))
        assert model.num_batches_tracked == count
    assert backend.calls == 2


def test_a_disabled_part_is_called_as_no_part_of_a_compiled_function():
    asked = []

    @tangrad.compiler.disable
    def part(x):
        asked.append(tangrad.compiler.is_compiling())
        return x + 1

    compiled = tangrad.compile(lambda x: part(x * 2) * 3, backend=Adding())
    assert compiled(tangrad.ones(2)).tolist() == [9.0, 9.0]
    assert asked == [False]


def test_a_program_is_told_that_it_is_exported():
    asked = []

    class Asking(nn.Module):
        def forward(self, x):
            told = tangrad.compiler
            asked.append((told.is_compiling(), told.is_exporting(), told.is_dynamo_compiling()))
            return x if told.is_compiling() else x * x.sum().item()

    tangrad.export.export(Asking(), (tangrad.ones(2),))
    assert asked == [(True, True, False)]
    assert not tangrad.compiler.is_compiling()
    assert not tangrad.compiler.is_exporting()


def test_options_and_mode_reach_the_back_ends_of_others():
    backend, x = Adding(), tangrad.ones(2)
    tangrad.compile(tangrad.exp, backend=backend, options={"level": 3})(x)
    tangrad.compile(tangrad.exp, backend=backend, mode="max-autotune")(x)
    tangrad.compile(tangrad.exp, backend=backend, mode="default")(x)
    assert backend.given == [{"options": {"level": 3}}, {"mode": "max-autotune"}, {}]
    assert tangrad.compile(tangrad.exp, backend="eager", options={"level": 3})(x) is not None
    with pytest.raises(RuntimeError, match="Unexpected optimization option level"):
        tangrad.compile(tangrad.exp, options={"level": 3})

"""Exported programs: sizes computed from others, the ops below autograd, trees of modules again."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest

import tangrad
from tangrad.export import Dim, ExportedProgram, export, load, save, unflatten


def parts(torch: Any) -> Any:
    """Return the network of these tests, of a framework."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            return self.norm(nn.functional.silu(self.fc(x))), x * 2

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(4, 2)

        def forward(self, x: Any, y: Any) -> Any:
            for block in self.blocks:
                x, rest = block(x)
                x = x + rest
            x, _ = self.blocks[0](x)
            with torch.no_grad():
                rows = torch.arange(x.shape[0]).float()[:, None]
            return self.head(x) + rows, torch.cat([y, y]).view(-1), x.std(0)

    return Net()


def made(torch: Any = tangrad, train: bool = True) -> tuple[Any, Any]:
    """Return a network and its program, whose second input has 2 n + 1 rows."""
    torch.manual_seed(0)
    net = parts(torch).train(train)
    n = torch.export.Dim("n", min=2)
    inputs = torch.randn(3, 4), torch.randn(7, 2)
    return net, torch.export.export(net, inputs, dynamic_shapes=({0: n}, {0: 2 * n + 1}))


def assert_computes(module: Any, net: Any) -> None:
    """Assert that a module gives what a network does, and leaves the same buffers."""
    for rows in (3, 5):
        x, y = tangrad.randn(rows, 4), tangrad.randn(2 * rows + 1, 2)
        ours, theirs = copy.deepcopy(module), copy.deepcopy(net)
        for got, expected in zip(ours(x, y), theirs(x, y), strict=True):
            tangrad.testing.assert_close(got, expected)
        buffers = dict(ours.named_buffers())
        for name, buffer in theirs.named_buffers():
            tangrad.testing.assert_close(buffers[name], buffer)


def roundtrip(program: ExportedProgram) -> ExportedProgram:
    """Return a program as it is read from its file."""
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


@pytest.mark.parametrize("through", [lambda p: p, roundtrip], ids=["made", "read"])
def test_sizes_may_be_computed_from_others(through: Any) -> None:
    net, program = made()
    assert_computes(through(program).module(), net)
    with pytest.raises(AssertionError, match=r"expected 2 \* n \+ 1"):
        program.module()(tangrad.randn(3, 4), tangrad.randn(8, 2))


def test_a_size_may_stand_nowhere_itself() -> None:
    class Halves(tangrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(2, -1) + tangrad.arange(x.shape[0] * 3 // 6)

    n = Dim("n", min=1)
    program = export(Halves(), (tangrad.randn(8),), dynamic_shapes=({0: 2 * n},))
    x = tangrad.randn(14)
    tangrad.testing.assert_close(program.module()(x), x.reshape(2, -1) + tangrad.arange(7))
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(tangrad.randn(7))
    with pytest.raises(ValueError, match=r"size 7 in 0, which is not 2\*n"):
        export(Halves(), (tangrad.randn(7),), dynamic_shapes=({0: 2 * n},))


def test_sizes_are_computed_as_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    steps: list[Any] = [
        lambda n: 2 * n,
        lambda n: n * 3 + 1,
        lambda n: 2 + n,
        lambda n: (n - 1) * 2,
        lambda n: (2 * n) * 3 - 1,
    ]
    for step in steps:
        theirs, ours = step(torch.export.Dim("n", min=2)), step(Dim("n", min=2))
        assert (repr(ours), ours.__name__, ours.min) == (repr(theirs), theirs.__name__, theirs.min)
    refused: list[Any] = [lambda n: n * 0, lambda n: n + n, lambda n: n * 1.5, lambda n: 1 - n]
    for step in refused:
        for cls in (torch.export.Dim, Dim):
            with pytest.raises(NotImplementedError, match="Only increasing linear"):
                step(cls("n"))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("through", [lambda p: p, roundtrip], ids=["made", "read"])
def test_decomposed_programs_compute_the_same(through: Any, train: bool) -> None:
    net, program = made(train=train)
    assert_computes(through(program.run_decompositions()).module(), net)
    assert_computes(through(program).run_decompositions({}).module(), net)


def test_decomposing_leaves_the_program_as_it_was() -> None:
    net, program = made()
    before, code = copy.deepcopy(net.state_dict()), program.graph_module.code
    decomposed = program.run_decompositions()
    assert program.graph_module.code == code
    for name, value in net.state_dict().items():
        tangrad.testing.assert_close(value, before[name])
    assert decomposed.graph_signature.user_inputs == ("x", "y")
    assert decomposed.state_dict is program.state_dict


def test_the_table_says_what_is_taken_apart() -> None:
    _, program = made(train=False)
    aten = tangrad.ops.aten

    def targets(table: Any) -> set[Any]:
        return {n.target for n in program.run_decompositions(table).graph.nodes}

    assert not {aten.linear.default, aten.silu.default} & targets(None)
    assert {aten.linear.default, aten.silu.default} <= targets({})
    table = tangrad.export.default_decompositions()
    del table[aten.silu.default]
    assert aten.silu.default in targets(table)
    own = {aten.silu.default: lambda x: x / (1 + (-x).exp())}
    assert aten.exp.default in targets(own)


def test_decomposed_programs_are_trained() -> None:
    net, program = made()
    module = program.run_decompositions().module()
    x, y = tangrad.randn(3, 4), tangrad.randn(7, 2)
    module(x, y)[0].square().sum().backward()
    grads = {name: p.grad.clone() for name, p in module.named_parameters()}
    net = copy.deepcopy(net)
    net.zero_grad()
    net(x, y)[0].square().sum().backward()
    for name, parameter in net.named_parameters():
        tangrad.testing.assert_close(grads[name], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("train", [True, False])
def test_unflattened_programs_compute_the_same(train: bool) -> None:
    net, program = made(train=train)
    assert_computes(unflatten(program), net)
    assert_computes(unflatten(program.run_decompositions()), net)


def test_unflattened_modules_can_be_put_in_the_place_of_others() -> None:
    net, program = made(train=False)
    module = unflatten(program)
    assert module.head.type_name().rpartition(".")[2] == "Linear"
    module.head = net.head = tangrad.nn.Linear(4, 2)
    assert_computes(module, net)
    assert tangrad.is_grad_enabled()  # which what was in the place of `head` saw first


def test_a_program_that_ends_without_gradients_leaves_them_on() -> None:
    class Ends(tangrad.nn.Module):
        def forward(self, x: Any) -> Any:
            with tangrad.no_grad():
                return x * 2

    program = tangrad.export.export(Ends(), (tangrad.ones(2),))
    x = tangrad.ones(2, requires_grad=True)
    for module in (program.module(), program.run_decompositions().module(), unflatten(program)):
        assert not module(x).requires_grad
        assert tangrad.is_grad_enabled()


def test_trees_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch about its own code
        theirs = torch.export.unflatten(made(torch, train=False)[1])
    ours = unflatten(made(train=False)[1])
    assert set(ours.state_dict()) == set(theirs.state_dict())
    # PyTorch puts what runs without gradients into a module of its own.
    modules = {name for name, _ in theirs.named_modules() if not name.startswith("submod_")}
    assert modules <= {name for name, _ in ours.named_modules()}


def test_what_cannot_be_unflattened_is_named() -> None:
    with pytest.raises(TypeError, match="expected an ExportedProgram, got Linear"):
        unflatten(tangrad.nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="flat_args_adapter"):
        unflatten(made()[1], flat_args_adapter=object())


def test_conversions_are_exported_under_their_names() -> None:
    class Converts(tangrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.long().type(tangrad.float64) + x.half().float()

    program = roundtrip(export(Converts(), (tangrad.tensor([1.5]),)))
    assert program.module()(tangrad.tensor([2.5])).item() == 4.5
    assert tangrad.Tensor.float.__name__ == "float"


@pytest.mark.parametrize("name", ["relu", "silu", "softmax", "normalize", "leaky_relu"])
def test_functions_written_in_python_are_kept_in_files(name: str) -> None:
    function = getattr(tangrad.nn.functional, name)

    class Calls(tangrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x, dim=0) if name == "softmax" else function(x)

    x = tangrad.randn(3, 2)
    module = roundtrip(export(Calls(), (x,))).module()
    tangrad.testing.assert_close(module(x), Calls()(x))
    shown = tangrad.overrides.get_overridable_functions()[tangrad.nn.functional]
    assert any(function is one for one in shown)

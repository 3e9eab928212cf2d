"""`export`: a module becomes a graph that computes the same, for the sizes that may vary."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tangrad
from tangrad import Tensor, nn
from tangrad.export import Dim, ExportedProgram, dims, export, load, save
from tangrad.fx.experimental.proxy_tensor import make_fx


class Net(nn.Module):
    """Linear, norm with buffers, a reshape by the batch, and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.register_buffer("calls", tangrad.zeros(()), persistent=False)

    def forward(self, x: Any, scale: Any = None) -> Any:
        self.calls += 1
        y = self.norm(self.layer(x)).relu().view(x.shape[0] * 2, 2)
        return {"y": y * scale[0], "rest": (y.T, x.shape[0])}


class Says(nn.Module):
    """A module of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def exported(**kwargs: Any) -> tuple[Net, ExportedProgram]:
    """Return a network and its program, made with five rows."""
    tangrad.manual_seed(0)
    net, scale = Net(), [tangrad.tensor(2.0)]
    return net, export(net, (tangrad.randn(5, 3),), {"scale": scale}, **kwargs)


def same(got: Any, expected: Any) -> None:
    """Assert that nested results are equal."""
    leaves = (tangrad.utils._pytree.tree_leaves(v) for v in (got, expected))
    for a, b in zip(*leaves, strict=True):
        if isinstance(b, tangrad.Tensor):
            tangrad.testing.assert_close(a, b)
        else:
            assert a == b


def roundtrip(program: ExportedProgram) -> ExportedProgram:
    """Return a program as it is read from its file."""
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


@pytest.mark.parametrize("through", [lambda p: p, roundtrip], ids=["made", "read"])
def test_the_program_computes_what_the_module_does(through: Any) -> None:
    net, program = exported(dynamic_shapes={"x": {0: Dim("rows")}})
    module = through(program).module()
    for rows in (5, 2, 9):
        x, scale = tangrad.randn(rows, 3), [tangrad.tensor(3.0)]
        net.train(), net.norm.reset_running_stats(), module.norm.running_mean.zero_()
        same(module(x, scale=scale), net(x, scale=scale))


def test_exporting_leaves_the_module_as_it_was() -> None:
    state = tangrad.get_rng_state()
    net, program = exported(dynamic_shapes={"x": {0: Dim.AUTO}})
    assert (int(net.calls), int(net.norm.num_batches_tracked)) == (0, 0)
    assert (net.norm.running_mean == 0).all()
    assert state.shape == tangrad.get_rng_state().shape
    assert dict(program.named_parameters())["layer.weight"] is net.layer.weight


def test_the_signature_names_what_the_inputs_are() -> None:
    _, program = exported()
    signature = program.graph_signature
    assert signature.parameters == ("layer.weight", "layer.bias", "norm.weight", "norm.bias")
    assert signature.non_persistent_buffers == ("calls",)
    assert signature.user_inputs == ("x", "scale_0")
    assert signature.inputs_to_parameters["p_layer_weight"] == "layer.weight"
    assert set(program.state_dict) == set(Net().state_dict())
    assert set(program.constants) == {"calls"}
    assert "p_layer_weight" in str(program)
    with pytest.raises(RuntimeError, match=r"module\(\)"):
        program(tangrad.ones(5, 3))


def test_the_module_of_a_program_is_trained() -> None:
    _, program = exported()
    module = program.module()
    optimizer = tangrad.optim.SGD(module.parameters(), 0.1)
    x, losses = tangrad.randn(5, 3), []
    for _ in range(5):
        loss = (module(x, [tangrad.tensor(1.0)])["y"] - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(-1, x.shape[1] * x.shape[0]) + tangrad.arange(x.shape[0] * x.shape[1]),
        lambda x: x.expand(x.shape[0] * 2 - x.shape[0], -1)[: x.shape[0] - 1],
        lambda x: tangrad.ones(x.shape[1] * (x.shape[1] - 1) // 2) * x.sum() / x.shape[0],
    ],
)
def test_integers_are_computed_from_sizes(function: Any) -> None:
    rows, columns = dims("rows", "columns", min=2)
    shapes = {"x": (rows, columns)}
    module = export(Says(function), (tangrad.randn(3, 4),), dynamic_shapes=shapes).module()
    for shape in ((3, 4), (5, 2), (7, 9)):
        x = tangrad.randn(shape)
        tangrad.testing.assert_close(module(x), function(x))


def test_what_depends_otherwise_on_a_size_is_refused_or_kept_static() -> None:
    def halved(x):  # type: ignore[no-untyped-def]
        return x[: x.shape[0] // 2]

    x = tangrad.randn(5, 2)
    with pytest.raises(ValueError, match="n cannot vary"):
        export(Says(halved), (x,), dynamic_shapes=({0: Dim("n")},))
    program = export(Says(halved), (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert program.range_constraints == {}


def test_other_inputs_than_the_programs_are_refused() -> None:
    _, program = exported(dynamic_shapes={"x": {0: Dim("rows", min=2, max=8)}})
    module, scale = program.module(), [tangrad.tensor(1.0)]
    for x in (tangrad.ones(9, 3), tangrad.ones(5, 4), tangrad.ones(5, 3).double(), 3):
        with pytest.raises(AssertionError, match="Guard failed: input 0"):
            module(x, scale)
    with pytest.raises(TypeError, match="nested"):
        module(tangrad.ones(5, 3), tangrad.tensor(1.0))


@pytest.mark.parametrize("read", [bool, float, lambda t: t.item(), lambda t: t.tolist()])
def test_programs_that_ask_for_values_are_refused(read: Any) -> None:
    def decides(x):  # type: ignore[no-untyped-def]
        return x * 2 if read(x.sum()) else x

    with pytest.raises(RuntimeError, match="asks for a value of a tensor"):
        export(Says(decides), (tangrad.ones(2),))


def test_gradients_that_are_switched_off_stay_off() -> None:
    def partly(x):  # type: ignore[no-untyped-def]
        with tangrad.no_grad():
            y = x * 2
        return x * y

    module = roundtrip(export(Says(partly), (tangrad.ones(2),))).module()
    x = tangrad.tensor([3.0, 4.0], requires_grad=True)
    module(x).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]
    assert tangrad.is_grad_enabled()


def test_files_keep_further_files() -> None:
    file, wanted = io.BytesIO(), {"note": ""}
    save(exported()[1], file, extra_files={"note": "hello"})
    file.seek(0)
    load(file, extra_files=wanted)
    assert wanted == {"note": "hello"}


@pytest.mark.parametrize(
    ("op", "target", "args"),
    [
        ("call_function", "torch.hub.os.system", ["tuple", []]),
        ("call_function", "torch.load", ["tuple", []]),
        ("call_function", "operator.attrgetter", ["tuple", []]),
        ("call_function", "builtins.getattr", ["tuple", [1, "__class__"]]),
        ("call_method", "__reduce_ex__", ["tuple", []]),
        ("call_module", "x", ["tuple", []]),
    ],
)
def test_files_call_nothing_but_what_programs_call(op: str, target: str, args: Any) -> None:
    file = io.BytesIO()
    save(export(Says(tangrad.sin), (tangrad.ones(2),)), file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    program = json.loads(parts["program.json"])
    program["nodes"][1] |= {"op": op, "target": target, "args": args}
    parts["program.json"] = json.dumps(program).encode()
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"export\.load"):
        load(changed)


def test_what_is_no_program_is_named() -> None:
    with pytest.raises(ValueError, match="no program that export.save wrote"):
        load(io.BytesIO(b"nothing"))
    with pytest.raises(TypeError, match="expected an nn.Module"):
        export(tangrad.sin, (tangrad.ones(1),))
    with pytest.raises(TypeError, match="to be a tuple"):
        export(Says(tangrad.sin), tangrad.ones(1))
    with pytest.raises(ValueError, match="there are no arguments"):
        export(Says(tangrad.sin), (tangrad.ones(1),), dynamic_shapes={"y": {0: Dim("n")}})


class Sliced(nn.Module):
    """Adds a table of eight values to what it gets, and notes the sizes that it runs with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tangrad.arange(8.0)
        self.seen: set[int] = set()

    def forward(self, x: Any) -> Any:
        self.seen.add(x.shape[0])
        return x + self.table[: x.shape[0]]


@pytest.mark.parametrize(
    ("example", "least", "most"),
    [(7, None, 8), (8, None, 8), (2, None, 8), (6, 6, 8), (8, 7, 8), (3, 2, 3), (2, 2, 3)],
)
def test_a_program_is_tried_within_the_range_of_a_size(example: int, least: Any, most: int) -> None:
    module = Sliced()
    sizes = {0: Dim("n", min=least, max=most)}
    program = export(module, (tangrad.ones(example),), dynamic_shapes=(sizes,))
    assert min(module.seen) >= (least or 0)
    assert max(module.seen) <= most
    for made in (program, program.run_decompositions()):
        for size in range(least or 0, most + 1):
            same(made.module()(tangrad.ones(size)), module(tangrad.ones(size)))
        with pytest.raises(AssertionError, match="Guard failed"):
            made.module()(tangrad.ones(most + 1))


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC, Dim.AUTO(max=8), Dim.DYNAMIC(min=3)])
def test_the_greatest_size_of_a_hint_is_found(hint: Any) -> None:
    program = export(Sliced(), (tangrad.ones(7),), dynamic_shapes=({0: hint},))
    for size in (3, 6, 8):
        same(program.module()(tangrad.ones(size)), Sliced()(tangrad.ones(size)))
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(tangrad.ones(9))


def test_a_dim_beyond_what_a_program_takes_is_refused() -> None:
    for dim in (Dim("n"), Dim("n", max=9)):
        with pytest.raises(ValueError, match="n cannot vary"):
            export(Sliced(), (tangrad.ones(7),), dynamic_shapes=({0: dim},))


def test_sizes_computed_from_others_stay_within_their_range() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            size = x.shape[0] - 1
            return x[:-1] + tangrad.arange(8)[:size] + y.reshape(-1, 2).sum(1)[:size]

    n = Dim("n", max=4)
    shapes = ({0: 2 * n + 1}, {0: 4 * n})
    program = export(Pairs(), (tangrad.ones(7), tangrad.ones(12)), dynamic_shapes=shapes)
    for size in (2, 3, 4):
        x, y = tangrad.ones(2 * size + 1), tangrad.ones(4 * size)
        same(program.module()(x, y), Pairs()(x, y))


def test_integers_of_second_degree_are_found_from_sizes_below() -> None:
    class Squares(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            n, m = x.shape[0], y.shape[0]
            return tangrad.arange(n * n + 3 * m * n + m * (m - 1) // 2), (x, y)

    shapes = ({0: Dim("n", max=5)}, {0: Dim("m", min=3, max=6)})
    program = export(Squares(), (tangrad.ones(5), tangrad.ones(6)), dynamic_shapes=shapes)
    for n, m in ((2, 3), (5, 3), (4, 6), (3, 5)):
        x, y = tangrad.ones(n), tangrad.ones(m)
        same(program.module()(x, y), Squares()(x, y))


def test_parts_that_are_named_by_keywords(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("for", nn.Linear(2, 2))
            self.register_parameter("class", nn.Parameter(tangrad.ones(2)))

        def forward(self, x: Tensor) -> Tensor:
            return getattr(self, "for")(x) * getattr(self, "class")

    model, x = Named(), tangrad.ones(1, 2)
    program = export(model, (x,))
    assert tangrad.equal(program.module()(x), model(x))
    traced = tangrad.fx.symbolic_trace(model)
    assert tangrad.equal(traced(x), model(x))


def test_parts_are_told_apart_that_arguments_are_written_like() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("block1-0", "block1_0", "2x"):
                self.add_module(name, nn.Linear(2, 2))
            self.register_buffer("a b", tangrad.ones(2))

        def forward(self, p_block1_0_weight: Tensor) -> Tensor:
            y = getattr(self, "block1-0")(p_block1_0_weight) * getattr(self, "a b")
            return getattr(self, "2x")(self.block1_0(y))

    model, x = Alike(), tangrad.randn(3, 2)
    program = export(model, (x,))
    assert tangrad.equal(program.module()(x), model(x))
    assert tangrad.equal(program.run_decompositions().module()(p_block1_0_weight=x), model(x))


@pytest.mark.parametrize(
    "shapes",
    [
        lambda n: {"first": {0: n}, "xs": ({0: n}, {0: n}), "more": {"z": {0: n}}},
        lambda n: {"first": {0: n}, "xs_0": {0: n}, "xs_1": {0: n}, "z": {0: n}},
        lambda n: ({0: n}, ({0: n}, {0: n}), {"z": {0: n}}),
        lambda n: ({0: n}, {0: n}, {0: n}, {0: n}),
    ],
)
def test_shapes_of_arguments_in_any_number(shapes: Any) -> None:
    class Many(nn.Module):
        def forward(self, first: Tensor, *xs: Tensor, **more: Tensor) -> Tensor:
            return first + xs[0] * xs[1] - more["z"]

    def given(rows: int) -> Any:
        *several, last = (tangrad.randn(rows, 2) for _ in range(4))
        return tuple(several), {"z": last}

    args, kwargs = given(3)
    program = export(Many(), args, kwargs, dynamic_shapes=shapes(Dim("n")))
    args, kwargs = given(5)
    assert tangrad.equal(program.module()(*args, **kwargs), Many()(*args, **kwargs))
    with pytest.raises(ValueError, match="1 given for the 2 arguments of 'xs'"):
        export(Many(), args, kwargs, dynamic_shapes={"xs": (None,)})


def test_a_tensor_given_twice_is_two_inputs() -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(tangrad.ones(2))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a - 2 * b + self.w

    model, x, y = Apart(), tangrad.randn(3, 2), tangrad.randn(3, 2)
    program = export(model, (x, x), dynamic_shapes=({0: Dim("n")}, {0: Dim("n")}))
    assert tangrad.equal(program.module()(x[:2], y[:2]), model(x[:2], y[:2]))
    lowered = export(model, (x, x)).run_decompositions()
    assert tangrad.equal(lowered.module()(x, y), model(x, y))
    with_weight = export(model, (model.w, model.w))
    assert tangrad.equal(with_weight.module()(x[0], y[0]), model(x[0], y[0]))
    traced = make_fx(lambda a, b: a - 2 * b)(x, x)
    assert tangrad.equal(traced(x, y), x - 2 * y)


def test_a_buffer_of_another_shape_is_named() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", tangrad.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            if self.table.shape != x.shape:
                self.table = tangrad.arange(float(x.shape[0]))
            return x + self.table

    model, x = Lazy(), tangrad.ones(3)
    with pytest.raises(RuntimeError, match=r"buffer 'table', which is .*float32\[1\]"):
        export(model, (x,))
    assert model.table.shape == (1,)
    model(x)
    assert export(model, (x,)).module()(x).tolist() == [1.0, 2.0, 3.0]


def test_dimensions_that_vary_are_noted() -> None:
    class Called(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tangrad.cat([x, x]).sum(1) + x.new_ones(4, 1)

    program = export(Called(), (tangrad.ones(3, 2),), dynamic_shapes=({0: Dim("n")},))
    noted = {n.name: set(n.meta["varying"]) for n in program.graph.nodes if "varying" in n.meta}
    assert noted["x"] == noted["cat"] == noted["sum_1"] == {0}
    assert noted["new_ones"] == set()
    assert noted["add"] == {1}


def test_a_failed_save_leaves_what_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tangrad_fx.export.files as files

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "m.pt2"
    path.write_text("old")
    program = export(nn.Linear(2, 2), (tangrad.ones(1, 2),))
    monkeypatch.setattr(files.io, "BufferedWriter", full)
    with pytest.raises(OSError, match="No space"):
        tangrad.export.save(program, path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("m.pt2", "old")]


def test_names_of_modules_that_are_no_identifiers() -> None:
    model = nn.Sequential()
    for name in ("a-b", "a_b", '1st "one"'):
        model.add_module(name, nn.Linear(2, 2))
    x = tangrad.randn(3, 2)
    program = export(model, (x,))
    assert list(program.graph_signature.parameters) == [n for n, _ in model.named_parameters()]
    tangrad.testing.assert_close(program.module()(x), model(x))

"""`tangrad.onnx.export`: the file computes what the model does, and is plain ai.onnx."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402

import tangrad  # noqa: E402
from tangrad import Tensor, nn  # noqa: E402
from tangrad.export import Dim  # noqa: E402

F = nn.functional


def export(model: Any, *args: Any, **options: Any) -> Any:
    """Export with a comparison, on the example and on other sizes; check the file's validity."""
    program = tangrad.onnx.export(model, args, verify=True, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert {node.domain for node in program.model_proto.graph.node} <= {""}
    return program


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.first(x)))
        y = F.max_pool2d(F.silu(self.second(y)) + y, 2)
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Any) -> Any:
        a = F.relu(self.down(x))
        b = F.relu(self.deep(F.avg_pool2d(a, 2)))
        return self.out(tangrad.cat([a, self.up(b)], 1))


class Decoder(nn.Module):
    """Attention with a cache, as decoders of language models have."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any, key: Any, value: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 2, width // 2).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        k, v = tangrad.cat([key, k], 2), tangrad.cat([value, v], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width)), k, v


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


MODELS = {
    "residual": lambda: (Residual(), (tangrad.randn(2, 3, 8, 8),)),
    "u-net": lambda: (UNet(), (tangrad.randn(1, 1, 8, 8),)),
    "encoder": lambda: (encoder(), (tangrad.randn(2, 5, 8),)),
    "attention": lambda: (nn.MultiheadAttention(8, 2), (tangrad.randn(5, 2, 8),) * 3),
    "lstm": lambda: (nn.LSTM(3, 4, 2, bidirectional=True), (tangrad.randn(5, 2, 3),)),
    "gru": lambda: (nn.GRU(3, 4, batch_first=True), (tangrad.randn(2, 5, 3),)),
    "rnn": lambda: (nn.RNN(3, 4), (tangrad.randn(5, 2, 3),)),
    "cache": lambda: (Decoder(), (tangrad.randn(1, 1, 8), *[tangrad.randn(1, 2, 3, 4)] * 2)),
}


@pytest.mark.parametrize("opset", [13, 18, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize("name", MODELS)
def test_models_compute_the_same_as_files(name: str, opset: int) -> None:
    tangrad.manual_seed(0)
    model, args = MODELS[name]()
    program = export(model, *args, opset_version=min(opset, 23))
    if opset > 23:  # newer than onnxruntime may know
        program = tangrad.onnx.export(model, args, opset_version=opset)
    loaded = tangrad.onnx.load(program.model_proto)
    with tangrad.no_grad():
        expected = model.eval()(*args)
        found = loaded(*args)
    first = expected[0] if isinstance(expected, tuple) else expected
    tangrad.testing.assert_close(found[0] if isinstance(found, tuple) else found, first)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_declared_axes_vary_whatever_the_examples_size(size: int) -> None:
    batch, length = Dim("batch"), Dim("length")
    x = tangrad.randn(size, size, 8)
    program = export(encoder(), x, dynamic_shapes=({0: batch, 1: length},))
    (info,) = program.model_proto.graph.input
    assert [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim] == [
        "batch",
        "length",
        8,
    ]
    for shape in ((3, 7, 8), (1, 1, 8), (1, 4, 8)):
        (result,) = program(tangrad.randn(shape))
        assert result.shape == shape


def test_names_stand_for_dims() -> None:
    class Joined(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return tangrad.cat([a, b]) + a[:1]

    shapes = {"a": {0: "batch"}, "b": ("other", None)}
    program = export(Joined(), tangrad.randn(1, 2), tangrad.randn(4, 2), dynamic_shapes=shapes)
    declared = [i.type.tensor_type.shape.dim[0].dim_param for i in program.model_proto.graph.input]
    assert declared == ["batch", "other"]


@pytest.mark.parametrize("shapes", [{"b": {0: "n"}}, {"b": {0: "n"}, "a": None}])
def test_shapes_by_name_may_leave_arguments_out(shapes: Any) -> None:
    class Both(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b.sum(0)

    program = export(Both(), tangrad.randn(2), tangrad.randn(1, 2), dynamic_shapes=shapes)
    declared = [i.type.tensor_type.shape.dim[0] for i in program.model_proto.graph.input]
    assert (declared[0].dim_value, declared[1].dim_param) == (2, "n")


@pytest.mark.parametrize("shapes", [7, "n", {"input": {5: "n"}}, {"other": None}])
def test_shapes_that_fit_no_argument_are_refused(shapes: Any) -> None:
    with pytest.raises(ValueError, match="dynamic_shapes"):
        tangrad.onnx.export(nn.Linear(2, 2), (tangrad.randn(1, 2),), dynamic_shapes=shapes)


def test_dynamic_axes_of_the_older_exporter() -> None:
    program = tangrad.onnx.export(
        nn.LSTM(3, 4, batch_first=True),
        (tangrad.randn(1, 4, 3),),
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n"}, "y": [0]},
    )
    assert program(tangrad.randn(6, 4, 3))[0].shape == (6, 4, 4)
    assert program.model_proto.graph.output[0].name == "y"
    nothing = tangrad.onnx.export(nn.ReLU(), (tangrad.randn(2),), dynamo=False)
    assert nothing is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.logsigmoid(x * 40),
        lambda x: (x * 7) // -3,
        lambda x: tangrad.expm1(x * 1e-4),
        lambda x: tangrad.log1p(x.abs() * 1e-6),
        lambda x: tangrad.atan2(x, x.flip(0)),
        lambda x: F.gelu(x) + F.mish(x) + F.softplus(x),
        lambda x: x.masked_fill(x > 0, 0.0).cumsum(1).cumprod(0),
        lambda x: (x.var(1), x.std(), x.norm(dim=0), x.amax(), x.argmax(1)),
        lambda x: x.sort(1, descending=True),
        lambda x: x.topk(2),
        lambda x: tangrad.where(x > 0, x, 2.0) % 0.7,
        lambda x: F.cross_entropy(x, tangrad.tensor([0, 2, 1, 3])),
        lambda x: tangrad.einsum("ij,kj->ik", x, x),
        lambda x: F.pad(x, (1, 2, 0, 1), value=3.0).triu(1),
        lambda x: x[[0, 2]][:, 1:3].mT.unsqueeze(0).expand(2, -1, -1),
    ],
)
def test_functions_compute_the_same_as_files(function: Any) -> None:
    export(function, tangrad.randn(4, 5, generator=tangrad.Generator().manual_seed(0)))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [
    (1, 2), (0, 3), (-1, 2), (2, -2), (-1, -1), (1, 2, 3, 0), (-1, 2, 1, -2), (0, 0, 2, 1),
])  # fmt: skip
def test_padding_by_elements_computes_the_same_as_a_file(mode: Any, pad: tuple[int, ...]) -> None:
    x = tangrad.arange(2.0 * 3 * 5 * 6).reshape(2, 3, 5, 6)
    x = x if len(pad) == 4 else x[0]
    export(lambda y: F.pad(y, pad, mode=mode), x)
    export(lambda y: F.pad(y > 3, pad, mode=mode), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + tangrad.ones(x.shape[0], 4).cumsum(1),
        lambda x: x + x.new_zeros(x.shape[0], 4).cumsum(0),
        lambda x: x + tangrad.empty(x.shape[0], 4).fill_(2).cumsum(1),
        lambda x: x + tangrad.ones(4).cumsum(0),
        lambda x: x.repeat(2, 1, 2).permute(2, 1, 0).flip(0, 2),
    ],
)
def test_sizes_may_be_given_one_by_one(function: Any) -> None:
    class Called(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    export(Called(), tangrad.randn(3, 4), dynamic_shapes=({0: Dim("rows")},))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(7, 8), (16, 18)])
def test_pictures_are_resized_with_smoothing(mode: str, size: tuple[int, int]) -> None:
    class Resized(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.interpolate(x, size, mode=mode, antialias=True)

    export(Resized(), tangrad.randn(1, 2, 12, 13))
    export(Resized(), tangrad.randint(0, 256, (1, 3, 12, 13)).to(tangrad.uint8))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tangrad.eye(x.shape[0], x.shape[1]) + x,
        lambda x: tangrad.linspace(-1, 1, x.shape[0]).unsqueeze(1) * x,
        lambda x: tangrad.arange(0.5, x.shape[0], 1)[: x.shape[0]].sum() + x,
        lambda x: F.interpolate(x[None, None], (x.shape[0] * 2, x.shape[1] + 3)),
        lambda x: F.interpolate(x[None, None], scale_factor=2.0, recompute_scale_factor=True),
        lambda x: x.diagonal(1) + 1,
        lambda x: F.adaptive_avg_pool2d(x[None], (2, None)),
    ],
)
def test_numbers_are_computed_from_sizes(function: Any) -> None:
    class Called(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    shapes = ({0: Dim("rows", min=3, max=40), 1: Dim("columns", min=3, max=40)},)
    export(Called(), tangrad.randn(5, 6), dynamic_shapes=shapes)


def test_a_form_that_needs_a_number_is_refused_where_it_varies() -> None:
    class Shuffled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.as_strided((x.shape[0], 2), (3, 1))

    with pytest.raises(tangrad.onnx.OnnxError, match="size that varies as a number"):
        export(Shuffled(), tangrad.randn(4, 3), dynamic_shapes=({0: Dim("rows")},))


def test_writes_into_tensors_and_their_views_are_kept() -> None:
    class Writes(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.clone()
            y[:, 1] = 3.0
            y[:, 2:].mul_(2)
            z = y.t()
            z[0] += 1
            return y, z

    export(Writes(), tangrad.randn(4, 5))


@pytest.mark.parametrize("dtype", [tangrad.float16, tangrad.bfloat16, tangrad.float64])
def test_other_floating_dtypes(dtype: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)).to(dtype)
    program = export(model, tangrad.randn(2, 3).to(dtype))
    kinds = {tensor.data_type for tensor in program.model_proto.graph.initializer}
    assert tangrad.onnx.load(program.model_proto)(tangrad.randn(2, 3).to(dtype)).dtype == dtype
    assert kinds


def test_tied_weights_are_written_once() -> None:
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6))
    model[1].weight = model[0].weight
    program = export(model, tangrad.tensor([[1, 2]]))
    large = [t for t in program.model_proto.graph.initializer if list(t.dims) == [6, 4]]
    assert len(large) == 1


def test_nodes_are_named_by_their_modules() -> None:
    program = export(Residual(), tangrad.randn(1, 3, 8, 8))
    names = [node.name for node in program.model_proto.graph.node]
    assert "first/Conv" in names
    assert "head/Gemm" in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["linear", "constant", "0.weight", "Shape", "args_0"])
def test_no_name_of_an_output_breaks_the_file(name: str) -> None:
    program = export(nn.Sequential(nn.Linear(3, 4)), tangrad.randn(2, 3), output_names=[name])
    assert program.model_proto.graph.output[0].name == name


def test_names_that_clash_are_refused() -> None:
    with pytest.raises(tangrad.onnx.OnnxExporterError, match="not unique"):
        export(nn.ReLU(), tangrad.randn(2), input_names=["x"], output_names=["x"])


def test_flags_gradients_and_random_numbers_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    model[2].eval()
    state = tangrad.get_rng_state()
    export(model, tangrad.randn(2, 3, generator=tangrad.Generator().manual_seed(0)))
    assert [module.training for module in model] == [True, True, False]
    assert tangrad.equal(tangrad.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_failed_export_leaves_no_file_and_names_op_and_module(tmp_path: Path) -> None:
    class Spectrum(nn.Module):
        def forward(self, x: Any) -> Any:
            return tangrad.linalg.svdvals(x)

    model = nn.Sequential(nn.Identity(), Spectrum())
    path = tmp_path / "m.onnx"
    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="no form") as caught:
        tangrad.onnx.export(model, (tangrad.eye(3),), path)
    assert caught.value.module == "1"
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_whole_or_with_its_weights_beside_it(tmp_path: Path) -> None:
    model, x = nn.Linear(64, 64), tangrad.randn(2, 64)
    tangrad.onnx.export(model, (x,), tmp_path / "one.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["one.onnx"]
    program = tangrad.onnx.export(model, (x,))
    program.save(tmp_path / "two.onnx", external_data=True)
    assert (tmp_path / "two.onnx.data").exists()
    for name in ("one.onnx", "two.onnx"):
        tangrad.testing.assert_close(tangrad.onnx.load(tmp_path / name)(x), model(x))


def test_a_model_that_fits_no_message_is_written_as_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nn.Linear(64, 64), tangrad.randn(2, 64)
    program = tangrad.onnx.export(model, (x,))
    monkeypatch.setattr("tangrad_onnx.program._MOST", 4096)
    with pytest.raises(tangrad.onnx.errors.OnnxExporterError, match="external_data=True"):
        program.save(tmp_path / "one.onnx", external_data=False)
    with pytest.raises(tangrad.onnx.errors.OnnxExporterError, match="give a path"):
        program.save(io.BytesIO())
    assert not list(tmp_path.iterdir())
    program.save(tmp_path / "two.onnx")
    assert (tmp_path / "two.onnx.data").exists()


def test_users_give_ops_forms_of_their_own() -> None:
    model, x = nn.Sequential(nn.ReLU()), tangrad.randn(3)

    def form(g: Any, x: Any, **rest: Any) -> str:
        return g.op("Twice", x.name, domain="mine", by=2)

    program = tangrad.onnx.export(model, (x,), custom_translation_table={"relu": form})
    (node,) = program.model_proto.graph.node
    assert (node.domain, node.op_type) == ("mine", "Twice")
    assert {o.domain: o.version for o in program.model_proto.opset_import}["mine"] == 1
    tangrad.onnx.register_custom_op_symbolic("aten::relu", form, 13)
    try:
        program = tangrad.onnx.export(model, (x,), custom_opsets={"mine": 7})
    finally:
        tangrad.onnx.unregister_custom_op_symbolic("aten::relu", 13)
    assert {o.domain: o.version for o in program.model_proto.opset_import}["mine"] == 7


def test_programs_can_ask_whether_they_are_exported() -> None:
    seen = []

    class Asks(nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(tangrad.onnx.is_in_onnx_export())
            return x + 1

    export(Asks(), tangrad.randn(2))
    assert any(seen)
    assert not tangrad.onnx.is_in_onnx_export()


def test_verification_names_what_differs() -> None:
    def wrong(g: Any, x: Any, **rest: Any) -> str:
        return g.op("Neg", x.name)

    with pytest.raises(tangrad.onnx.OnnxExporterError, match="differs") as caught:
        export(nn.Sequential(nn.ReLU()), tangrad.ones(2), custom_translation_table={"relu": wrong})
    assert caught.value.operator == "Neg"


def test_verification_names_the_first_module_that_differs() -> None:
    def wrong(g: Any, x: Any, **rest: Any) -> str:
        return g.op("Neg", x.name)

    parts = [nn.Linear(2, 2), nn.Sequential(nn.Tanh(), nn.ReLU()), nn.Linear(2, 2), nn.Sigmoid()]
    with pytest.raises(tangrad.onnx.OnnxExporterError, match="'tanh' is the first value") as caught:
        export(nn.Sequential(*parts), tangrad.ones(2, 2), custom_translation_table={"tanh": wrong})
    assert (caught.value.operator, caught.value.module) == ("Neg", "1.0")


def test_outputs_are_named_where_they_are_computed() -> None:
    def model(x: Any, y: Any) -> Any:
        z = x + y
        return z, z.relu(), z, x

    proto = export(model, tangrad.ones(2), tangrad.ones(2)).model_proto
    names = [o.name for o in proto.graph.output]
    assert [n.op_type for n in proto.graph.node] == ["Add", "Relu", "Identity", "Identity"]
    assert [n.output[0] for n in proto.graph.node] == names
    assert [n.input[0] for n in proto.graph.node[1:]] == [names[0], names[0], "x"]


@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (nn.ReLU(inplace=True), "Relu"),
        (nn.ReLU6(inplace=True), "Clip"),
        (nn.Hardtanh(), "Clip"),
        (nn.LeakyReLU(0.2, inplace=True), "LeakyRelu"),
        (nn.PReLU(3), "PRelu"),
        (nn.ELU(0.5), "Elu"),
        (nn.SELU(inplace=True), "Selu"),
        (nn.CELU(inplace=True), "Celu"),
        (nn.Softplus(), "Softplus"),
        (nn.Mish(), "Mish"),
        (nn.Hardswish(inplace=True), "HardSwish"),
        (nn.Hardsigmoid(inplace=True), "HardSigmoid"),
        (nn.GELU(), "Gelu"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_activation_is_its_operator(layer: nn.Module, operator: str) -> None:
    x = tangrad.randn(2, 3, 4)
    program = tangrad.onnx.export(nn.Sequential(nn.Conv1d(3, 3, 1), layer), (x,), opset_version=20)
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert [kind for kind in kinds if kind not in {"Conv", "Reshape"}] == [operator]
    program.verify()


def test_an_activation_in_bfloat16_is_written_for_older_opsets() -> None:
    proto = tangrad.onnx.export(nn.ELU(), (tangrad.ones(2, dtype=tangrad.bfloat16),)).model_proto
    onnx.checker.check_model(proto, full_check=True)
    assert "Elu" not in {node.op_type for node in proto.graph.node}


def test_users_forms_are_those_of_in_place_ops_too() -> None:
    def form(g: Any, x: Any, **rest: Any) -> str:
        return g.op("Twice", x.name, domain="mine")

    program = tangrad.onnx.export(
        nn.ReLU(inplace=True), (tangrad.randn(3),), custom_translation_table={"relu": form}
    )
    assert [node.op_type for node in program.model_proto.graph.node] == ["Twice"]


@pytest.mark.parametrize("opset", [12, 1000])
def test_other_opsets_are_refused(opset: int) -> None:
    with pytest.raises(tangrad.onnx.OnnxExporterError, match="opset_version"):
        export(nn.ReLU(), tangrad.ones(2), opset_version=opset)


def test_exported_programs_and_loaded_models_are_exported_again() -> None:
    x = tangrad.randn(2, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    program = export(tangrad.export.export(model, (x,)))
    again = export(tangrad.onnx.load(program.model_proto), x)
    tangrad.testing.assert_close(again(x)[0], model(x).detach())


def test_the_report_lists_operators(tmp_path: Path) -> None:
    export(nn.Linear(2, 2), tangrad.ones(1, 2), report=True, artifacts_dir=tmp_path)
    assert "| Gemm | 1 |" in (tmp_path / "onnx_export_report.md").read_text("utf-8")


def test_files_are_loaded_saved_and_inspected_by_their_suffix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tangrad import cli

    model, x = nn.Linear(3, 2), tangrad.randn(4, 3)
    path = str(tmp_path / "m.onnx")
    tangrad.save(tangrad.onnx.export(model, (x,)), path)
    tangrad.testing.assert_close(tangrad.load(path)(x), model(x))
    assert cli.main(["inspect", path]) == 0
    told = capsys.readouterr().out
    for line in ("ai.onnx: 18", "Gemm: 1", "float32[4, 3]", "not supported: none"):
        assert line in told


def test_constants_are_stored_as_they_are() -> None:
    program = export(lambda x: x + 2.5, tangrad.ones(2))
    (number,) = program.model_proto.graph.initializer
    assert onnx.numpy_helper.to_array(number) == np.float32(2.5)
    assert list(number.dims) == []


@pytest.mark.parametrize("external", [False, True])
def test_a_failed_write_leaves_what_stood_there(
    external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tangrad_onnx.program as program

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "m.onnx"
    path.write_text("old")
    made = tangrad.onnx.export(nn.Linear(20, 20), (tangrad.ones(1, 20),))
    monkeypatch.setattr(program.io, "BufferedWriter", full)
    monkeypatch.setattr(program, "save_model", full)
    with pytest.raises(OSError, match="No space"):
        made.save(path, external_data=external)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("m.onnx", "old")]


def test_a_program_runs_on_after_its_weights_were_written_beside_it(tmp_path: Path) -> None:
    x = tangrad.ones(1, 64)
    made = tangrad.onnx.export(nn.Linear(64, 64), (x,))
    expected = made(x)[0]
    made.save(tmp_path / "m.onnx", external_data=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert tangrad.equal(made(x)[0], expected)
    tangrad.testing.assert_close(
        tangrad.onnx.load(tmp_path / "m.onnx")(x).detach(), expected, atol=1e-5, rtol=1e-5
    )


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "m.onnx"
    link.symlink_to("/dev/null")
    tangrad.onnx.export(nn.Linear(2, 2), (tangrad.ones(1, 2),), link)
    assert Path("/dev/null").is_char_device()


def test_a_model_goes_into_an_open_file() -> None:
    file = io.BytesIO()
    model, x = nn.Linear(2, 3), tangrad.randn(4, 2)
    tangrad.onnx.export(model, (x,), file, dynamo=False)
    evaluator = ReferenceEvaluator(onnx.load_from_string(file.getvalue()))
    (found,) = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})
    assert tangrad.from_numpy(found).allclose(model(x), atol=1e-6)
    with pytest.raises(tangrad.onnx.errors.OnnxExporterError, match="give a path"):
        tangrad.onnx.export(model, (x,), dynamo=True).save(io.BytesIO(), external_data=True)


class Turned(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        angle = by.item()
        turn = tangrad.tensor([[[1.0, angle, 0.0], [-angle, 1.0, 0.0]]])
        grid = nn.functional.affine_grid(turn, (1, 1, 3, 4), align_corners=False)
        return nn.functional.grid_sample(x, grid, align_corners=False) + tangrad.ones(4)


def test_a_traced_model_samples_between_elements() -> None:
    pytest.importorskip("tangrad_jit")
    file = io.BytesIO()
    x, by = tangrad.rand(1, 1, 3, 4), tangrad.tensor(0.2)
    with pytest.warns(tangrad.jit.TracerWarning):
        tangrad.onnx.export(Turned(), (x, by), file, dynamo=False, input_names=["x", "by"])
    evaluator = ReferenceEvaluator(onnx.load_from_string(file.getvalue()))
    given = {"x": x.numpy(), "by": by.numpy()}
    (found,) = evaluator.run(None, {k: given[k] for k in evaluator.input_names})
    assert tangrad.from_numpy(found).allclose(Turned()(x, by), atol=1e-5)

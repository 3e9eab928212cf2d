"""`tangrad.onnx.load`: the module that it gives, and the files that it refuses."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tangrad  # noqa: E402
from tangrad.export import export  # noqa: E402
from tangrad.serialization import SerializationError  # noqa: E402
from tangrad_onnx.operators import windows  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
LINEAR = """
g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6}, float[2] b = {1,-1}> {
    a = MatMul(x, w)
    y = Add(a, b)
}"""


def model(text: str, head: str = HEAD) -> Any:
    return onnx.parser.parse_model(head + text)


def test_weights_are_parameters_that_train() -> None:
    module = tangrad.onnx.load(model(LINEAR))
    assert sorted(name for name, _ in module.named_parameters()) == ["b", "w"]
    module(tangrad.ones(4, 3)).sum().backward()
    assert module.w.grad.tolist() == [[4.0, 4.0]] * 3
    assert module.b.grad.tolist() == [4.0, 4.0]


def test_the_code_is_python_that_reads_as_the_graph() -> None:
    code = tangrad.onnx.load(model(LINEAR)).code
    assert code.splitlines() == [
        "def forward(self, x):",
        "    a = ops.MatMul(x, self.w);  x = None",
        "    y = ops.Add(a, self.b);  a = None",
        "    return (y,)",
    ]


def test_a_loaded_module_can_be_copied_pickled_and_exported() -> None:
    module = tangrad.onnx.load(model(LINEAR))
    x = tangrad.randn(2, 3)
    expected = module(x)
    assert tangrad.equal(copy.deepcopy(module)(x), expected)
    assert tangrad.equal(pickle.loads(pickle.dumps(module))(x), expected)
    assert tangrad.equal(export(module, (x,)).module()(x), expected)


def test_sizes_are_computed_apart_from_tensors() -> None:
    text = """g (float[N,M] x) => (float[K] y) <int64[1] one = {-1}> {
        s = Shape(x)
        p = ReduceProd <keepdims=1> (s)
        y = Reshape(x, p)
    }"""
    module = tangrad.onnx.load(model(text))
    program = export(module, (tangrad.randn(2, 3),))  # would refuse to read a tensor
    assert program.module()(tangrad.ones(2, 3)).shape == (6,)


def test_if_and_loop_see_the_values_around_them() -> None:
    text = """g (float[2] x, int64 n, bool c) => (float[2] y, float[K,2] all) {
        z, all = Loop <body = b (int64 i, bool go, float[2] s)
                => (bool more, float[2] t, float[2] u) {
            t = Add(s, x)
            u = Identity(t)
            more = Identity(go)
        }> (n, c, x)
        y = If (c) <then_branch = t () => (float[2] p) { p = Add(z, x) },
                    else_branch = e () => (float[2] q) { q = Identity(x) }>
    }"""
    module = tangrad.onnx.load(model(text))
    x = tangrad.tensor([1.0, 2.0])
    y, rows = module(x, tangrad.tensor(3), tangrad.tensor(True))
    assert y.tolist() == [5.0, 10.0]
    assert rows.tolist() == [[2.0, 4.0], [3.0, 6.0], [4.0, 8.0]]
    y, rows = module(x, tangrad.tensor(0), tangrad.tensor(False))
    assert y.tolist() == [1.0, 2.0]
    assert rows.shape == (0, 2)


def test_attributes_of_functions_are_those_of_their_call() -> None:
    text = """g (float[2] x) => (float[2] y) {
        a = here.f <slope = 0.5> (x)
        y = here.f (a)
    }
    <domain: "here", opset_import: ["": 17]> f <slope: float = 2.0> (v) => (w) {
        w = LeakyRelu <alpha: float = @slope> (v)
    }"""
    head = '<ir_version: 9, opset_import: ["": 17, "here": 1]>'
    module = tangrad.onnx.load(model(text, head))
    assert module(tangrad.tensor([-4.0, 3.0])).tolist() == [-4.0, 3.0]


@pytest.mark.parametrize(
    ("opset", "attributes", "expected"),
    [(11, {}, [[0.25, 0.25], [0.25, 0.25]]), (13, {}, [[0.5, 0.5], [0.5, 0.5]])],
)
def test_an_operator_means_what_its_version_says(
    opset: int, attributes: dict[str, Any], expected: Any
) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], **attributes)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 2]) for n in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    assert tangrad.onnx.load(made)(tangrad.zeros(1, 2, 2)).tolist() == [expected]


BAD = {
    "it has no graph": "",
    "written twice": "g (float[2] x) => (float[2] y) { y = Relu(x)  y = Neg(x) }",
    "depends on itself": "g (float[2] x) => (float[2] y) { a = Neg(y)  y = Relu(a) }",
    "nothing has computed it": "g (float[2] x) => (float[2] y) { y = Add(x, missing) }",
    "there is no operator 'Nonsense'": "g (float[2] x) => (float[2] y) { y = Nonsense(x) }",
    "of 'strange'": "g (float[2] x) => (float[2] y) { y = strange.Relu(x) }",
    "has no attribute 'alpha'": "g (float[2] x) => (float[2] y) { y = Relu <alpha=1.0> (x) }",
    "lacks the attribute 'to'": "g (float[2] x) => (float[2] y) { y = Cast(x) }",
    "takes 1 to 1 values": "g (float[2] x) => (float[2] y) { y = Relu(x, x) }",
    "has another type": "g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha=1> (x) }",
}


@pytest.mark.parametrize(("message", "text"), BAD.items())
def test_what_is_no_valid_model_is_refused(message: str, text: str) -> None:
    made = model(text) if text else onnx.ModelProto()
    content = made.SerializeToString()
    with pytest.raises(tangrad.onnx.OnnxError, match=message) as caught:
        tangrad.onnx.load(content)
    assert isinstance(caught.value, SerializationError)
    if text:
        assert caught.value.node is not None
        assert caught.value.operator is not None


def test_a_newer_opset_is_refused() -> None:
    made = model(LINEAR)
    made.opset_import[0].version = 1000
    with pytest.raises(tangrad.onnx.OnnxError, match="knows up to"):
        tangrad.onnx.load(made)


def test_errors_of_a_run_name_the_node_and_its_operator(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = "g (float[N] x, int64[N] i) => (float[N] y) { y = Add(x, i) }"
    made = model(text)
    made.graph.node[0].name = "the_sum"
    onnx.save(made, path)
    module = tangrad.onnx.load(path)
    with pytest.raises(tangrad.onnx.OnnxRunError, match="different dtypes") as caught:
        module(tangrad.ones(2), tangrad.ones(2, dtype=tangrad.int64))
    assert (caught.value.node, caught.value.operator) == ("the_sum", "Add")
    assert caught.value.file == str(path)
    with pytest.raises(tangrad.onnx.OnnxRunError, match=r"takes 2 inputs, \['x', 'i'\]; 1 were"):
        module(tangrad.ones(2))
    with pytest.raises(tangrad.onnx.OnnxRunError, match="dtype float64; the model takes float32"):
        module(tangrad.ones(2).double(), tangrad.ones(2, dtype=tangrad.int64))
    with pytest.raises(tangrad.onnx.OnnxRunError, match=r"has shape \[2, 1\]"):
        module(tangrad.ones(2, 1), tangrad.ones(2, dtype=tangrad.int64))


def test_functions_that_grow_exponentially_are_refused_at_once() -> None:
    functions = [
        f'<domain: "here", opset_import: ["": 17, "here": 1]> f{i} (v) => (w) '
        f"{{ t = here.f{i + 1} (v) w = here.f{i + 1} (t) }}"
        for i in range(59)
    ]
    functions.append('<domain: "here", opset_import: ["": 17]> f59 (v) => (w) { w = Neg(v) }')
    text = f"g (float[2] x) => (float[2] y) {{ y = here.f0(x) }} {' '.join(functions)}"
    with pytest.raises(tangrad.onnx.OnnxError, match="expand to more than"):
        tangrad.onnx.load(model(text, '<ir_version: 9, opset_import: ["": 17, "here": 1]>'))


def test_a_function_that_calls_itself_is_refused() -> None:
    text = """g (float[2] x) => (float[2] y) { y = here.f(x) }
    <domain: "here", opset_import: ["": 17, "here": 1]> f (v) => (w) { w = here.f(v) }"""
    with pytest.raises(tangrad.onnx.OnnxError, match="calls itself"):
        tangrad.onnx.load(model(text, '<ir_version: 9, opset_import: ["": 17, "here": 1]>'))


@pytest.mark.parametrize("dims", [[2**40], [-1], [3]])
def test_a_tensor_that_does_not_fill_its_shape_takes_no_memory(dims: list[int]) -> None:
    made = model(LINEAR)
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend(dims)
    with pytest.raises(tangrad.onnx.OnnxError, match=r"needs|negative"):
        tangrad.onnx.load(made)


def external(folder: Path, location: str, **fields: int) -> Path:
    """Write a model whose weight is said to lie elsewhere."""
    made = model(LINEAR)
    weight = made.graph.initializer[0]
    for field in ("float_data", "raw_data"):
        weight.ClearField(field)
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        weight.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_external_data_are_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"1234" + WEIGHT.tobytes())
    module = tangrad.onnx.load(external(tmp_path, "data.bin", offset=4, length=24))
    np.testing.assert_array_equal(module.w.detach().numpy(), WEIGHT)


def test_model_and_data_may_be_links_into_one_folder(tmp_path: Path) -> None:
    blobs, shown = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    shown.mkdir(parents=True)
    external(blobs, "data.bin").rename(blobs / "abc")
    (blobs / "def").write_bytes(WEIGHT.tobytes())
    (shown / "m.onnx").symlink_to(blobs / "abc")
    (shown / "data.bin").symlink_to(blobs / "def")
    module = tangrad.onnx.load(shown / "m.onnx")
    np.testing.assert_array_equal(module.w.detach().numpy(), WEIGHT)


@pytest.mark.parametrize("location", ["../data.bin", "a/../../data.bin", "", "link.bin", "pipe"])
def test_external_data_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "data.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "data.bin")
    os.mkfifo(folder / "pipe")
    with pytest.raises(tangrad.onnx.OnnxError, match="external data") as caught:
        tangrad.onnx.load(external(folder, location))
    assert caught.value.file == str(folder / "m.onnx")


def test_external_data_of_an_absolute_path_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(tangrad.onnx.OnnxError, match="outside of the model's folder"):
        tangrad.onnx.load(external(tmp_path, str(tmp_path / "data.bin")))


@pytest.mark.parametrize("fields", [{"offset": 100}, {"offset": -4}, {"length": 2**40}])
def test_external_data_that_are_too_short_are_refused(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    (tmp_path / "data.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(tangrad.onnx.OnnxError, match="bytes"):
        tangrad.onnx.load(external(tmp_path, "data.bin", **fields))


def test_strange_names_are_no_code() -> None:
    made = model(LINEAR)
    evil = "x): __import__('os').abort()\n#"
    made.graph.input[0].name = evil
    made.graph.node[0].input[0] = evil
    made.graph.node[0].output[0] = made.graph.node[1].input[0] = "'''\n import os"
    made.graph.initializer[0].name = made.graph.node[0].input[1] = "forward"
    module = tangrad.onnx.load(made)
    assert "import os\n" not in module.code
    assert module(tangrad.ones(1, 3)).tolist() == [[10.0, 11.0]]


def test_mutated_files_are_loaded_or_refused() -> None:
    content = model(LINEAR).SerializeToString()
    draw = np.random.default_rng(0)
    for _ in range(300):
        mutated = bytearray(content)
        for _ in range(draw.integers(1, 4)):
            mutated[draw.integers(len(mutated))] = draw.integers(256)
        try:
            module = tangrad.onnx.load(bytes(mutated[: draw.integers(1, len(mutated) + 1)]))
            module(tangrad.ones(2, 3))
        except tangrad.onnx.OnnxError:
            pass


def test_names_that_are_no_text_are_refused() -> None:
    content = model(LINEAR).SerializeToString()
    for name in (b"x", b"MatMul"):
        assert name in content
        with pytest.raises(tangrad.onnx.OnnxError):
            tangrad.onnx.load(content.replace(name, b"\xff" * len(name)))


@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 1, 2], [0, 0, 0, 0]])
@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_pooling_without_indices_computes_none(
    pads: list[int], size: int, ceil_mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
        g (float[1,2,{size},{size}] x) => (float[1,2,h,w] y)
        {{ y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads={pads},ceil_mode={ceil_mode}>(x) }}"""
    module, x = tangrad.onnx.load(model(text)), tangrad.randn(1, 2, size, size)
    monkeypatch.setattr(windows, "_original", pytest.fail)
    found = module(x)
    (wanted,) = ReferenceEvaluator(model(text)).run(None, {"x": x.numpy()})
    assert found.equal(tangrad.from_numpy(wanted))


def test_a_run_that_is_over_holds_no_inputs() -> None:
    module = tangrad.onnx.load(model("g (float[N] x) => (float[N] y) { y = Neg(x) }"))
    x = tangrad.ones(1 << 19)
    alive = weakref.ref(x)
    gc.disable()
    try:
        result = module(x)
        del x
        assert alive() is None
    finally:
        gc.enable()
    assert result.sum() == -(1 << 19)


def test_small_and_text_dtypes_are_arrays() -> None:
    made = model("g (float[3] x) => (float8e4m3fn[3] y) { y = Cast <to=17> (x) }")
    made.opset_import[0].version = 19
    result = tangrad.onnx.load(made)(tangrad.tensor([1.0, 1.06, 1e9]))
    assert isinstance(result, np.ndarray)
    assert result.astype(np.float32).tolist() == [1.0, 1.0, 448.0]


def test_quantized_products_are_exact() -> None:
    text = """g (uint8[N,K] a, int8[K,M] b, uint8 za) => (int32[N,M] y) {
        y = MatMulInteger(a, b, za)
    }"""
    draw = np.random.default_rng(1)
    a = draw.integers(0, 256, (3, 1000), dtype=np.uint8)
    b = draw.integers(-128, 128, (1000, 4), dtype=np.int8)
    y = tangrad.onnx.load(model(text))(*map(tangrad.tensor, (a, b, np.uint8(7))))
    expected = (a.astype(np.int64) - 7) @ b.astype(np.int64)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_the_public_name_is_cheap_to_import() -> None:
    program = "import tangrad.onnx, sys; print('onnx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


def test_an_initializer_may_be_read_from_numpy() -> None:
    made = model(LINEAR)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT, "w"))
    assert tangrad.onnx.load(made).w.tolist() == WEIGHT.tolist()


def test_what_a_model_makes_is_made_where_it_is() -> None:
    made = tangrad.onnx.load(
        model(
            "g (float[N] x) => (float[N] y)"
            " { s = Shape(x) c = ConstantOfShape<value = float[1] {2.0}>(s) y = Add(c, x) }"
        )
    )
    assert made(tangrad.ones(3, device="reference")).device.type == "reference"
    assert made(tangrad.ones(3)).device.type == "cpu"

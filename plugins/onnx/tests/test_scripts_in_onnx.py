"""Scripts whose branches and loops depend on values: written as If and Loop, run by onnxruntime."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("tangrad_jit")

from onnx.reference import ReferenceEvaluator  # noqa: E402

import tangrad  # noqa: E402
from tangrad import Tensor, nn  # noqa: E402
from tangrad.utils import _pytree  # noqa: E402


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = self.layer(x)
        elif x.max() > 1:
            y = x - 1
        else:
            y = x * 2
        return y + 1


class EarlyReturns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x[0] > 0:
            return x + 1
        y = x * 3
        if x[1] > 0:
            if x[2] > 0:
                return y.exp()
            y = y - 4
        return y - 1


class Loops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        i = 0
        total = 0.0
        while x.sum() < 30 and i < 9:
            for _ in range(i):
                x = x + 0.1
            j = 0
            while bool(x.max() < 3) and j < i:
                x = x + 0.5
                j += 1
            if i % 2 == 0:
                total += x.sum().item()
            else:
                total = total * 0.5
            x = x.abs() + 1
            i += 1
        return x * total + i / 2


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for k in range(int(x.abs().sum())):
            x = x * 0.5 + k
        return x


class Leaving(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        k = 0
        while True:
            k += 1
            if k % 2 == 0:
                continue
            x = x.abs() + k
            if x.sum() > 40:
                if x.max() > 20:
                    x = x - 1
                break
        for i in range(1000000):
            if i > 3:
                break
            x = x + i
        return x * k


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, int, float, bool]:
        n = 0
        best = -1.0
        for layer in self.layers:
            y = layer(x)
            most = float(y.max())
            if most > best:
                best = most
                n += 1
            x = y
        low = min(best, 0.25) + (best % 0.75) * (n // 2)
        return x, n, low + best, n > 1 or not best > 0


@tangrad.jit.script
def helper(x: Tensor, by: float) -> Tensor:
    if x.sum() > 0:
        return x * by
    return -x


class Called(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = helper(x, 2.5) if x.max() > 1 else x - 3
        held = [x, y]
        if y.max() > 0:
            y = held[0] + 1
        if y.min() > 0:
            held.append(y * 2)
        else:
            held.append(y * 3)
        return helper(tangrad.cat(held), 0.5)


X = tangrad.tensor([0.5, 1.5, 0.25])
MODELS = [Branch, EarlyReturns, Loops, Rounds, Leaving, Numbers]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("opset", [13, 21])
def test_branches_and_loops_on_values_are_kept(kind: Any, opset: int) -> None:
    script = tangrad.jit.script(kind())
    program = tangrad.onnx.export(script, (X,), opset_version=opset, verify=True)
    onnx.checker.check_model(program.model_proto, full_check=True)
    read = tangrad.onnx.load(program.model_proto)
    for x in (X, -X, 3 * X, 0 * X, tangrad.tensor([-1.0, 2.0, 0.5])):
        expected = [tangrad.as_tensor(v).detach() for v in _pytree.tree_leaves(script(x))]
        loaded = read(x)
        loaded = loaded if isinstance(loaded, tuple) else (loaded,)
        for a, b, c in zip(expected, program(x), loaded, strict=True):
            tangrad.testing.assert_close(b, a, check_dtype=a.ndim > 0)
            tangrad.testing.assert_close(c.detach(), a, check_dtype=a.ndim > 0)
    kinds = {node.op_type for node in program.model_proto.graph.node}
    assert kinds & {"If", "Loop"}


def test_a_list_that_grows_in_a_branch_is_refused() -> None:
    with pytest.raises(Exception, match="list or dict from outside is changed"):
        tangrad.onnx.export(tangrad.jit.script(Called()), (X,))


def test_a_dtype_is_what_it_is_with_plain_numbers() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            v = x.sum().item()
            if v > 0:
                v = v * 2
            return x.sum() * v, x.half() + v

    script = tangrad.jit.script(Mixed())
    first, second = tangrad.onnx.export(script, (X,))(X)
    assert (first.dtype, second.dtype) == (tangrad.float32, tangrad.float16)
    tangrad.testing.assert_close((first, second), script(X))


def test_traces_and_eager_calls_are_as_before() -> None:
    script = tangrad.jit.script(Branch())
    assert tangrad.equal(script(-X), script.forward(-X))
    tangrad.onnx.export(script, (X,))
    with tangrad.no_grad():
        assert tangrad.equal(script(-X), -X * 2 + 1)


class Reads(nn.Module):
    """Asks for values, and goes one way."""

    def forward(self, x: Tensor) -> Tensor:
        factor = x.max().item()
        return x * 2 + factor if x.sum() > 0 else x


def test_the_older_exporter_keeps_values_that_are_read() -> None:
    x = tangrad.ones(3, 2)
    with pytest.raises(RuntimeError, match="asks for a value"):
        tangrad.onnx.export(Reads(), (x,))
    given = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}, "dynamo": False}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reads.onnx"
        with pytest.warns(tangrad.jit.TracerWarning):
            assert tangrad.onnx.export(Reads(), (x,), path, **given) is None
        evaluator = ReferenceEvaluator(str(path))
        (found,) = evaluator.run(None, {"x": tangrad.full((5, 2), 3.0).numpy()})
    assert found.tolist() == [[7.0, 7.0]] * 5


def test_a_traced_module_is_written_for_other_sizes() -> None:
    traced = tangrad.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), tangrad.ones(3, 2))
    x = tangrad.randn(4, 2)
    proto = tangrad.onnx.export(traced, (x,), dynamic_shapes=[{0: tangrad.export.Dim("n")}])
    evaluator = ReferenceEvaluator(proto.model_proto)
    for given in (x, tangrad.randn(7, 2)):
        (found,) = evaluator.run(None, {evaluator.input_names[0]: given.numpy()})
        assert tangrad.from_numpy(found).allclose(traced(given), atol=1e-6)

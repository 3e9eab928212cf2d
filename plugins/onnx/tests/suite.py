"""The backend test suite of the onnx package: its cases, and what a result must be."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tangrad_onnx.values import has_tensor, to_array, to_tensor

FOLDER = Path(onnx.__file__).parents[1]

# The definition of this operator says that implementations draw different numbers, with a seed
# too: its results are checked for shape, dtype and being zeros and ones.
RANDOM = "test_bernoulli"

# What NumPy's sums in half precision lose: the exact result is as far from the expected one.
MISSES = {
    "test_attention_4d_causal_fp16": "expected values are 2 units in the last place off",
    "test_attention_4d_causal_fp16_expanded": "expected values are 2 units in the last place off",
}
# The suite takes its expected values of numbers that two or four bits cannot hold from ml_dtypes,
# which keeps their low bits before 0.7, as C's conversions here, and gives 0 since.
_OF_FEW_BITS = re.compile(r"test_cast(like)?_FLOAT(16)?_to_U?INT[24](_expanded)?")


@cache
def _keeps_low_bits() -> bool:
    with np.errstate(invalid="ignore"):
        few = np.array([5.0], np.float32).astype(ml_dtypes.uint2)
    return int(few.astype(np.int64)[0]) == 1


def miss(name: str) -> str:
    """Return why the suite's expected values of a case are missed, or ""."""
    if _OF_FEW_BITS.fullmatch(name) and not _keeps_low_bits():
        return "expected values of numbers out of range depend on ml_dtypes"
    return MISSES.get(name, "")


class Case(NamedTuple):
    """A case.

    Attributes:
        name: of the case.
        kind: of the suite: node, simple, pytorch-converted, pytorch-operator or real.
        test: as the suite has it.
    """

    name: str
    kind: str
    test: Any

    def model(self) -> onnx.ModelProto:
        """Return the case's model."""
        if self.test.model is not None:
            return self.test.model
        if self.test.url:
            return onnx.load(FOLDER / self.test.url)
        return onnx.load(Path(self.test.model_dir) / "model.onnx")

    def data(self, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield inputs and expected outputs."""
        if self.test.data_sets is not None:
            for inputs, outputs in self.test.data_sets:
                yield [as_value(x) for x in inputs], [as_value(x) for x in outputs]
        elif self.test.url:
            yield _dummy(model), [_read(_expected_of(self.test.url), None)]
        else:
            for folder in sorted(Path(self.test.model_dir).glob("test_data_set_*")):
                yield _values(folder, "input", model), _values(folder, "output", model)


def _expected_of(url: str) -> Path:
    return FOLDER / url.replace(".onnx", "_output_0.pb")


def _dummy(model: onnx.ModelProto) -> list[Any]:
    held = {tensor.name for tensor in model.graph.initializer}
    (only,) = [value for value in model.graph.input if value.name not in held]
    shape = [dim.dim_value or 1 for dim in only.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return [(np.arange(count).reshape(shape) / count).astype(np.float32)]


def _values(folder: Path, kind: str, model: onnx.ModelProto) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    declared = model.graph.input if kind == "input" else model.graph.output
    return [_read(folder / f"{kind}_{i}.pb", declared[i].type) for i in range(count)]


def _read(path: Path, kind: Any) -> Any:
    content = path.read_bytes()
    if kind is not None and kind.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(content)
        return numpy_helper.to_list(sequence)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(content)
    return numpy_helper.to_array(tensor)


def as_value(value: Any) -> Any:
    """Return a value of the suite as an array, a list or None."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, tuple)):
        return value if value is None else [as_value(part) for part in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def given(value: Any, device: str) -> Any:
    """Return a value as a module takes it."""
    if isinstance(value, list):
        return [given(part, device) for part in value]
    if value is None or not has_tensor(value.dtype):
        return value
    return to_tensor(value, device)


def check(name: str, expected: Any, result: Any, rtol: float, atol: float) -> None:
    """Compare a result with what a case expects, as the suite's own runner does."""
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(expected) == len(result)
        for one, other in zip(expected, result, strict=True):
            check(name, one, other, rtol, atol)
        return
    if expected is None:
        assert result is None
        return
    array = to_array(result)
    assert array.shape == expected.shape
    if expected.dtype == object:
        np.testing.assert_array_equal(array, expected)
        return
    assert array.dtype == expected.dtype
    if name.startswith(RANDOM):
        assert set(np.unique(array)) <= {0, 1}
        return
    if array.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # two units in the last place, as the suite has it
    if array.dtype.kind not in "biufc":
        array, expected = array.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol)


def _domains(graph: Any) -> set[str]:
    found = {node.domain for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found |= _domains(attribute.g)
    return found


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases whose operators are those of ai.onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero as it computes what it expects
        found = [
            Case(test.name, kind, test)
            for kind in ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
            for test in load_model_tests(kind=kind)
        ]
    return tuple(
        case
        for case in found
        if case.kind not in {"node", "simple"} or _domains(case.model().graph) <= {"", "ai.onnx"}
    )


def is_full() -> bool:
    """Return whether the tests run in their full form."""
    return os.environ.get("TANGRAD_TESTS") == "full"

"""`load`: an ONNX model as a module."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.nn import Module, Parameter
from tangrad_onnx.errors import OnnxError, OnnxRunError
from tangrad_onnx.limits import FACTOR, MOST_STEPS, Limits, running
from tangrad_onnx.operators import OPERATORS
from tangrad_onnx.reading.code import Program, write_program
from tangrad_onnx.reading.protobuf import read_model
from tangrad_onnx.values import NUMPY_TYPES, has_tensor, to_tensor, type_number

__all__ = ["OnnxModule", "load"]

_OPS = SimpleNamespace(**{name: entry.call for name, entry in OPERATORS.items()})
_FILE = "<onnx model>"


class OnnxModule(Module):
    """A model of an ONNX file, called by position with the inputs of its graph.

    Attributes:
        code: the Python that runs.
        input_names, output_names: of the graph.
        file: where the model was read from, None for a message.
        memory_limit, step_limit: as `load` was told; they may be set later.
    """

    def __init__(
        self,
        program: Program,
        expected: Any = (),
        file: str | None = None,
        memory_limit: int | None = None,
        step_limit: int = MOST_STEPS,
    ) -> None:
        super().__init__()
        self.code = program.code
        self.input_names, self.output_names = list(program.inputs), list(program.outputs)
        self.file = file
        self.memory_limit, self.step_limit = memory_limit, step_limit
        self._origins, self._expected = program.origins, list(expected)
        for name, (kind, array) in program.constants.items():
            if kind == "array":
                setattr(self, name, array)
                continue
            value = to_tensor(array)
            if kind == "parameter":
                self.register_parameter(name, Parameter(value))
            else:
                self.register_buffer(name, value)
        self._compile()

    def _compile(self) -> None:
        names: dict[str, Any] = {"ops": _OPS, "inf": math.inf, "nan": math.nan}
        exec(compile(self.code, _FILE, "exec"), names)
        self._function = names["forward"]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_function"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._compile()

    def forward(self, *inputs: Any) -> Any:
        """Run the model.

        Args:
            inputs: tensors in the graph's order; arrays for dtypes that tensors do not have, lists
                for sequences, None for optional values that are missing.

        Returns:
            The one output of the graph, or a tuple of its outputs.

        Raises:
            OnnxRunError: the inputs do not fit, or a node cannot compute what it was given.
        """
        if len(inputs) != len(self.input_names):
            raise OnnxRunError(
                f"the model takes {len(self.input_names)} inputs, {self.input_names}; "
                f"{len(inputs)} were given",
                file=self.file,
            )
        for name, wanted, value in zip(self.input_names, self._expected, inputs, strict=True):
            self._check(name, wanted, value)
        try:
            with running(self._limits(inputs)), self._made_there(inputs):
                outputs = self._function(self, *inputs)
        except OnnxError:
            raise
        except Exception as error:
            raise self._located(error) from error
        results = tuple(map(_shown, outputs))
        return results[0] if len(results) == 1 else results

    def _limits(self, inputs: Any) -> Limits:
        def proportionate() -> int:
            held = chain(inputs, self.parameters(), self.buffers())
            return FACTOR * sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))

        memory = self.memory_limit
        return Limits(proportionate if memory is None else memory, self.step_limit)

    def _made_there(self, inputs: Any) -> AbstractContextManager[Any]:
        """Have tensors that nodes make without operands be made where the model is."""
        held = chain(inputs, self.parameters(), self.buffers())
        device = next((t.device for t in held if isinstance(t, Tensor)), None)
        if device is None or device == tangrad.get_default_device():
            return nullcontext()
        made: AbstractContextManager[Any] = tangrad.device(device)
        return made

    def _check(self, name: str, wanted: Any, value: Any) -> None:
        if wanted is None or not isinstance(value, (Tensor, np.ndarray)):
            return
        kind, shape = wanted
        given = type_number(value)
        if kind and kind != given:
            raise OnnxRunError(
                f"input {name!r} is of dtype {NUMPY_TYPES[given]}; the model takes "
                f"{NUMPY_TYPES[kind]}",
                file=self.file,
            )
        if shape is None:
            return
        fits = len(shape) == value.ndim and all(
            want is None or want == have for want, have in zip(shape, value.shape, strict=True)
        )
        if not fits:
            told = [size if size is not None else "?" for size in shape]
            raise OnnxRunError(
                f"input {name!r} has shape {list(value.shape)}; the model takes {told}",
                file=self.file,
            )

    def _located(self, error: Exception) -> OnnxRunError:
        """Return an error that names the node which one came from."""
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE:
                line = trace.tb_lineno
            trace = trace.tb_next
        origin = self._origins.get(line)
        reason = f"{type(error).__name__}: {error}"
        if origin is None:
            return OnnxRunError(reason, file=self.file)
        return OnnxRunError(reason, file=self.file, node=origin.node, operator=origin.operator)

    def extra_repr(self) -> str:
        """Return what the model takes and gives."""
        return f"inputs={self.input_names}, outputs={self.output_names}"


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(part) for part in value]
    if isinstance(value, np.ndarray) and has_tensor(value.dtype):
        return tangrad.tensor(value) if value.dtype.kind != "V" else to_tensor(value)
    return value


def load(f: Any, *, memory_limit: int | None = None, step_limit: int = MOST_STEPS) -> OnnxModule:
    """Read an ONNX model as a module.

    Weights are parameters, statistics and other tensors buffers. Nothing that the file holds is
    executed: its nodes become calls of functions of this package, written as Python that
    `module.code` shows. External data are read from the real folder of the model only.

    Args:
        f: a path, the bytes of a file, or a `ModelProto`.
        memory_limit: bytes that a run's values may take together; by default 256 times the
            weights and inputs, and at least 1 GiB. What is larger is refused before memory is
            taken, since a few bytes of a file can ask for any size.
        step_limit: steps that the loops of a run may take together.

    Raises:
        OnnxError: the file is no valid model, names the node at fault.
        UnsupportedOperatorError: it has an operator that is not supported.
    """
    model, folder = read_model(f)
    try:
        program = write_program(model, folder)
        held = {t.name for t in model.graph.initializer}
        expected = [_expected(v) for v in model.graph.input if v.name not in held]
        return OnnxModule(program, expected, folder.path, memory_limit, step_limit)
    except OnnxError as error:
        error.file = error.file or folder.path
        raise
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise OnnxError(
            f"the model is too deep: {type(error).__name__}", file=folder.path
        ) from None


def _expected(value: Any) -> tuple[int, list[int | None] | None] | None:
    """Return dtype and shape of an input as they are declared."""
    if not value.type.HasField("tensor_type"):
        return None
    kind = value.type.tensor_type
    if kind.elem_type and kind.elem_type not in NUMPY_TYPES:
        raise OnnxError(f"input {value.name!r} has the unknown dtype {kind.elem_type}")
    if not kind.HasField("shape"):
        return kind.elem_type, None
    sizes: list[int | None] = []
    for dim in kind.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value < 0:
            raise OnnxError(f"input {value.name!r} has a negative size")
        sizes.append(dim.dim_value if dim.HasField("dim_value") else None)
    return kind.elem_type, sizes

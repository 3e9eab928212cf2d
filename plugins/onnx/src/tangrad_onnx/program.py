"""`ONNXProgram`: a model that was exported, which can be run, compared and saved."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError
from onnx import ModelProto, save_model

import tangrad
from tangrad import Tensor
from tangrad.plugin import atomically
from tangrad.utils import _pytree
from tangrad_onnx.errors import OnnxExporterError
from tangrad_onnx.values import to_array, to_tensor
from tangrad_onnx.verification import close, first_difference, run_by_reference, run_model
from tangrad_onnx.writing.program import Written

__all__ = ["ONNXProgram"]


class ONNXProgram:
    """An exported model.

    Attributes:
        model_proto: the message that is written.
        exported_program: the program that it was written from.
    """

    def __init__(self, model: ModelProto, exported_program: Any, written: Written) -> None:
        self.model_proto, self.exported_program = model, exported_program
        self._written = written

    @property
    def model(self) -> ModelProto:
        """The message that is written."""
        return self.model_proto

    def __call__(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Run the model in onnxruntime, or in the reference evaluator where that is missing."""
        return [
            to_tensor(array) for array in run_model(self.model_proto, self._feeds(args, kwargs))
        ]

    def call_reference(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Run the model in the reference evaluator of the onnx package."""
        feeds = self._feeds(args, kwargs)
        return [to_tensor(np.asarray(x)) for x in run_by_reference(self.model_proto, feeds)]

    def _feeds(self, args: Any, kwargs: Any) -> dict[str, Any]:
        leaves = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        names = [info.name for info in self.model_proto.graph.input]
        if len(leaves) != len(names):
            raise OnnxExporterError(f"the model takes {len(names)} tensors, got {len(leaves)}")
        return dict(zip(names, map(to_array, leaves), strict=True))

    def verify(self) -> None:
        """Compare the model with the program, on the example and on other sizes.

        Raises:
            OnnxExporterError: an output differs; names the first value that does, and the node and
                module that compute it.
        """
        args, kwargs = self.exported_program.example_inputs
        self._verify_on(args, kwargs)
        for by in (1, 3):
            other = self._resized(args, kwargs, by)
            if other is not None:
                self._verify_on(*other)

    def _resized(self, args: Any, kwargs: Any, by: int) -> Any:
        """Return example arguments whose sizes that vary are greater, None if none does."""
        leaves, spec = _pytree.tree_flatten((args, kwargs))
        sizes = self.exported_program.range_constraints.values()
        changed = False
        for size in sizes:
            wanted = size.example + by
            if size.max is not None and wanted > size.max:
                continue
            changed = True
            for place in size.places:
                x = leaves[place.input]
                count = place.of(wanted)
                at = tangrad.arange(count, device=x.device) % max(x.shape[place.dim], 1)
                leaves[place.input] = x.index_select(place.dim, at)
        return _pytree.tree_unflatten(leaves, spec) if changed else None

    def _verify_on(self, args: Any, kwargs: Any) -> None:
        with tangrad.no_grad():
            expected = self.exported_program.module()(*args, **kwargs)
        wanted = [x for x in _pytree.tree_leaves(expected) if isinstance(x, Tensor)]
        feeds = self._feeds(args, kwargs)
        found = run_model(self.model_proto, feeds)
        for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
            if close(one, np.asarray(other)):
                continue
            output = self.model_proto.graph.output[i].name
            first = first_difference(self._written, args, kwargs, feeds) or output
            origin = next(n for n in self.model_proto.graph.node if first in n.output)
            shapes = [list(x.shape) for x in _pytree.tree_leaves(args) if hasattr(x, "shape")]
            raise OnnxExporterError(
                f"output {output!r} of the file differs from the model's for inputs of shapes "
                f"{shapes}, and {first!r} is the first value that does",
                node=origin.name,
                operator=origin.op_type,
                module=origin.name.rpartition("/")[0].replace("/", ".") or None,
            )

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model; a failure leaves no file.

        Args:
            destination: a path, or a binary file that is open for writing.
            include_initializers, keep_initializers_as_inputs: accepted.
            external_data: whether weights go into a file of their own; None where they need one.
        """
        _save(self.model_proto, destination, external_data)

    def optimize(self) -> None:
        """Do nothing: the graph is written as it is to be."""

    def release(self) -> None:
        """Do nothing: no session is kept."""

    def initialize_inference_session(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a session is made by each call."""

    def report(self) -> str:
        """Return what the model holds as Markdown."""
        counts = Counter(node.op_type for node in self.model_proto.graph.node)
        lines = ["# ONNX export", "", "| operator | nodes |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
        weights = len(self.model_proto.graph.initializer)
        return "\n".join([*lines, "", f"{weights} initializers.", ""])


_MOST = 2**31 - 2**20  # bytes of a message


def _save(model: ModelProto, path: Any, external_data: bool | None) -> None:
    """Write a model such that a failure leaves no file.

    Args:
        model: the model.
        path: of the file; or an open file, which takes the model whole.
        external_data: whether weights go into a file of their own; None where they are above 2 GB.

    Raises:
        OnnxExporterError: weights of more than 2 GB cannot stand in an open file.
    """
    if hasattr(path, "write"):
        data = None if external_data else _serialized(model)
        if data is None:
            raise OnnxExporterError(
                "export: an open file takes no weights of their own file, nor more than 2 GB; "
                "give a path"
            )
        path.write(data)
        return
    target = Path(path).resolve()  # a link stays one
    data = None if external_data else _serialized(model)
    if external_data or (data is None and external_data is None):
        _save_in_two(model, target)
        return
    if data is None:
        raise OnnxExporterError(
            "export: a file holds at most 2 GB; weights beyond it need external_data=True"
        )
    with atomically(target) as file, io.BufferedWriter(file) as buffered:
        buffered.write(data)


def _serialized(model: ModelProto) -> bytes | None:
    """Return the bytes of a message, None if they are more than one may have."""
    try:
        data: bytes = model.SerializeToString()
    except (EncodeError, ValueError):  # so does protobuf refuse more than 2 GB
        return None
    return data if len(data) <= _MOST else None


def _save_in_two(model: ModelProto, target: Path) -> None:
    """Write a model and its weights beside it, both or neither.

    Both are written into a folder first, as the file holds the name of the other.
    """
    names = (f"{target.name}.data", target.name)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".onnx-") as folder:
        whole = Path(folder, target.name)
        twin = ModelProto()  # which loses its weights
        twin.CopyFrom(model)
        save_model(twin, whole, save_as_external_data=True, location=names[0])
        for name in names:
            made = Path(folder, name)
            if made.exists():  # there are no weights where all are small
                made.replace(target.with_name(name))

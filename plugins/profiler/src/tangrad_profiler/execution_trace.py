"""Every op with its arguments and results, in the layout of PyTorch's execution traces."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from typing import Any

import tangrad
from tangrad.plugin import pop_observer, push_observer
from tangrad_profiler.exports import open_text

_NOTHING: dict[str, list[Any]] = {"values": [], "shapes": [], "types": [], "strides": []}
_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
}


class ExecutionTraceObserver:
    """Write every op of a thread with its arguments and results, and what it is within, as JSON.

    The thread is the one that starts it. A profile that it is given to starts and stops it.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._running: _Nodes | None = None

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver | None:
        """Return an observer if ENABLE_PYTORCH_EXECUTION_TRACE is 1, else None."""
        if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "1":
            return None
        path = f"pytorch_execution_trace_{os.getpid()}_{time.time_ns()}.json"
        return ExecutionTraceObserver().register_callback(path)

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Say where it writes, packed if the name ends in .gz; a second path is ignored."""
        if self._path is None:
            self._path = os.fspath(output_file_path)
        return self

    def unregister_callback(self) -> None:
        """Stop, and write nowhere any more."""
        self.stop()
        self._path = None

    cleanup = unregister_callback

    @property
    def is_registered(self) -> bool:
        """Whether there is a file to write to."""
        return self._path is not None

    def is_running(self) -> bool:
        """Return whether it is recording."""
        return self._running is not None

    def get_output_file_path(self) -> str | None:
        """Return where it writes, None where nothing is registered."""
        return self._path

    def set_extra_resource_collection(self, val: bool) -> None:
        """Ask for kernels' sources beside the trace: there are none to collect."""

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """Return the folder of what is collected beside the trace."""
        return None if self._path is None else self.get_resources_dir_for_et_path(self._path)

    @staticmethod
    def get_resources_dir_for_et_path(trace_path: str, create_dir: bool = False) -> str | None:
        """Return the folder beside a trace, made if asked for."""
        folder = os.path.splitext(trace_path)[0] + "_resources"
        if create_dir:
            os.makedirs(folder, exist_ok=True)
        return folder if os.path.isdir(folder) else None

    def start(self) -> None:
        """Begin to record."""
        if self._path is not None and self._running is None:
            self._running = _Nodes()
            push_observer(self._running)

    def stop(self) -> None:
        """End, and write the file.

        Raises:
            OSError: it cannot be written.
        """
        nodes, self._running = self._running, None
        if nodes is None or self._path is None:
            return
        pop_observer(nodes)
        with open_text(self._path) as file:
            json.dump(nodes.told(), file)

    def __enter__(self) -> ExecutionTraceObserver:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Nodes:
    """Collect nodes as an observer of one thread."""

    def __init__(self) -> None:
        self._began = time.monotonic_ns() // 1_000_000
        self._count = 2  # the process and the thread
        self._open = [2]
        self._tensors: dict[int, int] = {}  # identity of a tensor or storage -> its number
        self._seen: dict[int, Any] = {}  # weakly: what was seen is the program's to free
        self.nodes = [
            self._node(1, "[pytorch|profiler|execution_trace|process]", 1, scope=7, tid=0),
            self._node(2, "[pytorch|profiler|execution_trace|thread]", 1, scope=7),
        ]

    def _number(self, thing: Any) -> int:
        key = id(thing)
        found = self._tensors.get(key)
        if found is None:
            self._seen[key] = weakref.ref(thing, lambda _: self._forget(key))
            self._count += 1
            found = self._tensors[key] = self._count
        return found

    def _forget(self, key: int) -> None:
        """Free the identity of what has gone for another one."""
        del self._tensors[key], self._seen[key]

    def _begin(self) -> int:
        self._count += 1
        self._open.append(self._count)
        return self._count

    def enter_call(self, op: Any, args: Any) -> Any:
        """Number the call, and note its arguments, which it may overwrite."""
        return self._begin(), self._values(list(args))

    def leave_call(self, op: Any, token: Any, result: Any) -> None:
        """Write the call down."""
        number, inputs = token
        self._open.pop()
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        outputs = self._values([] if result is None else results)
        self.nodes.append(
            self._node(
                number, "aten::" + op.name, self._open[-1], inputs, outputs, schema=_schema(op)
            )
        )

    def enter_node(self, node: Any) -> int:
        """Number a step of backward."""
        return self._begin()

    def leave_node(self, node: Any, token: int) -> None:
        """Write it down."""
        self._open.pop()
        self.nodes.append(self._node(token, node.name(), self._open[-1], scope=1))

    def _node(
        self,
        number: int,
        name: str,
        parent: int,
        inputs: Any = _NOTHING,
        outputs: Any = _NOTHING,
        scope: int = 0,
        tid: int | None = None,
        schema: str = "",
    ) -> dict[str, Any]:
        attributes = (
            ("rf_id", "uint64", max(number - 2, 0)),
            ("fw_parent", "uint64", 0),
            ("seq_id", "int64", -1),
            ("scope", "uint64", scope),
            ("tid", "uint64", threading.get_ident() if tid is None else tid),
            ("fw_tid", "uint64", 0),
            ("op_schema", "string", schema),
            ("kernel_backend", "string", ""),
            ("kernel_file", "string", ""),
            ("tensor_range", "string", ""),
        )
        return {
            "id": number,
            "name": name,
            "ctrl_deps": parent,
            "inputs": inputs,
            "outputs": outputs,
            "attrs": [{"name": n, "type": t, "value": v} for n, t, v in attributes],
        }

    def _values(self, values: list[Any]) -> dict[str, list[Any]]:
        rows = [self._value(v) for v in values]
        return {
            key: [row[k] for row in rows]
            for k, key in enumerate(("values", "shapes", "types", "strides"))
        }

    def _value(self, v: Any) -> tuple[Any, Any, str, Any]:
        """Return (value, shape, type, strides) of an argument."""
        if isinstance(v, tangrad.Tensor):
            return self._tensor(v)
        if isinstance(v, (list, tuple)):
            rows = [self._value(x) for x in v]
            inner = ",".join(row[2] for row in rows)
            return ([row[0] for row in rows], [row[1] for row in rows],
                    f"GenericList[{inner}]", [row[3] for row in rows])  # fmt: skip
        if v is None:
            return "<None>", [], "None", []
        if isinstance(v, (bool, int, float)):
            kind = {bool: "Bool", int: "Int", float: "Double"}.get(type(v), "Int")
            return (v if v == v and abs(v) != float("inf") else str(v)), [], kind, []
        return str(v), [], type(v).__name__.capitalize(), []

    def _tensor(self, t: Any) -> tuple[Any, Any, str, Any]:
        dtype = t.dtype.name
        strided = t.layout is tangrad.strided
        value = [
            self._number(t),
            self._number(t.untyped_storage()) if strided else 0,
            t.storage_offset() if strided else 0,
            t.numel(),
            t.element_size(),
            str(t.device),
        ]
        return (value, list(t.shape), f"Tensor({_TYPES.get(dtype, dtype)})",
                list(t.stride()) if strided else [])  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Return the file's content."""
        return {
            "schema": "1.1.1-chakra.0.0.4",
            "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "start_ts": self._began,
            "finish_ts": time.monotonic_ns() // 1_000_000,
            "nodes": [*self.nodes[2:], *self.nodes[:2]],
        }


def _schema(op: Any) -> str:
    definition = getattr(op, "definition", None)
    return f"aten::{definition.schema.text}" if definition is not None else ""

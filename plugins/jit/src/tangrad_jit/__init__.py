"""`tangrad.jit`: programs recorded as graphs, saved without their code, and run.

What is here is PyTorch's `torch.jit`: tracing in `tangrad_jit.tracing`, the script language in
`tangrad_jit.scripting`. `tangrad.compile`, which this package also brings, is in
`tangrad_jit.compiling`.
"""

from __future__ import annotations

import typing
from typing import Any

API = 1

_WHERE: dict[str, str] = {
    "Attribute": "tangrad_jit.tracing.annotations",
    "CompilationUnit": "tangrad_jit.scripting.objects.compilation_unit",
    "Error": "tangrad_jit.tracing.annotations",
    "Future": "tangrad_jit.tracing.futures",
    "RecursiveScriptModule": "tangrad_jit.tracing.script_module",
    "ScriptFunction": "tangrad_jit.tracing.traced_module",
    "ScriptModule": "tangrad_jit.tracing.script_module",
    "TopLevelTracedModule": "tangrad_jit.tracing.traced_module",
    "TracedModule": "tangrad_jit.tracing.traced_module",
    "TracerWarning": "tangrad_jit.tracing.trace",
    "TracingCheckError": "tangrad_jit.tracing.trace",
    "_Await": "tangrad_jit.tracing.futures",
    "_awaitable": "tangrad_jit.tracing.futures",
    "_awaitable_nowait": "tangrad_jit.tracing.futures",
    "_awaitable_wait": "tangrad_jit.tracing.futures",
    "_drop": "tangrad_jit.tracing.annotations",
    "_fork": "tangrad_jit.tracing.futures",
    "_overload": "tangrad_jit.tracing.annotations",
    "_overload_method": "tangrad_jit.tracing.annotations",
    "_unwrap_optional": "tangrad_jit.tracing.annotations",
    "_wait": "tangrad_jit.tracing.futures",
    "_hide_source_ranges": "tangrad_jit.scripting.code.graph",
    "_ScriptProfile": "tangrad_jit.scripting.objects.profile",
    "_script_if_tracing": "tangrad_jit.scripting.objects.making",
    "annotate": "tangrad_jit.tracing.annotations",
    "enable_onednn_fusion": "tangrad_jit.tracing.annotations",
    "export": "tangrad_jit.tracing.annotations",
    "export_opnames": "tangrad_jit.tracing.traced_module",
    "fork": "tangrad_jit.tracing.futures",
    "freeze": "tangrad_jit.scripting.freezing.entry",
    "fuser": "tangrad_jit.tracing.annotations",
    "ignore": "tangrad_jit.tracing.annotations",
    "interface": "tangrad_jit.scripting.objects.making",
    "is_scripting": "tangrad_jit.tracing.annotations",
    "is_tracing": "tangrad_jit.tracing.trace",
    "isinstance": "tangrad_jit.tracing.annotations",
    "load": "tangrad_jit.tracing.archive",
    "onednn_fusion_enabled": "tangrad_jit.tracing.annotations",
    "optimize_for_inference": "tangrad_jit.scripting.freezing.entry",
    "optimized_execution": "tangrad_jit.tracing.annotations",
    "run_frozen_optimizations": "tangrad_jit.scripting.freezing.entry",
    "save": "tangrad_jit.tracing.archive",
    "script": "tangrad_jit.scripting.objects.making",
    "script_if_tracing": "tangrad_jit.scripting.objects.making",
    "script_method": "tangrad_jit.tracing.script_module",
    "set_fusion_strategy": "tangrad_jit.tracing.annotations",
    "strict_fusion": "tangrad_jit.tracing.annotations",
    "trace": "tangrad_jit.tracing.trace",
    "trace_module": "tangrad_jit.tracing.trace",
    "unused": "tangrad_jit.tracing.annotations",
    "wait": "tangrad_jit.tracing.futures",
}

__all__ = ["Final", *sorted(name for name in _WHERE if not name.startswith("_"))]

Final = typing.Final


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tangrad.jit' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

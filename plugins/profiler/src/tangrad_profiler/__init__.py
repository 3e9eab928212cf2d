"""Tell where the time and the memory of a program go: `tangrad.profiler`.

The names and their meaning are PyTorch's. Besides: `export_speedscope` of a profile, record
files (`record`, `load`) and `thread`; docs/profiling.md walks through them.
"""

from __future__ import annotations

from typing import Any

API = 1

_WHERE = {
    "DeviceType": "profiling",
    "ExecutionTraceObserver": "execution_trace",
    "ProfilerAction": "profiling",
    "ProfilerActivity": "profiling",
    "RecordError": "file",
    "compare": "comparison",
    "counters": "counting",
    "dump_memory_snapshot": "history",
    "itt": "",
    "kineto_available": "profiling",
    "load": "profiling",
    "memory_snapshot": "history",
    "profile": "profiling",
    "progress": "progress_bar",
    "record": "file",
    "record_function": "recording",
    "record_memory_history": "history",
    "schedule": "profiling",
    "supported_activities": "profiling",
    "tensorboard_trace_handler": "profiling",
    "thread": "recording",
}

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tangrad.profiler' has no attribute '{name}'")
    import importlib

    value = importlib.import_module(f"tangrad_profiler.{_WHERE[name] or name}")
    value = getattr(value, name) if _WHERE[name] else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

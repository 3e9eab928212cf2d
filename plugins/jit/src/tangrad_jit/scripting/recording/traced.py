"""Traced functions and modules that have a program beside the graph of their example."""

from __future__ import annotations

import io
from typing import Any

from tangrad import nn
from tangrad.serialization import SerializationError
from tangrad_jit.scripting.code.printer import UnprintableError
from tangrad_jit.scripting.objects.function import ScriptedFunction
from tangrad_jit.scripting.objects.module import ScriptedModule, ScriptMethod
from tangrad_jit.scripting.recording.following import ACTIVE, follower
from tangrad_jit.scripting.recording.unit import RecordedUnit
from tangrad_jit.tracing.traced_module import TopLevelTracedModule, TracedGraph

__all__ = ["TracedFunction", "TracedScript"]


def _loaded(content: bytes) -> Any:
    """Return the traced module of an archive, as pickles hold one."""
    from tangrad_jit.tracing.archive import load

    return load(io.BytesIO(content))


def _is_read(save: Any) -> bool:
    """Return whether an archive has a form for a trace, and is read again.

    Ops of the core that are none of PyTorch's have none, and earlier archives do.
    """
    file = io.BytesIO()
    try:
        save(file)
        _loaded(file.getvalue())
    except (UnprintableError, SerializationError):
        return False
    return True


class TracedFunction(ScriptedFunction):
    """A traced function.

    Args:
        unit: its program.
        traced: the graph that runs it for the sizes of its example.
    """

    def __init__(self, unit: RecordedUnit, traced: TracedGraph) -> None:
        super().__init__(unit)
        self._traced = traced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if ACTIVE and follower() is not None:
            return super().__call__(*args, **kwargs)
        return self._traced.run(args, kwargs, {}, super().__call__)

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the function to an archive that PyTorch reads, too; see `jit.save`."""
        from tangrad_jit.tracing.archive_writing import write

        if _is_read(super().save):
            super().save(f, _extra_files)
        else:
            write(f, _extra_files, {"forward": self._traced}, function=self.name)


class _TracedMethod(ScriptMethod):
    """A method of a traced module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        traced = self.owner.methods.get(self.name)
        if traced is None or (ACTIVE and follower() is not None):
            return super().__call__(*args, **kwargs)
        return traced.run(args, kwargs, self.owner._held(), super().__call__)


class TracedScript(ScriptedModule, TopLevelTracedModule):
    """A traced module.

    Args:
        unit: its type, with the programs of its methods.
        methods: the graphs that run methods for the sizes of their examples, by name.
    """

    def __init__(self, unit: Any, methods: dict[str, TracedGraph]) -> None:
        nn.Module.__init__(self)
        self.take_unit(unit)
        object.__setattr__(self, "original_name", unit.cls.__name__)
        object.__setattr__(self, "methods", methods)

    def take(self, other: ScriptedModule) -> TracedScript:
        """Take parameters, buffers and modules of another, and return this one."""
        kept = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")
        vars(self).update({name: vars(other)[name] for name in kept})
        return self

    def emptied(self) -> TracedScript:
        """Return a module of the same methods, without parameters."""
        return TracedScript(self.script_unit, self.methods)

    @property
    def forward(self) -> Any:  # type: ignore[override]
        """The method `forward`.

        Raises:
            AttributeError: only other methods were traced.
        """
        unit = self.script_unit.methods.get("forward")
        if unit is None:
            raise AttributeError(
                f"forward was not traced, but {', '.join(self.script_unit.methods)}"
            )
        return _TracedMethod(self, unit)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _loaded, (self.save_to_buffer(),)

    def __getattr__(self, name: str) -> Any:
        unit = self.__dict__.get("script_unit")
        method = None if unit is None else unit.methods.get(name)
        return super().__getattr__(name) if method is None else _TracedMethod(self, method)

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the module to an archive that PyTorch reads, too; see `jit.save`."""
        from tangrad_jit.tracing.archive_writing import write

        whole = self.methods.keys() == self.script_unit.methods.keys()
        if not whole or _is_read(super().save):
            super().save(f, _extra_files)
        else:
            write(f, _extra_files, self.methods, module=self)

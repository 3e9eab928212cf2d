"""Scripted functions."""

from __future__ import annotations

import functools
import pickle
from typing import Any

from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.objects.entry import Entry
from tangrad_jit.scripting.objects.schema import FunctionSchema
from tangrad_jit.tracing.traced_module import ScriptFunction

__all__ = ["ScriptedFunction"]


class ConstantMap:
    """The tensors that a program names: `c0`, `c1`, ..."""

    def __init__(self, tensors: list[Any]) -> None:
        self.const_mapping = {f"c{k}": tensor for k, tensor in enumerate(tensors)}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("const_mapping", {})
        if name not in found:
            raise AttributeError(f"the program names no constant {name}")
        return found[name]


class ScriptedFunction(ScriptFunction):
    """A function that has been scripted.

    Args:
        unit: the function.
    """

    def __init__(self, unit: Unit) -> None:
        self.script_unit = unit
        self.__name__ = self.name = unit.name
        self.qualified_name = unit.qualified
        self._entry = Entry(unit)
        if unit.python_function is not None:
            functools.update_wrapper(self, unit.python_function)
            self._torchdynamo_inline = unit.python_function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._entry(*args, **kwargs)

    @property
    def schema(self) -> FunctionSchema:
        """The signature."""
        return FunctionSchema(self.script_unit)

    @property
    def graph(self) -> Any:
        """The program as a graph with control flow."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self.script_unit)

    @property
    def inlined_graph(self) -> Any:
        """The graph with what it calls in the place of calls."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self.script_unit, inline=True)

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """Return the graph that runs for arguments: there is one."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self.script_unit, inline=True, runs=True)

    @property
    def code(self) -> str:
        """The program as archives hold it."""
        from tangrad_jit.scripting.code.printer import text_of_unit

        return text_of_unit(self.script_unit)

    @property
    def code_with_constants(self) -> tuple[str, ConstantMap]:
        """The program as archives hold it, and the tensors that it names."""
        from tangrad_jit.scripting.code.printer import text_with_constants

        text, constants = text_with_constants(self.script_unit)
        return text, ConstantMap(constants)

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the function to an archive that PyTorch reads, too; see `jit.save`."""
        from tangrad_jit.scripting.archive.writing import write_function

        write_function(self.script_unit, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None) -> bytes:
        """Return the archive that `save` writes."""
        import io

        file = io.BytesIO()
        self.save(file, _extra_files)
        return file.getvalue()

    def __reduce__(self) -> Any:
        raise pickle.PickleError("ScriptFunction cannot be pickled")

    def __deepcopy__(self, memo: Any) -> ScriptedFunction:
        return self

    def __repr__(self) -> str:
        return f"<ScriptFunction {self.name}>"

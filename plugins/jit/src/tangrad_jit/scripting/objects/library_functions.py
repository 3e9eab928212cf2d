"""Functions of `nn.functional` as scripts of their own: one call, with types from their schema."""

from __future__ import annotations

from typing import Any

from tangrad.backends.cpu import get_cpu_capability
from tangrad_jit.scripting.check.op_calls import OpSignature, Parameter, signatures
from tangrad_jit.scripting.objects.compilation_unit import CompilationUnit
from tangrad_jit.scripting.objects.function import ScriptedFunction

__all__ = ["scripted_library_function"]

# A dtype is a number in scripts, as in PyTorch's.
_KINDS = {"Tensor": "Tensor", "dtype": "int"} | {k: k for k in ("bool", "int", "float", "str")}


def scripted_library_function(function: Any) -> ScriptedFunction | None:
    """Return a function of `nn.functional` scripted, or None where it is none of one signature."""
    if function is get_cpu_capability:
        return _defined("def get_cpu_capability() -> str:\n    return _callee()\n", function)
    callee = getattr(function, "__wrapped__", function)
    definition = getattr(callee, "definition", None)
    namespace = getattr(definition, "namespace", "")
    if namespace != "nn" and not str(getattr(callee, "__module__", "")).startswith("tangrad.nn."):
        return None
    found = signatures(callee)
    text = _text(found[0]) if len(found) == 1 else None
    return None if text is None else _defined(text, function)


def _defined(text: str, function: Any) -> ScriptedFunction:
    made = CompilationUnit()
    made.define(text, rcb=lambda name: function if name == "_callee" else None)
    return made.get_functions()[0]


def _text(signature: OpSignature) -> str | None:
    shown = [_declared(parameter) for parameter in signature.parameters]
    if None in shown:
        return None
    given = ", ".join(
        f"{p.name}={p.name}" if p.keyword_only else p.name for p in signature.parameters
    )
    return f"def {signature.name}({', '.join(filter(None, shown))}):\n    return _callee({given})\n"


def _declared(parameter: Parameter) -> str | None:
    bare = parameter.kind.removesuffix("?")
    element = bare.removesuffix("[]")
    kind = _KINDS.get(element)
    if kind is None:
        return None
    kind = kind if element == bare else f"List[{kind}]"
    kind = kind if bare == parameter.kind else f"Optional[{kind}]"
    default = "" if parameter.required else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"

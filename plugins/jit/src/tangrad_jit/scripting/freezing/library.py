"""`forward` of modules of the library in terms of ops, as archives have it."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad_jit.scripting.archive.units import ArchiveCode
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.code.library_text import module_text
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.source.places import ScriptError

__all__ = ["is_of_library", "library_forward"]

_PACKAGE = "__torch__.library"
_VERSION = 10
_PATH = _PACKAGE.replace(".", "/") + ".py"
_known: dict[str, Unit | None] = {}


def is_of_library(unit: Unit) -> bool:
    """Return whether a method is one of those below, whose text nobody has written."""
    return unit.source.file == f"code/{_PATH}"


def library_forward(module: nn.Module) -> Unit | None:
    """Return the method, which modules of the same numbers share; None where it has no form."""
    inner = vars(module).get("library_module", module)
    classes: list[str] = []
    _class_of(inner, classes)
    if not classes[-1]:
        return None
    text = "".join(classes)
    if text not in _known:
        _known[text] = _checked(text, len(classes) - 1)
    return _known[text]


def _class_of(module: nn.Module, classes: list[str]) -> str:
    """Add the class of a module, after those of the modules inside, and return its name."""
    body = ""
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        body += f"  {name} : {'NoneType' if tensor is None else 'Tensor'}\n"
    for name, child in module._modules.items():
        kind = "NoneType" if child is None else _class_of(child, classes)
        body += f"  {name} : {kind}\n" if name.isidentifier() else ""
    short = f"Module{len(classes)}"
    name = f"{_PACKAGE}.{short}"
    forward = module_text(module, name)
    head = f"class {short}(Module):\n  training : bool\n"
    classes.append(f"{head}{body}{forward}" if forward else "")
    return name


def _checked(text: str, number: int) -> Unit | None:
    code = ArchiveCode(WORLD, {_PATH: text}.get, (), _VERSION, lambda path: b"")
    try:
        kind: Any = code.find(f"{_PACKAGE}.Module{number}")
        found: Unit = kind.unit.method("forward")
        found.check()
    except ScriptError:
        return None
    return found

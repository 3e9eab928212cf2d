"""Write archives that PyTorch's `jit.load` reads."""

from __future__ import annotations

import itertools
import os
import re
import zipfile
from importlib import import_module
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.archive.pickling import ObjectPickler
from tangrad_jit.scripting.archive.records import Recorder, pickled
from tangrad_jit.scripting.check.classes import InterfaceUnit
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.check.library_modules import is_library, result_of_library
from tangrad_jit.scripting.check.script_objects import ScriptObjectUnit
from tangrad_jit.scripting.code.library_text import FUNCTIONS, module_text
from tangrad_jit.scripting.code.printer import Printer, UnprintableError, quoted
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.program.emit import program_of
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import Type

__all__ = ["write_function", "write_module"]

# The version of archives whose ops have meant the same ever since, and of those with other ops,
# which an older one would mean otherwise.
_VERSION = 3
_NEWEST_OF = {"div": 4, "div_": 4, "full": 5, "linspace": 8, "logspace": 9, "gelu": 10}
_CALLED = re.compile(r"\.(\w+)\(")


def write_module(module: Any, f: Any, extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted module.

    Args:
        module: the module.
        f: path or file.
        extra_files: name -> text or bytes to keep beside it.

    Raises:
        RuntimeError: it calls Python, or has something else that no archive holds; or the folder
            does not exist.
    """
    made = _Archive()
    root = made.module(module)
    made.finish()
    pickler = made.pickler()
    made.write_module(pickler, module)
    _write(f, made, pickler.finished(), extra_files)
    del root


def write_function(unit: Unit, f: Any, extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted function, as the forward of a module without attributes.

    Raises:
        RuntimeError: it calls Python, or has something else that no archive holds.
    """
    made = _Archive()
    name = "__torch__.PlaceholderModule"
    body = made.printer.function(unit, "  ", "forward")
    head, _, rest = body.partition("(")
    given = f"self: {name}" + (",\n    " if unit.parameters else "")
    made.put(
        name,
        "class PlaceholderModule(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
        f"  training : bool\n{head}({given}{rest}",
    )
    made.finish()
    pickler = made.pickler()
    pickler.new_object("__torch__", "PlaceholderModule")
    pickler.text("training")
    pickler.value(True, kinds.BOOL)
    pickler.end_object()
    _write(f, made, pickler.finished(), extra_files)


_PLAIN = (tree.Local, tree.Const)


class _NamingPrinter(Printer):
    """A printer that gives units of one name names of their own."""

    is_for_archive = True

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder()
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._taken: set[str] = set()

    def expr(self, node: Any) -> str:
        """Return the code of an expression, with a mark of its place."""
        made = super().expr(node)
        return made if isinstance(node, _PLAIN) else self.recorder.mark(node.place) + made

    def _statement(self, node: Any, indent: str) -> str:
        made = super()._statement(node, indent)
        return indent + self.recorder.mark(node.place) + made.removeprefix(indent)

    def name_of(self, owner: Any) -> str:
        if isinstance(owner, str):
            return super().name_of(owner)
        found = self._names.get(id(owner))
        if found is None:
            found = self._names[id(owner)] = self.fresh(super().name_of(owner))
            self._kept.append(owner)
        return found

    def name_anew(self, owner: Any) -> str:
        """Return a further name of a unit, which the code that follows has for it."""
        self._names.pop(id(owner), None)
        return self.name_of(owner)

    def fresh(self, name: str) -> str:
        """Return a name that nothing else in the archive has."""
        prefix, _, last = name.rpartition(".")
        found, k = name, 0
        while found in self._taken:
            found = f"{prefix}.___torch_mangle_{k}.{last}"
            k += 1
        self._taken.add(found)
        return found


class _Archive:
    """The code of an archive, and what its objects are called."""

    def __init__(self) -> None:
        self.printer = _NamingPrinter()
        self.files: dict[str, str] = {}
        self.storages: dict[int, Any] = {}
        # Modules of a unit have inner modules of the library, of which each has its numbers.
        self._modules: dict[int, tuple[Any, str]] = {}
        self._classes: dict[tuple[int, tuple[tuple[str, str], ...]], str] = {}
        self._done: list[Any] = []
        self._libraries: dict[int, str] = {}
        self._by_text: dict[str, str] = {}

    def pickler(self, storages: dict[int, Any] | None = None) -> ObjectPickler:
        """Return a pickler that knows the archive's types, and adds to storages."""
        held = self.storages if storages is None else storages
        return ObjectPickler(self.printer.type, self._object, held)

    def put(self, name: str, text: str) -> None:
        """Add the code of something to the file of its module."""
        path = "code/" + name.rpartition(".")[0].replace(".", "/") + ".py"
        self.files[path] = self.files.get(path, "") + self.printer.recorder.mark(None) + text

    def finish(self) -> None:
        """Add the code of all that is named and not there yet."""
        k = 0
        while k < len(self.printer.needed):
            owner = self.printer.needed[k]
            k += 1
            if any(owner is other for other in self._done):
                continue
            self._done.append(owner)
            name = self.printer.name_of(owner)
            if isinstance(owner, str):
                self.put(name, FUNCTIONS[owner])
            elif isinstance(owner, Unit):
                self.put(name, self.printer.function(owner, "", name.rpartition(".")[2]))
            elif isinstance(owner, kinds.TupleType):
                self.put(name, self._named_tuple(owner, name))
            elif isinstance(owner, kinds.EnumType):
                self.put(name, self._enum(owner, name))
            elif isinstance(owner, InterfaceUnit):
                self.put(name, self._interface(owner, name))
            elif hasattr(owner, "statics"):
                self.put(name, self._class(owner, name))

    def _named_tuple(self, kind: kinds.TupleType, name: str) -> str:
        fields = "".join(
            f"  {field} : {self.printer.type(member)}\n"
            for field, member in zip(kind.names, kind.elements, strict=True)
        )
        return f"class {name.rpartition('.')[2]}(NamedTuple):\n{fields}"

    def _enum(self, kind: kinds.EnumType, name: str) -> str:
        members = "".join(
            f"  {m.name} = {self.printer.constant(m.value, kind.value)}\n"
            for m in kind.python_class
        )
        return f"class {name.rpartition('.')[2]}(Enum):\n{members}"

    def _interface(self, unit: InterfaceUnit, name: str) -> str:
        text = f"class {name.rpartition('.')[2]}(Interface):\n"
        for method, function in unit.methods.items():
            text += self.printer.function(function, "  ", method)
        return text

    def _class(self, unit: Any, name: str) -> str:
        text = f"class {name.rpartition('.')[2]}:\n"
        for attribute, kind in unit.attributes.items():
            text += f"  {attribute} : {self.printer.type(kind)}\n"
        for method, function in unit.methods.items():
            text += self.printer.function(function, "  ", method)
        for suffix, group in (("getter", unit.getters), ("setter", unit.setters)):
            for attribute, function in group.items():
                text += self.printer.function(function, "  ", f"{attribute}_{suffix}")
        return text

    # --- modules

    def module(self, module: Any) -> str:
        """Add the class of a module, and return its name."""
        known = self._modules.get(id(module))
        if known is None:
            known = self._modules[id(module)] = module, self._class_of(module)
        return known[1]

    def _class_of(self, module: Any) -> str:
        unit = getattr(module, "script_unit", None)
        inner = vars(module).get("library_module")
        if unit is None or inner is not None:
            return self._library(module if inner is None else inner, module)
        children = self._children(module)
        key = id(unit), tuple(children.items())
        if key not in self._classes:
            self._classes[key] = name = self.printer.name_anew(unit)
            self.put(name, self._module_text(module, unit, children, name))
        return self._classes[key]

    def _module_text(self, module: Any, unit: Any, children: dict[str, str], name: str) -> str:
        text = _head(module, name) + _hooks(unit)
        for attribute, kind in unit.attributes.items():
            text += _declared(attribute, self.printer.type(kind))
        for constant, value in unit.constants.items():
            held = type_of_value(value)
            if held is not None and constant.isidentifier():
                shown = f"Final[{self.printer.type(held)}]"
                text += f"  {constant} : {shown} = {self.printer.constant(value, held)}\n"
        for child, kind_name in children.items():
            text += _declared(child, kind_name)
        if unit.is_container:
            text += self._sequence(unit, children, name)
        for key, method in unit.methods.items():
            text += self.printer.function(method, "  ", key.replace(".", "_"))
        return text

    def _children(self, module: Any) -> dict[str, str]:
        found = {}
        for key, child in module._modules.items():
            if child is None:
                found[key] = "NoneType"
            elif vars(module)["script_unit"].attributes.get(key) is None:
                found[key] = self.module(child)
        return found

    def _sequence(self, unit: Any, children: dict[str, str], name: str) -> str:
        if not issubclass(unit.cls, nn.Sequential) or not children:
            return ""
        steps = [_step(kind) for kind in unit.children.values() if kind is not None]
        if any(one[1] != other[0] for one, other in itertools.pairwise(steps)):
            return ""
        given, made = (self.printer.type(kind) for kind in (steps[0][0], steps[-1][1]))
        text = f"  def forward(self: {name},\n    input: {given}) -> {made}:\n"
        last = "input"
        for k, child in enumerate(children):
            owner = f"getattr(self, {quoted(child)})"
            text += f"    _{k} = ({owner}).forward({last})\n"
            last = f"_{k}"
        return text + f"    return {last}\n"

    def _library(self, module: Any, holder: Any) -> str:
        """Add the class of a module of the library; those of the same text share one."""
        known = self._libraries.get(id(holder))
        if known is not None:
            return known
        unit_name = "__torch__." + f"{type(module).__module__}.{type(module).__name__}".replace(
            "tangrad.", "torch.", 1
        ).replace("tangrad_quantization.", "torch.ao.", 1)
        body = _head(module, "NAME")
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            body += _declared(key, "NoneType" if tensor is None else "Tensor")
        body += "  training : bool\n"
        for key, child in module._modules.items():
            body += _declared(key, "NoneType" if child is None else self.module(child))
        form = form_of_package(module)
        for key, (kind, _) in form[0].items():
            body += _declared(key, kind)
        forward = form[1] or module_text(module, "NAME")
        if not forward and not isinstance(module, (nn.ParameterList, nn.ParameterDict)):
            raise UnprintableError(
                f"jit.save: {type(module).__name__} has no form in archives; PyTorch's own can be "
                "made of its parts"
            )
        body += forward
        name = self._by_text.get(unit_name + body)
        if name is None:
            name = self.printer.fresh(unit_name)
            self._by_text[unit_name + body] = name
            text = body.replace("self: NAME", f"self: {name}").replace(
                "class NAME", f"class {name.rpartition('.')[2]}"
            )
            self.put(name, text)
        self._libraries[id(holder)] = name
        return name

    def write_module(self, pickler: ObjectPickler, module: Any) -> None:
        """Write a module's state into a pickle; of one that is there already, where it is."""
        if pickler.repeated(module):
            return
        name = self.module(module)
        prefix, _, last = name.rpartition(".")
        unit = getattr(module, "script_unit", None)
        state = None if unit is None else unit.state_methods()
        if state is not None:
            pickler.new_object_of_state(name)
            pickler.value(program_of(state[0])(module), state[0].returned)
            pickler.end_object_of_state()
            pickler.remember(module)
            return
        pickler.new_object(prefix, last)
        attributes: dict[str, Type] = {}
        values: dict[str, Any] = {}
        holder = module
        if unit is not None and "library_module" not in vars(module):
            attributes = unit.attributes
        else:
            holder = vars(module).get("library_module", module)
            attributes = dict.fromkeys([*holder._parameters, *holder._buffers], kinds.TENSOR)
            attributes["training"] = kinds.BOOL
            values = {"training": module.training}
            for key, (_, value) in form_of_package(holder)[0].items():
                attributes[key] = type_of_value(value, WORLD.class_type) or kinds.ANY
                values[key] = value
        for key, kind in attributes.items():
            pickler.text(key)
            pickler.value(values[key] if key in values else getattr(holder, key), kind)
        for key, child in holder._modules.items():
            if key in attributes:
                continue
            pickler.text(key)
            if child is None:
                pickler.value(None, kinds.NONE)
            else:
                self.write_module(pickler, child)
        pickler.end_object()
        pickler.remember(module)

    def _object(self, pickler: ObjectPickler, value: Any, kind: Type) -> None:
        if isinstance(value, nn.Module):
            self.write_module(pickler, value)
            return
        if isinstance(kind, kinds.InterfaceType):
            kind = kind.unit.world.class_type(type(value))
        assert isinstance(kind, kinds.ClassType)
        if pickler.repeated(value):
            return
        if isinstance(kind.unit, ScriptObjectUnit):
            pickler.new_object_of_state(kind.text)
            pickler.value(value.__getstate__(), kind.unit.state_type())
            pickler.end_object_of_state()
            pickler.remember(value)
            return
        prefix, _, last = self.printer.type(kind).rpartition(".")
        self.finish()
        pickler.new_object(prefix, last)
        for key, attribute in kind.unit.attributes.items():
            pickler.text(key)
            pickler.value(getattr(value, key), attribute)
        pickler.end_object()
        pickler.remember(value)


def form_of_package(module: Any) -> tuple[dict[str, tuple[str, Any]], str]:
    """Return attributes and the text of a module of a package of ours, where it has them."""
    package = type(module).forward.__module__.partition(".")[0]
    if package == "tangrad" or not is_library(module):
        return {}, ""
    return import_module(f"{package}.script_forms").form_of(module) or ({}, "")


def _hooks(unit: Any) -> str:
    """Return the lines that name a module's hooks."""
    if unit.hooked_call() is None:
        return ""
    lines = ""
    for name, group in (
        ("__forward_pre_hooks__", unit.pre_hooks),
        ("__forward_hooks__", unit.hooks),
    ):
        if group:
            lines += f"  {name} = [{''.join(f'{quoted(hook.name)}, ' for hook in group)}]\n"
    return lines


def _declared(name: str, kind: str) -> str:
    """Return the line that declares an attribute of a module."""
    if name.isidentifier():
        return f"  {name} : {kind}\n"
    return f"  __annotations__[{quoted(name)}] = {kind}\n"


def _step(kind: Any) -> tuple[Type, Type]:
    """Return what the forward of modules of a type takes, and what it returns."""
    unit = kind.unit
    forward = None if unit.is_container else unit.method("forward")
    if isinstance(forward, Unit) and len(forward.parameters) == 2:
        return forward.parameters[1].type, forward.returned
    steps = [_step(child) for child in unit.children.values() if child is not None]
    if unit.is_container and steps:
        return steps[0][0], steps[-1][1]
    return kinds.TENSOR, result_of_library(unit.cls)


def _head(module: Any, name: str) -> str:
    parameters = "".join(f"{quoted(k)}, " for k, t in module._parameters.items() if t is not None)
    buffers = "".join(f"{quoted(k)}, " for k, t in module._buffers.items() if t is not None)
    return (
        f"class {name.rpartition('.')[2]}(Module):\n  __parameters__ = [{parameters}]\n"
        f"  __buffers__ = [{buffers}]\n"
    )


def _write(f: Any, made: _Archive, data: bytes, extra_files: dict[str, Any] | None) -> None:
    held: dict[int, Any] = {}
    constants = made.pickler(held)
    constants.open()
    for tensor in made.printer.constants:
        constants.tensor(tensor)
    constants.out += b"t"
    target = os.fspath(f) if isinstance(f, os.PathLike) else f
    if isinstance(target, str) and not os.path.isdir(os.path.dirname(target) or "."):
        raise RuntimeError(f"Parent directory {os.path.dirname(target)} does not exist.")
    root = "archive"
    if isinstance(target, str):  # as PyTorch names it
        root = os.path.basename(target).rpartition(".")[0] or os.path.basename(target) or root
    with zipfile.ZipFile(target, "w") as archive:

        def put(name: str, content: str | bytes) -> None:
            archive.writestr(f"{root}/{name}", content)

        for name, content in (extra_files or {}).items():
            put(f"extra/{name}", content)
        put("data.pkl", data)
        put("byteorder", "little")
        for folder, storages in (("data", made.storages), ("constants", held)):
            for key, storage in storages.values():
                put(f"{folder}/{key}", _bytes_of(storage))
        for path, marked in made.files.items():
            text, records = made.printer.recorder.split(marked)
            put(path, text)
            put(f"{path}.debug_pkl", pickled(made.pickler(), records))
        put("constants.pkl", constants.finished())
        called = {name for text in made.files.values() for name in _CALLED.findall(text)}
        newest = max([_VERSION, *(_NEWEST_OF[name] for name in called & _NEWEST_OF.keys())])
        put("version", f"{newest}\n")
        put(".data/serialization_id", "0" * 40)


def _bytes_of(storage: Any) -> bytes:
    if storage.device.type == "meta":
        return b""
    held = tangrad.empty(0, dtype=tangrad.uint8, device=storage.device)
    held.set_(storage, 0, (storage.nbytes(),), (1,))
    return bytes(held.cpu().numpy().tobytes())

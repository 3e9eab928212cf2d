"""Methods that no source has: of dataclasses, and calls of modules with their hooks."""

from __future__ import annotations

import ast
import dataclasses
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.source.finding import parse_text
from tangrad_jit.scripting.source.places import ScriptError, Source
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import TupleType, is_subtype

__all__ = ["hooked_call", "methods_of_dataclass"]

_ORDERS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _unit(
    owner: Any,
    name: str,
    text: str,
    names: Mapping[str, Any],
    defaults: dict[str, Any] | None = None,
) -> Unit:
    source = Source(f"<{name} of {owner.cls.__name__}>", 1, text.split("\n"))
    node = parse_text(text, source).body[0]
    assert isinstance(node, ast.FunctionDef)
    return Unit(
        owner.world,
        name,
        f"{owner.qualified}.{name}",
        source,
        node,
        PythonNames(namespace={}, more=names),
        defaults or {},
        owner.type,
    )


# --- dataclasses


def methods_of_dataclass(owner: Any, own: set[str]) -> list[Unit]:
    """Return the methods that `dataclass` has made for a class.

    Args:
        owner: the unit of the class.
        own: names of the methods that the class has of its own.

    Raises:
        ScriptError: a field is made by a factory.
    """
    params, fields = owner.cls.__dataclass_params__, dataclasses.fields(owner.cls)
    names = ChainMap({"_owner": owner.cls}, owner.more, vars(_module_of(owner.cls)))
    made = []
    if params.init and "__init__" not in own:
        made.append(_initializer(owner, names))
    compared = [field for field in fields if field.compare]
    if params.eq and "__eq__" not in own:
        tests = [_difference(owner, field) for field in compared]
        text = "def __eq__(self, other: _owner) -> bool:\n" + "".join(tests) + "    return True\n"
        made.append(_unit(owner, "__eq__", text, names))
    for name, sign in _ORDERS.items():
        if params.order and name not in own:
            made.append(_order(owner, name, sign, compared, names))
    return made


def _module_of(cls: type) -> Any:
    import sys

    return sys.modules.get(cls.__module__)


def _initializer(owner: Any, names: Any) -> Unit:
    """Return `__init__`: it stores the fields and gives what is for it alone to `__post_init__`."""
    parameters, stores, rest = [], [], []
    types: dict[str, Any] = {}
    defaults = {}
    for name, field in owner.cls.__dataclass_fields__.items():
        if field.default_factory is not dataclasses.MISSING:
            raise ScriptError(
                f"the field {name} of {owner.cls.__name__} has a default factory, which scripts do "
                "not have",
                owner.place(),
            )
        kind = field.type
        given_alone = isinstance(kind, dataclasses.InitVar)
        types[f"_type_{name}"] = kind.type if given_alone else kind
        if field.default is not dataclasses.MISSING:
            defaults[name] = field.default
        if not given_alone:
            stores.append(f"    self.{name} = {name}\n" if field.init else "")
        elif field.init:
            rest.append(name)
        if field.init:
            parameters.append(f"{name}: _type_{name}")
        elif field.default is not dataclasses.MISSING:
            types[f"_default_{name}"] = field.default
            stores.append(f"    self.{name} = _default_{name}\n")
    if hasattr(owner.cls, "__post_init__"):
        stores.append(f"    self.__post_init__({', '.join(rest)})\n")
    text = f"def __init__(self, {', '.join(parameters)}):\n" + ("".join(stores) or "    pass\n")
    return _unit(owner, "__init__", text, ChainMap(types, names), defaults)


def _difference(owner: Any, field: Any) -> str:
    """Return statements that leave where a field differs."""
    one, other = f"_a_{field.name}", f"_b_{field.name}"
    head = f"    {one} = self.{field.name}\n    {other} = other.{field.name}\n"
    kind = owner.declared.get(field.name)
    if not isinstance(kind, kinds.OptionalType):
        return head + f"    if {one} != {other}:\n        return False\n"
    return head + (
        f"    if ({one} is None) != ({other} is None):\n        return False\n"
        f"    if {one} is not None and {other} is not None:\n"
        f"        if {one} != {other}:\n            return False\n"
    )


def _order(owner: Any, name: str, sign: str, fields: list[Any], names: Any) -> Unit:
    text = f"def {name}(self, other: _owner) -> bool:\n"
    strict = sign[0]
    for field in fields:
        one, other = f"_a_{field.name}", f"_b_{field.name}"
        text += f"    {one} = self.{field.name}\n    {other} = other.{field.name}\n"
        indent = "    "
        if isinstance(owner.declared.get(field.name), kinds.OptionalType):
            text += f"    if {one} is not None and {other} is not None:\n"
            indent = "        "
        text += f"{indent}if {one} {strict} {other}:\n{indent}    return True\n"
        text += f"{indent}if {other} {strict} {one}:\n{indent}    return False\n"
    text += f"    return {len(sign) == 2}\n"
    return _unit(owner, name, text, names)


# --- hooks


def hooked_call(owner: Any, forward: Unit) -> Unit:
    """Return a function of a module and arguments that runs hooks before and after `forward`.

    Args:
        owner: the unit of the modules: `pre_hooks` and `hooks` are units of methods.
        forward: their forward.

    Raises:
        ScriptError: a hook takes or returns what does not fit.
    """
    parameters = forward.parameters[1:]
    names: dict[str, Any] = {f"_type_{p.name}": p.type for p in parameters}
    listed = ", ".join(f"{p.name}: _type_{p.name}" for p in parameters)
    text = f"def _call_with_hooks(self, {listed}):\n    _given0 = ("
    text += "".join(f"{p.name}, " for p in parameters) + ")\n"
    given, kind = "_given0", TupleType([p.type for p in parameters])
    for what, group in (("pre", owner.pre_hooks), ("post", owner.hooks)):
        names |= {f"_{what}{k}": FunctionValue([hook]) for k, hook in enumerate(group, 1)}
    for k, hook in enumerate(owner.pre_hooks, 1):
        _check_hook(hook, 2, "pre-hook", kind, None)
        if hook.returned == kinds.NONE:
            text += f"    _pre{k}(self, {given})\n"
            continue
        packed = isinstance(hook.returned, TupleType) and len(hook.returned.elements) == len(
            kind.elements
        )
        call = f"_pre{k}(self, {given})"
        text += f"    _given{k} = {call if packed else f'({call},)'}\n"
        given = f"_given{k}"
    items = ", ".join(f"{given}[{k}]" for k in range(len(kind.elements)))
    text += f"    _result0 = self.forward({items})\n"
    result = "_result0"
    returned = forward.returned
    for k, hook in enumerate(owner.hooks, 1):
        _check_hook(hook, 3, "hook", kind, returned)
        if hook.returned == kinds.NONE:
            text += f"    _post{k}(self, {given}, {result})\n"
        else:
            text += f"    _result{k} = _post{k}(self, {given}, {result})\n"
            returned = hook.returned
            result = f"_result{k}"
    text += f"    return {result}\n"
    defaults = {p.name: p.default for p in parameters if p.has_default}
    made = _unit(owner, "_call_with_hooks", text, names, defaults)
    # PyTorch finds hooks by name once their class is complete: outside of it.
    made.qualified = f"{owner.qualified}_call_with_hooks"
    return made


def _check_hook(hook: Unit, count: int, what: str, given: TupleType, result: Any) -> None:
    """Check what a hook takes and returns.

    Args:
        hook: of it. count: of its parameters. what: it is called.
        given: the types of forward's arguments.
        result: of what it is given as the result; None for a hook that comes before.

    Raises:
        ScriptError: it does not fit.
    """

    def refused(reason: str) -> ScriptError:
        return ScriptError(
            f"This error occurred while scripting the forward {what} '{hook.name}'. The {what} "
            f"{reason}",
            hook.place(),
        )

    found = len(hook.parameters)
    if found != count:
        raise refused(f"was expected to only have exactly {count} inputs but it had {found} inputs")
    taken = hook.parameters[1].type
    if not isinstance(taken, TupleType):
        raise refused(
            f"expected the input argument to be typed as a Tuple but found type: '{taken}' instead."
        )
    if len(taken.elements) != len(given.elements):
        raise refused(
            "has the wrong number of contained types for the input argument's Tuple. Received "
            f"type: '{taken}'. Expected type: '{given}'"
        )
    if not is_subtype(given, taken):
        raise refused(
            f"has the wrong inner types for the input tuple argument. Received type: '{taken}'. "
            f"Expected type: '{given}'"
        )
    if result is not None and not is_subtype(result, hook.parameters[2].type):
        raise refused(
            "has the wrong type for the output argument. Received type: "
            f"'{hook.parameters[2].type}'. Expected type: '{result}'"
        )
    if result is None:
        _check_given_back(hook, given, refused)


def _check_given_back(hook: Unit, given: TupleType, refused: Any) -> None:
    """Check what a hook before forward returns.

    Raises:
        ScriptError: it is nothing that forward takes.
    """
    if hook.declared is None and hook.returned != kinds.NONE:
        raise refused(
            "is missing a return annotation. Return annotations are required, please add one."
        )
    returned = hook.returned
    alone = given.elements[0] if len(given.elements) == 1 else None
    if isinstance(alone, TupleType):
        if returned not in (kinds.NONE, given):
            raise refused(
                f"returned the wrong type of: '{returned}'. When forward has a single tuple input "
                "argument, the return needs to be 'None' or a nested tuple containing forward's "
                f"input tuple argument as in: '{given}'"
            )
    elif returned not in (kinds.NONE, given, alone):
        raise refused(f"returned the wrong type of: '{returned}'. Expected type: '{given}'")

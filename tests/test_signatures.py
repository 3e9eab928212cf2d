"""Every public function and method takes the arguments that PyTorch's does: names, order, defaults.

PyTorch's own stubs, in the installed package, are what is compared with.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import tangrad
from tangrad.ops.definition import registry
from tangrad.ops.definition.schema import KEYWORD_ALIASES, REQUIRED
from tangrad.tensor import protocol

STUBS = Path(torch.__file__).parent / "_C"

# What PyTorch's stubs show and nobody can use, or what this package leaves out for a reason.
IGNORED_PARAMETERS = {
    "names": "named dimensions",
    "generator_state": "internal",
}


class Parameter(NamedTuple):
    """One parameter as both libraries describe it."""

    name: str
    default: str
    keyword_only: bool


class Form(NamedTuple):
    """One signature of a name."""

    parameters: tuple[Parameter, ...]
    text: str
    aliases: Mapping[str, str] = KEYWORD_ALIASES


def _default(node: ast.expr | None) -> str:
    if node is None:
        return "<required>"
    try:
        return _normal(ast.literal_eval(node))
    except ValueError:
        return _normal(ast.unparse(node))


def _normal(value: Any) -> str:
    """Write a default the way both libraries can agree on."""
    if isinstance(value, str):
        return {"strided": "None", "torch.preserve_format": "None"}.get(value, value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return str(float(value))
    if isinstance(value, (tuple, list)):
        numbers = {_normal(v) for v in value}
        return numbers.pop() if len(numbers) == 1 else "(" + ", ".join(map(_normal, value)) + ")"
    return str(value)


def _forms(function: ast.FunctionDef) -> Form | None:
    """Read a stub; None where it is of named dimensions."""
    a = function.args
    text = ast.unparse(a)
    first = [p.arg for p in a.args[:2]]
    if first in (["self", "value"], ["self", "alpha"]) or first[:1] == ["beta"]:
        return None  # numbers in front of tensors: PyTorch warns of it since 1.5
    if "EllipsisType" in text or "names:" in text or "Dimname" in text:
        return None
    positional = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
    found = [
        Parameter(p.arg, _default(d), False) for p, d in zip(positional, defaults, strict=True)
    ]
    if a.vararg is not None:
        found.append(Parameter(a.vararg.arg, "<required>", False))
    found += [
        Parameter(p.arg, _default(d), True)
        for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    return Form(tuple(found), f"({text})")


def _read(body: list[ast.stmt]) -> dict[str, list[Form]]:
    forms: dict[str, list[Form]] = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_"):
            form = _forms(statement)
            if form is not None:
                forms.setdefault(statement.name, []).append(form)
    return forms


@cache
def functions_of_torch() -> dict[str, list[Form]]:
    return _read(ast.parse((STUBS / "_VariableFunctions.pyi").read_text("utf-8")).body)


@cache
def methods_of_torch() -> dict[str, list[Form]]:
    tree = ast.parse((STUBS / "__init__.pyi").read_text("utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TensorBase").body
    return _read(body)


def forms_of(op: Any) -> list[Form]:
    """Return the signatures of an op of ours."""
    source = op if op.functional is None else op.functional
    forms = []
    for member in source.overloads or (source,):
        schema = member.definition.schema
        parameters = [
            Parameter(
                p.name,
                "<required>" if p.default is REQUIRED else _normal(p.default),
                p.keyword_only,
            )
            for p in schema.params
            if not (member.definition.random and p.name in ("seed", "offset"))
        ]
        if member.takes_out:
            parameters.append(Parameter("out", "None", True))
        aliases = member.definition.keyword_aliases
        forms.append(Form(tuple(parameters), f"({schema.signature_text()})", aliases))
    return forms


def same_name(ours: str, theirs: str, aliases: Mapping[str, str] = KEYWORD_ALIASES) -> bool:
    return ours == theirs or aliases.get(theirs) == ours


def missing(form: Form, theirs: Form, others: Sequence[Form]) -> list[str]:
    """List what a form of ours, or one of its siblings for options, lacks of PyTorch's."""
    lacks = []
    for place, p in enumerate(theirs.parameters):
        if p.name in IGNORED_PARAMETERS:
            continue
        found = [
            (i, o) for i, o in enumerate(form.parameters) if same_name(o.name, p.name, form.aliases)
        ]
        optional = p.default != "<required>"
        elsewhere = [
            o for f in others for o in f.parameters if same_name(o.name, p.name, f.aliases)
        ]
        if not found and optional and elsewhere:
            continue
        if not found:
            lacks.append(f"no parameter {p.name}")
            continue
        i, o = found[0]
        if not p.keyword_only and (o.keyword_only or i != place):
            lacks.append(f"{p.name} is not at place {place}")
        if optional and o.default != p.default and p.default not in [e.default for e in elsewhere]:
            lacks.append(f"{p.name}={o.default} where PyTorch has {p.default}")
    known = {p.name for p in theirs.parameters}
    for o in form.parameters:
        if o.default == "<required>" and not any(same_name(o.name, k, form.aliases) for k in known):
            lacks.append(f"{o.name} is required")
    return lacks


# Names whose signature differs on purpose: PyTorch's stub tells less than PyTorch does, or ours
# takes less for a reason that stands in docs/deviations.md.
DIFFERENT: dict[str, str] = {
    "hspmm": "has no out=: of a sparse result no memory is given beforehand",
    "saddmm": "has no out=: of a sparse result no memory is given beforehand",
    "quantize_per_tensor": "one function takes a tensor or a list, by the names of both",
    "bmm": "out_dtype is for other devices than the host in PyTorch, too",
    "mm": "out_dtype is for other devices than the host in PyTorch, too",
    "addmm": "out_dtype is for other devices than the host in PyTorch, too",
    "baddbmm": "out_dtype is for other devices than the host in PyTorch, too",
    "conv1d": "padding has one default, 0, which is what 'valid' means",
    "conv2d": "padding has one default, 0, which is what 'valid' means",
    "conv3d": "padding has one default, 0, which is what 'valid' means",
    "linspace": "PyTorch's stub has a default for steps that PyTorch refuses",
    "logspace": "PyTorch's stub has a default for steps that PyTorch refuses",
    "contiguous": "the default of memory_format has another name and the same meaning",
    "new_ones": "PyTorch's stub has positional parameters that PyTorch refuses",
    "random_": "random_(10) is understood, by the place of the argument",
    "rand": "factories of random numbers take no out=",
    "randn": "factories of random numbers take no out=",
    "randint": "factories of random numbers take no out=",
    "randperm": "factories of random numbers take no out=",
    "randint_like": "the bound may not be a tensor",
}


def names(stubs: dict[str, list[Form]], kind: str) -> list[str]:
    return sorted(n for n in stubs if registry.is_known(n) and shown(n, kind))


def shown(name: str, kind: str) -> bool:
    try:
        registry.function(name) if kind == "function" else registry.method(name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("name", names(functions_of_torch(), "function"))
def test_function_has_pytorchs_signature(name: str) -> None:
    check(name, functions_of_torch()[name], getattr(tangrad, name))


@pytest.mark.parametrize("name", names(methods_of_torch(), "method"))
def test_method_has_pytorchs_signature(name: str) -> None:
    check(name, methods_of_torch()[name], getattr(tangrad.Tensor, name))


def check(name: str, theirs: list[Form], op: Any) -> None:
    if not hasattr(op, "overloads") or name in DIFFERENT:
        return
    forms = forms_of(op)
    for form in theirs:
        lacks = [missing(f, form, forms) for f in forms]
        least = min(lacks, key=len)
        assert not least, f"{name}: PyTorch has {form.text}; nearest of ours lacks: {least}"


NAMESPACES = (
    "",
    *("linalg", "fft", "special", "signal.windows", "nn", "nn.functional", "nn.init", "optim"),
    *("autograd", "func", "amp", "utils.data", "testing", "library", "random", "return_types"),
)


def unanswered(place: Any) -> list[str]:
    """List the public callables of a module or class whose signature Python cannot tell."""
    found = []
    for name in dir(place):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(place, name, None) or getattr(place, name)
        error = isinstance(value, type) and issubclass(value, BaseException)
        if not callable(value) or error:  # of errors Python does not tell its own, either
            continue
        try:
            inspect.signature(value)
        except ValueError as failure:
            found.append(f"{name}: {failure}")
    return found


@pytest.mark.parametrize("name", NAMESPACES)
def test_every_callable_tells_its_signature(name: str) -> None:
    place = importlib.import_module(f"tangrad.{name}") if name else tangrad
    assert unanswered(place) == []


def test_every_method_tells_its_signature() -> None:
    protocol.load_methods()
    assert unanswered(tangrad.Tensor) == []


def test_compiled_methods_refuse_what_is_no_tensor() -> None:
    for value in vars(tangrad.Tensor).values():
        open_to_all = isinstance(value, (tangrad._C.Op, tangrad._C.Overridable))
        if inspect.ismethoddescriptor(value) and not open_to_all:
            with pytest.raises(TypeError):
                value(3)

"""A page per public name that is no op: from its signature, annotations and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tools.website import markdown as md
from tools.website.surface import Entry, of_tangrad

QUALIFIED = re.compile(r"\b(?:tangrad(?:_\w+)?|typing|collections\.abc|torch)\.(?:\w+\.)*(?=\w)")
WIDTH = 88
ATTRIBUTES = {"getset_descriptor", "property", "member_descriptor"}
# What attributes of tensors are, whose docstrings cannot be reached: compiled ones have none, and
# those that can be overridden show the docstring of what asks for that.
TOLD = {
    "H": "The conjugate transpose of a matrix, a view.",
    "T": "The tensor with its dimensions in reverse, a view.",
    "data": "The same elements without their history; writes to it are not seen by autograd.",
    "device": "The device that holds the elements.",
    "dtype": "The type of the elements.",
    "grad": "What `backward` has added up for this leaf, or None.",
    "grad_dtype": "The dtype that `grad` has to have; None for any.",
    "grad_fn": "The node of the graph that made this tensor; None for a leaf.",
    "imag": "The imaginary parts of a complex tensor, a view.",
    "is_cpu": "Whether the tensor is on device `cpu`.",
    "is_leaf": "Whether no recorded op made this tensor.",
    "is_meta": "Whether the tensor has a shape and no elements: device `meta`.",
    "is_mkldnn": "False: tangrad has no such layout.",
    "is_nested": "False: tangrad has no nested tensors.",
    "is_quantized": "Whether the layout is a quantized one.",
    "is_sparse": "Whether the layout is `sparse_coo`.",
    "is_sparse_csr": "Whether the layout is `sparse_csr`.",
    "itemsize": "Bytes of one element.",
    "layout": "How the elements are stored: `tangrad.strided` but for layouts of packages.",
    "mH": "The last two dimensions transposed and conjugated, a view.",
    "mT": "The last two dimensions transposed, a view.",
    "name": "Always None.",
    "nbytes": "Bytes of all elements.",
    "ndim": "The number of dimensions.",
    "output_nr": "Which of the results of `grad_fn` this tensor is.",
    "real": "The real parts of a complex tensor, a view; a real tensor itself.",
    "requires_grad": "Whether ops on this tensor are recorded; may be set for a leaf.",
    "retains_grad": "Whether `backward` fills `grad` though this is no leaf (`retain_grad`).",
    "shape": "The sizes of all dimensions, a `tangrad.Size`.",
}


def page_of(entry: Entry) -> str:
    """Return the path of a name's page, below the root and without its ending."""
    return f"api/{entry.name}"


def page(entry: Entry, example: str | None, classes: dict[int, Entry]) -> list[str]:
    """Return the lines of the page of a class, a function or a value.

    Args:
        entry: the name.
        example: an example by hand, if there is one.
        classes: public classes by identity, which are linked as bases.
    """
    lines = ["---", "orphan: true", "---", "", f"# `{entry.name}`", ""]
    if entry.kind == "value":
        lines += _value(entry)
    else:
        lines += _documented(entry, classes)
    if entry.others:
        lines += [f"Also {', '.join(map(md.code, entry.others))}.", ""]
    if example:
        lines += ["## Example", "", *md.fenced(example, "pycon")]
    if entry.name == "tangrad.Tensor":
        lines += ["[Methods and attributes](../names/tangrad.Tensor.md) have a page each.", ""]
    elif entry.kind == "class":
        lines += _members(entry)
    return lines


def own_docstring(value: Any) -> str | None:
    """Return what is documented of an object itself, and not of its class."""
    if isinstance(value, type):
        fields = getattr(value, "__match_args__", None) or getattr(value, "_fields", None)
        if value.__doc__ is None and fields and issubclass(value, tuple):
            return f"A named tuple of results: {', '.join(f'`{field}`' for field in fields)}."
        return value.__doc__
    if isinstance(value, property):
        value = value.fget
    told = inspect.getdoc(value)
    return None if told == inspect.getdoc(type(value)) else told


def told_of_value(entry: Entry) -> str:
    """Return what a value is, in a line."""
    if type(entry.value).__name__ in ATTRIBUTES:
        return md.summary(_told_of_attribute(entry)) or "An attribute."
    text = repr(entry.value)
    if len(text) < 60 and " at 0x" not in text:
        return f"`{text}`"
    return f"A value of type `{type(entry.value).__name__}`."


def _told_of_attribute(entry: Entry) -> str | None:
    told = own_docstring(entry.value)
    return told or TOLD.get(entry.name.rpartition(".")[2])


def _value(entry: Entry) -> list[str]:
    if type(entry.value).__name__ in ATTRIBUTES:
        return [*md.docstring(_told_of_attribute(entry)), "An attribute of tensors.", ""]
    text = repr(entry.value)
    lines = md.fenced(text, "python") if len(text) < 400 and " at 0x" not in text else []
    return [f"A value of type {md.code(type(entry.value).__name__)}.", "", *lines]


def _documented(entry: Entry, classes: dict[int, Entry]) -> list[str]:
    value = entry.value
    documented = own_docstring(value)
    lines = md.opening(documented)
    if not documented and not repr(value).startswith("<"):
        lines += ["Made by:", "", *md.fenced(repr(value).removesuffix("{}"), "python")]
    head = "class " if entry.kind == "class" else ""
    lines += md.fenced(f"{head}{signature(entry.name, value)}", "python")
    if entry.kind == "class":
        init = vars(value).get("__init__")
        if init is not None and getattr(init, "__doc__", None) and not documented:
            lines += md.docstring(init.__doc__)
        bases = [classes[id(c)] for c in value.__mro__[1:] if id(c) in classes]
        if bases:
            shown = ", ".join(f"[{md.code(b.name)}](../{page_of(b)}.md)" for b in bases)
            lines += [f"Is also a {shown}, whose methods it has.", ""]
    return [*lines, *md.remainder(documented)]


def signature(name: str, value: Any) -> str:
    """Return a call of a function or a class as it is written, types and defaults included."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    if isinstance(value, type) and list(found.parameters) == ["args", "kwargs"]:
        return f"{name}(...)"
    if isinstance(value, type):  # a call of a class returns one
        found = found.replace(return_annotation=inspect.Signature.empty)
    is_method = name.startswith("tangrad.Tensor.") and next(iter(found.parameters), "") == "self"
    return written(name, found, skip_self=is_method)


def written(name: str, found: inspect.Signature, skip_self: bool = False) -> str:
    """Return a signature on one line, or on a line for each argument where that is too long."""
    parameters = list(found.parameters.values())[1 if skip_self else 0 :]
    parts = list(_parts(parameters))
    result = found.return_annotation
    arrow = "" if result is inspect.Signature.empty else f" -> {_type(result)}"
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def _parts(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for number, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not starred:
            yield "*"
        starred |= p.kind in {p.KEYWORD_ONLY, p.VAR_POSITIONAL}
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = f"{mark}{p.name}"
        if p.annotation is not p.empty:
            text += f": {_type(p.annotation)}"
        if p.default is not p.empty:
            equals = " = " if p.annotation is not p.empty else "="
            text += f"{equals}{_default(p.default)}"
        yield text
        following = parameters[number + 1] if number + 1 < len(parameters) else None
        if p.kind is p.POSITIONAL_ONLY and (
            following is None or following.kind is not p.POSITIONAL_ONLY
        ):
            yield "/"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return QUALIFIED.sub("", text.strip("'\""))


def _default(value: Any) -> str:
    text = repr(value)
    if " at 0x" in text or len(text) > 60:
        return getattr(value, "__name__", "...")
    return text


def _members(entry: Entry) -> list[str]:
    """Return the methods and properties that a class defines itself."""
    lines: list[str] = []
    for name, member in sorted(vars(entry.value).items()):
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(member, property):
            lines += [f"### `{name}`", "", *md.docstring(own_docstring(member), "####")]
        elif inspect.isfunction(function) and of_tangrad(function.__module__):
            found = inspect.signature(function)
            bound = not isinstance(member, staticmethod)
            lines += [f"### `{name}`", ""]
            lines += md.fenced(written(name, found, skip_self=bound), "python")
            lines += md.docstring(inspect.getdoc(function), "####")
    return ["## Methods and properties", "", *lines] if lines else []

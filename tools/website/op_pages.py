"""A page per op, made from its definition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tools.website import markdown as md
from tools.website.op_examples import NoExampleError, example
from tools.website.surface import Entry

KEY = re.compile(r"^  (∂/∂\S+|vjp \S+|\S[\S ]{0,11}?)  +(.*)$")
ROW = re.compile(r"^    (\S+) +(.*)$")
# Titles of what `tangrad op NAME` tells, and where they stand on the page.
TITLES = {
    "kind": "Kind",
    "forms": "Forms",
    "expression": "Expression",
    "map": "Each element",
    "combine": "Two partial results",
    "identity": "Nothing gives",
    "finalize": "At the end",
    "promotion": "Promotion",
    "decomposes": "Decomposition",
    "derivative": "Backward",
    "tangent": "Forward mode",
    "batching": "Batching (`vmap`)",
    "compiled": "Compiled",
}
AS_CODE = {"expression", "map", "combine", "identity", "finalize"}
EXPORTED = {"c99": "C99 file"}  # devices that are targets of exporters, not machines
FOR_TESTS = {"loopback"}
DTYPES = set(
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32 float64 float16 bfloat16 "
    "complex32 complex64 complex128".split()
)


def page_of(op: str) -> str:
    """Return the path of an op's page, below the root and without its ending."""
    return f"ops/{op.replace('::', '.')}"


def members(op: Any) -> tuple[Any, ...]:
    """Return the definitions behind an op: of one with several forms, each."""
    return op.overloads or tuple(op.definition.variants.values()) or (op,)


def title(op: Any, entry: Entry | None) -> str:
    """Return what an op is called on its page: its first public name, or its own."""
    return entry.name if entry else f"tangrad.ops.{op.name.replace('::', '.')}"


def calls(op: Any, entry: Entry | None) -> list[str]:
    """Return how to call an op, functions first."""
    names = [n for n in entry.names if ".Tensor." not in n] if entry else []
    return [
        *(n for n in names if not n.endswith("_")),
        f"tangrad.ops.{op.name.replace('::', '.')}",
    ]


def example_of(op: Any, entry: Entry | None) -> str:
    """Return an example of an op.

    Raises:
        NoExampleError: no sample of its definitions can be shown.
    """
    reason = NoExampleError("its definition has no samples")
    for member in members(op):
        try:
            return example(calls(op, entry), member.definition)
        except NoExampleError as error:
            reason = error
    raise reason


def page(op: Any, entry: Entry | None, given: str | None, onnx: str) -> list[str]:
    """Return the lines of an op's page.

    Args:
        op: the op.
        entry: its public names, if it has any.
        given: an example by hand, in place of one that is made.
        onnx: how ONNX models have it, or an empty string.
    """
    from tangrad.ops.definition.describe import describe
    from tangrad.plugin.stubs import function_forms

    name = title(op, entry)
    documented = next((m.definition.doc for m in (op, *members(op)) if m.definition.doc), "")
    lines = ["---", "orphan: true", "---", "", f"# `{name}`", ""]
    lines += md.opening(documented)
    lines += md.fenced(_signature(function_forms(op.name, op), name), "python")
    if entry and entry.others:
        lines += [f"Also {', '.join(map(md.code, entry.others))}.", ""]
    lines += [*md.remainder(documented), "## Example", ""]
    try:
        lines += md.fenced(given or example_of(op, entry), "pycon")
    except NoExampleError as error:
        lines += [f"None: {md.plain(str(error))}.", ""]
    lines += ["## What follows from its definition", ""]
    lines += [f"`python -m tangrad op {op.name}` prints the same where it is asked.", ""]
    parts = list(_parts(describe(op.name)))
    for heading, told in parts:
        lines += [f"### {md.code(heading)}", ""] if len(parts) > 1 else []
        lines += _told(told, onnx)
    return lines


def _signature(stub: list[str], name: str) -> str:
    """Return the forms of a call, without what only a stub needs."""
    heads = [line for line in stub if line.startswith("def ")]
    short = [re.sub(r"\b_(?=[a-z])", "", head.removeprefix("def ")) for head in heads]
    return "\n".join(
        _wrapped(re.sub(r"^\w+", name, head.removesuffix(" ...").removesuffix(":")))
        for head in short
    )


def _wrapped(signature: str) -> str:
    """Return a signature with an argument on each line where one line would be long."""
    if len(signature) <= 88:
        return signature
    head, _, rest = signature.partition("(")
    inside, arrow, result = rest.rpartition(") -> ")
    parts = _arguments(inside)
    return f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + f"{arrow}{result}"


def _arguments(text: str) -> list[str]:
    """Return the arguments of a signature: split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _parts(text: str) -> Iterator[tuple[str, list[tuple[str, str, list[str]]]]]:
    """Yield the signature of each definition, and what is told of it: key, value, further lines."""
    heading = ""
    told: list[tuple[str, str, list[str]]] = []
    in_doc = False
    for line in text.split("\n"):
        if line and not line.startswith(" "):
            if heading and told:
                yield heading, told
            heading, told, in_doc = line, [], True
            continue
        if in_doc and not line.startswith("  kind  "):
            continue
        in_doc = False
        if found := KEY.match(line):
            told.append((found.group(1), found.group(2), []))
        elif line.startswith("    ") and told:
            told[-1][2].append(line)
        elif line.startswith("  "):
            told.append((line.strip(), "", []))
    if told:
        yield heading, told


def _told(told: list[tuple[str, str, list[str]]], onnx: str) -> list[str]:
    rows: list[tuple[str, str]] = []
    after: list[str] = []
    exported: list[str] = []
    for key, value, more in told:
        if key == "kernels":
            devices = [found.groups() for line in more if (found := ROW.match(line))]
            if value:
                rows.append(("Kernels", md.plain(value)))
            exported += [
                f"{EXPORTED[d]}: {md.plain(_without_provider(t))}"
                for d, t in devices
                if d in EXPORTED
            ]
            shown = [
                (md.code(device), md.plain(_state(told_of)))
                for device, told_of in devices
                if device not in EXPORTED and device not in FOR_TESTS
            ]
            if shown:
                after += ["**Devices and dtypes**", "", *md.table(("device", "kernels"), shown)]
        elif key == "rendered C":
            block = "\n".join(line[4:] for line in more)
            summary = "<summary>Rendered C</summary>"
            after += ["<details>", summary, "", *md.fenced(block, "c"), "</details>", ""]
        elif key == "promotion" and more:
            rows.append((TITLES[key], md.plain(value)))
            dtypes = [
                (md.code(m.group(1)), md.plain(m.group(2))) for x in more if (m := ROW.match(x))
            ]
            after += ["**Dtypes**", "", *md.table(("of inputs", "of computing and result"), dtypes)]
        else:
            is_code = key in AS_CODE or key.startswith(("∂", "vjp"))
            is_code = is_code and not value.startswith("none")
            text = md.code(value) if is_code else md.plain(value)
            rows.append((TITLES.get(key, md.code(key)), text))
    exported += [f"ONNX: {onnx}"] if onnx else []
    if exported:
        rows.append(("Exported forms", "; ".join(exported)))
    return [*md.table(("", ""), rows), *after]


def _state(text: str) -> str:
    """Return what is known of a device; one that is not here was not asked."""
    if text.startswith("not asked"):
        return "not asked where this page was made, which has no such device"
    return _without_provider(text)


def _without_provider(text: str) -> str:
    """Return the dtypes of a device without what brings it; rare ones are counted."""
    text = re.sub(r"  \(tangrad\S* [\d.]+\)$", "", text)
    names = text.split(" ")
    rare = [name for name in names if name not in DTYPES]
    if len(rare) == len(names) or not rare or not all(map(str.isalnum, "".join(rare).split("_"))):
        return text
    return (
        f"{' '.join(name for name in names if name in DTYPES)} and {len(rare)} dtypes of few bits"
    )


def onnx_form(op: Any) -> str:
    """Return how ONNX models have an op; an empty text where tangrad-onnx is not installed."""
    try:
        from tangrad_onnx.writing.forms import FORMS, WHOLE
    except ImportError:
        return ""
    names = {op.name, *(member.name for member in members(op))}
    if names & (set(FORMS) | WHOLE):
        return "operators of its own"
    if op.kind == "pointwise":
        return "the steps of its expression, where ONNX has an operator for each"
    return "its parts" if op.kind in {"composite", "overload"} else ""

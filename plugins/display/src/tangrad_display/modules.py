"""Modules and summaries as trees in HTML that open and close."""

from __future__ import annotations

from html import escape
from typing import Any

import tangrad
from tangrad_display.settings import is_rich

_OPEN = 2  # levels of modules that are open at first
_MOST = 2000  # modules that are shown
_STYLE = "margin-left:1.2em"


def notebook_html(module: Any) -> str | None:
    """Return what notebooks show of a module, or None for its text."""
    return module_html(module) if is_rich() else None


def summary_html(found: Any) -> str | None:
    """Return what notebooks show of a `tangrad.summary`, or None for its text."""
    return _tree_of(found) if is_rich() else None


def module_html(module: Any, *inputs: Any, **kwargs: Any) -> str:
    """Return a module as a tree of its submodules with their parameters.

    Args:
        module: an `nn.Module`.
        *inputs: of one call, as `tangrad.summary` takes them; then shapes of outputs and FLOPs
            are told, too. Without, nothing is called.
        **kwargs: keyword arguments of the call.

    Returns:
        HTML. A module that cannot be described is a line of text; what a call raises is raised.
    """
    if inputs or kwargs:
        return _tree_of(tangrad.summary(module, *inputs, show=False, **kwargs))
    try:
        return f"<div>{_branch('', module, 0, [_MOST])}</div>"
    except Exception as error:  # a notebook shows its objects whatever became of them
        said = str(error).partition("\n")[0]
        return f"<code>{escape(type(module).__name__)}: {escape(said)}</code>"


def _branch(name: str, module: Any, depth: int, left: list[int]) -> str:
    left[0] -= 1
    said = [f"<b>{escape(type(module).__name__)}</b>"]
    if extra := module.extra_repr():
        said.append(f"({escape(extra)})")
    held = sum(p.numel() for p in module.parameters() if _is_initialized(p))
    frozen = sum(
        p.numel() for p in module.parameters() if _is_initialized(p) and not p.requires_grad
    )
    lazy = any(not _is_initialized(p) for p in module.parameters())
    if held or lazy:
        words = f"{held:,} parameters" if held else "parameters"
        words += f", {frozen:,} frozen" if frozen else ""
        words += ", some not initialized" if lazy else ""
        said.append(f"<small>{words}</small>")
    heading = (f"{escape(name)}: " if name else "") + " ".join(said)
    own = "".join(
        f"<div><code>{escape(key)}</code> {_shape_of(tensor)}</div>"
        for key, tensor in (*module.named_parameters(recurse=False), *_buffers(module))
    )
    children = []
    for key, child in module.named_children():
        if left[0] <= 0:
            children.append("<div>…</div>")
            break
        children.append(_branch(key, child, depth + 1, left))
    return _foldable(heading, own + "".join(children), depth < _OPEN and bool(children))


def _buffers(module: Any) -> list[tuple[str, Any]]:
    return list(module.named_buffers(recurse=False))


def _shape_of(tensor: Any) -> str:
    if not _is_initialized(tensor):
        return "not initialized"
    dtype = tensor.dtype.name
    return escape(f"{list(tensor.shape)} {dtype} on {tensor.device}")


def _is_initialized(tensor: Any) -> bool:
    return not tangrad.nn.parameter.is_lazy(tensor)


def _foldable(heading: str, inside: str, is_open: bool) -> str:
    if not inside:
        return f'<div style="{_STYLE}">{heading}</div>'
    state = " open" if is_open else ""
    return f'<details style="{_STYLE}"{state}><summary>{heading}</summary>{inside}</details>'


def _tree_of(found: Any) -> str:
    """Return the rows of a summary as a tree."""
    rows = list(found.rows)

    def branch(place: int) -> tuple[str, int]:
        row, after, inside = rows[place], place + 1, []
        while after < len(rows) and rows[after].depth > row.depth:
            text, after = branch(after)
            inside.append(text)
        words = [row.output] if row.output else []
        words += [f"{row.parameters:,} parameters"] if row.parameters else []
        words += [f"{row.flops:,} FLOPs"] if row.flops else []
        words += [f"{row.calls} calls"] if row.calls > 1 else []
        words += [f"{row.dead:.0%} dead"] if row.dead else []
        name = f"{escape(row.name.rpartition('.')[2])}: " if row.name else ""
        heading = f"{name}<b>{escape(row.kind)}</b> <small>{escape(', '.join(words))}</small>"
        return _foldable(heading, "".join(inside), row.depth < _OPEN), after

    text, place = "", 0
    while place < len(rows):
        part, place = branch(place)
        text += part
    told = str(found).splitlines()
    total = told[len(told) - told[::-1].index(told[1]) :]  # behind the second rule
    return f"<div>{text}<small>{escape('; '.join(total))}</small></div>"

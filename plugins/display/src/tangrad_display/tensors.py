"""A tensor as HTML: what it is, figures, a histogram, a picture, and its text."""

from __future__ import annotations

from html import escape
from typing import Any

import tangrad
from tangrad_display.figures import (
    SAMPLE,
    Statistics,
    has_elements,
    numbers_of,
    readable,
    sampled,
    statistics,
)
from tangrad_display.pictures import LARGEST, SHOWN, SMALLEST, heat_map, image, image_tag
from tangrad_display.settings import is_rich

_BAR, _TALL = 4, 36  # width of a bar of the histogram and height of the highest, in pixels
_CHANNELS = (1, 3, 4)


def notebook_html(tensor: Any) -> str | None:
    """Return what notebooks show of a tensor, or None for its text."""
    if not is_rich():
        return None
    return tensor_html(tensor)


def tensor_html(tensor: Any) -> str:
    """Return a tensor as HTML, of a sample of its elements where there are many.

    A tensor whose elements cannot be read, for they are of a device that is gone, of a layout
    without elements, or fail otherwise, is a line of text. Nothing is raised.

    Args:
        tensor: of any shape, dtype, layout and device.
    """
    try:
        return _html(tensor)
    except Exception as error:  # a notebook shows its objects whatever became of them
        return f"<code>{escape(_heading(tensor))}: {escape(_first_line(error))}</code>"


def _html(tensor: Any) -> str:
    head = f"<b>{escape(_heading(tensor))}</b>"
    if tensor.layout != tangrad.strided and not tensor.is_quantized:
        return f"<div>{head} <code>{escape(_layout(tensor))}</code></div>"
    if not has_elements(tensor):
        return f"<div>{head}{_text_of(tensor)}</div>"
    shown = readable(tensor)
    found = statistics(shown)
    text = _text_of(tensor if tensor.numel() <= SAMPLE else shown)
    parts = [head, _figures(found, shown), _bars(found), _picture(shown), text]
    return f"<div>{''.join(parts)}</div>"


def _layout(tensor: Any) -> str:
    words = str(tensor.layout)
    if tensor.layout in (tangrad.sparse_coo, tangrad.sparse_csr, tangrad.sparse_csc):
        stored = tensor._nnz()
        words += f", {stored:,} elements stored"
        if tensor.numel():
            words += f" ({stored / tensor.numel():.2%})"
    return words


def _heading(tensor: Any) -> str:
    try:
        words = [
            type(tensor).__name__,
            tensor.dtype.name,
            str(list(tensor.shape)),
            f"on {tensor.device}",
        ]
        if tensor.requires_grad:
            words.append("requires grad")
        return " ".join(words)
    except Exception:  # not even its facts can be read
        return type(tensor).__name__


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _figures(found: Statistics, tensor: Any) -> str:
    words = []
    if found.least is not None:
        names = ("min", "max", "mean", "std")
        values = (found.least, found.greatest, found.mean, found.deviation)
        words += [f"{name} {value:.4g}" for name, value in zip(names, values, strict=True)]
    for name, share in (("zero", found.zeros), ("NaN", found.nans), ("inf", found.infinities)):
        if share:
            words.append(f"{share:.1%} {name}")
    if tensor.is_complex():
        words.append("of absolute values")
    if found.is_sample:
        words.append(f"from {found.looked_at:,} of {found.elements:,} elements, evenly spaced")
    return f'<div style="font-size:90%">{escape(", ".join(words))}</div>'


def _bars(found: Statistics) -> str:
    if len(found.counts) < 2:
        return ""
    most = max(found.counts)
    bars = "".join(
        f'<rect x="{i * _BAR}" y="{_TALL - tall:.1f}" width="{_BAR - 1}" height="{tall:.1f}"/>'
        for i, count in enumerate(found.counts)
        if (tall := _TALL * count / most)
    )
    wide = _BAR * len(found.counts)
    return (
        f'<svg width="{wide}" height="{_TALL}" fill="currentColor" opacity="0.6" '
        f'role="img" aria-label="histogram">{bars}</svg> '
    )


def _picture(tensor: Any) -> str:
    shape = tensor.shape
    if len(shape) < 2 or min(shape[-2:]) < 2:
        return ""
    is_image = len(shape) in (3, 4) and shape[-3] in _CHANNELS and min(shape[-2:]) >= SMALLEST
    small = tensor.detach()
    for dim in (-1, -2):
        step = -(-shape[dim] // LARGEST)
        places = (slice(None),) * (len(shape) + dim)
        small = small[(*places, slice(None, None, step))]
    if not is_image:
        matrix = small[(0,) * (len(shape) - 2)]
        where = f"[{', '.join('0' * (len(shape) - 2))}]" if len(shape) > 2 else ""
        return image_tag(heat_map(numbers_of(matrix)), f"heat map of {where or 'the elements'}")
    batch = small if len(shape) == 4 else small[None]
    byte = tensor.dtype == tangrad.uint8
    return "".join(
        image_tag(image(numbers_of(batch[i]), byte), f"image {i}")
        for i in range(min(SHOWN, shape[0] if len(shape) == 4 else 1))
    )


def _text_of(tensor: Any) -> str:
    text = escape(repr(tensor if tensor.numel() <= SAMPLE else sampled(tensor, SAMPLE)))
    title = "elements" if tensor.numel() <= SAMPLE else "a sample of the elements"
    return f"<details><summary>{title}</summary><pre>{text}</pre></details>"

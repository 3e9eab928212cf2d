"""Pictures for a report's page, as SVG text."""

from __future__ import annotations

import html
from collections.abc import Sequence

_WIDTH, _HEIGHT = 460, 120


def _figure(shapes: Sequence[str], caption: str, height: int = _HEIGHT) -> str:
    return (
        f"<figure><svg width='{_WIDTH}' height='{height}' role='img'>{''.join(shapes)}</svg>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.5):.1f}' "
        f"height='{max(height, 0.5):.1f}' fill='{colour}'/>"
    )


def histogram(counts: Sequence[float], low: float, high: float, from_: float, to: float) -> str:
    """Draw how often numbers occur, by the root of the counts, and the range that is quantized.

    Args:
        counts: per bin.
        low, high: where the bins begin and end.
        from_, to: the quantized range; what lies outside is clipped.
    """
    tallest = max([*counts, 1.0]) ** 0.5
    step = _WIDTH / max(len(counts), 1)
    shapes = []
    for i, count in enumerate(counts):
        middle = low + (i + 0.5) * (high - low) / len(counts)
        colour = "#48a" if from_ <= middle <= to else "#c64"
        tall = (_HEIGHT - 4) * count**0.5 / tallest
        shapes.append(_box(i * step, _HEIGHT - tall, step, tall, colour))
    for edge in (from_, to):
        x = (edge - low) / (high - low or 1.0) * _WIDTH
        if 0 <= x <= _WIDTH:
            shapes.append(_box(x, 0, 1, _HEIGHT, "#222"))
    return _figure(
        shapes, f"input from {low:.4g} to {high:.4g}, quantized from {from_:.4g} to {to:.4g}"
    )


def ranges(channels: Sequence[tuple[float, float]]) -> str:
    """Draw the range of each channel's weights."""
    if not channels:
        return ""
    low, high = min(c[0] for c in channels), max(c[1] for c in channels)
    scale = (_HEIGHT - 4) / (high - low or 1.0)
    step = _WIDTH / len(channels)
    shapes = [
        _box(i * step, (high - c[1]) * scale + 2, step * 0.8, (c[1] - c[0]) * scale, "#6a6")
        for i, c in enumerate(channels)
    ]
    return _figure(shapes, f"weights by channel, {low:.4g} to {high:.4g}")


def bars(values: Sequence[tuple[str, float]], caption: str) -> str:
    """Draw a bar for each name."""
    most = max([1e-9, *(value for _, value in values)])
    shapes = []
    for i, (name, value) in enumerate(values):
        shapes.append(_box(160, i * 18 + 3, (_WIDTH - 200) * max(value, 0) / most, 12, "#48a"))
        shapes.append(
            f"<text x='0' y='{i * 18 + 13}' font-size='11'>{html.escape(name)}</text>"
            f"<text x='{_WIDTH - 38}' y='{i * 18 + 13}' font-size='11'>{value:.1f}</text>"
        )
    return _figure(shapes, caption, 18 * len(values) + 6)

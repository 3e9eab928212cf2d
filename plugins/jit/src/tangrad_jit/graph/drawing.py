"""A graph as a picture (SVG): nodes in layers, each below what it reads."""

from __future__ import annotations

from html import escape
from typing import Any

from tangrad_jit.graph.nodes import Node, Value

__all__ = ["svg_of"]

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 34, 16, 34
_FILLS = {"view": "#eef2f7", "pointwise": "#e3f2e6", "reduction": "#fdf0d5", "kernel": "#e4e6fb"}


def svg_of(graph: Any) -> str:
    """Return a `Graph` as the text of an SVG file."""
    layer: dict[Value, int] = {entry.value: 0 for entry in graph.inputs}
    rows: dict[int, list[tuple[str, str, str, list[Value], list[Value]]]] = {}
    for entry in graph.inputs:
        row = rows.setdefault(0, [])
        row.append((entry.name, str(entry.value.type), "#ffffff", [], [entry.value]))
    for node in graph.nodes:
        depth = 1 + max((layer[value] for value in node.inputs), default=0)
        layer.update(dict.fromkeys(node.results, depth))
        types = ", ".join(str(value.type) for value in node.results)
        fill = _FILLS.get(node.op.kind, "#f5f5f5")
        rows.setdefault(depth, []).append((_title(node), types, fill, node.inputs, node.results))
    return _draw(rows)


def _title(node: Node) -> str:
    return node.name + {"inplace": " in place", "out": " into", "draw": " draw"}.get(node.form, "")


def _draw(rows: dict[int, list[tuple[str, str, str, list[Value], list[Value]]]]) -> str:
    place: dict[Value, tuple[float, float]] = {}
    boxes, edges = [], []
    widest = max((len(row) for row in rows.values()), default=1)
    width = widest * (_WIDTH + _GAP_X) + _GAP_X
    height = (max(rows, default=0) + 1) * (_HEIGHT + _GAP_Y) + _GAP_Y
    for depth, row in sorted(rows.items()):
        left = (width - len(row) * (_WIDTH + _GAP_X)) / 2
        for k, (title, types, fill, inputs, results) in enumerate(row):
            x = left + k * (_WIDTH + _GAP_X) + _GAP_X / 2
            y = _GAP_Y / 2 + depth * (_HEIGHT + _GAP_Y)
            place.update(dict.fromkeys(results, (x + _WIDTH / 2, y + _HEIGHT)))
            boxes.append(
                f'<g><title>{escape(types)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" '
                f'height="{_HEIGHT}" rx="5" fill="{fill}" stroke="#667"/>'
                f'<text x="{x + 8:.0f}" y="{y + 14:.0f}">{escape(title[:28])}</text>'
                f'<text x="{x + 8:.0f}" y="{y + 28:.0f}" fill="#556">{escape(types[:30])}</text>'
                "</g>"
            )
            for value in dict.fromkeys(inputs):
                a, b = place[value]
                edges.append(
                    f'<path d="M{a:.0f},{b:.0f} C{a:.0f},{b + 20:.0f} {x + _WIDTH / 2:.0f},'
                    f'{y - 20:.0f} {x + _WIDTH / 2:.0f},{y:.0f}" fill="none" stroke="#99a"/>'
                )
    body = "\n".join([*edges, *boxes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n{body}\n</svg>\n'
    )

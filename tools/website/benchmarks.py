"""Benchmarks as tables and pictures: a section for each machine that was measured.

The figures are what `benchmarks/run.py --json` wrote, in docs/benchmarks/, a file a machine. Its
keys `machine`, `date` and `command` say what was measured, and how; `note` is added by hand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from tools.website import markdown as md
from tools.website.contents import ROOT

FOLDER = ROOT / "docs" / "benchmarks"
WIDTH, ROW, LEFT = 760, 16, 330
LEAST, MOST = 1 / 8, 8


def sections() -> list[str]:
    """Return the lines of all machines."""
    lines: list[str] = []
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text("utf-8"))
        lines += [f"## {document['machine']}", ""]
        told = f"{document['date']}, `{document['command']}`. {document.get('note', '')}"
        lines += [told.strip(), ""]
        figures = [f for f in document["figures"] if f.get("ratio")]
        lines += [_picture(figures), "", *_table(figures)]
    return lines


def _table(figures: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            md.plain(f["workload"]),
            _amount(f["values"].get("tangrad"), f["unit"]),
            _amount(f["values"].get("torch"), f["unit"]),
            f"{f['ratio'][1]:.2f} ({f['ratio'][0]:.2f}-{f['ratio'][2]:.2f})",
        )
        for f in figures
    ]
    return md.table(("workload", "tangrad", "PyTorch", "time here / there (quartiles)"), rows)


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit != "s":
        return f"{value:.3g} {unit}"
    for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:.3g} s"


def _picture(figures: Sequence[dict[str, Any]]) -> str:
    """Return a picture in SVG: a bar for each ratio, to the left where tangrad is faster."""
    height = ROW * len(figures) + 30
    middle = LEFT + (WIDTH - LEFT) * _place(1)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" style="max-width:100%" '
        'aria-label="Time on tangrad, divided by the time on PyTorch" font-size="11" '
        'fill="currentColor" font-family="sans-serif">'
    ]
    for ratio in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8):
        x = LEFT + (WIDTH - LEFT) * _place(ratio)
        parts.append(
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="20" y2="{height}" stroke="currentColor" '
            f'stroke-opacity="0.25"/><text x="{x:.0f}" y="12" text-anchor="middle">{ratio:g}</text>'
        )
    for number, figure in enumerate(figures):
        y = 24 + ROW * number
        end = LEFT + (WIDTH - LEFT) * _place(figure["ratio"][1])
        colour = "#2a9d8f" if end <= middle else "#e07a5f"
        name = _text(figure["workload"])
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 10}" text-anchor="end">{name}</text>'
            f'<rect x="{min(end, middle):.1f}" y="{y + 2}" width="{abs(end - middle):.1f}" '
            f'height="{ROW - 5}" fill="{colour}"/>'
        )
    return "".join([*parts, "</svg>"])


def _place(ratio: float) -> float:
    """Return where a ratio stands, from 0 to 1."""
    share = math.log(ratio / LEAST) / math.log(MOST / LEAST)
    return min(1.0, max(0.0, share)) * 0.98 + 0.01


def _text(text: str) -> str:
    """Return a text for a picture within Markdown: punctuation means nothing in either."""
    return re.sub(r"[^\w\s]", lambda found: f"&#{ord(found[0])};", text).replace("_", "&#95;")

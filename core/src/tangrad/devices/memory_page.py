"""Draw what a caching allocator holds as a page that needs nothing else."""

from __future__ import annotations

import html
from typing import Any

from tangrad import _C

_COLOURS = {"active_allocated": "#3b7dd8", "active_awaiting_free": "#e0a030", "inactive": "#e4e7eb"}
_MEANING = {
    "active_allocated": "held by a tensor",
    "active_awaiting_free": "released, until a stream has passed",
    "inactive": "free",
}
_STYLE = """body{font:14px sans-serif;margin:2em;color:#222}
.segment{display:flex;height:22px;border:1px solid #888;margin:2px 0 10px}
.segment div{overflow:hidden;border-right:1px solid #fff;box-sizing:border-box;font-size:11px}
.key{display:inline-block;width:1em;height:1em;margin:0 .4em 0 1.2em;vertical-align:-2px}
td,th{padding:1px 12px 1px 0;text-align:right}th{font-weight:normal;color:#666}"""


def memory_page(device: Any) -> str:
    """Return a page of HTML that shows the segments of a device's allocator, block by block.

    Args:
        device: whose memory; one with an allocator.

    Raises:
        RuntimeError: the device has no memory of its own.
    """
    place = _C.device(device) if not isinstance(device, _C.device) else device
    allocator = _C.allocator_of(place)
    if allocator is None:
        raise RuntimeError(f"memory_page: device '{place}' has no memory")
    segments = sorted(allocator.snapshot(), key=lambda s: -s["total_size"])
    largest = max((s["total_size"] for s in segments), default=1)
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{_MEANING[state]}'
        for state, colour in _COLOURS.items()
    )
    drawn = "\n".join(_segment(segment, largest) for segment in segments)
    title = f"Memory of {html.escape(str(place))}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"{_figures(allocator.memory_stats())}<p>{keys}</p>{drawn}</body></html>\n"
    )


def _figures(stats: dict[str, Any]) -> str:
    rows = []
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        cells = (stats[f"{name}.all.{part}"] for part in ("current", "peak"))
        told = "".join(f"<td>{_C._readable_bytes(cell)}</td>" for cell in cells)
        rows.append(f"<tr><th>{name.removesuffix('_bytes')}</th>{told}</tr>")
    return f"<table><tr><th></th><th>now</th><th>peak</th></tr>{''.join(rows)}</table>"


def _segment(segment: dict[str, Any], largest: int) -> str:
    total = segment["total_size"]
    head = (
        f"segment {segment['segment_id']}: {_C._readable_bytes(total)}, stream "
        f"{segment['stream']}, {_C._readable_bytes(segment['allocated_size'])} held"
    )
    blocks = "".join(_block(block, total) for block in segment["blocks"])
    width = max(8.0, 100 * total / largest)
    return f'<div>{head}</div><div class="segment" style="width:{width:.2f}%">{blocks}</div>'


def _block(block: dict[str, Any], total: int) -> str:
    holder = html.escape(block["holder"] or "")
    told = f"{_C._readable_bytes(block['size'])} at {block['offset']}, {_MEANING[block['state']]}"
    if holder:
        told += f", by {holder}"
    return (
        f'<div title="{told}" style="width:{100 * block["size"] / total:.4f}%;'
        f'background:{_COLOURS[block["state"]]}">{holder}</div>'
    )

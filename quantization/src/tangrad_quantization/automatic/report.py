"""What `auto` found, layer by layer: as text, JSON and a page with pictures."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tangrad_quantization.automatic import pictures

_LEGEND = (
    "Drop is the loss of score if this layer alone is quantized; more decibels are less error. "
    "Below, for each layer: how often numbers occur in its input (heights by the root of the "
    "count), black lines where the quantized range ends, in red what is clipped; and the range of "
    "each channel's weights."
)


@dataclass
class LayerReport:
    """One layer.

    Attributes:
        name: its path in the model.
        kind: its class.
        quantized: whether it is quantized in the result.
        reason: why, or why not.
        signal_to_noise: of the layer's own output, quantized against float, in dB.
        drop: of the score, if only this layer is quantized.
        float_seconds, quantized_seconds: of one call, the median of several.
        bytes_saved: of its weight.
        bias_corrected: whether the mean error of its output was taken out of its bias.
        input_histogram: counts per bin of what came in, with the range they span and the range
            that is quantized: (counts, low, high, clipped low, clipped high).
        channel_ranges: lowest and highest weight of each output channel.
    """

    name: str
    kind: str
    quantized: bool = False
    reason: str = ""
    signal_to_noise: float = 0.0
    drop: float = 0.0
    float_seconds: float = 0.0
    quantized_seconds: float = 0.0
    bytes_saved: int = 0
    bias_corrected: bool = False
    input_histogram: tuple[list[float], float, float, float, float] | None = field(
        default=None, repr=False
    )
    channel_ranges: list[tuple[float, float]] = field(default_factory=list, repr=False)


@dataclass(repr=False)
class Report:
    """What `auto` found.

    Attributes:
        layers: in the order in which they run.
        folded: batch norms that became part of the layer before.
        float_score, score: of the model before and after.
        scored_by: "evaluate", or what stood for it.
        synthetic: whether the calibration data were made up.
        float_bytes, bytes: of all parameters and buffers.
        notes: what else a reader should know.
        equalized: pairs of layers whose channels were given like ranges.
    """

    layers: list[LayerReport]
    folded: list[str]
    float_score: float
    score: float
    scored_by: str
    synthetic: bool
    float_bytes: int
    bytes: int
    notes: list[str] = field(default_factory=list)
    equalized: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), indent=2)

    def __repr__(self) -> str:
        quantized = sum(layer.quantized for layer in self.layers)
        return (
            f"<Report: {quantized} of {len(self.layers)} layers quantized, score {self.score:.4f} "
            f"(float {self.float_score:.4f}); print it for the table>"
        )

    def __str__(self) -> str:
        return "\n".join([*self._summary(), "", *self._table()])

    def _table(self) -> list[str]:
        head = ("layer", "kind", "int8", "SNR dB", "drop", "float µs", "int8 µs", "saves B", "why")
        rows = [head]
        rows += [
            (
                layer.name,
                layer.kind,
                "yes" if layer.quantized else "no",
                f"{layer.signal_to_noise:.1f}",
                f"{layer.drop:.4f}",
                f"{layer.float_seconds * 1e6:.0f}",
                f"{layer.quantized_seconds * 1e6:.0f}",
                str(layer.bytes_saved),
                layer.reason,
            )
            for layer in self.layers
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
        return [
            "  ".join([*(text.ljust(n) for text, n in zip(row[:-1], widths, strict=True)), row[-1]])
            for row in rows
        ]

    def _summary(self) -> list[str]:
        said = [
            f"score {self.score:.4f} (float {self.float_score:.4f}, by {self.scored_by}), "
            f"{self.bytes} bytes (float {self.float_bytes})"
        ]
        if self.synthetic:
            said.append("calibrated with SYNTHETIC inputs: give real ones before relying on it")
        if self.folded:
            said.append(f"folded batch norms: {', '.join(self.folded)}")
        if self.equalized:
            pairs = ", ".join(f"{first} and {second}" for first, second in self.equalized)
            said.append(f"equalized channels: {pairs}")
        return said + self.notes

    def to_html(self) -> str:
        """Return a page with tables and pictures, which needs nothing beside itself."""
        bars = pictures.bars(
            [(layer.name, layer.signal_to_noise) for layer in self.layers], "signal to noise, dB"
        )
        parts = [
            "<!doctype html><meta charset='utf-8'><title>Quantization</title>",
            "<style>body{font:14px sans-serif;margin:2em;max-width:70em}"
            "pre{overflow-x:auto}figure{display:inline-block;margin:.5em}</style>",
            "<h1>Quantization</h1>",
            *(f"<p>{html.escape(line)}</p>" for line in self._summary()),
            f"<pre>{html.escape(chr(10).join(self._table()))}</pre>",
            f"<h2>Error by layer</h2>{bars}",
        ]
        parts.append(f"<p>{html.escape(_LEGEND)}</p>")
        for layer in self.layers:
            verdict = "int8" if layer.quantized else "stays float"
            head = f"{layer.name}: {layer.kind}, {verdict}"
            parts.append(f"<h2>{html.escape(head)}</h2><p>{html.escape(layer.reason)}</p>")
            if layer.input_histogram is not None:
                parts.append(pictures.histogram(*layer.input_histogram))
            parts.append(pictures.ranges(layer.channel_ranges))
        return "\n".join(parts)

    def save(self, path: Any) -> None:
        """Write the report; the suffix says how: .html, .json, or text."""
        target = Path(path)
        text = {".html": self.to_html, ".json": self.to_json}.get(target.suffix, self.__str__)()
        target.write_text(text, encoding="utf-8")

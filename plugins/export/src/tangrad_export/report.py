"""What a model costs: bytes of flash and RAM, work by layer, the largest moment of the arena."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Layer", "Report", "report_of"]


class Layer(NamedTuple):
    """What the steps of one module cost.

    Attributes:
        module: its path.
        flash: bytes of its weights and constants.
        ram: the most bytes of the arena in use at one of its steps.
        work: multiplications with additions, or operations on elements.
    """

    module: str
    flash: int
    ram: int
    work: int


class Report:
    """What a model costs.

    Attributes:
        name: NAME of the files.
        flash: bytes of weights and constants.
        ram: bytes of the arena.
        largest: the largest number of bytes that is in use at once.
        moment: the step at which it is.
        layers: by module, in the order in which they run.
        in_use: bytes in use at each step, with what the step is.
    """

    def __init__(
        self,
        name: str,
        flash: int,
        ram: int,
        largest: int,
        moment: str,
        layers: list[Layer],
        in_use: list[tuple[str, int]],
    ) -> None:
        self.name, self.flash, self.ram, self.largest = name, flash, ram, largest
        self.moment, self.layers, self.in_use = moment, layers, in_use

    @property
    def work(self) -> int:
        """The work of all layers."""
        return sum(layer.work for layer in self.layers)

    def __str__(self) -> str:
        rows = [("module", "flash", "RAM", "work")]
        rows += [(x.module or "-", str(x.flash), str(x.ram), str(x.work)) for x in self.layers]
        rows.append(("all", str(self.flash), str(self.ram), str(self.work)))
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        lines = [
            f"{row[0]:<{widths[0]}}  " + "  ".join(f"{row[k]:>{widths[k]}}" for k in (1, 2, 3))
            for row in rows
        ]
        told = f"largest moment: {self.largest} bytes at {self.moment or 'no step'}"
        return "\n".join([self.name, *lines, told])

    def svg(self) -> str:
        """Return a picture of the arena: the bytes in use at each step."""
        wide, high, left = 720, 240, 70
        count, most = max(1, len(self.in_use)), max(1, self.largest)
        step = (wide - left - 10) / count
        bars = []
        for k, (title, size) in enumerate(self.in_use):
            tall = (high - 50) * size / most
            color = "#c0392b" if size == self.largest else "#4a7fb5"
            shown = title.replace("&", "&amp;").replace("<", "&lt;")
            bars.append(
                f'<rect x="{left + k * step:.1f}" y="{high - 30 - tall:.1f}" '
                f'width="{max(0.5, step - 1):.1f}" height="{tall:.1f}" fill="{color}">'
                f"<title>{shown}: {size} bytes</title></rect>"
            )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
                'font-family="sans-serif" font-size="11">',
                f'<text x="{left}" y="14">{self.name}: arena in use, step by step</text>',
                f'<text x="4" y="30">{self.largest} B</text>',
                f'<text x="4" y="{high - 30}">0</text>',
                *bars,
                "</svg>",
            ]
        )


def report_of(module: Any, entries: list[Any]) -> Report:
    """Return the report of the files of a model."""
    order: dict[str, list[int]] = {}
    seen: set[Any] = set()
    in_use: list[tuple[str, int]] = []
    largest, moment = 0, ""
    for entry in entries:
        variant = max(entry.variants, key=lambda v: v.arena.largest)
        for k, step in enumerate(variant.steps):
            layer = order.setdefault(step.origin.module, [0, 0, 0])
            for buffer in step.buffers():
                key = (buffer.kind, buffer.name, id(buffer.value))
                if buffer.kind in ("weight", "constant") and key not in seen:
                    seen.add(key)
                    layer[0] += buffer.nbytes
            layer[1] = max(layer[1], variant.arena.in_use[k])
            layer[2] += step.work
            title = f"{step.origin.module}: {step.title}" if step.origin.module else step.title
            in_use.append((title, variant.arena.in_use[k]))
            if variant.arena.in_use[k] > largest:
                largest, moment = variant.arena.in_use[k], title
    layers = [Layer(path, *values) for path, values in order.items()]
    return Report(
        module.name, module.flash_bytes(), module.ram_bytes(), largest, moment, layers, in_use
    )

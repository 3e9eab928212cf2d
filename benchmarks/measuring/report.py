"""Lay figures out: as a table, in sum, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from measuring.paired import OURS, Figure

NOT_SLOWER = 1.05
WORST = 10
COLUMNS = 3
HEAD = ("workload", "tangrad", "torch", "best peer", "ratio (quartiles)", "goal", "limit", "off",
        "")  # fmt: skip
WIDTHS = (46, 9, 9, 18, 22, 8, 9, 6, 0)


def table(figures: Iterable[Figure]) -> str:
    """Return a head and a line for each figure."""
    return "\n".join([head(), *(line(figure) for figure in figures)])


def head() -> str:
    """Return the table's head."""
    return _lay(HEAD)


def line(figure: Figure) -> str:
    """Return a figure as a line of the table."""
    f = figure
    ours = f.values.get(OURS)
    rest = {k: v for k, v in f.values.items() if k not in (OURS, "torch")}
    best = min(rest, key=rest.__getitem__, default="")
    goals = [_number(f.goal_ratio)] if f.goal_ratio is not None else []
    goals += [quantity(f.goal, f.unit)] if f.goal is not None else []
    off = f"{ours / f.limit:.1f}" if ours is not None and f.limit else ""
    cells = (
        f.workload,
        quantity(ours, f.unit),
        quantity(f.values.get("torch"), f.unit),
        f"{quantity(rest[best], f.unit)} {best}" if best else "",
        "" if f.ratio is None else "{1} ({0}-{2})".format(*map(_ratio, f.ratio)),
        " ".join(goals),
        quantity(f.limit, f.unit),
        off,
        f"absent: {f.absent}" if f.absent else "MISSED" if f.misses() else f.note,
    )
    return _lay(cells)


def _lay(cells: Sequence[str]) -> str:
    first, *middle, last = cells
    laid = [first.ljust(WIDTHS[0])]
    laid += [cell.rjust(width) for cell, width in zip(middle, WIDTHS[1:-1], strict=True)]
    return "  ".join([*laid, last]).rstrip()


def quantity(value: float | None, unit: str) -> str:
    """Return a value with a unit that suits its size."""
    if value is None:
        return ""
    if unit == "us" and value >= 1e6:
        value, unit = value / 1e6, "s"
    elif unit == "us" and value >= 1e3:
        value, unit = value / 1e3, "ms"
    return f"{_number(value)} {unit}".strip()


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def summary(figures: Sequence[Figure], goal: float) -> str:
    """Return what the ratios of the workloads come to, against the goal of their mean."""
    compared = [f for f in figures if f.ratio is not None]
    absent = [f for f in figures if f.absent]
    lines = [f"{len(figures)} workloads, {len(absent)} absent"]
    if compared:
        ratios = [f.ratio[1] for f in compared]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        over = sum(bool(f.misses()) for f in compared)
        slower = sum(ratio > NOT_SLOWER for ratio in ratios)
        worst = sorted(compared, key=lambda f: f.ratio[1], reverse=True)[:WORST]
        lines += [
            f"geometric mean of the ratios to torch: {mean:.3f} (goal {goal:g})",
            f"over their goal: {over} of {len(compared)}; above {NOT_SLOWER}: {slower}",
            "worst: " + "; ".join(f"{f.workload} {_number(f.ratio[1])}" for f in worst),
        ]
        by_group: dict[str, list[float]] = {}
        for f in compared:
            by_group.setdefault(f.group, []).append(math.log(f.ratio[1]))
        means = (f"{g} {math.exp(sum(v) / len(v)):.3f} ({len(v)})" for g, v in by_group.items())
        lines.append("by group: " + ", ".join(means))
    return "\n".join(lines)


def draw(figures: Sequence[Figure], path: str, title: str) -> None:
    """Draw the ratios to PyTorch with their quartiles and goals, one bar per workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [f for f in figures if f.ratio is not None]
    columns = max(1, min(COLUMNS, len(shown) // 15))
    height = math.ceil(len(shown) / columns)
    picture, panels = pyplot.subplots(
        1, columns, figsize=(6.5 * columns, 1.2 + 0.22 * height), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for number, axes in enumerate(panels[0]):
        _panel(axes, shown[number * height : (number + 1) * height], height)
    picture.suptitle(
        f"{title}\ntime of tangrad / time of PyTorch (blue: goal reached or none set, red: missed, "
        "green: goal, black: quartiles)",
        fontsize=9,
    )
    picture.savefig(path, dpi=110)


def _panel(axes: object, figures: Sequence[Figure], height: int) -> None:
    for place, figure in enumerate(figures):
        low, middle, high = figure.ratio
        color = "tab:red" if figure.misses() else "tab:blue"
        # A bar grows from the line of equal times.
        axes.barh(place, middle - 1, left=1, color=color, alpha=0.7, height=0.75)
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        axes.text(1.01, place, _number(middle), transform=axes.get_yaxis_transform(), va="center",
                  fontsize=6.5)  # fmt: skip
        if figure.goal_ratio is not None:
            axes.plot([figure.goal_ratio] * 2, [place - 0.45, place + 0.45], color="tab:green",
                      linewidth=2)  # fmt: skip
    names = [f"{f.group}: {f.workload}" for f in figures]
    axes.set_yticks(range(len(figures)), names, fontsize=7)
    axes.set_ylim(height - 0.4, -0.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.grid(axis="x", color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)

"""Show measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable

from tangrad.utils.benchmark.measurement import Measurement, select_unit, unit_to_english


class Compare:
    """Tables of measurements: one per label, a row per sub-label, a column per description.

    Args:
        results: the measurements; those of equal tasks are merged.
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = False
        self._warn = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements.

        Raises:
            ValueError: one is no Measurement.
        """
        added = list(results)
        for result in added:
            if not isinstance(result, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)}")
        self._results.extend(added)

    def trim_significant_figures(self) -> None:
        """Show only the digits that the spread of the times leaves meaningful."""
        self._trim = True

    def highlight_warnings(self) -> None:
        """Mark measurements that spread widely."""
        self._warn = True

    def colorize(self, rowwise: bool = False) -> None:
        """Do nothing: the table is plain text, which reads everywhere."""

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        tables: dict[str, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            tables.setdefault(result.task_spec.label or "", []).append(result)
        return "\n".join(self._table(label, results) for label, results in tables.items())

    def _table(self, label: str, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(result.median for result in results))
        columns = list(dict.fromkeys(r.task_spec.description or "" for r in results))
        rows: dict[tuple[int, str, str], dict[str, str]] = {}
        for r in results:
            key = (r.task_spec.num_threads, r.task_spec.env or "", r.as_row_name)
            rows.setdefault(key, {})[r.task_spec.description or ""] = self._cell(r, scale)
        lines = [["", *columns]]
        threads = None
        for (count, env, name), cells in sorted(rows.items(), key=lambda row: row[0][0]):
            if count != threads:
                lines.append([f"{count} threads:", *[""] * len(columns)])
                threads = count
            title = f"  {name} ({env})" if env else f"  {name}"
            lines.append([title, *[cells.get(column, "") for column in columns]])
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns) + 1)]
        body = [
            " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        ]
        heading = f"[{f' {label} '.center(len(body[0]) - 2, '-')}]"
        note = f"Times are in {unit_to_english(unit)}s ({unit})."
        return "\n".join([heading, *body, "", note, ""])

    def _cell(self, result: Measurement, scale: float) -> str:
        value = result.median / scale
        digits = result.significant_figures if self._trim else 3
        shown = f"{float(f'{value:.{digits}g}'):g}" if self._trim else f"{value:.1f}"
        return f"(! spread) {shown}" if self._warn and result.has_warnings else shown

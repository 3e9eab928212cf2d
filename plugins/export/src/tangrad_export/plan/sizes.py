"""How the numbers of a program depend on sizes that vary: found from what it is at several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from tangrad_export.errors import ExportError
from tangrad_export.plan.arena import place
from tangrad_export.plan.entry import Size, Variant
from tangrad_export.program.buffers import Buffer
from tangrad_export.steps.base import Number, Step

__all__ = ["CHANGING", "fitted", "points_of", "variants_of"]

_MOST_POINTS = 40
_DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32)
Point = tuple[int, ...]
# Numbers that change from call to call, and some values of each: the place in the random stream,
# and how many steps an optimizer has taken.
CHANGING = {"drawn": (0, 4096, 12288), "taken": (0, 1, 2, 5)}


def points_of(sizes: Sequence[Size], changing: Sequence[str] = ()) -> tuple[list[Point], bool]:
    """Return the sizes at which a program is looked at, and whether these are all."""
    points, every = _sizes_of(sizes)
    if not changing:
        return points, every
    first = [CHANGING[name][0] for name in changing]
    moved = [
        tuple(v if k == at else first[k] for k in range(len(changing)))
        for at, name in enumerate(changing)
        for v in CHANGING[name][1:]
    ]
    whole = [(*point, *first) for point in points]
    few = {points[0], points[-1], points[len(points) // 2]}
    return whole + [(*point, *m) for point in points if point in few for m in moved], every


def _sizes_of(sizes: Sequence[Size]) -> tuple[list[Point], bool]:
    count = 1
    for size in sizes:
        count *= size.max - size.min + 1
    if count <= _MOST_POINTS:
        return list(product(*(range(s.min, s.max + 1) for s in sizes))), True
    room = {1: 9, 2: 6}.get(len(sizes), 4)
    levels = []
    for size in sizes:
        wide = size.max - size.min
        found = [size.max, size.min, size.min + 1, size.max - 1, size.min + 2]
        found += [size.min + wide * k // 5 for k in (2, 3, 1, 4)]
        levels.append(sorted(dict.fromkeys(found[:room])))
    return list(product(*levels)), False


def variants_of(
    sizes: Sequence[Size], changing: Sequence[str], lay_out: Callable[[Point], list[Step]]
) -> list[Variant]:
    """Return what a program does at all sizes.

    Args:
        sizes: those that vary.
        changing: the keys of `CHANGING` that the program depends on.
        lay_out: returns the steps at some sizes, and values of what changes.

    Raises:
        ExportError: a number depends on a size in a way that is not found.
    """
    points, every = points_of(sizes, changing)
    made = {point: lay_out(point) for point in points}
    groups: dict[Any, list[Point]] = {}
    for point in points:
        groups.setdefault(structure(made[point]), []).append(point)
    names = [*(size.name for size in sizes), *changing]
    every = every and not changing
    if len(groups) == 1:
        conditions = [("", points)]
    elif every:
        conditions = [(_either(names, part), part) for part in groups.values()]
    else:
        conditions = _by_ones([s.name for s in sizes], points, made, list(groups.values()))
    variants = []
    for condition, part in conditions:
        variants.append(_variant(condition, names, part, made, sizes, every))
    return variants


def structure(steps: Sequence[Step]) -> Any:
    """Return all of a program but its numbers; what its constants hold is part of it."""
    order: dict[Buffer, int] = {}
    found = []
    for step in steps:
        refs: list[Any] = []
        for ref in step.refs:
            if ref is None:
                refs.append(None)
                continue
            number = order.setdefault(ref.buffer, len(order))
            held = ref.buffer.value if ref.buffer.kind == "constant" else None
            refs.append((number, ref.buffer.kind, ref.buffer.name, ref.dtype, held))
        found.append((step.structure(), tuple(refs), len(step.numbers)))
    return tuple(found)


def _either(names: Sequence[str], points: Sequence[Point]) -> str:
    every = [
        " && ".join(f"{n} == {v}" for n, v in zip(names, point, strict=True)) for point in points
    ]
    # Compilers warn of parentheses that are missing, and clang of those around one comparison.
    plain = len(every) == 1 or len(names) == 1
    return " || ".join(every if plain else [f"({one})" for one in every])


def _by_ones(
    names: Sequence[str], points: Sequence[Point], made: Any, groups: list[list[Point]]
) -> list[tuple[str, list[Point]]]:
    """Return the points by which sizes are 1, or 2, where programs take other ways.

    What changes from call to call stands behind the sizes in a point, and tells no ways apart.
    """
    for special in ((1,), (0, 1), (1, 2), (0, 1, 2)):
        found: dict[Any, list[Point]] = {}
        for point in points:
            sizes = point[: len(names)]
            found.setdefault(tuple(v if v in special else -1 for v in sizes), []).append(point)
        if all(len({structure(made[p]) for p in part}) == 1 for part in found.values()):
            conditions = []
            for pattern, part in sorted(found.items(), key=lambda pair: pair[0].count(-1)):
                parts = [
                    f"{n} == {v}" if v >= 0 else " && ".join(f"{n} != {s}" for s in special)
                    for n, v in zip(names, pattern, strict=True)
                ]
                conditions.append((" && ".join(parts), part))
            return conditions
    raise ExportError(
        f"the program does something else at different sizes of {', '.join(names)} "
        f"({len(groups)} programs): narrow their bounds"
    )


def _variant(
    condition: str, names: Sequence[str], part: list[Point], made: Any, sizes: Any, every: bool
) -> Variant:
    chosen = max(part, key=lambda p: p[: len(sizes)])
    programs = [made[point] for point in part]
    steps: list[Step] = made[chosen]
    numbers: list[list[Number]] = []
    offsets: list[list[Number]] = []
    nbytes: dict[int, int] = {}
    for k, step in enumerate(steps):
        alike = [program[k] for program in programs]

        def fit(values: list[Any], step: Step = step) -> Number:
            try:
                return fitted(names, part, values, every)
            except ValueError as error:
                raise ExportError(
                    f"a number of the op depends on {', '.join(names)} in a way that is not "
                    f"found: {error}",
                    op=step.title,
                    module=step.origin.module or None,
                    where=step.origin.where or None,
                ) from None

        numbers.append([fit([s.numbers[j] for s in alike]) for j in range(len(step.numbers))])
        offsets.append(
            [
                0 if ref is None else fit([s.refs[j].offset for s in alike])
                for j, ref in enumerate(step.refs)
            ]
        )
        for j, ref in enumerate(step.refs):
            if ref is not None:
                sized = [s.refs[j].buffer.nbytes for s in alike]
                nbytes[ref.buffer.number] = max(nbytes.get(ref.buffer.number, 0), *sized)
    return Variant(condition, steps, numbers, offsets, place(steps, nbytes))


def fitted(names: Sequence[str], points: Sequence[Point], values: list[Any], every: bool) -> Number:
    """Return a number, or the C of one that depends on sizes.

    Args:
        names: of the sizes.
        points: the sizes at which the number is known.
        values: the number at each.
        every: whether these are all sizes that may come.

    Raises:
        ValueError: no formula gives all values.
    """
    try:
        return _one_formula(names, points, values, every)
    except ValueError:
        for k, name in enumerate(names):
            ones = [p[k] == 1 for p in points]
            if name in CHANGING or not any(ones) or all(ones):
                continue
            # As strides of a dimension of one element are, which nothing looks at.
            sides = [
                (
                    [p for p, o in zip(points, ones, strict=True) if o is side],
                    [v for v, o in zip(values, ones, strict=True) if o is side],
                )
                for side in (True, False)
            ]
            one, more = (fitted(names, part, found, every) for part, found in sides)
            return f"({name} == 1 ? {one} : {more})"
        raise


def _one_formula(
    names: Sequence[str], points: Sequence[Point], values: list[Any], every: bool
) -> Number:
    first = values[0]
    if all(v == first or (v != v and first != first) for v in values):
        return first
    if all(isinstance(v, int) for v in values):
        for terms, columns in _bases(names, points):
            found = _solved(columns, values, every)
            if found is not None:
                return _formula(terms, found)
        if every and len(names) == 1:
            return _table(names[0], points, values)
        if every:
            return _cases(names, points, values)
        raise ValueError(f"{values[:4]} at {list(points[:4])}")
    if "taken" in names:
        rate = _rate(names, points, values)
        if rate is not None:
            return rate
    if all(float(v).is_integer() for v in values):
        return f"(double)({fitted(names, points, [int(v) for v in values], every)})"
    for over in (1, 2, 3, 4):
        parts = [over / v if v else 0.5 for v in values]
        whole = [round(p) for p in parts]
        if all(w and over / w == v for w, v in zip(whole, values, strict=True)):
            return f"({float(over)!r} / ({fitted(names, points, whole, every)}))"
    # n / (n - 1), by which a variance is no longer biased.
    counts = [round(v / (v - 1)) if v > 1 else 0 for v in values]
    if all(n > 1 and n / (n - 1) == v for n, v in zip(counts, values, strict=True)):
        count = f"(double)({fitted(names, points, counts, every)})"
        return f"({count} / ({count} - 1))"
    raise ValueError(f"{values[:4]} at {list(points[:4])}")


def _rate(names: Sequence[str], points: Sequence[Point], values: list[Any]) -> str | None:
    """Return a rate that falls with the steps taken: one over a line."""
    at = list(names).index("taken")
    known = {p[at]: 1 / v for p, v in zip(points, values, strict=True) if v}
    if len(known) < len(CHANGING["taken"]):
        return None
    start, slope = known[0], known[1] - known[0]
    if any(abs(start + slope * k - v) > 1e-9 * abs(v) for k, v in known.items()):
        return None
    if any(
        abs(1 / (start + slope * p[at]) - v) > 1e-9 * abs(v)
        for p, v in zip(points, values, strict=True)
    ):
        return None
    return f"(1.0 / ({start!r} + {slope!r} * (double)taken))"


def _bases(
    names: Sequence[str], points: Sequence[Point]
) -> Iterator[tuple[list[str], list[list[int]]]]:
    # A size that is the same at all points, as in a branch for 1, says nothing.
    varying = [k for k in range(len(names)) if len({p[k] for p in points}) > 1]
    atoms = [(names[k], [p[k] for p in points]) for k in varying]
    for degree in (1, 2, 3):
        yield _monomials(atoms, degree)
    for divisor in _DIVISORS:
        for k in varying:
            name = names[k]
            for plus in range(divisor):
                text = f"({name} + {plus}) / {divisor}" if plus else f"{name} / {divisor}"
                quotient = (f"({text})", [(p[k] + plus) // divisor for p in points])
                for degree in (1, 2):
                    yield _monomials([*atoms, quotient], degree)


def _monomials(atoms: list[Any], degree: int) -> tuple[list[str], list[list[int]]]:
    terms, columns = ["1"], [[1] * len(atoms[0][1])]
    for size in range(1, degree + 1):
        for chosen in combinations_with_replacement(atoms, size):
            terms.append(" * ".join(name for name, _ in chosen))
            column = [1] * len(columns[0])
            for _, values in chosen:
                column = [a * b for a, b in zip(column, values, strict=True)]
            columns.append(column)
    return terms, columns


def _solved(columns: list[list[int]], values: list[int], every: bool) -> list[int] | None:
    if len(columns) + (0 if every else 1) > len(values):
        return None
    matrix = np.array(columns, dtype=float).T
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1
    solution = np.linalg.lstsq(matrix / scale, np.array(values, dtype=float), rcond=None)[0] / scale
    whole = [round(float(c)) for c in solution]
    got = [
        sum(c * column[k] for c, column in zip(whole, columns, strict=True))
        for k in range(len(values))
    ]
    return whole if got == values else None


def _formula(terms: list[str], factors: list[int]) -> str:
    parts = []
    for term, factor in zip(terms, factors, strict=True):
        if factor == 0:
            continue
        if term == "1":
            parts.append(str(factor))
        else:
            parts.append(term if factor == 1 else f"{factor} * {term}")
    return " + ".join(parts[1:] + parts[:1] if factors[0] else parts).replace("+ -", "- ")


def _table(name: str, points: Sequence[Point], values: list[int]) -> str:
    low = min(p[0] for p in points)
    known = dict(zip((p[0] for p in points), values, strict=True))
    high = max(known)
    row = ", ".join(str(known.get(v, 0)) for v in range(low, high + 1))
    return f"((const int[]){{{row}}})[{name} - {low}]"


def _cases(names: Sequence[str], points: Sequence[Point], values: list[int]) -> str:
    *others, last = (
        (" && ".join(f"{n} == {v}" for n, v in zip(names, point, strict=True)), value)
        for point, value in zip(points, values, strict=True)
    )
    return "(" + "".join(f"{when} ? {value} : " for when, value in others) + f"{last[1]})"

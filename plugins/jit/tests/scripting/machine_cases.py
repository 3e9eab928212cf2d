"""Functions that the machine runs, for either framework."""

# ruff: noqa: RUF051, UP006, UP035, UP045
from typing import Dict, List, NamedTuple, Optional, Tuple

import scripted_side as torch


class Pair(NamedTuple):
    one: int
    other: List[float]


def whole(a: int, b: int) -> List[int]:
    found: List[int] = []
    for k in range(3):
        found += [a + b, a - b, a * b, -a, abs(a), a & b, a | b, a ^ b, a << (b & 7), a >> 3]
        found += [min(a, b), max(a, b), int(a < b), int(a >= b), int(a == b)]
        if b != 0:
            found += [a // b, a % b]
        a = a * 3 + k
    return found


def real(a: float, b: float) -> List[float]:
    found: List[float] = []
    for k in range(2):
        found += [a + b, a - b, a * b, a / b, -a, abs(a), min(a, b), max(a, b), a**b]
        found += [a // b, a % b, float(int(a < b)), float(int(a != b)), float(k) / a, k * b]
    return found


def counted(words: List[str]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    if "gone" in found:
        del found["gone"]
    return found


def many_keys(n: int) -> Tuple[int, List[int], List[int]]:
    kept: Dict[int, int] = {}
    for k in range(n):
        kept[k * 7919 % 1000003] = k
    for k in range(0, n, 2):
        kept.pop(k * 7919 % 1000003)
    total = 0
    for key, value in kept.items():
        total += key * value
    kept.update({5: 6, 7: 8})
    return total, list(kept.keys())[:5], list(kept.values())[-3:]


def shared(xs: List[int]) -> Tuple[List[int], List[List[int]]]:
    rows = [xs, xs]
    for row in rows:
        row.append(len(row))
    rows[0].sort()
    rows[1].reverse()
    return xs, rows


def first_above(grid: List[List[int]], limit: int) -> Optional[int]:
    for row in grid:
        for x in row:
            if x > limit:
                return x
    return None


def maybe(grid: List[List[int]], limit: int) -> int:
    found = first_above(grid, limit)
    total = 0
    while total < 100:
        if found is not None:
            total += found
            found = first_above(grid, found)
        else:
            total += 40
    return total


def pairs(items: List[Pair]) -> Pair:
    total, values = 0, torch.jit.annotate(List[float], [])
    for item in items:
        total += item.one
        values.extend(item.other)
    return Pair(total, values)


def outer(xs: List[int], k: int) -> int:
    total = 0
    for _ in range(2):
        total += inner(xs, k)
    return total


def inner(xs: List[int], k: int) -> int:
    total = 0
    while k < 5:
        total += 6 // xs[k]
        k += 1
    return total


def looked_up(table: Dict[str, int], keys: List[str]) -> int:
    total = 0
    for key in keys:
        total += table[key]
    return total


def spin(n: int) -> int:
    total = 0
    for k in range(n):
        total += k % 7
    return total


def gathered(xs: List[torch.Tensor], word: str) -> torch.Tensor:
    total = torch.zeros(2)
    for k, x in enumerate(xs):
        if len(word) > k:
            total = total + x * k
            total[0] = float(k)
        elif word[-1] == "z":
            break
    return total


def shifted(numbers: List[int], bys: List[int]) -> List[int]:
    found: List[int] = []
    for a in numbers:
        for by in bys:
            found += [a >> by, a << by]
    return found


LARGE = (1 << 63) - 1
CASES = [
    (whole, [(3, 2), (-7, 2), (LARGE, 3), (-LARGE, -5), (1 << 62, 1 << 62), (0, 0)]),
    (real, [(1.5, 2.0), (-2.5, 0.0), (1e308, -3.0), (float("inf"), 2.0), (0.5, float("nan"))]),
    (counted, [(["a", "b", "a", "gone"],), ([],)]),
    (many_keys, [(1000,), (3,)]),
    (shared, [([3, 1, 2],)]),
    (maybe, [([[1, 2], [30]], 0), ([], 0)]),
    (pairs, [([Pair(1, [0.5]), Pair(2, [])],)]),
    (outer, [([1, 2, 3, 4, 5], 0), ([1, 0], 0), ([1], 0), ([1], -9)]),
    (looked_up, [({"a": 1}, ["a", "a"]), ({"a": 1}, ["a", "b"])]),
    (shifted, [([-7, 7, -LARGE - 1], [0, 3, 63, 64, 67, 128, -1, -3])]),
    (gathered, [([torch.ones(2), torch.ones(2)], "ab"), ([torch.ones(2)] * 3, "az")]),
]

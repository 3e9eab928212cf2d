"""What each random script begins with: classes and functions that it calls."""

from __future__ import annotations

HEAD = """from typing import Dict, List, NamedTuple, Optional, Tuple

import math

import scripted_side as torch


class Inner(NamedTuple):
    n: int
    x: float


class Outer(NamedTuple):
    inner: Inner
    xs: List[int]
    name: Optional[str]


@torch.jit.script
class Tally:
    def __init__(self, n: int, names: List[str]):
        self.n = n
        self.names = names
        self.last = torch.jit.annotate(Optional[int], None)

    def add(self, n: int) -> int:
        if n % 5 == 3:
            return self.n
        self.n += n
        self.last = n
        return self.n

    def told(self) -> int:
        last = self.last
        if last is None:
            return len(self.names)
        return last

    def __len__(self) -> int:
        return len(self.names)

    def __add__(self, other: int) -> int:
        return self.n + other


def nested(n: int, x: float, xs: List[int], name: Optional[str]) -> Outer:
    for k in xs:
        while k > 0:
            if k == n:
                return Outer(Inner(k, x), xs, name)
            elif k > 50:
                break
            else:
                k -= 1
        if k > 3:
            continue
    if name is None:
        return Outer(Inner(n, x), [n], "none")
    return Outer(Inner(n, -x), xs + [n], name + "!")


def filled(o: Optional[int], names: List[str]) -> int:
    if o is None:
        if len(names) > 2:
            return -1
        o = len(names)
    assert o is not None
    for name in names:
        if len(name) > o:
            return o
        o += 1
    return o * 2


def helper(xs: List[int], n: int) -> int:
    total = 0
    for k in range(abs(n) % 6):
        for x in xs:
            if x > n:
                return total - x
            if x == 0:
                raise ValueError("zero")
            total += n // x + xs[k]
    return total


def searched(grid: List[List[int]], n: int) -> int:
    k = 0
    while k < 40:
        for row in grid:
            for x in row:
                if x >= n or k > 5:
                    return k
                k += 1
        k += 3
    return -1


def paired(a: int, b: float) -> Tuple[int, float]:
    while a > 10:
        a = a // 2
        if a == 13:
            return a, b
    return -a, b / (a - 3)


def doubled(xs: List[int]) -> List[int]:
    made = xs if len(xs) > 1 else [n for n in xs]
    for k in range(len(made)):
        made[k] = made[k] * 2
    return made


def changed(xs: List[int], n: int) -> None:
    for k in range(len(xs)):
        if n % 3 == 0 and len(xs) < 20:
            xs.append(k)
        elif n % 3 == 1:
            xs[k] -= n


"""

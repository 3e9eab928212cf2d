"""Search along a line for a step that satisfies the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A point on the line.

    Attributes:
        step: how far along the line.
        loss: value of the function there.
        grad: gradient there, a vector.
        slope: derivative along the line there.
    """

    step: float
    loss: float
    grad: Any
    slope: float


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Return where the cubic through two points with their slopes is least.

    Nocedal, Wright, Numerical Optimization (2006), equation 3.59.

    Args:
        a: one point.
        b: the other.
        bounds: the interval to stay in; by default that between the points.

    Returns:
        The step: the interval's middle if the cubic has no minimum.
    """
    low, high = bounds or (min(a.step, b.step), max(a.step, b.step))
    left, right = (a, b) if a.step <= b.step else (b, a)
    bend = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.step - right.step)
    square = bend * bend - left.slope * right.slope
    if square < 0:
        return (low + high) / 2
    root = square**0.5
    rise, height = right.slope - left.slope + 2 * root, right.slope + root - bend
    # Points of a straight line have no minimum between them: it lies far below.
    share = height / rise if rise else math.copysign(math.inf, height)
    return min(max(right.step - (right.step - left.step) * share, low), high)


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    step: float,
    longest: float,
    sufficient: float = 1e-4,
    curvature: float = 0.9,
    tolerance: float = 1e-9,
    tries: int = 25,
) -> tuple[Point, int]:
    """Find a step with sufficient decrease and a small slope.

    Nocedal, Wright, Numerical Optimization (2006), algorithms 3.5 and 3.6, with the safeguards of
    Schmidt's minFunc: the next step beyond a bracket is at most ten times the last, and one inside
    it does not stay near its ends twice.

    Args:
        evaluate: step -> point.
        start: the point at step 0, from which the line descends.
        step: the first step to try.
        longest: largest component of the direction.
        sufficient: share of the first slope by which the loss must fall.
        curvature: share of the first slope that may remain.
        tolerance: narrowest bracket, in the largest component.
        tries: greatest number of steps to try after the first.

    Returns:
        The point reached, and how often the function was evaluated.
    """

    def falls_too_little(point: Point) -> bool:
        return point.loss > start.loss + sufficient * point.step * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -curvature * start.slope

    before, point, count = start, evaluate(step), 0
    while count < tries:
        if falls_too_little(point) or (count > 1 and point.loss >= before.loss):
            break
        if is_flat(point):
            return point, count + 1
        if point.slope >= 0:
            break
        bounds = (point.step + 0.01 * (point.step - before.step), point.step * 10)
        before, point = point, evaluate(cubic_minimum(before, point, bounds))
        count += 1
    else:
        before = start
    best, other = (before, point) if before.loss <= point.loss else (point, before)
    near_an_end = False
    while count < tries:
        low, high = sorted((best.step, other.step))
        if (high - low) * longest < tolerance:
            break
        step = cubic_minimum(best, other)
        margin = 0.1 * (high - low)
        if min(high - step, step - low) >= margin:
            near_an_end = False
        elif near_an_end or step >= high or step <= low:
            step = high - margin if abs(step - high) < abs(step - low) else low + margin
            near_an_end = False
        else:
            near_an_end = True
        point = evaluate(step)
        count += 1
        if falls_too_little(point) or point.loss >= best.loss:
            best, other = (best, point) if best.loss <= point.loss else (point, best)
            continue
        if is_flat(point):
            best = point
            break
        if point.slope * (other.step - best.step) >= 0:
            other = best
        best = point
    return best, count + 1

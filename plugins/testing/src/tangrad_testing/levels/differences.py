"""Derivatives of ops against numerical differences of what the ops compute.

A device and the reference take the same formula: that they agree says nothing of the formula. Here
it is judged by the op's own values: gradients by their differences, tangents by the gradients, the
second order by differences of the first, float32 by float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Sample, SampleTensor
from tangrad_testing.calls import (
    REFUSALS,
    describe,
    detached,
    is_differentiable_dtype,
    normal_like,
    rebuild,
    tangrad_arguments,
    tangrad_tensor_on,
    tensors_in,
)
from tangrad_testing.cases import Case, may_have_derivative
from tangrad_testing.closeness import as_array, dtype_name
from tangrad_testing.levels.check import Device, Mismatch, NotApplicable

STEP = 1e-3  # of an element's size; the error of the differences is of its fourth power
LEAST_SIZE = 0.05
ROUNDING = 2.0**-52
MOST_ELEMENTS = 6  # of each tensor, chosen at random, for the first order and for the second
# Pointwise formulas are also tried far from where samples lie, and near to zero.
FACTORS = (1.0, 5.0, 0.02)
WORDS = {1: "first", 2: "second"}
SINGLE = 2e-3  # gradients in float32 beside those in float64, of the largest

Values = list[np.ndarray]


def check_op(device: Device, op: str) -> None:
    """Compare the derivatives of an op with differences, for every sample.

    Raises:
        NotApplicable: no derivative was compared.
    """
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")
    if reason := Case(op, "float64", device.name).definition.surrogate:
        raise NotApplicable(f"its derivative is not its slope, on purpose: {reason}")
    compared = 0
    for dtype in ("float64", "complex128"):
        case = Case(op, dtype, device.name)
        if case.definition.samples is None or not may_have_derivative(case):
            raise NotApplicable("it has no samples, writes its arguments or draws")
        for sample in samples_of(case):
            with suppress(NotImplementedError):  # a derivative that is not given says so
                compared += Differentiated(case, sample).compare()
    for sample in Case(op, "float32", device.name).samples():
        compare_precisions(Case(op, "float32", device.name), sample)
    if not compared:
        raise NotApplicable("it has no derivative, or none where it is smooth")


def samples_of(case: Case) -> Iterator[Sample]:
    """Yield the samples of an op; of pointwise ones larger and smaller values, too."""
    for factor in FACTORS if case.call.kind == "pointwise" else FACTORS[:1]:
        for sample in case.samples():
            yield sample if factor == 1 else scaled(sample, factor)


def scaled(value: Any, factor: float) -> Any:
    """Return a sample whose floating tensors are multiplied."""
    if isinstance(value, Sample):
        return Sample(scaled(value.args, factor), scaled(value.kwargs, factor))
    if isinstance(value, SampleTensor):
        if value.array.dtype.kind not in "fc":
            return value
        return SampleTensor(value.array * factor, value.dtype, value.strided)
    if isinstance(value, dict):
        return {k: scaled(v, factor) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(scaled(v, factor) for v in value)
    return value


class Differentiated:
    """One call of an op as a function of its floating tensors.

    Attributes:
        case: the op.
        what: the call, for messages.
        start: the values of the floating tensors.
    """

    def __init__(self, case: Case, sample: Sample) -> None:
        self.case, self.what = case, f"{case.op}{describe(sample)}"
        self.arguments = tangrad_arguments(sample, case.device, case.definition)
        self.given = tensors_in(self.arguments)
        self.free = [i for i, t in enumerate(self.given) if is_differentiable_dtype(t)]
        self.start = [np.array(as_array(self.given[i])) for i in self.free]
        self.dtypes = [dtype_name(self.given[i]) for i in self.free]
        self.make = tangrad_tensor_on(case.device)

    def call(self, tensors: list[Any]) -> list[Any]:
        """Return the floating results, the floating tensors being others."""
        places = dict(zip(self.free, tensors, strict=True))
        moved = [places.get(i, t) for i, t in enumerate(self.given)]
        args, kwargs = rebuild(self.arguments, iter(moved))
        return list(filter(is_differentiable_dtype, tensors_in(self.case.call(*args, **kwargs))))

    def leaves(self, values: Values) -> list[Any]:
        """Return values as tensors that require a gradient."""
        return [detached(self.make(v, d)) for v, d in zip(values, self.dtypes, strict=True)]

    def values(self, values: Values) -> Values:
        """Return the results of values."""
        with tangrad.no_grad(), np.errstate(all="ignore"):
            tensors = [self.make(v, d) for v, d in zip(values, self.dtypes, strict=True)]
            return [as_array(r) for r in self.call(tensors)]

    def compare(self) -> int:
        """Compare what this call allows to; return how many elements of gradients that were."""
        try:
            outputs = self.call([detached(self.given[i]) for i in self.free])
        except REFUSALS as refusal:
            if "derivative" in str(refusal):
                raise
            return 0
        if not any(t.requires_grad for t in outputs):
            return 0
        weights = [normal_like(t, i) for i, t in enumerate(outputs)]
        gradients = self.gradients(self.start, weights)
        compared = self.against_differences(
            1, lambda v: weighed(self.values(v), weights), gradients, self.start
        )
        self.compare_tangents(weights, gradients)
        return compared + self.compare_second_order(weights)

    def gradients(self, values: Values, weights: Values) -> Values:
        """Return the gradients of a weighted sum of the results."""
        leaves = self.leaves(values)
        return [as_array(g) for g in self.recorded(leaves, weights, create_graph=False)[0]]

    def recorded(
        self, leaves: list[Any], weights: Values, create_graph: bool
    ) -> tuple[list[Any], list[Any]]:
        """Return the gradients by some leaves, zeros where there is none, and the cotangents."""
        outputs = self.call(leaves)
        pairs = [(t, w) for t, w in zip(outputs, weights, strict=True) if t.requires_grad]
        cotangents = [
            detached(self.make(w, dtype_name(t)), requires_grad=create_graph) for t, w in pairs
        ]
        found = tangrad.autograd.grad(
            [t for t, _ in pairs], leaves, cotangents, create_graph=create_graph, allow_unused=True
        )
        zeros = [
            tangrad.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)
        ]
        return zeros, cotangents

    def against_differences(
        self, order: int, function: Callable[[Values], float], gradients: Values, start: Values
    ) -> int:
        """Compare gradients of a function of arrays with differences of its values."""
        random = np.random.Generator(np.random.Philox(order))
        compared = 0
        for number, (gradient, array) in enumerate(zip(gradients, start, strict=True)):
            flat = [tuple(map(int, p)) for p in np.argwhere(np.ones(array.shape, bool))]
            for place in random.permutation(len(flat))[:MOST_ELEMENTS]:
                for unit in (1, 1j) if np.iscomplexobj(array) else (1,):
                    expected, error = slope(function, start, number, flat[place], unit)
                    if not np.isfinite(expected) or not np.isfinite(error):
                        continue
                    got = gradient[flat[place]]
                    got = float(np.imag(got) if unit == 1j else np.real(got))
                    compared += 1
                    if not abs(got - expected) <= 1e-6 * abs(expected) + error:
                        raise Mismatch(
                            f"{self.what}, {WORDS[order]} derivative by element "
                            f"{list(flat[place])} of tensor {number}, beside differences of "
                            + ("the first" if order == 2 else "its own values"),
                            got,
                            expected,
                        )
        return compared

    def compare_tangents(self, weights: Values, gradients: Values) -> None:
        """Compare forward mode with backward: they are two sides of one sum."""
        tangents = [normal_like(self.given[i], 50 + i) for i in self.free]
        primals = tuple(self.make(v, d) for v, d in zip(self.start, self.dtypes, strict=True))
        given = tuple(self.make(v, d) for v, d in zip(tangents, self.dtypes, strict=True))
        try:
            _, found = tangrad.func.jvp(lambda *p: tuple(self.call(list(p))), primals, given)
        except NotImplementedError:
            return
        moved = [as_array(t) for t in tensors_in(found)]
        got, expected = weighed(moved, weights), weighed(tangents, gradients)
        if not (np.isfinite(got) and np.isfinite(expected)):
            return
        size = sum(float(np.abs(t * g).sum()) for t, g in zip(tangents, gradients, strict=True))
        noise = 64 * ROUNDING * sum(float(np.abs(w).sum()) for w in weights)
        if abs(got - expected) > 1e-9 * (size + abs(expected)) + noise:
            case = f"{self.what}, weighted sum of the tangents (jvp) beside that of the gradients"
            raise Mismatch(case, got, expected)

    def compare_second_order(self, weights: Values) -> int:
        """Compare the gradients of a weighted sum of the gradients."""
        leaves = self.leaves(self.start)
        first, _ = self.recorded(leaves, weights, create_graph=True)
        second_weights = [normal_like(g, 100 + i) for i, g in enumerate(first)]
        moving = [(g, w) for g, w in zip(first, second_weights, strict=True) if g.requires_grad]
        if not moving:
            return self.must_be_linear(weights, second_weights)
        try:
            found = tangrad.autograd.grad(
                [g for g, _ in moving],
                leaves,
                [self.make(w, dtype_name(g)) for g, w in moving],
                allow_unused=True,
            )
        except NotImplementedError:
            return 0
        second = [as_array(tangrad.zeros_like(t) if g is None else g)
                  for t, g in zip(leaves, found, strict=True)]  # fmt: skip
        return self.against_differences(
            2, lambda v: weighed(self.gradients(v, weights), second_weights), second, self.start
        )

    def must_be_linear(self, weights: Values, second_weights: Values) -> int:
        """Compare with zero: gradients that are not recorded must not depend on the tensors."""
        zeros = [np.zeros_like(v) for v in self.start]
        return self.against_differences(
            2, lambda v: weighed(self.gradients(v, weights), second_weights), zeros, self.start
        )


def weighed(values: Values, weights: Values) -> float:
    """Return the real part of the sum of all elements, each times its weight."""
    with np.errstate(all="ignore"):
        return float(
            sum(np.real(np.conj(w) * v).sum() for v, w in zip(values, weights, strict=True))
        )


def slope(
    function: Callable[[Values], float], start: Values, number: int, place: Any, unit: complex
) -> tuple[float, float]:
    """Return (the slope of a function by one element, its error); NaN where it is not smooth."""
    size = max(abs(start[number][place]), LEAST_SIZE)

    def at(step: float) -> float:
        moved = [v.copy() for v in start]
        # One part alone: a sum of complex numbers would lose the sign of a zero of the other.
        part = moved[number].imag if unit == 1j else moved[number].real
        part[place] += step
        return function(moved)

    steps = (STEP * size, STEP * size / 2)
    here, sides = at(0.0), [(at(h), at(-h)) for h in steps]
    everything = [here, *(s for pair in sides for s in pair)]
    if not np.isfinite(everything).all():
        return float("nan"), float("nan")
    wide, narrow = ((up - down) / (2 * h) for (up, down), h in zip(sides, steps, strict=True))
    bends = [abs(up - 2 * here + down) / h for (up, down), h in zip(sides, steps, strict=True)]
    noise = 64 * ROUNDING * max(map(abs, everything)) / steps[1]
    if bends[1] > 0.75 * bends[0] and bends[1] > 1e-6 * abs(narrow) + 8 * noise:
        return float("nan"), float("nan")  # a kink or a jump: bends of smooth functions halve
    best = (4 * narrow - wide) / 3
    if abs(best - narrow) > 1e-2 * (abs(best) + abs(narrow)) + 8 * noise:
        return float("nan"), float("nan")
    return best, abs(best - narrow) / 2 + noise


def compare_precisions(case: Case, sample: Sample) -> None:
    """Compare the gradients in float32 with those in float64 of the same numbers."""
    single = Differentiated(case, sample)
    double = Differentiated(case, widened(sample))
    if not single.free or single.dtypes != ["float32"] * len(single.free):
        return
    try:
        outputs = single.call(single.leaves(single.start))
        if not any(t.requires_grad for t in outputs):
            return
        weights = [normal_like(t, i) for i, t in enumerate(outputs)]
        got = single.gradients(single.start, weights)
        expected = double.gradients(double.start, weights)
    except REFUSALS:
        return
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        largest = np.abs(theirs, where=np.isfinite(theirs), out=np.zeros(theirs.shape))
        bound = SINGLE * (largest + largest.max(initial=0.0))
        finite = np.isfinite(theirs) & np.isfinite(ours)
        with np.errstate(all="ignore"):
            wrong = finite & (np.abs(ours - theirs) > bound)
        if wrong.any():
            place = tuple(int(k) for k in np.argwhere(wrong)[0])
            raise Mismatch(
                f"{single.what}, gradient by element {list(place)} of tensor {number}, beside "
                "that of float64",
                ours[place],
                theirs[place],
            )


def widened(value: Any) -> Any:
    """Return a sample whose float32 tensors are float64."""
    if isinstance(value, Sample):
        return Sample(widened(value.args), widened(value.kwargs))
    if isinstance(value, SampleTensor) and value.dtype == "float32":
        return SampleTensor(value.array.astype(np.float64), "float64", value.strided)
    if isinstance(value, dict):
        return {k: widened(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(widened(v) for v in value)
    return value

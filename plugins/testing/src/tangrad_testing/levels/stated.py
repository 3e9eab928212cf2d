"""What a package says of its ops, judged by what does not follow from it.

References and decompositions are two accounts of one op, and a batching rule stands for a loop:
where they part, one is wrong. What neither tells is asked of PyTorch, where it is installed and
the definition says what to compare with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Sample
from tangrad_testing.calls import (
    REFUSALS,
    creates,
    describe,
    is_differentiable_dtype,
    rebuild,
    tangrad_arguments,
    tangrad_tensor_on,
    tensors_in,
)
from tangrad_testing.cases import Case, has_values, may_have_derivative
from tangrad_testing.closeness import as_array
from tangrad_testing.levels.check import (
    Device,
    Mismatch,
    NotApplicable,
    expect,
    expect_close,
)
from tangrad_testing.levels.differences import widened
from tangrad_testing.levels.spread import arguments_on

DTYPES = ("float64", "float32", "complex128", "int64", "bool")
BATCH = 3
SINGLE = 100  # roundings of float32 beside float64, in chains of steps
COMPUTED = ("pointwise", "reduction", "scan", "kernel")


def require_samples(device: Device, op: str) -> Any:
    """Return the definition of an op that can be asked.

    Raises:
        NotApplicable: there is nothing to ask.
    """
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")
    case = Case(op, "float32", device.name)
    if case.definition.samples is None or not has_values(case):
        raise NotApplicable("it has no samples, or draws")
    return case.definition


def check_batching(device: Device, op: str) -> None:
    """Compare an op under vmap with a loop, batched in every tensor alone and in all.

    Raises:
        NotApplicable: it has no results of one shape.
    """
    definition = require_samples(device, op)
    forms = [o.definition for o in definition.members] or [definition]
    depends = any(d.shape_depends_on_data and d.batch is None for d in forms)
    if depends or not may_have_derivative(Case(op, "float32", device.name)):
        raise NotApplicable("the shape of its results depends on data, or it writes")
    compared = 0
    for dtype in DTYPES:
        case = Case(op, dtype, device.name)
        for sample in case.samples():
            compared += batched_like_a_loop(case, sample)
    if not compared:
        raise NotApplicable("it takes no tensors")


def batched_like_a_loop(case: Case, sample: Sample) -> int:
    """Compare one call with a loop; return how many ways of batching it were compared."""
    arguments = tangrad_arguments(sample, case.device, case.definition)
    tensors = tensors_in(arguments)
    n = len(tensors)
    ways = {tuple(at if k in chosen else None for k in range(n))
            for chosen in [set(range(n)), *({k} for k in range(n))] for at in (0, -1)}  # fmt: skip

    def function(*given: Any) -> tuple[Any, ...]:
        args, kwargs = rebuild(arguments, iter(given))
        return tuple(tensors_in(case.call(*args, **kwargs)))

    compared = 0
    for dims in sorted(ways, key=repr) if tensors else ():
        stacked = [t if d is None else batch_of(t, d) for t, d in zip(tensors, dims, strict=True)]

        def one(k: int, dims: Any = dims, stacked: Any = stacked) -> tuple[Any, ...]:
            picked = zip(stacked, dims, strict=True)
            return function(*[t if d is None else t.select(d, k).clone() for t, d in picked])

        try:
            loop = [one(k) for k in range(BATCH)]
            expected = [tangrad.stack(list(parts)) for parts in zip(*loop, strict=True)]
        except REFUSALS:
            continue
        try:
            found = tangrad.func.vmap(function, in_dims=dims)(*stacked)
        except RuntimeError as refusal:
            # A Function in a composite says so itself; ops are batched, or called in a loop.
            if case.call.kind == "composite" and "vmap" in str(refusal):
                return compared
            raise
        what = f"{case.op}{describe(sample)} under vmap with in_dims={dims}, beside a loop"
        expect_close(what, tensors_in(found), expected, 8)
        compared += 1
    return compared


def batch_of(tensor: Any, dim: int) -> Any:
    """Stack variants of a tensor: as it is, with its elements turned around, moved by one."""
    if not tensor.ndim:
        return tangrad.stack([tensor] * BATCH, dim)
    return tangrad.stack([tensor, tensor.flip(0), tensor.roll(1, -1)], dim)


def check_reference(device: Device, op: str) -> None:
    """Judge what an op computes by its decomposition, by PyTorch and by what holds of all ops."""
    definition = require_samples(device, op)
    oracle = torch_counterpart(definition)
    computes(device, op)
    for dtype in DTYPES:
        case = Case(op, dtype, device.name)
        for sample in case.samples():
            keeps_its_arguments(case, sample)
            if case.call.kind in ("kernel", "pointwise", "reduction", "scan", "composite"):
                does_not_see_strides(case, sample)
            tells_shapes(case, sample)
            like_decomposition(case, sample)
            if dtype == "float32":
                like_wider_numbers(case, sample)
            if oracle is not None:
                like_torch(case, sample, oracle)


def computes(device: Device, op: str) -> None:
    """Raise Mismatch if the op refuses every sample that it has: nothing would be compared."""
    refusal: Exception | None = None
    for dtype in DTYPES:
        case = Case(op, dtype, device.name)
        for sample in case.samples():
            args, kwargs = tangrad_arguments(sample, case.device, case.definition)
            try:
                case.call(*args, **kwargs)
            except REFUSALS as error:
                refusal = error
            else:
                return
    if refusal is not None:
        got = f"{type(refusal).__name__}: {refusal}"
        raise Mismatch(f"{op} of its samples", got, "a result of one of them")


def outcome(case: Case, arguments: Any) -> list[Any] | None:
    """Return the tensors of a call's result, None if the call is refused."""
    try:
        return tensors_in(case.call(*arguments[0], **arguments[1]))
    except REFUSALS:
        return None


def keeps_its_arguments(case: Case, sample: Sample) -> None:
    """Two calls give the same, leave what they were given, and give memory of their own."""
    arguments = tangrad_arguments(sample, case.device, case.definition)
    if any(p.written for p in case.definition.schema.params):
        return
    before = [np.array(as_array(t)) for t in tensors_in(arguments)]
    first = outcome(case, arguments)
    if first is None:
        return
    what = f"{case.op}{describe(sample)}"
    for number, (t, kept) in enumerate(zip(tensors_in(arguments), before, strict=True)):
        same_values(f"{what}, argument {number} after the call", as_array(t), kept)
    kept = [np.array(as_array(t)) for t in first]
    again = outcome(case, arguments)
    if again is None:
        raise Mismatch(f"{what} called again", "an error", "what the first call gave")
    for t, values in zip(again, kept, strict=True):
        same_values(f"{what} called again", as_array(t), values)
    if case.call.kind in COMPUTED:
        for t in again:
            t.zero_()
        for number, (t, values) in enumerate(zip(tensors_in(arguments), before, strict=True)):
            same_values(f"{what}, argument {number} after the result was written", as_array(t),
                        values)  # fmt: skip
        for t, values in zip(first, kept, strict=True):
            same_values(f"{what}, a result after that of a second call was written", as_array(t),
                        values)  # fmt: skip


def same_values(what: str, got: np.ndarray, expected: np.ndarray) -> None:
    """Raise Mismatch unless two arrays are equal; NaN is as good as NaN."""
    if not np.array_equal(got, expected, equal_nan=got.dtype.kind in "fc"):
        raise Mismatch(what, got, expected)


def does_not_see_strides(case: Case, sample: Sample) -> None:
    """Tensors with gaps and turned axes give what contiguous ones give."""
    if creates(case.definition):
        return
    plain = outcome(case, tangrad_arguments(sample, case.device, case.definition))
    spread = outcome(case, arguments_on(tangrad_tensor_on(case.device), sample))
    if plain is not None and spread is not None:
        what = f"{case.op}{describe(sample)} of strided tensors, beside contiguous ones"
        expect_close(what, spread, plain, 8)


def tells_shapes(case: Case, sample: Sample) -> None:
    """Tensors without data tell the shapes and dtypes that results have."""
    if case.definition.shape_depends_on_data:
        return
    found = outcome(case, tangrad_arguments(sample, case.device, case.definition))
    told = outcome(case, tangrad_arguments(sample, "meta", case.definition))
    if found is None or told is None:
        return
    what = f"{case.op}{describe(sample)}, (shape, dtype) on device meta"
    expect(what, [(tuple(t.shape), str(t.dtype)) for t in told],
           [(tuple(t.shape), str(t.dtype)) for t in found])  # fmt: skip


def like_decomposition(case: Case, sample: Sample) -> None:
    """The reference and the decomposition of an op compute the same."""
    definition = case.definition
    if definition.reference is None or definition.decompose is None:
        return
    names = [p.name for p in definition.schema.params]
    args, kwargs = tangrad_arguments(sample, case.device, definition)
    found = outcome(case, tangrad_arguments(sample, "reference", definition))
    if found is None:
        return
    bound = {p.name: p.default for p in definition.schema.params}
    bound.update(zip(names, args, strict=False))
    bound.update(kwargs)
    if any(repr(v) == "<required>" for v in bound.values()):
        return
    decomposed = tensors_in(definition.decomposed([bound[name] for name in names]))
    what = f"{case.op}{describe(sample)}, its decomposition beside its reference"
    expect_close(what, [t.cpu() for t in decomposed], [t.cpu() for t in found], 100)


def like_wider_numbers(case: Case, sample: Sample) -> None:
    """Results in float32 are those in float64, but for rounding."""
    found = outcome(case, tangrad_arguments(sample, case.device, case.definition))
    exact = outcome(case, tangrad_arguments(widened(sample), case.device, case.definition))
    if found is None or exact is None or len(found) != len(exact):
        return
    pairs = [(f, e) for f, e in zip(found, exact, strict=True)
             if is_differentiable_dtype(f) and is_differentiable_dtype(e)]  # fmt: skip
    what = f"{case.op}{describe(sample)}, beside that of float64"
    expect_close(what, [f for f, _ in pairs], [e.to(f.dtype) for f, e in pairs], SINGLE)


def torch_counterpart(definition: Any) -> Any:
    """Return what a definition says to compare with, where PyTorch is installed; else None."""
    from importlib.util import find_spec

    if definition.oracle is None or find_spec("torch") is None:
        return None
    from tangrad_testing.oracle import counterpart

    return counterpart(definition)


def like_torch(case: Case, sample: Sample, oracle: Any) -> None:
    """Results are those of PyTorch's counterpart."""
    from tangrad_testing.oracle import tensors_in as torch_tensors_in
    from tangrad_testing.oracle import torch_arguments

    args, kwargs = torch_arguments(sample)
    found = outcome(case, tangrad_arguments(sample, case.device, case.definition))
    try:
        expected = torch_tensors_in(oracle(*args, **kwargs))
    except REFUSALS:
        return
    if found is not None:
        expect_close(f"{case.op}{describe(sample)}, beside PyTorch's", found, expected, 8)

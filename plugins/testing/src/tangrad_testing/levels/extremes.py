"""Level 2: kernels at the ends of dtypes, on nothing, and beside what they must not touch."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import find_op
from tangrad_testing.calls import (
    REFUSALS,
    creates,
    describe,
    tangrad_arguments,
    tensors_in,
)
from tangrad_testing.cases import Case, has_values, may_have_derivative
from tangrad_testing.closeness import as_array, dtype_name
from tangrad_testing.levels.check import (
    Check,
    Device,
    Mismatch,
    NotApplicable,
    expect,
    expect_close,
)
from tangrad_testing.levels.concurrency import THREADS
from tangrad_testing.levels.kernels import own_kernels
from tangrad_testing.levels.lifetime import in_thread

# Ops whose results at the ends of a dtype IEEE 754, or two's complement, says to the bit.
TO_THE_BIT = (
    "add_plain sub_plain mul neg abs sign square maximum minimum fmax fmin where_choice relu "
    "floor ceil trunc round eq ne lt le gt ge isnan isinf isfinite signbit copy_ clone"
).split()
# Ops whose values there are known, but for rounding.
ROUNDED = (
    "exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal tanh sigmoid div sin cos atan".split()
)
FOLDS = "sum amax amin all any argmax argmin cumsum prod mean max min".split()
NUMBERS = {
    "float32": (0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.2e-38, 1e-45,
                -3e-42, 16777217.0, 0.5),
    "float64": (0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 2.3e-308, 5e-324,
                -3e-320, 9007199254740993.0, 0.5),
    "int32": (0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 2, 1 - 2**31, 16777217),
    "int64": (0, 1, -1, 2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63, 2**53 + 1),
}  # fmt: skip
# Rows whose folds tell how each end is taken.
ROWS = {
    "float": ([np.nan, 1, 2], [np.inf, 1, 2], [-np.inf] * 3, [np.inf, -np.inf, 0],
              [1, np.nan, np.inf], [-0.0] * 3, [0.0] * 3, [-1, -2, -3]),
    "int32": ([-(2**31)] * 3, [2**31 - 1, 1, 0], [2**24 + 1, 1, 0]),
    "int64": ([-(2**63)] * 3, [2**63 - 1, 1, 0], [2**53 + 1, 2, 2**53 + 1]),
}  # fmt: skip
GUARD, GUARDED = 77, 5


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of a device's kernels."""
    if device.driver.meta or device.name == "reference":
        return
    bodies: tuple[tuple[str, str, Callable[..., None]], ...] = (
        ("extremes", "takes infinities, NaN, zeros of both signs, the least numbers and the most",
         at_the_ends),
        ("nothing", "takes tensors without elements and without dimensions", of_nothing),
        ("apart", "writes its result alone, holds on to nothing, and does so in every thread",
         apart),
    )  # fmt: skip
    for op, dtypes in own_kernels(device).items():
        for name, says, body in bodies:
            yield Check(2, f"{op}-{name}", f"{op} {says}", partial(body, op=op, dtypes=dtypes))


def tensor(device: str, values: Any, dtype: str) -> Any:
    """Make a tensor of values on a device."""
    return tangrad.from_numpy(np.array(values, dtype, order="C")).to(device)


def same_result(
    what: str, op: Any, device: str, arguments: Callable[[str], Any], bits: bool
) -> None:
    """Compare a call on the device with the reference's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what has no meaning for no elements
        try:
            expected = tensors_in(op(*arguments("reference")))
        except REFUSALS:
            return
        found = tensors_in(op(*arguments(device)))
    expect(f"{what}, number of results", len(found), len(expected))
    for ours, theirs in zip(found, expected, strict=True):
        if bits:
            same_bits(what, as_array(ours), as_array(theirs))
        else:
            expect_close(what, [ours], [theirs], 8)


def same_bits(what: str, got: np.ndarray, expected: np.ndarray) -> None:
    """Raise Mismatch unless two arrays have the same numbers and signs; a NaN is a NaN."""
    expect(f"{what}, shape", got.shape, expected.shape)
    same = got == expected
    if got.dtype.kind == "f":
        nan = np.isnan(got) & np.isnan(expected)
        same = (same & (np.signbit(got) == np.signbit(expected))) | nan
    if not same.all():
        place = tuple(int(k) for k in np.argwhere(~same)[0]) if same.ndim else ()
        raise Mismatch(f"{what}, element {list(place)}", got[place], expected[place])


def at_the_ends(device: Device, op: str, dtypes: list[str]) -> None:
    """Give an op every number at the end of its dtypes, in all pairs.

    Raises:
        NotApplicable: nothing is known of the op.
    """
    found, ran = find_op(op), 0
    for dtype in [d for d in dtypes if d in NUMBERS]:
        if found.kind == "pointwise" and op in (*TO_THE_BIT, *ROUNDED):
            ran += pairs_of(device, found, dtype, bits=op in TO_THE_BIT)
        elif op == "copy_":
            ran += copied(device, dtype)
        elif found.kind in ("reduction", "scan") and op in FOLDS:
            ran += folded(device, found, dtype)
        elif op in ("mm", "bmm") and dtype.startswith("float"):
            ran += multiplied(device, dtype)
    if not ran:
        raise NotApplicable("what it gives at the ends of dtypes is not said to the bit")


def pairs_of(device: Device, op: Any, dtype: str, bits: bool) -> int:
    """Compare a pointwise op on all pairs of numbers."""
    inputs = op.definition.inputs
    fixed = [op.definition.fixed.get(name) for name in inputs]
    choices = [(False, True) if f == "bool" else NUMBERS[dtype] for f in fixed]
    columns = list(zip(*itertools.product(*choices), strict=True))
    # A few beside many: kernels differ in registers and tails.
    for count in (len(columns[0]), 7):

        def arguments(where: str, count: int = count) -> list[Any]:
            return [tensor(where, column[:count], f or dtype)
                    for column, f in zip(columns, fixed, strict=True)]  # fmt: skip

        what = f"{op.name} of {dtype}, all pairs of {list(NUMBERS[dtype])}"
        same_result(what, op, device.name, arguments, bits)
    return 1


def copied(device: Device, dtype: str) -> int:
    """Compare copies between strides, which keep every bit."""
    values = np.array([NUMBERS[dtype]] * 3, dtype)
    x = tensor(device.name, values, dtype)
    turned = x.t().contiguous()
    same_bits(f"copy_ of {dtype} between strides", as_array(turned), values.T)
    return 1


def folded(device: Device, op: Any, dtype: str) -> int:
    """Compare folds of rows with the ends in them."""
    rows = ROWS["float" if dtype.startswith("float") else dtype]
    dim: Any = [1] if op.kind == "reduction" else 1
    names = [p.type for p in op.definition.schema.params[1:2]]
    if names and not names[0].startswith("dim[]"):
        dim = 1
    for row in rows:
        for width in (1, 40):
            values = np.array([row * width] * 2)
            if dtype.startswith("int") and np.abs(np.float64(values)).sum() > 2**62 and width > 1:
                continue
            same_result(
                f"{op.name} of {dtype}{row} {width} times", op, device.name,
                lambda where, values=values: [tensor(where, values, dtype), dim], bits=False,
            )  # fmt: skip
    return 1


def multiplied(device: Device, dtype: str) -> int:
    """Compare products of matrices with zeros beside what is not finite."""
    left = np.array([[0.0, 1.0], [2.0, 0.0]])
    for value in (np.inf, np.nan, -np.inf):
        right = np.array([[value, 1.0], [1.0, value]])
        same_result(
            f"mm of {dtype} with {value}",
            find_op("mm"),
            device.name,
            lambda w, r=right: [tensor(w, left, dtype), tensor(w, r, dtype)],
            bits=False,
        )
    return 1


def of_nothing(device: Device, op: str, dtypes: list[str]) -> None:
    """Give an op empty tensors in every dimension, and tensors without dimensions.

    Raises:
        NotApplicable: it is not known which shapes it takes.
    """
    found = find_op(op)
    arguments = EMPTY.get(found.kind) or EMPTY.get(op)
    if arguments is None or (found.definition.samples is None and op not in EMPTY):
        raise NotApplicable("it is not known which empty tensors it takes")
    for dtype in [d for d in dtypes if d in NUMBERS]:
        for shape in ((0,), (0, 3), (3, 0), (2, 0, 3), ()):
            for given in arguments(found, shape, dtype):
                stir(device)
                case = f"{op} of {dtype} tensors of shapes {[np.shape(g) for g in given]}"
                same_result(case, found, device.name, partial(placed, given, dtype), bits=False)


def stir(device: Device) -> None:
    """Leave numbers in memory that is given out next: what is not written is seen."""
    for nbytes in (64, 512, 1024):
        tangrad.full((nbytes,), 101, dtype=tangrad.uint8).to(device.name)


def placed(given: list[Any], dtype: str, where: str) -> list[Any]:
    """Return arguments with their arrays as tensors on a device."""
    return [
        tensor(where, g, dtype if g.dtype.kind == "f" else g.dtype.name)
        if isinstance(g, np.ndarray)
        else g
        for g in given
    ]


def _of_pointwise(op: Any, shape: tuple[int, ...], dtype: str) -> Iterator[list[Any]]:
    fixed = [op.definition.fixed.get(name, "float64") for name in op.definition.inputs]
    required = [p for p in op.definition.schema.params if repr(p.default) == "<required>"]
    if len(required) == len(fixed):
        yield [np.ones(shape, f) for f in fixed]


def _of_folds(op: Any, shape: tuple[int, ...], dtype: str) -> Iterator[list[Any]]:
    for dim in range(len(shape)):
        first = [p.type for p in op.definition.schema.params[1:2]]
        listed = bool(first) and first[0].startswith("dim[]")
        yield [np.ones(shape), [dim] if listed else dim]


def _of_products(op: Any, shape: tuple[int, ...], dtype: str) -> Iterator[list[Any]]:
    for m, k, n in ((0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0), (5, 0, 1)):
        yield [np.ones((m, k)), np.ones((k, n))]


def _of_rows(op: Any, shape: tuple[int, ...], dtype: str) -> Iterator[list[Any]]:
    for dim in range(len(shape)):
        yield [np.ones(shape), dim, np.zeros(0, np.int64)]


EMPTY: dict[str, Callable[[Any, tuple[int, ...], str], Iterator[list[Any]]]] = {
    "pointwise": _of_pointwise,
    "reduction": _of_folds,
    "scan": _of_folds,
    "mm": _of_products,
    "index_select": _of_rows,
}


def apart(device: Device, op: str, dtypes: list[str]) -> None:
    """Call an op on its samples between guards, over and over, and in another thread.

    Raises:
        NotApplicable: it has no samples that tell.
    """
    ran = 0
    for dtype in [d for d in dtypes if d in NUMBERS][:2]:
        case = Case(op, dtype, device.name)
        if op == "copy_":
            copy_between_guards(device, dtype)
            ran += 1
        if case.definition.samples is None or not has_values(case) or creates(case.definition):
            continue
        if not may_have_derivative(case):
            continue
        calls = [call for s in case.samples() if (call := call_apart(device, case, s))]
        holds_nothing(device, f"{op} of {dtype}", calls)
        ran += len(calls)
    if not ran:
        raise NotApplicable("it has no samples of its own, or writes what it is given")


def call_apart(device: Device, case: Case, sample: Any) -> Callable[[], Any] | None:
    """Compare what a call leaves around it; return the call, None where it is refused."""
    arguments = tangrad_arguments(sample, case.device, case.definition)
    try:
        expected = tensors_in(case.call(*arguments[0], **arguments[1]))
    except REFUSALS:
        return None
    what = f"{case.op}{describe(sample)}"
    before = [np.array(as_array(t)) for t in tensors_in(arguments)]
    again = tensors_in(case.call(*arguments[0], **arguments[1]))
    elsewhere = in_thread(lambda: tensors_in(case.call(*arguments[0], **arguments[1])))
    expect_close(f"{what} called again", again, expected)
    expect_close(f"{what} in another thread", elsewhere, expected)
    for t, values in zip(tensors_in(arguments), before, strict=True):
        same = np.array_equal(as_array(t), values, equal_nan=values.dtype.kind in "fc")
        expect(f"{what} leaves its operands as they are", same, True)
    del again, elsewhere
    if case.call.takes_out and case.call.kind != "view":
        out_between_guards(device, what, case, arguments, expected)
    in_place_as_well(what, case, arguments, expected)

    def anew() -> Any:
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        return case.call(*args, **kwargs)

    return anew


def guarded(device: str, like: Any) -> tuple[Any, Any]:
    """Return a contiguous tensor of a shape and dtype, and what it lies in between guards."""
    count = like.numel()
    wide = tangrad.full((count + 2 * GUARDED,), 1, dtype=like.dtype).to(device)
    if not like.dtype.is_complex and like.dtype is not tangrad.bool:
        wide.fill_(GUARD)
    return wide[GUARDED : GUARDED + count].view(tuple(like.shape)), wide


def guards_hold(what: str, wide: Any) -> None:
    """Raise Mismatch if what lies before and behind a tensor was written."""
    values = as_array(wide)
    for name, part in (("before", values[:GUARDED]), ("behind", values[-GUARDED:])):
        if not (part == values.dtype.type(1 if values.dtype == bool else GUARD)).all():
            raise Mismatch(f"{what}, elements {name} its result", part, f"{GUARD}, unwritten")


def out_between_guards(
    device: Device, what: str, case: Case, arguments: Any, expected: list[Any]
) -> None:
    """Compare a contiguous out= that lies in the middle of a tensor, and what is around it."""
    if any(dtype_name(e).startswith("complex") or dtype_name(e) == "bool" for e in expected):
        return
    pairs = [guarded(device.name, e) for e in expected]
    outs = tuple(out for out, _ in pairs)
    try:
        case.call(*arguments[0], **arguments[1], out=outs if len(outs) > 1 else outs[0])
    except REFUSALS:
        return
    expect_close(f"{what}, out= between others", list(outs), expected, 8)
    for _, wide in pairs:
        guards_hold(f"{what}, out= between others", wide)


def in_place_as_well(what: str, case: Case, arguments: Any, expected: list[Any]) -> None:
    """Compare a call whose out= is its first operand."""
    args, kwargs = arguments
    if case.call.kind != "pointwise" or len(expected) != 1 or not case.call.takes_out:
        return
    first, e = (args[0] if args else None), expected[0]
    if not isinstance(first, tangrad.Tensor) or first.dtype is not e.dtype:
        return
    if tuple(first.shape) != tuple(e.shape):
        return
    target = first.clone(memory_format=tangrad.contiguous_format)
    try:
        case.call(target, *args[1:], **kwargs, out=target)
    except REFUSALS:
        return
    expect_close(f"{what}, into its first operand", [target], [e], 8)


def copy_between_guards(device: Device, dtype: str) -> None:
    """Compare a strided copy into the middle of a tensor."""
    source = tensor(device.name, np.arange(12).reshape(3, 4), dtype).t()
    target, wide = guarded(device.name, tangrad.empty((4, 3), dtype=source.dtype))
    target.copy_(source)
    expect("copy_ between others", as_array(target).tolist(), as_array(source).tolist())
    guards_hold("copy_ between others", wide)


def holds_nothing(device: Device, what: str, calls: list[Callable[[], Any]]) -> None:
    """Raise Mismatch if calls take memory of the device that they do not give back."""

    def held() -> int:
        for call in calls:
            call()
        return tangrad.accelerator.memory_allocated(device.name)

    if held() == held():
        return
    gc.collect()
    before = [held(), gc.collect()][0]
    for _ in range(THREADS):
        held()
    gc.collect()
    device.driver.synchronize()
    after = tangrad.accelerator.memory_allocated(device.name)
    expect(
        f"{what}, bytes that are held after {THREADS} rounds of calls", max(after - before, 0), 0
    )

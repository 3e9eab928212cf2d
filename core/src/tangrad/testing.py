"""Comparing and making tensors in tests: `torch.testing`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad import _C

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# (rtol, atol) by dtype; what is not listed has to be equal.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
# Those of `assert_allclose`.
_WIDER = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}
_NUMBER_TYPES = {float: "float64", complex: "complex128"}


class _Options(NamedTuple):
    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


class _Difference(Exception):
    """Say how two inputs differ, and the error to raise for it."""

    def __init__(self, text: str, kind: type[Exception] = AssertionError) -> None:
        super().__init__(text)
        self.kind = kind


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise unless two tensors, numbers or containers of them are close.

    Numbers are close if they are finite and ``|actual - expected| <= atol + rtol * |expected|``,
    or equal.

    Args:
        actual, expected: tensors or what `as_tensor` takes, numbers, bools, None, and sequences
            and mappings of these, which are compared element by element.
        allow_subclasses: whether related types of tensors may be compared.
        rtol, atol: tolerances, both or none; by dtype where they are None.
        equal_nan: whether two NaN are equal.
        check_device: whether devices have to be the same; else both go to the host. Tensors
            without values (on "meta") are compared by their attributes.
        check_dtype: whether dtypes have to be the same; else both are promoted.
        check_layout: whether layouts have to be the same.
        check_stride: whether strides have to be the same.
        msg: the error's text, or a function from the text that it would have.

    Raises:
        AssertionError: they are not close; the text names how many elements differ, and where
            the greatest differences are.
        TypeError: the inputs cannot be compared.
        ValueError: only one tolerance is given, or an input makes no tensor.
    """
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    options = _Options(
        allow_subclasses,
        rtol,
        atol,
        equal_nan,
        check_device,
        check_dtype,
        check_layout,
        check_stride,
    )
    failure = None
    try:
        for a, b, place in list(_pairs(actual, expected, ())):
            _compare_at(a, b, place, options)
    except _Difference as difference:
        failure = difference
    if failure is not None:
        raise failure.kind(_worded(str(failure), msg)) from failure.__cause__


def _worded(text: str, msg: str | Callable[[str], str] | None) -> str:
    return text if msg is None else (msg(text) if callable(msg) else msg)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Raise unless two tensors are close, as `assert_close` without checks of dtype and device.

    Deprecated in PyTorch: use `assert_close`.
    """
    __tracebackhide__ = True
    warnings.warn(
        "assert_allclose() is deprecated; use assert_close()", FutureWarning, stacklevel=2
    )
    if not isinstance(actual, _C.Tensor):
        actual = tangrad.tensor(actual)
    if not isinstance(expected, _C.Tensor):
        expected = tangrad.tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = _tolerances([_name(x.dtype) for x in (actual, expected)], _WIDER)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )


# --- containers --------------------------------------------------------------------------------


def _pairs(
    actual: Any, expected: Any, place: tuple[Any, ...]
) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Yield what is to be compared, and where it stands in the containers."""
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise _placed(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", place
            )
        for i in range(len(actual)):
            yield from _pairs(actual[i], expected[i], (*place, i))
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        _compare_keys(actual, expected, place)
        for key in _ordered(set(actual)):
            yield from _pairs(actual[key], expected[key], (*place, key))
    else:
        yield actual, expected, place


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _ordered(keys: set[Any]) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def _compare_keys(actual: Any, expected: Any, place: tuple[Any, ...]) -> None:
    missing, additional = set(expected) - set(actual), set(actual) - set(expected)
    if missing or additional:
        raise _placed(
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {_ordered(missing)}\n"
            f"Additional keys in the actual mapping: {_ordered(additional)}",
            place,
        )


def _placed(
    text: str, place: tuple[Any, ...], kind: type[Exception] = AssertionError
) -> _Difference:
    if place:
        text += f"\n\nThe failure occurred for item {''.join(f'[{item!r}]' for item in place)}"
    return _Difference(text, kind)


def _compare_at(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    try:
        _compare(actual, expected, options)
    except _Difference as difference:
        raise _placed(str(difference), place, difference.kind) from difference.__cause__


# --- single values -----------------------------------------------------------------------------


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (type(value).__module__ == "numpy" and _kind(value) == "b")


def _is_number(value: Any) -> bool:
    from numbers import Number

    return isinstance(value, Number) and not _is_bool(value)


def _kind(value: Any) -> str:
    """Return NumPy's letter for the kind of one of its scalars."""
    return str(value.dtype.kind) if getattr(value, "shape", None) == () else ""


def _compare(actual: Any, expected: Any, options: _Options) -> None:
    if actual is None or expected is None:
        if actual is not expected:
            raise _Difference(f"None mismatch: {actual} is not {expected}")
    elif _is_bool(actual) and _is_bool(expected):
        if bool(actual) is not bool(expected):
            raise _Difference(f"Booleans mismatch: {bool(actual)} is not {bool(expected)}")
    elif _is_number(actual) and _is_number(expected):
        _compare_numbers(actual, expected, options)
    else:
        _compare_tensors(*_as_tensors(actual, expected, options), options)


def _tolerances(
    names: list[str], table: Mapping[str, tuple[float, float]] = _TOLERANCES
) -> tuple[float, float]:
    found = [table.get(name, (0.0, 0.0)) for name in names]
    return max(r for r, _ in found), max(a for _, a in found)


def _chosen(options: _Options, names: list[str]) -> tuple[float, float]:
    if options.rtol is None or options.atol is None:
        return _tolerances(names)
    return options.rtol, options.atol


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _compare_numbers(actual: Any, expected: Any, options: _Options) -> None:
    a, b = _plain(actual), _plain(expected)
    if options.check_dtype and type(a) is not type(b):
        raise _Difference(f"The (d)types do not match: {type(a)} != {type(b)}.")
    rtol, atol = _chosen(options, [_NUMBER_TYPES.get(type(x), "int64") for x in (a, b)])
    if _close_numbers(a, b, rtol, atol, options.equal_nan):
        return
    raise _Difference(_number_text(a, b, rtol, atol))


def _close_numbers(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    if a == b:
        return True
    if a != a or b != b:
        return bool(equal_nan and a != a and b != b)
    distance = abs(a - b)
    return bool(math.isfinite(distance) and distance <= atol + rtol * abs(b))


def _number_text(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    distance = abs(actual - expected)
    relative = math.inf if expected == 0 else distance / abs(expected)
    return _text(
        "Scalars",
        f"Expected {expected} but got {actual}.",
        f"Absolute difference: {distance}",
        f"Relative difference: {relative}",
        rtol,
        atol,
    )


def _text(what: str, extra: str, absolute: str, relative: str, rtol: float, atol: float) -> str:
    exact = rtol == 0 and atol == 0
    if not exact:
        absolute += f" (up to {atol} allowed)"
        relative += f" (up to {rtol} allowed)"
    verdict = "equal" if exact else "close"
    return f"{what} are not {verdict}!\n\n{extra}\n{absolute}\n{relative}"


# --- tensors -----------------------------------------------------------------------------------


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _as_tensors(actual: Any, expected: Any, options: _Options) -> tuple[Any, Any]:
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    same = type(actual) is type(expected)
    if not (related if options.allow_subclasses else same):
        raise _incomparable(actual, expected)
    made = []
    for value in (actual, expected):
        if isinstance(value, str) or not _makes_tensor(value):
            raise _incomparable(actual, expected)
        made.append(value if isinstance(value, _C.Tensor) else tangrad.as_tensor(value))
    return made[0], made[1]


def _makes_tensor(value: Any) -> bool:
    if isinstance(value, _C.Tensor):
        return True
    try:
        tangrad.as_tensor(value)
    except Exception:
        return False
    return True


def _incomparable(actual: Any, expected: Any) -> _Difference:
    return _Difference(
        f"No comparison pair was able to handle inputs of type {type(actual)} and "
        f"{type(expected)}.",
        TypeError,
    )


def _compare_tensors(actual: Any, expected: Any, options: _Options) -> None:
    _compare_attributes(actual, expected, options)
    rtol, atol = _chosen(options, [_name(actual.dtype), _name(expected.dtype)])
    a, b = actual.detach(), expected.detach()
    if a.is_meta or b.is_meta:
        return  # without values the attributes are all there is
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    if a.dtype != b.dtype:
        common = tangrad.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    if a.layout == b.layout and hasattr(a, "_nnz"):
        _compare_stored(a, b, rtol, atol, options.equal_nan)
    else:
        _compare_values(a.to_dense(), b.to_dense(), rtol, atol, options.equal_nan)


def _compare_stored(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> None:
    kind = f"parse {a.layout.name.removeprefix('sparse_').upper()}"
    if a._nnz() != b._nnz():
        said = f"The number of specified values in s{kind} tensors does not match: "
        raise _Difference(f"{said}{a._nnz()} != {b._nnz()}")
    if a.is_sparse and a.is_coalesced() != b.is_coalesced():
        a, b = a.coalesce(), b.coalesce()
    theirs = _C.contents_of(b).components
    for name, mine in _C.contents_of(a).components.items():
        allowed = (rtol, atol) if name == "values" else (0.0, 0.0)
        _compare_values(mine, theirs[name], *allowed, equal_nan, f"S{kind} {name}")


def _compare_values(
    a: Any, b: Any, rtol: float, atol: float, equal_nan: bool, what: str = "Tensor-likes"
) -> None:
    same = tangrad.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if bool(same.all()):
        return
    if a.ndim == 0:
        raise _Difference(_number_text(a.item(), b.item(), rtol, atol))
    raise _Difference(_tensor_text(a, b, same, (rtol, atol), what))


def _compare_attributes(actual: Any, expected: Any, options: _Options) -> None:
    def differ(name: str, a: Any, b: Any) -> _Difference:
        return _Difference(f"The values for attribute '{name}' do not match: {a} != {b}.")

    if actual.shape != expected.shape:
        raise differ("shape", actual.shape, expected.shape)
    if options.check_layout and actual.layout != expected.layout:
        raise differ("layout", actual.layout, expected.layout)
    if options.check_device and actual.device != expected.device:
        raise differ("device", actual.device, expected.device)
    if options.check_dtype and actual.dtype != expected.dtype:
        raise differ("dtype", actual.dtype, expected.dtype)
    if options.check_stride and actual.stride() != expected.stride():
        raise differ("stride()", actual.stride(), expected.stride())


def _tensor_text(actual: Any, expected: Any, same: Any, allowed: Any, what: str) -> str:
    count = same.numel()
    wrong = count - int(same.sum())
    a, b, same = actual.flatten(), expected.flatten(), same.flatten()
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        a, b = a.to(tangrad.int64), b.to(tangrad.int64)
    absolute = (a - b).abs().masked_fill(same, 0)
    relative = (absolute / b.abs()).masked_fill(same, 0)

    def greatest(word: str, values: Any) -> str:
        value, place = values.max(0)
        return f"Greatest {word} difference: {value.item()} at index {_index(place, actual.shape)}"

    return _text(
        what,
        f"Mismatched elements: {wrong} / {count} ({wrong / count:.1%})",
        greatest("absolute", absolute),
        greatest("relative", relative),
        *allowed,
    )


def _index(place: Any, shape: Sequence[int]) -> tuple[int, ...]:
    flat, found = int(place), []
    for size in reversed(shape):
        found.append(flat % size)
        flat //= size
    return tuple(reversed(found))


# --- making ------------------------------------------------------------------------------------


def _interval(
    low: float | None, high: float | None, dtype: Any, default: tuple[int, int]
) -> tuple[Any, Any]:
    """Return the interval to draw from, within what the dtype represents."""
    real = dtype.is_floating_point or dtype.is_complex
    if real:
        lowest, highest = tangrad.finfo(dtype).min, tangrad.finfo(dtype).max
    elif dtype == tangrad.bool:
        lowest, highest = 0, 2
    else:
        # randint cannot draw the largest int64.
        limits = tangrad.iinfo(dtype)
        lowest, highest = limits.min, limits.max + (1 if limits.bits < 64 else 0)
    low = default[0] if low is None else low
    high = default[1] if high is None else high
    if low != low or high != high:
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and real:
        warnings.warn(
            "Passing `low==high` to `make_tensor` for floating or complex types is deprecated; "
            "use `full(...)` instead.",
            FutureWarning,
            stacklevel=4,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < lowest or low >= highest:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), "
            f"but {dtype} only supports [{lowest}, {highest})"
        )
    low, high = min(max(low, lowest), highest), min(max(high, lowest), highest)
    return (low, high) if real else (math.ceil(low), math.ceil(high))


def _drawn(shape: tuple[int, ...], dtype: Any, device: Any, low: Any, high: Any) -> Any:
    if dtype == tangrad.bool:
        start, end = _interval(low, high, dtype, (0, 2))
        return tangrad.randint(start, end, shape, device=device, dtype=dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        start, end = _interval(low, high, dtype, (-9, 10))
        return tangrad.randint(start, end, shape, device=device, dtype=dtype)
    start, end = _interval(low, high, dtype, (-9, 9))
    made = tangrad.empty(shape, device=device, dtype=dtype)
    parts = tangrad.view_as_real(made) if dtype.is_complex else made
    if math.isfinite(end - start) and end - start <= tangrad.finfo(dtype).max:
        parts.uniform_(start, end)
    else:  # the width of the interval is not a number of the dtype: draw one of half of it
        parts.uniform_(start / 2, end / 2).mul_(2)
    return made


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """Make a tensor of numbers uniform on [low, high).

    Args:
        shape: sizes, or a sequence of them.
        dtype: of the result.
        device: of the result.
        low, high: the interval. Default: [0, 2) for bool, [-9, 10) for integers (from 0 for
            unsigned ones), [-9, 9) for others. Both are cut to what the dtype represents.
        requires_grad: record operations on the result.
        noncontiguous: take every other element of a tensor twice as large.
        exclude_zero: replace zeros by one, or by the smallest positive normal number.
        memory_format: of the result, instead of `noncontiguous`.

    Raises:
        ValueError: the interval is empty or NaN, both `noncontiguous` and `memory_format` are
            given, or integers are to require a gradient.
        TypeError: the dtype is no dtype.
    """
    if not isinstance(dtype, _C.dtype):
        raise TypeError(f"The requested dtype '{dtype}' is not supported by make_tensor().")
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got {noncontiguous=} and {memory_format=}"
        )
    real = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not real:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, "
            f"but got {dtype=}"
        )
    if noncontiguous and math.prod(shape) > 1:
        made = _drawn((*shape[:-1], 2 * shape[-1]), dtype, device, low, high)[..., 1::2]
    else:
        made = _drawn(tuple(shape), dtype, device, low, high)
        if memory_format is not None:
            made = made.clone(memory_format=memory_format)
    if exclude_zero:
        tiny = tangrad.finfo(dtype).tiny if real else 1
        made.masked_fill_(made == 0, complex(tiny, tiny) if dtype.is_complex else tiny)
    return made.requires_grad_(requires_grad) if real else made

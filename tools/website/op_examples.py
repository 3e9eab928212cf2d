"""An example of an op, made from a sample of its definition and run while its page is made."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

# A tensor of more elements is drawn instead of written, and the result's shape stands for it.
WRITTEN = 36
DTYPES = ("float32", "int64", "complex64", "bool")
VARIABLES = "xyzabcdefghuvw"


class NoExampleError(Exception):
    """No sample of an op can be shown: it says why."""


def example(calls: list[str], definition: Any) -> str:
    """Return a call with its result, as typed at Python's prompt.

    Args:
        calls: how to call the op, such as `tangrad.add`; tried in turn.
        definition: has the samples.

    Raises:
        NoExampleError: it has none, or none can be shown.
    """
    reasons: list[str] = []
    for call in calls:
        for sample in _samples(definition):
            try:
                return _shown(call, sample)
            except Exception as error:  # an op's own, told if no sample succeeds
                reasons.append(f"{type(error).__name__}: {error}")
    raise NoExampleError(reasons[-1] if reasons else "its definition has no samples")


def _samples(definition: Any) -> Iterator[Any]:
    """Yield samples, those first that are best to read."""
    from tangrad.plugin import Sampler

    if definition.samples is None:
        return
    for dtype in DTYPES:
        try:
            samples = list(definition.samples(Sampler(dtype)))
        except Exception:  # samples that are made for other dtypes only
            continue
        yield from sorted(samples, key=_effort)


def _effort(sample: Any) -> float:
    """Return how far a sample is from some ten ordinary numbers in tensors of few dimensions."""
    tensors = list(_tensors([*sample.args, *sample.kwargs.values()]))
    small = 100 * sum(t.array.size < 2 for t in tensors)
    deep = 30 * sum(t.array.ndim > 2 for t in tensors)
    unusual = sum(not np.isfinite(t.array).all() for t in tensors if t.array.dtype.kind in "fc")
    return small + deep + abs(sum(t.array.size for t in tensors) - 10) + 1000 * unusual


def _tensors(values: Any) -> Iterator[Any]:
    from tangrad.plugin import SampleTensor

    for value in values:
        if isinstance(value, SampleTensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _shown(call: str, sample: Any) -> str:
    scope: dict[str, Any] = {}
    lines: list[str] = []
    names = iter(VARIABLES)
    total = sum(t.array.size for t in _tensors([*sample.args, *sample.kwargs.values()]))
    is_drawn = total > 3 * WRITTEN
    arguments = [_argument(value, names, lines, is_drawn) for value in sample.args]
    named = [f"{k}={_argument(v, names, lines, is_drawn)}" for k, v in sample.kwargs.items()]
    text = f"{call}({', '.join([*arguments, *named])})"
    import tangrad

    scope["tangrad"] = tangrad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tangrad.manual_seed(0)
        for line in lines:
            exec(line, scope)  # the lines made above, of numbers alone
        result = eval(text, scope)
        said = _result(result)
    shown = [f">>> {line}" for line in lines]
    if said is None or len(said) > 1500:
        return "\n".join([*shown, f">>> result = {text}", *_shape(result)])
    return "\n".join([*shown, f">>> {text}", said])


def _argument(value: Any, names: Iterator[str], lines: list[str], is_drawn: bool) -> str:
    """Return an argument as it is written; tensors get a line and a variable."""
    from tangrad.plugin import SampleTensor

    if isinstance(value, SampleTensor):
        name = next(names)
        lines.append(f"{name} = {_constructor(value, is_drawn)}")
        return name
    if type(value).__name__ == "SampleDtype":
        return f"tangrad.{value.name}"
    if isinstance(value, list):
        return f"[{', '.join(_argument(v, names, lines, is_drawn) for v in value)}]"
    if isinstance(value, tuple):
        inside = [_argument(v, names, lines, is_drawn) for v in value]
        return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (bool, int, str, complex, type(None))):
        return repr(value)
    text = str(value)
    if text.startswith("tangrad."):
        return text
    raise NoExampleError(f"an argument that is no number or text: {type(value).__name__}")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(f"{value:.3g}"))
    return f'float("{value}")'


def _constructor(tensor: Any, is_drawn: bool) -> str:
    default = {"float32", "int64", "bool", "complex64"}
    suffix = "" if tensor.dtype in default else f", dtype=tangrad.{tensor.dtype}"
    shape = ", ".join(map(str, tensor.shape))
    if is_drawn and tensor.array.size > WRITTEN and tensor.array.dtype.kind == "f":
        low = tensor.array.min()
        return f"tangrad.{'rand' if low >= 0 else 'randn'}({shape}{suffix})"
    if tensor.array.size == 0:
        of = "" if tensor.dtype == "float32" else f", dtype=tangrad.{tensor.dtype}"
        return f"tangrad.empty({shape}{of})"
    if tensor.array.size > 4 * WRITTEN:
        raise NoExampleError("an argument of many elements")
    return f"tangrad.tensor({_nested(tensor.array.tolist())}{suffix})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.2f}" if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, complex):
        return f"{value.real:.1f}{value.imag:+.1f}j"
    return repr(value)


def _result(value: Any) -> str | None:
    """Return what Python prints of a result; None if it is too much."""
    if getattr(value, "numel", None) is not None and value.numel() > WRITTEN:
        return None
    if isinstance(value, (tuple, list)) and sum(v.numel() for v in value if _is(v)) > WRITTEN:
        return None
    text = repr(value)
    return None if " at 0x" in text else text


def _is(value: Any) -> bool:
    return hasattr(value, "numel")


def _shape(result: Any) -> list[str]:
    if _is(result):
        return [">>> result.shape", repr(result.shape)]
    return [">>> [part.shape for part in result]", repr([part.shape for part in result])]

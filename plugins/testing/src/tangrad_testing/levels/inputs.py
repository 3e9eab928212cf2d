"""Inputs of ops beyond the samples of their definitions: sizes at which kernels go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tangrad.plugin import Sample, Sampler, SampleTensor

# Around vector registers, thread blocks and pages.
SIZES = (63, 64, 65, 127, 129, 257, 1023, 1025, 4097, 65537)
LONG = 65537
# NumPy folds these step by step: what the reference takes a minute for is not compared.
LONGEST_SCAN = 4097
# An op that returns a list makes a tensor for every element of a row.
LONGEST_LIST = 1025
# Dtypes that also get many rows and long rows; the others have rows of every size.
WIDELY = ("float32", "int64")
# How many different numbers a dtype holds exactly, where that is few.
DISTINCT = {"bool": 2, "int8": 128, "uint8": 256, "float16": 2049, "bfloat16": 257,
            "int16": 32768, "uint16": 65536}  # fmt: skip
# Pointwise ops that every integer has a result for; beyond 2**53 no float holds it.
EXACT = ("add_plain", "sub_plain", "mul", "neg", "abs", "square", "maximum", "minimum",
         "bitwise_and", "bitwise_or", "bitwise_xor",
         "eq", "ne", "lt", "le", "gt", "ge")  # fmt: skip
WIDE_INTEGERS = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def large_samples(op: Any, dtype: str) -> Iterator[Sample]:
    """Yield calls of an op with many elements, long rows and many rows; none if none are known."""
    definition = op.definition
    own = [s for s in definition.samples(Sampler(dtype)) if s.args]
    if op.kind == "pointwise":
        yield from _pointwise(own)
        if definition.name in EXACT and dtype in WIDE_INTEGERS:
            yield from _wide_integers(definition, dtype)
    elif op.kind in ("reduction", "scan"):
        longest = LONGEST_SCAN if op.kind == "scan" and not _adds(definition) else LONG
        yield from _along_dims(definition, own, dtype, longest, ties=_ties_are_harmless(op))
    elif definition.name in SHAPES:
        yield from SHAPES[definition.name](Sampler(dtype))
    elif [p.type for p in definition.schema.params[:2]][:1] == ["Tensor"] and _dim(definition):
        longest = LONGEST_LIST if definition.schema.result == "Tensor[]" else LONG
        yield from _along_dims(definition, own, dtype, longest, ties=False)


def _pointwise(samples: list[Sample]) -> Iterator[Sample]:
    """Draw from the values of a sample: 1-d of every size, then two that broadcast."""
    for sample in samples:
        tensors = [v for v in sample.args if isinstance(v, SampleTensor)]
        if not tensors or len({t.shape for t in tensors}) > 1 or not tensors[0].array.size:
            continue
        random = np.random.Generator(np.random.Philox(1))
        for size in SIZES:
            yield _drawn(sample, random, [(size,)] * len(tensors))
        if len(tensors) > 1:
            yield _drawn(sample, random, [(257, 1), *[(65,)] * (len(tensors) - 1)])
        return


def _wide_integers(definition: Any, dtype: str) -> Iterator[Sample]:
    """Draw from all integers: products that wrap, neighbours that no float tells apart."""
    random = np.random.Generator(np.random.Philox(3))
    top = WIDE_INTEGERS[dtype]
    arrays = [random.integers(-top, top, 257, endpoint=True) for _ in definition.inputs]
    arrays[-1][::2] = arrays[0][::2] + 1
    arrays[-1][1::4] = 1
    yield Sample(tuple(SampleTensor(a.astype(dtype), dtype) for a in arrays))


def _drawn(sample: Sample, random: Any, shapes: list[tuple[int, ...]]) -> Sample:
    left = iter(shapes)

    def redraw(value: Any) -> Any:
        if not isinstance(value, SampleTensor):
            return value
        flat = value.array.reshape(-1)
        picked = flat[random.integers(0, flat.size, next(left))]
        return SampleTensor(picked, value.dtype)

    return Sample(tuple(map(redraw, sample.args)), sample.kwargs)


def _along_dims(
    definition: Any, samples: list[Sample], dtype: str, longest: int, *, ties: bool
) -> Iterator[Sample]:
    """Replace a sample's first tensor, and its dimension, by what is long in one of them."""
    names = [p.name for p in definition.schema.params]
    usable = (s for s in samples if isinstance(s.args[0], SampleTensor) and s.args[0].array.ndim)
    sample = next(usable, None)
    if sample is None:
        return
    bound = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
    del bound[names[0]]
    if any(isinstance(v, SampleTensor) for v in bound.values()):
        return
    dim = _dim(definition)
    listed = dim is not None and dim[1].startswith("dim[]")
    shapes: list[tuple[tuple[int, ...], int]] = [((n,), 0) for n in SIZES if n <= longest]
    if dtype in WIDELY:
        shapes += [((3, longest), 1), ((longest, 3), 1), ((longest, 3), 0), ((65, 129, 5), 1)]
    for shape, along in shapes:
        values = (_telling if ties else _distinct)(shape, along, dtype)
        for array in values:
            kwargs = dict(bound)
            if dim is not None:
                kwargs[dim[0]] = [along] if listed else along
            elif len(shape) > 1:
                continue
            yield Sample((SampleTensor(array, dtype),), kwargs)


def _dim(definition: Any) -> tuple[str, str] | None:
    """Return (name, type) of the parameter that says along which dimension an op works."""
    found = ((p.name, p.type) for p in definition.schema.params if p.type.startswith("dim"))
    return next(found, None)


def _adds(definition: Any) -> bool:
    """Tell whether NumPy scans with the op's step in one call."""
    return definition.name in ("cumsum", "cumprod")


def _ties_are_harmless(op: Any) -> bool:
    return "arg" not in op.name and len(op.definition.results) == 1


@lru_cache(maxsize=256)
def _telling(shape: tuple[int, ...], along: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Make rows whose folds are exact in any order, and tell of each end whether it was missed."""
    size = shape[along]
    kept = [n for i, n in enumerate(shape) if i != along]
    rows = np.zeros((*kept, size), np.int64)
    if dtype != "bool":
        rows[...] = 1
        rows[..., :: max(size // 5, 1)] = 2
        # Rows differ from each other.
        rows[..., size // 2] = (1 + np.arange(int(np.prod(kept))) % 3).reshape(kept)
    return tuple(
        np.ascontiguousarray(np.moveaxis(_with_ends(rows, *ends), -1, along)).astype(_stored(dtype))
        for ends in (((0, 0, 1), (1, 1, 0)) if dtype == "bool" else ((1, 3, 50), (1, 0, 0)))
    )


def _with_ends(rows: np.ndarray, fill: int, first: int, last: int) -> np.ndarray:
    """Return a copy of rows, of `fill` where they are zero, with other first and last elements."""
    made = np.where(rows == 0, fill, rows)
    made[..., 0], made[..., -1] = first, last
    return made


@lru_cache(maxsize=256)
def _distinct(shape: tuple[int, ...], along: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Draw elements that all differ, if the dtype can; the largest, then the least, last."""
    count = int(np.prod(shape))
    if count > DISTINCT.get(dtype, 2**24):
        return ()
    random = np.random.Generator(np.random.Philox(2))
    order = random.permutation(count)
    found = []
    for turned in (False, True):
        values = count - 1 - order if turned else order
        where = int(np.argmax(values))
        values[where], values[-1] = values[-1], values[where]
        found.append(values.reshape(shape).astype(_stored(dtype)))
    return tuple(found)


def _stored(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


Shapes = Callable[[Sampler], list[Sample]]
# Of kernels without a dimension to lengthen.
SHAPES: dict[str, Shapes] = {
    "mm": lambda s: [
        s(s.tensor(63, 65), s.tensor(65, 129)),
        s(s.tensor(1, 257), s.tensor(257, 64)),
        s(s.tensor(129, 1025), s.tensor(1025, 3)),
    ],
    "bmm": lambda s: [
        s(s.tensor(5, 33, 65), s.tensor(5, 65, 17)),
        s(s.tensor(257, 3, 2), s.tensor(257, 2, 3)),
    ],
    "mv": lambda s: [s(s.tensor(129, 1025), s.tensor(1025)), s(s.tensor(4097, 3), s.tensor(3))],
    "dot": lambda s: [s(s.tensor(n), s.tensor(n)) for n in SIZES],
    "linear": lambda s: [s(s.tensor(65, 129), s.tensor(33, 129), s.tensor(33))],
    "addmm": lambda s: [s(s.tensor(129), s.tensor(63, 65), s.tensor(65, 129))],
    "cat": lambda s: [s([s.tensor(65), s.tensor(LONG), s.tensor(1)]),
                      s([s.tensor(65, 129), s.tensor(65, 63)], 1)],
    "gather": lambda s: [s(s.tensor(65, 129), 1, s.integers(0, 129, 65, 257))],
    "index_select": lambda s: [s(s.tensor(1025, 65), 0, s.integers(0, 1025, 4097))],
    "native_layer_norm": lambda s: [s(s.tensor(65, 1025), [1025], None, None)],
    "convolution": lambda s: [
        s(s.tensor(2, 5, 33, 17), s.tensor(7, 5, 3, 3), [1, 1], [1, 1], [1, 1], 1)
    ],
}  # fmt: skip

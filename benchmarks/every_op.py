"""Time one sample of every op against PyTorch, with tensors of a given number of elements.

The samples are those of the definitions, every size multiplied by one factor, so that shapes which
belong together still do. An op whose samples cannot be enlarged so (a window, a list of sizes) is
listed as left out.

    python benchmarks/every_op.py --elements 65536 --json every_op.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import resource
import signal
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from measuring.paired import OURS, QUICK, Program, measure_programs

import tangrad
from tangrad.ops.definition import registry
from tangrad.ops.definition.samples import Sampler, SampleTensor
from tangrad_testing.calls import tangrad_arguments
from tangrad_testing.oracle import (
    NoOracle,
    counterpart,
    tensors_in,
    torch_arguments,
)

SECONDS = 4
# A result that grows with the square of a sample's size is refused its memory, not swapped.
MEMORY = 6 << 30


class Enlarged(Sampler):
    """Make the samples of an op with all sizes multiplied.

    Args:
        factor: what each size is multiplied by.
        most: elements of the largest tensor worth drawing. One that would be larger belongs to a
            sample of more dimensions than the wanted one, and stays as it is.
    """

    def __init__(self, dtype: str, factor: int, most: int) -> None:
        super().__init__(dtype)
        self.factor = factor
        self.most = most

    def enlarged(self, shape: tuple[int, ...]) -> list[int]:
        """Return the sizes of a shape, multiplied."""
        larger = [size * self.factor for size in shape]
        return larger if math.prod(larger) <= self.most else list(shape)

    def tensor(self, *shape: int, **options: Any) -> SampleTensor:
        """Return a sample tensor of the enlarged shape."""
        return super().tensor(*self.enlarged(shape), **options)

    def integers(self, low: int, high: int, *shape: int, **options: Any) -> SampleTensor:
        """Return sample integers of the enlarged shape."""
        return super().integers(low, high, *self.enlarged(shape), **options)

    def permutation(self, *shape: int, **options: Any) -> SampleTensor:
        """Return a sample without ties of the enlarged shape."""
        return super().permutation(*self.enlarged(shape), **options)


def tensors(sample: Any) -> list[SampleTensor]:
    """Return the tensors of a sample, those in lists included."""
    values = [*sample.args, *sample.kwargs.values()]
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    return [value for value in flat if isinstance(value, SampleTensor)]


def largest(sample: Any) -> int:
    """Return the number of elements of a sample's largest tensor."""
    return max((tensor.array.size for tensor in tensors(sample)), default=0)


def enlarged(definition: Any, dtype: str, elements: int) -> Any:
    """Return the first sample that has dimensions, with about so many elements; None if none."""
    small = definition.samples(Sampler(dtype))
    for place, sample in enumerate(small):
        size = largest(sample)
        if size < 2:
            continue
        dims = max(tensor.array.ndim for tensor in tensors(sample))
        factor = max(1, round((elements / size) ** (1 / max(1, dims))))
        made = definition.samples(Enlarged(dtype, factor, 4 * elements))[place]
        if largest(made) >= elements / 4:
            return made
    return None


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError when a block takes longer."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def public_ops() -> list[Any]:
    """Return the ops that users call, each once."""
    seen: dict[int, Any] = {}
    for name, op in sorted(registry.load_all().items()):
        d = op.definition
        if not name.startswith("_") and not name.endswith("_") and d.function and d.samples:
            seen.setdefault(id(d), op)
    return list(seen.values())


def measure(op: Any, elements: int, clock: str) -> tuple[float, float, float] | str:
    """Return our and PyTorch's microseconds and their ratio, or why they are not measured."""
    definition = op.definition
    dtype = "float32" if not {"integral", "bool"} >= set(definition.dtypes.split()) else "int64"
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample = enlarged(definition, dtype, elements)
            if sample is None:
                return "no sample of this size"
            theirs, their_kwargs = torch_arguments(sample)
            ours, our_kwargs = tangrad_arguments(sample, "cpu", definition)
            oracle = counterpart(definition)
            expected = tensors_in(oracle(*theirs, **their_kwargs))
            found = tensors_in(op(*ours, **our_kwargs))
            if [tuple(x.shape) for x in expected] != [tuple(x.shape) for x in found]:
                return "the results have other shapes"
            programs = {
                OURS: Program("f(*a, **k)", {"f": op, "a": ours, "k": our_kwargs}),
                "torch": Program("f(*a, **k)", {"f": oracle, "a": theirs, "k": their_kwargs}),
            }
            samples = measure_programs(programs, replace(QUICK, clock=clock))
    except (NoOracle, TimeoutError) as reason:
        return str(reason)
    except Exception as reason:  # whatever an enlarged sample makes either library say
        return f"{type(reason).__name__}: {reason}"[:90]
    ratio = samples.ratio()
    medians = samples.medians()
    return medians[OURS], medians["torch"], ratio[1] if ratio else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description="Time every op against PyTorch.")
    parser.add_argument("--elements", type=int, default=65536, help="size of the largest tensor")
    parser.add_argument("--only", nargs="*", help="names of ops")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="cpu")
    parser.add_argument("--seconds", type=float, default=1800, help="when to stop")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    tangrad.set_num_threads(1)
    torch.set_num_threads(1)
    rows, left_out = {}, {}
    start = time.perf_counter()
    for op in public_ops():
        if options.only and op.name not in options.only:
            continue
        if time.perf_counter() - start > options.seconds:
            left_out[op.name] = "no time was left"
            continue
        found = measure(op, options.elements, options.clock)
        if isinstance(found, str):
            left_out[op.name] = found
        else:
            rows[op.name] = found
    for name, (ours, theirs, ratio) in sorted(rows.items(), key=lambda item: -item[1][2]):
        print(f"{name:<40}{ours:>12.2f} us{theirs:>12.2f} us{ratio:>8.2f}")
    ratios = [row[2] for row in rows.values()]
    slow = sum(ratio > 1.05 for ratio in ratios)
    print(f"{len(rows)} ops, {slow} slower than 1.05 times PyTorch, {len(left_out)} left out")
    if ratios:
        print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": rows, "left_out": left_out}, file, indent=1)


if __name__ == "__main__":
    main()

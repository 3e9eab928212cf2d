"""Time every op and every module against PyTorch, forward and backward, at three sizes.

The samples of ops are those of the definitions, every size multiplied by one factor, so that shapes
which belong together still do. An op whose samples cannot be enlarged so (a window, a list of
sizes) is listed as left out. Modules have inputs of their own (`measuring/modules.py`).

    python benchmarks/every_op.py --json every.json
    python benchmarks/every_op.py --only conv2d Conv2d --sizes 65536 --layouts channels_last
    python benchmarks/every_op.py --report every.json --worst 50

Figures are the least of some alternating timings, in microseconds; `--clock cpu` suits a busy
machine. They are written after every row, and rows that the file has are not measured again: a run
can be stopped and go on.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import resource
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import modules
from measuring.paired import CLOCKS

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

SECONDS = 6
# A result that grows with the square of a sample's size is refused its memory, not swapped.
MEMORY = 8 << 30
# Of one timing, and of all timings of a row, in seconds.
TIMING, ROW = 0.004, 0.12
ELEMENTS = (1024, 65536, 1048576)
LAYOUTS = ("contiguous", "strided", "channels_last")
PASSES = ("forward", "backward")
clock = CLOCKS["wall"]


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


def laid_out(library: Any, value: Any, layout: str, gradient: bool) -> Any:
    """Return an argument with its tensors laid out anew, and as inputs of a gradient."""
    if isinstance(value, (list, tuple)):
        return type(value)(laid_out(library, item, layout, gradient) for item in value)
    if not isinstance(value, library.Tensor):
        return value
    if layout == "strided" and value.ndim >= 2:
        value = value.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "channels_last" and value.ndim == 4:
        value = value.contiguous(memory_format=library.channels_last)
    if gradient and value.is_floating_point():
        value = value.detach().requires_grad_()
    return value


def inputs_of(library: Any, values: Any) -> list[Any]:
    """Return the tensors among arguments whose gradient is wanted."""
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    return [v for v in flat if isinstance(v, library.Tensor) and v.requires_grad]


def results_of(library: Any, found: Any) -> list[Any]:
    """Return the tensors of a result, those in sequences of it too."""
    if isinstance(found, library.Tensor):
        return [found]
    if isinstance(found, (list, tuple)):
        return [tensor for item in found for tensor in results_of(library, item)]
    return []


def with_backward(library: Any, call: Callable[[], Any], inputs: list[Any]) -> Callable[[], Any]:
    """Return a call and the gradients of its results by its inputs, weighted by ones."""
    results = [r for r in results_of(library, call()) if r.requires_grad]
    if not results or not inputs:
        raise NoOracle("no gradient")
    seeds = [library.ones_like(r) for r in results]

    def both() -> Any:
        outs = [r for r in results_of(library, call()) if r.requires_grad]
        return library.autograd.grad(outs, inputs, seeds, allow_unused=True)

    return both


def alternated(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return the least microseconds of two programs, timed in turn."""
    programs, numbers, least = (ours, theirs), [], [math.inf, math.inf]
    for program in programs:
        program()
        start = clock()
        program()
        taken = max(clock() - start, 1e-7)
        numbers.append(max(1, round(TIMING / taken)))
    gc.collect()
    gc.disable()
    try:
        end, rounds = time.perf_counter() + ROW, 0
        while rounds < 3 or (time.perf_counter() < end and rounds < 15):
            for which, program in enumerate(programs):
                start = clock()
                for _ in range(numbers[which]):
                    program()
                taken = (clock() - start) / numbers[which]
                least[which] = min(least[which], taken * 1e6)
            rounds += 1
    finally:
        gc.enable()
    return least[0], least[1]


def of_op(op: Any, elements: int, layout: str, backward: bool) -> tuple[float, float]:
    """Time one sample of an op: our and PyTorch's microseconds."""
    definition = op.definition
    dtype = "float32" if not {"integral", "bool"} >= set(definition.dtypes.split()) else "int64"
    sample = enlarged(definition, dtype, elements)
    if sample is None:
        raise NoOracle("no sample of this size")
    theirs, their_kwargs = torch_arguments(sample)
    ours, our_kwargs = tangrad_arguments(sample, "cpu", definition)
    theirs = laid_out(torch, list(theirs), layout, backward)
    ours = laid_out(tangrad, list(ours), layout, backward)
    oracle = counterpart(definition)

    def call() -> Any:
        return op(*ours, **our_kwargs)

    def their_call() -> Any:
        return oracle(*theirs, **their_kwargs)

    expected, found = tensors_in(their_call()), tensors_in(call())
    if [tuple(x.shape) for x in expected] != [tuple(x.shape) for x in found]:
        raise NoOracle("the results have other shapes")
    if backward:
        return alternated(
            with_backward(tangrad, call, inputs_of(tangrad, ours)),
            with_backward(torch, their_call, inputs_of(torch, theirs)),
        )
    return alternated(call, their_call)


def of_module(case: modules.Case, layout: str, backward: bool) -> tuple[float, float]:
    """Time a module in training mode: our and PyTorch's microseconds."""
    programs = []
    for library in (tangrad, torch):
        module = eval(case.make, {"nn": library.nn})
        given = modules.arguments(library, case, layout == "channels_last")
        if backward and given[0].is_floating_point():
            given[0].requires_grad_()
        inputs = [*inputs_of(library, given), *module.parameters()]

        def call(module: Any = module, given: Any = given) -> Any:
            return module(*given)

        if backward:
            programs.append(with_backward(library, call, inputs))
        else:
            quiet = library.no_grad()

            def silent(call: Any = call, quiet: Any = quiet) -> Any:
                with quiet:
                    return call()

            programs.append(silent)
    return alternated(programs[0], programs[1])


def measured(time_it: Callable[[], tuple[float, float]]) -> list[float] | str:
    """Return our and PyTorch's microseconds, or why they are not measured."""
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(time_it())
    except (NoOracle, TimeoutError) as reason:
        return str(reason)
    except Exception as reason:  # whatever an enlarged sample makes either library say
        return f"{type(reason).__name__}: {reason}"[:90]


def rows_of(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], tuple[float, float]]]]:
    """Yield the name of each row that is asked for, and what times it."""
    ops = [op for op in public_ops() if not options.only or op.name in options.only]
    named = {
        name: cases
        for name, cases in modules.MODULES.items()
        if not options.only or name.split(",")[0] in options.only
    }
    for layout in options.layouts:
        for backward in [name == "backward" for name in options.passes]:
            which = f"{'forward and backward' if backward else 'forward'}, {layout}"
            for elements in options.sizes:
                for op in ops:
                    yield (
                        f"{op.name}, {elements}, {which}",
                        lambda op=op, e=elements, la=layout, b=backward: of_op(op, e, la, b),
                    )
            for name, cases in named.items() if layout != "strided" else ():
                for case in cases:
                    if layout == "channels_last" and len(case.shapes[0]) != 4:
                        continue
                    yield (
                        f"nn.{name}, {'x'.join(map(str, case.shapes[0]))}, {which}",
                        lambda c=case, la=layout, b=backward: of_module(c, la, b),
                    )


def report(data: dict[str, Any], worst: int) -> None:
    """Print the worst rows as a table, and what stands for all."""
    ratios = {name: ours / theirs for name, (ours, theirs) in data["rows"].items()}
    print("| row | PyTorch us | ours us | ratio |\n|---|---|---|---|")
    for name in sorted(ratios, key=lambda name: -ratios[name])[:worst]:
        ours, theirs = data["rows"][name]
        print(f"| {name} | {theirs:.1f} | {ours:.1f} | {ratios[name]:.2f} |")
    if ratios:
        values = list(ratios.values())
        mean = statistics.geometric_mean(values)
        above = {limit: sum(value > limit for value in values) for limit in (1.05, 1.5)}
        print(
            f"\n{len(values)} rows, {data['threads']} threads: geometric mean {mean:.3f}, "
            f"{above[1.05]} above 1.05, {above[1.5]} above 1.5; {len(data['left_out'])} left out"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time every op and module against PyTorch.")
    parser.add_argument("--sizes", type=int, nargs="*", default=ELEMENTS, help="elements of ops")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=["contiguous"])
    parser.add_argument("--passes", nargs="*", choices=PASSES, default=list(PASSES))
    parser.add_argument("--only", nargs="*", help="names of ops and modules")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock", choices=sorted(CLOCKS), default="wall", help="cpu: on a busy machine"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop")
    parser.add_argument("--json", default="every_op.json", help="file for the figures")
    parser.add_argument(
        "--again",
        type=float,
        default=math.inf,
        help="measure rows of the file above this ratio again, and keep the least",
    )
    parser.add_argument("--report", help="print the table of a file, and measure nothing")
    parser.add_argument("--worst", type=int, default=50, help="rows of the table")
    options = parser.parse_args()
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu adds up what threads do at once: use it with --threads 1")
    global clock
    clock = CLOCKS[options.clock]

    path = options.report or options.json
    data: dict[str, Any] = {"rows": {}, "left_out": {}, "threads": options.threads}
    if os.path.exists(path):
        with open(path) as file:
            data = json.load(file)
    if not options.report:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        tangrad.set_num_threads(options.threads)
        torch.set_num_threads(options.threads)
        end = time.perf_counter() + options.seconds
        for name, time_it in rows_of(options):
            if time.perf_counter() > end:
                break
            known = data["rows"].get(name)
            if name in data["left_out"] or (known and known[0] / known[1] <= options.again):
                continue
            found = measured(time_it)
            if known and not isinstance(found, str):
                found = [min(pair) for pair in zip(known, found, strict=True)]
            data["left_out" if isinstance(found, str) else "rows"][name] = found
            part = f"{options.json}.part"
            with open(part, "w") as file:
                json.dump(data, file, indent=1)
            os.replace(part, options.json)  # whoever reads meanwhile finds all of it
    report(data, options.worst)


if __name__ == "__main__":
    main()

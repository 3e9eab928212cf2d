"""Scripted models beside PyTorch's and eager ones: `python benchmarks/jit_script_models.py`.

ResNet-50 is scripted, saved and loaded; small models run forwards, and a training step. What is
compared is called in turn, and the least time counts. `threads` is what four threads with a model
give beside one, with one thread within ops.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jit_scripts import CLOCKS, in_threads, least_times, scripted_module

import tangrad

SHAPES: dict[str, tuple[int, ...]] = {
    "Perceptron": (32, 64),
    "LeNet": (16, 1, 28, 28),
    "CharGPT": (8, 64),
}


def models(side: Any, name: str) -> Any:
    """Return the module of the models for a framework."""
    return scripted_module(side, name, "jit_script_nets.py")


def saved(side: Any, model: Any) -> bytes:
    """Return the archive of a scripted model."""
    file = io.BytesIO()
    side.jit.save(model, file)
    return file.getvalue()


class Clock:
    """What times are read from.

    Args:
        name: "wall" or "cpu".
        limit: seconds of each comparison.
    """

    def __init__(self, name: str, limit: float) -> None:
        self.now, self.limit = CLOCKS[name], limit

    def least(self, *calls: Callable[[], Any]) -> list[float]:
        """Return the least times of calls, made in turn, in milliseconds."""
        pairs: list[tuple[Any, tuple[Any, ...]]] = [(call, ()) for call in calls]
        return [1e3 * one for one in least_times(pairs, self.limit, self.now)]


def large(clock: Clock) -> None:
    """Print what scripting, saving and loading ResNet-50 takes."""
    ours = models(tangrad, "nets_ours").ResNet().eval()
    theirs = models(torch, "nets_theirs").ResNet().eval()

    def fresh(side: Any, name: str) -> Callable[[], Any]:
        """Return what scripts the model of a module of its own: nothing is known of its classes."""
        count = [0]

        def call() -> float:
            count[0] += 1
            model = models(side, f"{name}_{count[0]}").ResNet().eval()
            begin = clock.now()
            side.jit.script(model)
            return float(clock.now() - begin)

        return call

    mine, other = fresh(tangrad, "fresh_ours"), fresh(torch, "fresh_theirs")
    times = [[mine(), other()] for _ in range(max(2, int(clock.limit)))]
    a, b = (1e3 * min(row[k] for row in times) for k in (0, 1))
    print(f"script ResNet-50  {a:8.1f} ms  PyTorch's {b:8.1f} ms  ratio {a / b:.3f}")
    scripted, wanted = tangrad.jit.script(ours), torch.jit.script(theirs)
    one, two = saved(tangrad, scripted), saved(torch, wanted)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "resnet.pt"))
        Path(path).write_bytes(one)
        for source, given in (("our archive", one), ("PyTorch's archive", two), ("file", path)):

            def opened(given: Any = given) -> Any:
                return io.BytesIO(given) if isinstance(given, bytes) else given

            a, b = clock.least(
                lambda opened=opened: tangrad.jit.load(opened()),
                lambda opened=opened: torch.jit.load(opened()),
            )
            print(f"load {source:17} {a:8.1f} ms  PyTorch's {b:8.1f} ms  ratio {a / b:.3f}")
    x = tangrad.rand(1, 3, 64, 64)
    with tangrad.no_grad():
        ours(x)
        for name, make in (
            ("scripted", lambda: tangrad.jit.script(models(tangrad, "anew").ResNet().eval())),
            ("loaded", lambda: tangrad.jit.load(io.BytesIO(two))),
        ):
            first = float("inf")
            for _ in range(4):
                model = make()
                begin = clock.now()
                model(x)
                first = min(first, 1e3 * (clock.now() - begin))
            again = min(clock.least(lambda model=model: model(x)))
            print(f"first call, {name:9} {first:6.1f} ms, then {again:.1f} ms")
        frozen = tangrad.jit.freeze(scripted)
        calls = [lambda m=m: m(x) for m in (ours, scripted, frozen)]
        given = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            times = clock.least(*calls, lambda: wanted(given))
    print(
        "ResNet-50 at 64 x 64: eager {:.1f}, scripted {:.1f}, frozen {:.1f}, PyTorch's scripted "
        "{:.1f} ms".format(*times)
    )


def small(clock: Clock) -> None:
    """Print what small models take, forwards and in a training step."""
    ours, theirs = models(tangrad, "nets_ours"), models(torch, "nets_theirs")
    for name, shape in SHAPES.items():
        line = f"{name:10}"
        for step in (False, True):
            calls = []
            for side, module, scripts in (
                (tangrad, ours, False),
                (tangrad, ours, True),
                (torch, theirs, True),
            ):
                model = getattr(module, name)()
                run = side.jit.script(model) if scripts else model
                x = side.randint(0, 65, shape) if name == "CharGPT" else side.rand(*shape)
                calls.append(_call(side, run, x, step))
            for call in calls:
                for _ in range(4):
                    call()
            a, b, c = clock.least(*calls)
            what = "step" if step else "forward"
            line += f"  {what}: eager {a:.3f}, script {b:.3f} ({b / a:.2f}), PyTorch's {c:.3f} ms"
        print(line)


def _call(side: Any, model: Any, x: Any, step: bool) -> Callable[[], Any]:
    def forward() -> None:
        with side.no_grad():
            model(x)

    if not step:
        return forward
    optimizer = side.optim.SGD(model.parameters(), lr=1e-3)

    def stepped() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return stepped


def side_by_side() -> None:
    """Print what four threads give beside one."""
    ours = models(tangrad, "nets_ours")
    for name, shape in SHAPES.items():
        model = tangrad.jit.script(getattr(ours, name)().eval())
        x = tangrad.randint(0, 65, shape) if name == "CharGPT" else tangrad.rand(*shape)

        def run(model: Any = model, x: Any = x) -> None:
            with tangrad.no_grad():
                for _ in range(100):
                    model(x)

        run()
        one = min(in_threads(run, (), 1) for _ in range(5))
        four = min(in_threads(run, (), 4) for _ in range(5))
        print(f"{name:10} four threads: {4 * one / four:.2f} times one's throughput")


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each comparison")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--only", choices=("large", "small", "threads"))
    given = parser.parse_args()
    clock = Clock(given.clock, given.seconds)
    warnings.simplefilter("ignore")  # PyTorch's, of its scripts
    torch.set_num_threads(1)
    tangrad.set_num_threads(1)
    if given.only in (None, "large"):
        large(clock)
    if given.only in (None, "small"):
        small(clock)
    if given.only in (None, "threads"):
        side_by_side()


if __name__ == "__main__":
    main()

"""Time the jit's kernels of fused groups beside hand-fused C with the same math, in turn.

The C is compiled by gcc -O3 -march=native around tangrad-cpu's elementary functions. Both run on
one thread, their processor time is taken in turn, and the median of the ratios is told, with that
of calling the group's ops one by one and of the tile frame alone. `made in` is the best of several.

    python benchmarks/jit.py [--rounds N] [--only softmax]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tangrad
from tangrad.plugin.render import folds, pointwise_ops
from tangrad_jit.codegen import Const, Group, GroupInput, Step, compile_group
from tangrad_jit.codegen.compiled import CompiledGroup, native_level, new_kernel

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = """
const tgc_bounds_f32 TGC_LIMITS_F32 = {
    .exp_low = -104.0f, .exp_high = 89.0f, .exp2_low = -151.0f, .exp2_high = 129.0f,
    .expm1_low = -18.0f, .sigmoid_high = 60.0f, .tanh_high = 9.1f, .erf_high = 3.95f,
    .erfc_high = 10.1f};
"""
SOURCE = r"""
#include "vmath/vmath.h"
@BOUNDS@
typedef float *restrict out;
typedef const float *restrict in;

void chain(out y, in a, in b, long rows, long columns)
{
    for (long i = 0; i < rows * columns; i++) {
        float x = a[i] * b[i] + a[i];
        x = x < 0.0f ? 0.0f : x;
        x = x * 0.5f - b[i];
        y[i] = tgc_tanh_f32(x);
    }
}

void gelu(out y, in x, in bias, const unsigned char *restrict keep, in residual, long rows,
long columns)
{
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) {
            long i = r * columns + c;
            float a = x[i] + bias[c];
            float g = 0.5f * a * (1.0f + tgc_erf_f32(a * 0.7071067811865476f));
            y[i] = g * (keep[i] ? 1.0f : 0.0f) * 1.25f + residual[i];
        }
}

void layer_norm(out y, in a, in b, in weight, in bias, long rows, long columns)
{
    for (long r = 0; r < rows; r++, a += columns, b += columns, y += columns) {
        enum { LANES = 64 };
        float lane[LANES] = {0}, square[LANES] = {0}, sum = 0, squares = 0;
        long whole = columns / LANES * LANES;
        for (long c = 0; c < whole; c += LANES)
            for (int k = 0; k < LANES; k++) {
                y[c + k] = a[c + k] + b[c + k];
                lane[k] += y[c + k];
            }
        for (int k = 0; k < LANES; k++) sum += lane[k];
        for (long c = whole; c < columns; c++) sum += y[c] = a[c] + b[c];
        const float mean = sum / columns;
        for (long c = 0; c < whole; c += LANES)
            for (int k = 0; k < LANES; k++) square[k] += (y[c + k] - mean) * (y[c + k] - mean);
        for (int k = 0; k < LANES; k++) squares += square[k];
        for (long c = whole; c < columns; c++) squares += (y[c] - mean) * (y[c] - mean);
        const float scale = 1.0f / __builtin_sqrtf(squares / columns + 1e-5f);
        for (long c = 0; c < columns; c++) y[c] = (y[c] - mean) * scale * weight[c] + bias[c];
    }
}

void softmax(out y, in x, long rows, long columns)
{
    for (long r = 0; r < rows; r++, x += columns, y += columns) {
        enum { LANES = 64 };
        float lane[LANES], most[LANES], sum = 0, max;
        long whole = columns / LANES * LANES;
        for (int k = 0; k < LANES; k++) lane[k] = 0, most[k] = -INFINITY;
        for (long c = 0; c < whole; c += LANES)
            for (int k = 0; k < LANES; k++) most[k] = x[c + k] > most[k] ? x[c + k] : most[k];
        max = most[0];
        for (int k = 1; k < LANES; k++) max = most[k] > max ? most[k] : max;
        for (long c = whole; c < columns; c++) max = x[c] > max ? x[c] : max;
        for (long c = 0; c < whole; c += LANES)
            for (int k = 0; k < LANES; k++) {
                y[c + k] = tgc_exp_f32(x[c + k] - max);
                lane[k] += y[c + k];
            }
        for (int k = 0; k < LANES; k++) sum += lane[k];
        for (long c = whole; c < columns; c++) sum += y[c] = tgc_exp_f32(x[c] - max);
        for (long c = 0; c < columns; c++) y[c] = y[c] / sum;
    }
}

void adam(out p, out m, out v, in g, const double *numbers, long rows, long columns)
{
    const float b1 = numbers[0], n1 = numbers[1], b2 = numbers[2], n2 = numbers[3], c2 = numbers[4];
    const float eps = numbers[5], lr = numbers[6];
    for (long i = 0; i < rows * columns; i++) {
        m[i] = m[i] * b1 + g[i] * n1;
        v[i] = v[i] * b2 + g[i] * g[i] * n2;
        p[i] = p[i] - m[i] / (__builtin_sqrtf(v[i]) * c2 + eps) * lr;
    }
}
"""
ADAM = [0.9, 0.1, 0.999, 0.001, 1.5, 1e-8, 1e-3]


@dataclass
class Case:
    """One kernel: its group, and the C function that does the same.

    Attributes:
        group: what is compiled.
        outs, ins: its tensors, and numbers.
        called: calls the C function on the same memory.
    """

    group: Group
    outs: list[Any]
    ins: list[Any]
    called: Callable[[], Any]


def machine() -> str:
    """Return the compiler's flag for the level that the kernels are for."""
    return "-march=x86-64-v3" if native_level() == "avx2" else "-march=native"


def library(folder: Path) -> ctypes.CDLL:
    """Compile the C."""
    source, target = folder / "fused.c", folder / "fused.so"
    source.write_text(SOURCE.replace("@BOUNDS@", BOUNDS), "utf-8")
    native = ROOT / "backend_cpu/src/tangrad_cpu/native"
    flags = [
        "-O3",
        machine(),
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-shared",
        "-fPIC",
    ]
    subprocess.run(["gcc", *flags, f"-I{native}", "-o", target, source, "-lm"], check=True)
    return ctypes.CDLL(str(target))


class Writer:
    """Write groups by names of ops."""

    def __init__(self, *inputs: tuple[str, str]) -> None:
        self.inputs = tuple(GroupInput(dtype, pattern) for dtype, pattern in inputs)  # type: ignore[arg-type]
        self.steps: list[Step] = []
        self.known = {d.key: d for d in (*pointwise_ops(derived=False), *folds())}

    def __call__(self, key: str, *args: int | Const) -> int:
        """Append a step and return the number of its value."""
        self.steps.append(Step(self.known[key], "float32", args))
        return len(self.inputs) + len(self.steps) - 1

    def group(self, *outputs: int) -> Group:
        """Return the group of the steps so far."""
        return Group(self.inputs, tuple(self.steps), outputs)


FULL, COLUMN = ("float32", "full"), ("float32", "column")


def chain() -> Group:
    w = Writer(FULL, FULL)
    x = w("relu", w("add_plain", w("mul", 0, 1), 0))
    return w.group(w("tanh", w("sub_plain", w("mul", x, Const(0.5)), 1)))


def gelu() -> Group:
    w = Writer(FULL, COLUMN, ("bool", "full"), FULL)
    kept = w("mul", w("gelu_none", w("add_plain", 0, 1)), 2)
    return w.group(w("add_plain", w("mul", kept, Const(1.25)), 3))


def layer_norm() -> Group:
    w = Writer(FULL, FULL, COLUMN, COLUMN)
    x = w("add_plain", 0, 1)
    centred = w("sub_plain", x, w("mean", x))
    scale = w("rsqrt", w("add_plain", w("mean", w("mul", centred, centred)), Const(1e-5)))
    return w.group(w("add_plain", w("mul", w("mul", centred, scale), 2), 3))


def softmax() -> Group:
    w = Writer(FULL)
    e = w("exp", w("sub_plain", 0, w("amax", 0)))
    return w.group(w("true_divide", e, w("sum", e)))


def adam() -> Group:
    w = Writer(FULL, FULL, FULL, FULL, *[("float64", "number")] * 7)
    m = w("add_plain", w("mul", 1, 4), w("mul", 3, 5))
    v = w("add_plain", w("mul", 2, 6), w("mul", w("mul", 3, 3), 7))
    below = w("add_plain", w("mul", w("sqrt", v), 8), 9)
    return w.group(w("sub_plain", 0, w("mul", w("true_divide", m, below), 10)), m, v)


def cases(compiled: ctypes.CDLL, rows: int, columns: int) -> Iterator[tuple[str, Case]]:
    """Yield the five kernels for a size."""
    tangrad.manual_seed(0)

    def call(name: str, *tensors: Any) -> Callable[[], Any]:
        function = getattr(compiled, name)
        found = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        sizes = (ctypes.c_long(rows), ctypes.c_long(columns))
        return lambda: function(*found, *sizes)

    def new(*shape: int) -> Any:
        return tangrad.randn(*shape)

    a, b, y = new(rows, columns), new(rows, columns), tangrad.empty(rows, columns)
    weight, bias = new(columns), new(columns)
    keep = tangrad.rand(rows, columns) < 0.8
    yield "pointwise chain", Case(chain(), [y], [a, b], call("chain", y, a, b))
    yield (
        "bias, gelu, dropout, residual",
        Case(gelu(), [y], [a, bias, keep, b], call("gelu", y, a, bias, keep, b)),
    )
    yield (
        "add, layer_norm",
        Case(layer_norm(), [y], [a, b, weight, bias], call("layer_norm", y, a, b, weight, bias)),
    )
    yield "softmax", Case(softmax(), [y], [a], call("softmax", y, a))
    p, m, v = new(rows, columns), new(rows, columns), tangrad.rand(rows, columns)
    numbers = tangrad.tensor(ADAM, dtype=tangrad.float64)
    yield "adam", Case(adam(), [p, m, v], [p, m, v, a, *ADAM], call("adam", p, m, v, a, numbers))


def eager(group: Group, ins: list[Any]) -> None:
    """Run a group's ops one by one."""
    values = list(ins)
    for step in group.steps:
        args = [a.value if isinstance(a, Const) else values[a] for a in step.args]
        fold = {"dim": (-1,), "keepdim": True} if step.described in _folds() else {}
        values.append(step.described.op(*args, **fold))


_known: list[Any] = []


def _folds() -> list[Any]:
    if not _known:
        _known.extend(folds())
    return _known


def seconds(run: Callable[[], Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def paired(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the median time of the first, and the median of the ratios to the second."""
    one(), other()
    times = max(1, int(0.004 / max(1e-7, seconds(other, 3))))
    first, ratios = [], []
    for _ in range(rounds):
        mine, theirs = seconds(one, times), seconds(other, times)
        first.append(mine)
        ratios.append(mine / theirs)
    return statistics.median(first), statistics.median(ratios)


def compile_time(group: Group) -> float:
    """Return how long code generation takes, in ms, at best."""
    best = 1.0
    for _ in range(20):
        start = time.process_time()
        new_kernel(group, native_level() or "tiles")
        best = min(best, time.process_time() - start)
    return 1e3 * best


def runner(kernel: CompiledGroup, case: Case, rows: int, columns: int) -> Callable[[], Any]:
    return lambda: kernel.run(case.outs, case.ins, rows, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    tangrad.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        compiled = library(Path(folder))
        print(
            f"{'kernel':32}{'size':>12}{'us':>9}{'of C':>7}{'tiles':>7}{'eager':>7}{'made in':>11}"
        )
        for rows, columns in ((256, 768), (64, 65), (4096, 1000)):
            for name, case in cases(compiled, rows, columns):
                if options.only not in name:
                    continue
                run = runner(compile_group(case.group), case, rows, columns)
                mine, ratio = paired(run, case.called, options.rounds)
                tiles = runner(compile_group(case.group, "tiles"), case, rows, columns)
                frame = paired(tiles, case.called, options.rounds)[1]
                plain = paired(
                    lambda case=case: eager(case.group, case.ins), case.called, options.rounds
                )[1]  # type: ignore[misc]
                size = f"{rows}x{columns}"
                made = compile_time(case.group)
                print(
                    f"{name:32}{size:>12}{1e6 * mine:9.1f}{ratio:7.2f}{frame:7.2f}{plain:7.2f}"
                    f"{made:8.2f} ms"
                )


if __name__ == "__main__":
    main()

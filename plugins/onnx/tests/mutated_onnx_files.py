"""Load and run mutated files, and tell which crash, hang, run something, or take much memory.

`python mutated_onnx_files.py FIRST COUNT` tries COUNT seeds from FIRST on, in processes of their
own, and prints what went wrong.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

import tangrad

SECONDS = 10  # of processor time
MEMORY = 3 * 2**30  # of the process: what a run may hold, twice, and the libraries
CHUNK = 250
HEAD = '<ir_version: 10, opset_import: ["": 22]>'

# What turns a few bytes into any size, or any number of steps.
GREEDY = [
    "agraph (float[2,3] x) => (float[M,N] y) <int64[2] n = {2, 3}> { y = Tile(x, n) }",
    "agraph (float[1,3] x) => (float[M,N] y) <int64[2] n = {4, 3}> { y = Expand(x, n) }",
    "agraph (int64[2] n) => (float[M,N] y) { y = ConstantOfShape(n) }",
    """agraph (float[2,3] x) => (float[M,N] y) <int64[2] n = {2, 3}> {
        a = ConstantOfShape(n) b = Expand(x, n) y = Add(a, b)
    }""",
    "agraph (float[1,1,2,3] x) => (float[A,B,C,D] y) <float[4] s = {1, 1, 2, 2}> "
    '{ y = Resize <mode="linear"> (x, , s) }',
    "agraph (float[1,1,2,3] x) => (float[A,B,C,D] y) <int64[4] n = {1, 1, 4, 4}> "
    '{ y = Resize <mode="cubic", antialias=1> (x, , , n) }',
    "agraph (float[2,3] x) => (float[M,N] y) <int64[4] n = {1, 1, 0, 2}> { y = Pad(x, n) }",
    "agraph (int64 x) => (int64[N] y) <int64 n = {9}, int64 d = {2}> { y = Range(x, n, d) }",
    "agraph (int64[3] x) => (float[M,N] y) <int64 n = {5}, float[2] v = {0, 1}> "
    "{ y = OneHot(x, n, v) }",
    """agraph (float[3] x) => (float[3] y) <int64 n = {4}, bool c = {1}> {
        y = Loop(n, c, x) <body = b (int64 i, bool c, float[3] z) => (bool d, float[3] w) {
            d = Identity(c) w = Add(z, z)
        }>
    }""",
    """agraph (float[3] x) => (float[N] y) {
        a = Concat <axis=0> (x, x) b = Concat <axis=0> (a, a) c = Concat <axis=0> (b, b)
        y = Concat <axis=0> (c, c)
    }""",
    "agraph (float[4,1] x) => (float[M,N] y) <float[1,4] w = {1,2,3,4}> { y = MatMul(x, w) }",
    "agraph (float[1,1,4] x) => (float[A,B,C] y) <float[1,1,2] w = {1, 2}> "
    "{ y = ConvTranspose <strides=[2], pads=[0,0]> (x, w) }",
    "agraph (float[1,1,4,4] x) => (float[A,B,C,D] y) "
    "{ y = AveragePool <kernel_shape=[2,2], pads=[1,1,0,0], strides=[1,1]> (x) }",
    "agraph (int64 n) => (float[N] y) { y = HannWindow(n) }",
    "agraph (string[2] s) => (bool[2] y) "
    '{ t = StringConcat(s, s) y = RegexFullMatch <pattern="(a+)+b|[^c]*"> (t) }',
    """agraph (float[1,6,2] x) => (float[A,B,C] y) <int64 n = {8}, int64 axis = {1}> {
        y = DFT(x, n, axis)
    }""",
    "agraph (float[2,3] x) => (float[A] y) "
    "{ s = SplitToSequence <axis=0> (x) y = ConcatFromSequence <axis=1> (s) }",
]


@cache
def models() -> tuple[list[bytes], list[bytes]]:
    """Return the files that are mutated: those that can grow, and all others."""
    sys.path.insert(0, str(Path(__file__).parent))
    from random_onnx_models import Builder
    from suite import cases

    greedy = [parser.parse_model(HEAD + text).SerializeToString() for text in GREEDY]
    made = []
    for seed in range(40):
        builder = Builder(seed)
        for _ in range(8):
            builder.grow()
        made.append(builder.model().SerializeToString())
    for case in cases():
        if case.kind == "node" and not case.test.url:
            made.append(case.model().SerializeToString())
    return greedy, made


def mutated(seed: int) -> bytes:
    """Return a file with some of its bytes, numbers or parts changed."""
    draw = random.Random(seed)
    greedy, others = models()
    content = draw.choice(greedy if draw.random() < 0.4 else others)
    if draw.random() < 0.4:
        model = onnx.ModelProto()
        model.ParseFromString(content)
        for _ in range(draw.randint(1, 2)):
            _enlarge(model.graph, draw)
        return model.SerializeToString()
    if draw.random() < 0.5:
        model = onnx.ModelProto()
        model.ParseFromString(content)
        for _ in range(draw.randint(1, 3)):
            _change(model, draw)
        content = model.SerializeToString()
        if draw.random() < 0.7:
            return content
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.randint(1, len(changed))] if draw.random() < 0.2 else changed)


def _enlarge(graph: Any, draw: random.Random) -> None:
    """Change a number that operators read: of an attribute or a constant."""
    parts = [a for n in graph.node for a in n.attribute] + list(graph.initializer)
    parts = [p for p in parts if getattr(p, "name", "") not in {"body", "to", "dtype"}]
    if not parts:
        return
    part = draw.choice(parts)
    names = ("i", "ints", "f", "floats", "int64_data", "int32_data", "float_data", "raw_data")
    held = [n for n in names if any(field.name == n for field, _ in part.ListFields())]
    if held:
        _replace(part, held[0], getattr(part, held[0]), draw)


_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    2**16,
    2**20,
    2**28,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)


def _change(message: Any, draw: random.Random) -> None:
    """Change a random field somewhere in a message."""
    while True:
        fields = [f for f, _ in message.ListFields()]
        if not fields:
            return
        field = draw.choice(fields)
        value = getattr(message, field.name)
        if field.message_type is not None:
            parts = list(value) if hasattr(value, "append") else [value]
            if hasattr(value, "append") and draw.random() < 0.05:
                value.append(draw.choice(parts))
                return
            message = draw.choice(parts)
            continue
        _replace(message, field.name, value, draw)
        return


def _replace(message: Any, name: str, value: Any, draw: random.Random) -> None:
    def other(old: Any) -> Any:
        if isinstance(old, int):
            return draw.choice(_NUMBERS)
        if isinstance(old, float):
            return draw.choice([0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan")])
        if isinstance(old, bytes):
            return np.array(draw.choice(_NUMBERS), np.int64).tobytes() if len(old) == 8 else old * 2
        return draw.choice(["", old + "x", "x", "y"])

    try:
        if hasattr(value, "append"):
            if len(value):
                at = draw.randrange(len(value))
                value[at] = other(value[at])
        else:
            setattr(message, name, other(value))
    except (ValueError, TypeError):
        pass  # this field does not take such a number


class _Slow(BaseException):
    pass


_DONE: list[str] = []


def _audit(event: str, args: Any) -> None:
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if writes or event in {"os.system", "subprocess.Popen", "os.exec", "socket.connect"}:
        _DONE.append(f"{event} {args!r}"[:200])


def told(seed: int) -> str:
    """Return what is wrong with how a file is taken, "" if nothing is."""
    content = mutated(seed)
    _DONE.clear()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        module = tangrad.onnx.load(content)
        draw = random.Random(seed)
        module(*(_example(expected, draw) for expected in module._expected))
    except tangrad.onnx.OnnxError:
        pass
    except _Slow:
        return f"takes more than {SECONDS} s of processor time"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return _DONE[0] if _DONE else ""


def _example(expected: Any, draw: random.Random) -> Any:
    from tangrad_onnx.values import NUMPY_TYPES

    kind, shape = expected or (1, [])
    sizes = [min(n if n is not None else 3, 64) for n in shape or []]
    if np.prod(sizes, dtype=float) > 1e6:
        sizes = []
    dtype = NUMPY_TYPES.get(kind or 1)
    if dtype is np.dtype(object):
        return np.full(sizes, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", object)
    array = np.random.default_rng(0).integers(1, 5, sizes).astype(dtype)
    if dtype == np.int64 and array.size and draw.random() < 0.3:
        array.reshape(-1)[draw.randrange(array.size)] = draw.choice(_NUMBERS)
    return tangrad.tensor(array) if kind in range(1, 8) or kind in (9, 11) else array


def _work(first: int, count: int) -> None:
    def late(*_: Any) -> None:
        raise _Slow

    signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    models()
    sys.addaudithook(_audit)
    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        print("at", seed, flush=True)
        with np.errstate(all="ignore"):
            text = told(seed)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if most > MEMORY:
            print("wrong", seed, f"{text} the process took {most} bytes", flush=True)
            os._exit(3)
        if text:
            print("wrong", seed, text.replace("\n", " ")[:300], flush=True)


def main() -> None:
    """Try seeds and print what went wrong."""
    if sys.argv[1] == "--work":
        _work(int(sys.argv[2]), int(sys.argv[3]))
        return
    first, count = map(int, sys.argv[1:3])
    wrong, at, end = 0, first, first + count
    while at < end:
        number = min(CHUNK, end - at)
        command = [sys.executable, __file__, "--work", str(at), str(number)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60 + number * SECONDS / 5
            )
            lines, status = done.stdout.splitlines(), done.returncode
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            lines, status = output.decode().splitlines(), -1
        found = [line for line in lines if line.startswith("wrong")]
        last = int(next((x for x in reversed(lines) if x.startswith("at")), f"at {at}").split()[1])
        if status not in {0, 3}:
            found.append(f"wrong {last} ended by {status}")
        print("\n".join(found), end="\n" if found else "", flush=True)
        wrong += len(found)
        at = at + number if status == 0 else last + 1
    print(f"{wrong} of {count} files went wrong")


if __name__ == "__main__":
    main()

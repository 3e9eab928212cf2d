"""Let each call of the driver fail in turn: a small program must end, and say what to do.

``python backend_cuda/tests/failing_calls.py`` tries the first and the last calls of every function
that the program calls (``--all``: every call); `test_failing_calls.py` tries some, by hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# All kinds of calls: memory, pinned memory, copies both ways and within, a kernel, a stream, an
# event, a thread; then the same again, which works unless the context is lost.
PROGRAM = """
import atexit, ctypes, json, threading

def leaked():
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    # A call that is to fail may be this one.
    if context.value:
        ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    if context.value:
        print(json.dumps({"leaked": True}))

atexit.register(leaked)
import tangrad

def work():
    cuda = tangrad.cuda
    x = tangrad.arange(6.0).pin_memory().to("cuda", non_blocking=True)
    stream, event = cuda.Stream(), cuda.Event(enable_timing=True)
    start = cuda.Event(enable_timing=True)
    start.record()
    with cuda.stream(stream):
        stream.wait_event(start)
        y = (x + 1).clone()
        event.record()
    event.synchronize()
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], y
    assert start.query() and stream.query() and start.elapsed_time(event) >= 0
    cuda.synchronize()
    assert cuda.mem_get_info()[0] > 0 and cuda.get_device_properties().total_memory > 0
    found, raised = [], []
    def in_thread():
        try:
            found.append((y * 2).sum().item())
        except (RuntimeError, MemoryError) as error:
            raised.append(error)
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    assert found == [42.0], found
    del x, y
    cuda.empty_cache()

for attempt in range(2):
    try:
        work()
        print(json.dumps({"worked": attempt}))
    except (RuntimeError, MemoryError) as error:
        print(json.dumps({"attempt": attempt, "kind": type(error).__name__, "says": str(error)}))
assert (tangrad.ones(2) + 1).sum().item() == 4
"""
COUNT = """
import tangrad_cuda_emulator
print(json.dumps({"calls": tangrad_cuda_emulator.called()}))
"""
# What an error may advise; it names the function that failed, too, or the reason why there is none.
ADVICE = (
    "restart the process", "try again", "remove the folder", "update", "ulimit -l", "nvidia-smi",
    "Release tensors", "reboot", "smaller batches", "tangrad info", "CUDA_VISIBLE_DEVICES",
    "device_count",
)  # fmt: skip
# What pycuda writes of memory that the driver would not take back, which nobody can do about.
OF_PYCUDA = re.compile(r"PyCUDA WARNING: a clean-up operation failed.*\ncuMem\w+ failed: .*\n")
LIMIT = 240


@dataclass(frozen=True)
class Verdict:
    """What became of the program when one call failed; `wrong` is empty where all was in order."""

    fail: str
    wrong: str
    says: str


def calls(env: Mapping[str, str]) -> dict[str, int]:
    """Return how often the program calls each function of the driver."""
    done = _run(PROGRAM + COUNT, "", env)
    if done.returncode:
        raise RuntimeError(f"the program fails by itself: {done.stdout}{done.stderr}")
    counted: dict[str, int] = json.loads(done.stdout.splitlines()[-1])["calls"]
    return counted


def failures(counted: Mapping[str, int], every: bool) -> Iterator[str]:
    """Yield what shall fail: calls by number, without a code of its own and out of memory."""
    for function, times in sorted(counted.items()):
        numbers = range(1, times + 1) if every else sorted({1, 2, times} - {0})
        for number in numbers:
            if number <= times:
                yield f"{function}:{number}"
        yield f"{function}:1:2"
        yield f"{function}:1+"


def by_hash(chosen: list[str], count: int) -> list[str]:
    """Return some of them, the same ones in every run."""
    return sorted(chosen, key=lambda fail: hashlib.blake2b(fail.encode()).digest())[:count]


def judge(fail: str, env: Mapping[str, str]) -> Verdict:
    """Run the program with a call that fails, and say what is wrong with what it did."""
    try:
        done = _run(PROGRAM, fail, env)
    except subprocess.TimeoutExpired:
        return Verdict(fail, "it hangs", "")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = [line for line in lines if "says" in line]
    says = errors[0]["says"] if errors else ""
    return Verdict(fail, _wrong(done, lines, errors, fail), says)


def _wrong(
    done: subprocess.CompletedProcess[str], lines: list[dict], errors: list[dict], fail: str
) -> str:
    if done.returncode:
        return f"status {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"
    written = OF_PYCUDA.sub("", done.stderr)
    if written:
        return f"it wrote: {written[-1500:]}"
    cannot_leave = fail.startswith("cuCtxPopCurrent") and "+" in fail
    if any("leaked" in line for line in lines) and not cannot_leave:
        return "a context was left on the main thread's stack"
    for error in errors:
        if not any(words in error["says"] for words in ADVICE):
            return f"no advice: {error['kind']}: {error['says']}"
    final = ("restart the process", "failed at open", "none is available")
    lost = any(words in error["says"] for error in errors for words in final)
    if len(errors) == 2 and not lost and "+" not in fail:
        return f"one failed call is for ever: {errors[1]['says']}"
    return ""


def _run(program: str, fail: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    from tangrad_cuda_emulator import environment

    told = environment(engine="host", fail=fail, sources=env["SOURCES"])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **env, **told},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def main() -> int:
    """Try them, print what went wrong, and return 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every call, not the first and last")
    parser.add_argument("--only", default="", metavar="TEXT", help="functions whose names have it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {"SOURCES": folder, "TANGRAD_KERNEL_CACHE": f"{folder}/kernels"}
        chosen = [f for f in failures(calls(env), options.all) if options.only in f]
        bad = 0
        for fail in chosen:
            verdict = judge(fail, env)
            bad += bool(verdict.wrong)
            first = verdict.says.splitlines()[0] if verdict.says else "it works"
            print(f"{'WRONG' if verdict.wrong else 'ok':5} {fail:45} {verdict.wrong or first}")
            sys.stdout.flush()
    print(f"{len(chosen) - bad} of {len(chosen)} in order")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

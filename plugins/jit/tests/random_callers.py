"""Random programs and their callers, compiled and as they are: `random_callers.py COUNT [FIRST]`.

Each program (`caller_programs.py`) is called eleven to seventeen times, so that it passes through
recording, generalising and replay, while its callers change what they may. After each call, what
it returned, all that it may have written, what is one object or one memory, and gradients must be
as eager has them. The programs run in processes of their own, so that one that dies is told with
its seed and its text: `random_callers.py --show SEED` prints one, `--one SEED FORM` runs it here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from caller_outcomes import REFUSED, Held, named
from caller_programs import program_text

CHUNK = 25
WARM = 8
# How many programs are written until one passes its first call, but for every tenth seed.
ATTEMPTS, FEW = 6, 10
# Of programs that are graphs in every call, which `fullgraph` changes nothing of, every tenth runs
# in the default form, too.
TWICE = 10
SECONDS_EACH = 60
# How many tensors of earlier results are looked at in each call.
KEPT = 4
# Why a tensor cannot be looked at: a differentiable view of what was written since, or one that was
# kept where it is of a transform that has ended.
UNSEEN = ("is a view and its base", "after the transform ended")
FINE = ("same", "by graphs alone", "refused", "as it is", "as fullgraph")

_UNTIMED = {"options": {"measure": False}}
FORMS: dict[str, dict[str, Any] | None] = {
    "fullgraph": {"fullgraph": True, **_UNTIMED},
    "default": _UNTIMED,
    "measured": {},
    "dynamic": {"dynamic": True, **_UNTIMED},
    "static": {"dynamic": False, **_UNTIMED},
    "checked": {"options": {"measure": False, "check": 0.5}},
    "many": {"recompile_limit": 40, **_UNTIMED},
    "at once": _UNTIMED,
    "queued": None,
}


def forms_of(seed: int) -> list[str]:
    """Return how a seed's program is compiled: both usual forms, and one of the others."""
    names = list(FORMS)
    return [*names[:2], names[2 + seed % (len(names) - 2)]]


def _itself(function: Any) -> Any:
    return function


# --- one program -------------------------------------------------------------------------------


def play(
    text: str, wrap: Callable[[Any], Any], seed: int, inner: Callable[[Any], Any] = _itself
) -> Iterator[Any]:
    """Yield what each call of a program leaves, as long as none raises but on purpose.

    Args:
        text: of the program. wrap: compiles its function. seed: its own.
        inner: compiles functions that the function calls.
    """
    import tangrad as T

    earlier: list[Any] = []
    names: dict[str, Any] = {"T": T, "__name__": f"program_{seed}", "R": earlier, "C": inner}
    for code in _codes(text, seed):
        exec(code, names)
    threads = T.get_num_threads()
    names["reset"]()
    try:
        yield from _calls(names, wrap, seed)
    finally:
        names["reset"]()
        T.set_num_threads(threads)


def _calls(names: dict[str, Any], wrap: Callable[[Any], Any], seed: int) -> Iterator[Any]:
    T, earlier = names["T"], names["R"]
    names["S"] = state = names["State"]()
    function = wrap(names["make_function"](state))
    T.manual_seed(seed)
    waiting = None
    for call in names["CALLS"]:
        try:
            if call["before"]:
                exec(_code(call["before"], "exec"), names)
            given = _arguments(call, names)
        except Exception as error:  # the caller's own business, whatever it is
            yield type(error).__name__
            return
        held = Held(given, names["S"], earlier)
        try:
            result = _called(function, call, given, names)
        except Exception as error:  # any error is an outcome
            yield error
            if type(error).__name__ != "Stop":
                return
            result = None
        try:
            yield held.outcome(result)
        except RuntimeError as error:
            if not any(text in str(error) for text in UNSEEN):
                raise
            yield REFUSED
            return
        if call["between"]:
            try:
                exec(_code(call["between"], "exec"), names)
            except Exception as error:
                yield type(error).__name__
                return
        if call["backward"] == "later":
            yield held.backward(result if waiting is None else waiting)
        elif call["backward"]:
            yield held.backward(result, call["backward"])
        waiting = result
        earlier += [t for _, t in named(result, "result")]
        del earlier[:-KEPT]


@lru_cache(maxsize=4)
def _codes(text: str, seed: int) -> tuple[CodeType, CodeType]:
    """Return the code of a program: what all programs begin with, which is one, and its own."""
    first, marked, rest = text.partition("\ndef make_function")
    lines = "\n" * first.count("\n")
    return _prelude(first), compile(lines + marked + rest, f"<program {seed}>", "exec")


@lru_cache(maxsize=1024)
def _prelude(text: str) -> CodeType:
    return compile(text, "<prelude>", "exec")


@lru_cache(maxsize=4096)
def _code(text: str, kind: str = "eval") -> CodeType:
    return compile(text, "<caller>", kind)


def _arguments(call: dict[str, Any], names: dict[str, Any]) -> tuple[Any, ...]:
    if call["extra"]:
        exec(_code(call["extra"], "exec"), names)
    made = {}
    for letter in call["order"]:
        name = {"x": "x", "m": "many"}.get(letter, letter)
        made[name] = names[name] = eval(_code(call[name]), names)
    k, m, box_k, pair = (eval(_code(call[name]), names) for name in ("k", "m", "box_k", "pair"))
    box = {"x": made["x"], "many": made["many"], "k": box_k, "pair": (1, pair)}
    names["box"] = box
    if call["point"]:
        box["point"] = names["Point"](eval(_code(call["point"]), names), pair)
    if call["record"]:
        box["record"] = record = names["S"].record
        record.t, record.k = eval(_code(call["record"]), names), box_k
    if call["as_box"]:
        box = eval(_code(call["as_box"]), names)
    return made["a"], made["b"], k, m, box


def _called(
    function: Any, call: dict[str, Any], given: tuple[Any, ...], names: dict[str, Any]
) -> Any:
    found: list[Any] = []
    if call["around"]:
        function = eval(_code(call["around"]), names)(function)

    def run() -> None:
        mode = eval(_code(call["mode"]), names) if call["mode"] else contextlib.nullcontext()
        try:
            with mode:
                if call["by_name"]:
                    named = dict(zip("abkmx", given, strict=True))
                    ordered = {{"x": "box"}.get(n, n): named[n] for n in call["by_name"]}
                    found.append(function(**ordered))
                else:
                    found.append(function(*given))
        except Exception as error:  # handed over to the caller's thread
            found.append(error)

    if call["thread"]:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


@lru_cache(maxsize=1)
def _eager(seed: int) -> tuple[str, list[Any]]:
    """Return a seed's program, and what its calls leave.

    Of programs whose first call already raises, which are a quarter, a few are enough.
    """
    for attempt in range(ATTEMPTS if seed % FEW else 1):
        text = program_text(seed, attempt)
        wanted = list(play(text, lambda function: function, seed))
        if isinstance(wanted[0], dict):
            break
    return text, wanted


def compared(seed: int, form: str) -> str:
    """Return one of `FINE`, or where the compiled program is not itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _compared(seed, form)


def _compared(seed: int, form: str) -> str:
    text, wanted = _eager(seed)
    compiler = _Compiler(form)
    if form != "at once":
        found = play(text, compiler.wrap, seed, compiler.inner)
        return _matched(form, wanted, found) or compiler.told()
    function, _, calls = text.partition("def make_function")[2].partition("CALLS")
    if re.search(r"rand|dropout|bernoulli|default_dtype|get_num", function):
        return "as it is"  # all threads have one generator and one default dtype
    if re.search(r"T\.set_|T\.use_|default_dtype\(|patched\(|every_module|chance|numpy\.r", calls):
        return "as it is"  # what these change is the whole process's
    body = function.replace("nonlocal kept", "").replace("global FACTOR", "")
    if not re.search(r"S\.|FACTOR|TABLE|helper|kept", body):
        return _at_once(lambda: _matched(form, wanted, play(text, compiler.wrap, seed)))
    # What a function holds is its thread's own, so each thread compiles one.
    return _at_once(lambda: _matched(form, wanted, play(text, _Compiler(form).wrap, seed)))


def _at_once(run: Callable[[], str]) -> str:
    """Run in three threads that take turns often; return the first that is said."""
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(run())) for _ in range(3)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(usual)
    return next((one for one in said if one), "same") if len(said) == 3 else "a thread has raised"


def _matched(form: str, wanted: list[Any], found: Iterator[Any]) -> str:
    """Return where outcomes are not what is wanted, or ""."""
    for turn, expected in enumerate(wanted):
        got = next(found, None)
        if any(kind.__name__ == "CaptureError" for kind in type(got).__mro__):
            return "refused" if form == "fullgraph" else f"call {turn}: {got}"
        if isinstance(expected, Exception) or isinstance(got, Exception):
            if type(expected).__name__ != type(got).__name__:
                return f"outcome {turn}: " + _difference(got, expected)
            continue
        if expected is REFUSED or (got is REFUSED and "backward" not in expected):
            return ""
        if got != expected and got is not REFUSED:
            return f"outcome {turn}: " + _difference(got, expected)
    return ""


def _difference(got: Any, expected: Any) -> str:
    if not isinstance(got, dict) or not isinstance(expected, dict):
        return f"{got!r:.300} is not {expected!r:.300}"
    keys = {**expected, **got}
    lines = [
        f"  {key}: {got.get(key)} is not {expected.get(key)}"
        for key in keys
        if got.get(key) != expected.get(key)
    ]
    return "\n" + "\n".join(line[:600] for line in lines)


class _Compiler:
    """Compiles a program's function in a form, and tells what has become of it."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.made: Any = None

    def wrap(self, function: Any) -> Any:
        """Return what stands for the function."""
        import tangrad as T

        options = FORMS[self.form]
        if options is None:
            from tangrad_jit.compiling.queued import QueuedCalls

            calls = QueuedCalls(function, False, [])
            return lambda *args, **kwargs: calls.run(args, kwargs)
        self.made = self.made or T.compile(function, **options)
        return self.made

    def inner(self, function: Any) -> Any:
        """Return what stands for a function that the function calls."""
        import tangrad as T

        return (
            function if self.form == "queued" else T.compile(function, **(FORMS[self.form] or {}))
        )

    def told(self) -> str:
        """Return whether graphs ran, or that one was dropped as wrong."""
        if self.made is None:
            return "same"
        compiled = self.made.compiled
        for line in (compiled.off, *compiled.events):
            if "differ from the function's" in line:
                return line
        if not compiled.executables:
            return "as it is"
        return "same" if compiled.off else "by graphs alone"


# --- many programs, in processes that may die ----------------------------------------------------


def worker(first: int, count: int, begins: Callable[[str], Any] = str) -> None:
    """Run programs in this process, and say what became of each; `begins` is told before."""
    for seed in range(first, first + count):
        said = ""
        for form in forms_of(seed):
            begins(f"{seed} {form}")
            if os.environ.get("TANGRAD_TEST_DIES_AT") == str(seed):
                os.abort()  # so that a test sees what is told of it
            if form == "default" and said == "by graphs alone" and seed % TWICE:
                said = "as fullgraph"
            else:
                said = compared(seed, form)
            print(f"end {seed} {form} {said!r}", flush=True)


def serve(first: int, count: int) -> None:
    """Run programs in children of this process; say what became of each, and which died.

    What the library loads when it is first used takes longer than the programs of a child, so this
    process runs some first where there are many.
    """
    faulthandler.enable()
    if count > CHUNK:
        for seed in range(WARM):
            for form in forms_of(seed):
                compared(seed, form)
    gc.collect()
    gc.freeze()  # what children share is not looked at for garbage in each
    gc.set_threshold(5000)
    seed, last = first, first + count
    while seed < last:
        some = min(CHUNK, last - seed)
        begun, end = _in_a_child(seed, some)
        seed += some
        if end:
            at, _, form = begun.partition(" ")
            print(f"died {at} {form} {end!r}", flush=True)
            seed = int(at) + 1


def _in_a_child(first: int, count: int) -> tuple[str, str]:
    """Return what was begun last, and how the process ended, "" where it did as it should."""
    with mmap.mmap(-1, 4096) as board, tempfile.TemporaryFile() as errors:

        def begins(one: str) -> None:
            board[: len(one) + 1] = one.encode() + b"\n"

        begins(f"{first} before any")
        child = os.fork()
        if not child:
            os.dup2(errors.fileno(), 2)
            try:
                worker(first, count, begins)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        code, begun, since = None, "", time.monotonic()
        while code is None:
            time.sleep(0.01)
            ended, status = os.waitpid(child, os.WNOHANG)
            now = board[:].partition(b"\n")[0].decode()
            if ended:
                code = os.waitstatus_to_exitcode(status)
            elif now != begun:
                begun, since = now, time.monotonic()
            elif time.monotonic() > since + SECONDS_EACH:
                os.kill(child, signal.SIGABRT)  # which tells where it is
                since += SECONDS_EACH
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return now, f"the process ended with {code}: {text[-1500:]}" if code else ""


def run(first: int, count: int, tell: Callable[[str], Any] = str) -> tuple[Counter[str], list[str]]:
    """Run programs in processes; return how many had which outcome, and what was found.

    Args:
        first: the first seed. count: how many. tell: is given what is found at once.
    """
    told: Counter[str] = Counter()
    found: list[str] = []
    command = [sys.executable, __file__, "--serve", str(first), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            parts = re.fullmatch(r"(end|died) (\d+) ([a-z_ ]+) (['\"].*)\n", line)
            if parts is None:
                continue  # a program may print
            word, seed, form, said = parts.groups()
            if form == "fullgraph" and int(seed) > first and not (int(seed) - first) % 500:
                print(f"# {int(seed) - first} programs", file=sys.stderr, flush=True)
            outcome = eval(said)
            kind = "different" if outcome not in FINE else outcome
            told[f"{form}: {'died' if word == 'died' else kind}"] += 1
            if outcome not in FINE:
                found.append(f"seed {seed}, {form}: {outcome}")
                tell(found[-1])
    if server.returncode:
        found.append(f"the process that starts the others ended with {server.returncode}")
        tell(found[-1])
    return told, found


def main(arguments: list[str]) -> int:
    """Run what the command line says."""
    if arguments[0] == "--serve":
        serve(int(arguments[1]), int(arguments[2]))
        return 0
    if arguments[0] == "--show":
        print(_eager(int(arguments[1]))[0])
        return 0
    if arguments[0] == "--one":
        print(compared(int(arguments[1]), arguments[2]))
        return 0
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    told, found = run(first, count, lambda one: print(one, flush=True))
    print(f"{count} programs: {dict(sorted(told.items()))}")
    return int(bool(found))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))

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
import os
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from caller_programs import program_text

CHUNK = 25
SECONDS_EACH = 20
FINE = ("same", "refused", "as it is")

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


# --- one program -------------------------------------------------------------------------------


def play(text: str, wrap: Callable[[Any], Any], seed: int) -> Iterator[Any]:
    """Yield what each call of a program leaves, as long as none raises."""
    import tangrad as T

    names: dict[str, Any] = {"T": T, "__name__": f"program_{seed}"}
    exec(compile(text, f"<program {seed}>", "exec"), names)
    state = names["State"]()
    names["S"] = state
    function = wrap(names["make_function"](state))
    T.manual_seed(seed)
    for call in names["CALLS"]:
        try:
            if call["before"]:
                exec(call["before"], names)
            given = _arguments(call, names)
        except Exception as error:  # the caller's own business, whatever it is
            yield type(error).__name__
            return
        held = _Held(given, state)
        try:
            result = _called(function, call, given, T)
        except Exception as error:  # any error is an outcome
            yield error
            return
        yield held.outcome(result)
        if call["backward"]:
            yield held.backward(result)


def _arguments(call: dict[str, Any], names: dict[str, Any]) -> tuple[Any, ...]:
    if call["extra"]:
        exec(call["extra"], names)
    made = {}
    for letter in call["order"]:
        name = {"x": "x", "m": "many"}.get(letter, letter)
        made[name] = names[name] = eval(call[name], names)
    k, m, box_k, pair = (eval(str(call[name]), names) for name in ("k", "m", "box_k", "pair"))
    box = {"x": made["x"], "many": made["many"], "k": box_k, "pair": (1, pair)}
    return made["a"], made["b"], k, m, box


def _called(function: Any, call: dict[str, Any], given: tuple[Any, ...], T: Any) -> Any:
    found: list[Any] = []

    def run() -> None:
        mode = getattr(T, call["mode"])() if call["mode"] else contextlib.nullcontext()
        try:
            with mode:
                if call["by_name"]:
                    found.append(function(*given[:2], box=given[4], m=given[3], k=given[2]))
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


class _Held:
    """The tensors that a call may write, and how they were."""

    def __init__(self, given: Any, state: Any) -> None:
        self.tensors = _named(given, "argument")
        self.tensors += [(name, t) for name, t in state.tensors().items() if t is not None]
        self.tensors += [
            (f"{name}.base", t._base) for name, t in self.tensors if t._base is not None
        ]
        self.others = state.others
        self.versions = [_version(t) for _, t in self.tensors]

    def outcome(self, result: Any) -> dict[str, Any]:
        """Return what a call has left: results, what it wrote, and what shares memory."""
        results = _named(result, "result")
        told: dict[str, Any] = {"structure": _structure(result)}
        known = [*self.tensors, *results]
        for name, t in known:
            told[name] = _shown(t)
        for (name, t), before in zip(self.tensors, self.versions, strict=True):
            told[f"{name} written"] = _version(t) != before
            if t.is_leaf and t.grad is not None:
                told[f"{name}.grad"] = _shown(t.grad)
        told["others"] = self.others()
        told["objects"] = _classes([id(t) for _, t in known])
        told["memories"] = _classes(
            [t.untyped_storage().data_ptr() or id(t) for _, t in known if t.layout is not None]
        )
        return told

    def backward(self, result: Any) -> dict[str, Any]:
        """Return the gradients that a caller asks of the results, and drop them."""
        import tangrad as T

        found = [t for _, t in _named(result, "result") if t.requires_grad]
        leaves = [(name, t) for name, t in self.tensors if t.is_leaf and t.requires_grad]
        if not found:
            return {}
        try:
            with T.enable_grad():
                sum((t.to(T.float64) * 0.5).sum() for t in found).backward()
        except RuntimeError:
            return {"backward": "refused"}
        told = {f"{name}.grad": _Close(t.grad) for name, t in leaves if t.grad is not None}
        for _, t in leaves:
            t.grad = None
        return told


def _named(item: Any, path: str) -> list[tuple[str, Any]]:
    import tangrad as T

    if isinstance(item, T.Tensor):
        return [(path, item)]
    members: Any = ()
    if isinstance(item, (tuple, list)):
        members = enumerate(item)
    elif isinstance(item, dict):
        members = item.items()
    return [pair for key, member in members for pair in _named(member, f"{path}[{key!r}]")]


def _structure(item: Any) -> Any:
    import tangrad as T

    if isinstance(item, T.Tensor):
        return type(item).__name__
    if isinstance(item, (tuple, list)):
        return type(item).__name__, [_structure(member) for member in item]
    if isinstance(item, dict):
        return "dict", [(key, _structure(value)) for key, value in item.items()]
    return type(item).__name__, repr(item)


def _version(t: Any) -> int:
    return -1 if t.is_inference() else int(t._version)


def _shown(t: Any) -> Any:
    values = repr(t.detach().resolve_neg().tolist())
    return str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad, t.is_leaf, values


def _classes(items: list[Any]) -> list[int]:
    """Return for each item the place of the first that is equal to it."""
    first: dict[Any, int] = {}
    return [first.setdefault(item, k) for k, item in enumerate(items)]


class _Close:
    """A gradient: where derivatives of several results meet, their order may be another."""

    def __init__(self, grad: Any) -> None:
        self.kind = str(grad.dtype), tuple(grad.shape)
        self.values = grad.detach().to(_double()).reshape(-1).tolist()
        self.digits = {"torch.float64": 1e-10, "float64": 1e-10}.get(
            str(grad.dtype).rpartition(".")[2], 1e-4
        )
        if grad.element_size() == 2:
            self.digits = 0.05

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Close) or self.kind != other.kind:
            return False
        largest = max((abs(v) for v in self.values if abs(v) < float("inf")), default=0.0)
        return all(
            a == b or (a != a and b != b) or abs(a - b) <= self.digits * (largest + 1e-30)
            for a, b in zip(self.values, other.values, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.kind} {self.values}"


def _double() -> Any:
    import tangrad as T

    return T.float64


@lru_cache(maxsize=1)
def _eager(seed: int) -> tuple[str, list[Any]]:
    """Return a seed's program, and what its calls leave."""
    text = program_text(seed)
    return text, list(play(text, lambda function: function, seed))


def compared(seed: int, form: str) -> str:
    """Return "same", "refused", "as it is", or where the compiled program is not itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _compared(seed, form)


def _compared(seed: int, form: str) -> str:
    text, wanted = _eager(seed)
    compiler = _Compiler(form)
    if form == "at once" and not _holds_nothing(text):
        return "as it is"
    if form == "at once":
        said = _at_once(lambda: _matched(form, wanted, play(text, compiler.wrap, seed)))
    else:
        said = _matched(form, wanted, play(text, compiler.wrap, seed))
    return said or compiler.told()


def _holds_nothing(text: str) -> bool:
    """Return whether a program's function has nothing that threads would share."""
    function = text.partition("def make_function")[2].partition("CALLS")[0]
    return "S." not in function and "rand" not in function


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
    return next((one for one in said if one), "") if len(said) == 3 else "a thread has raised"


def _matched(form: str, wanted: list[Any], found: Iterator[Any]) -> str:
    """Return where outcomes are not what is wanted, or ""."""
    for turn, expected in enumerate(wanted):
        got = next(found, None)
        if type(got).__name__ == "CaptureError":
            return "refused" if form == "fullgraph" else f"call {turn}: {got}"
        if isinstance(expected, Exception) or isinstance(got, Exception):
            if type(expected) is not type(got):
                return f"outcome {turn}: " + _difference(got, expected)
            break
        if got != expected:
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

    def told(self) -> str:
        """Return whether a graph ran, or that one was dropped as wrong."""
        if self.made is None:
            return "same"
        compiled = self.made.compiled
        for line in (compiled.off, *compiled.events):
            if "differ from the function's" in line:
                return line
        return "same" if compiled.executables else "as it is"


# --- many programs, in processes that may die ----------------------------------------------------


def worker(first: int, count: int) -> None:
    """Run programs in this process; say of each that it begins, and what became of it."""
    faulthandler.enable()
    for seed in range(first, first + count):
        for form in forms_of(seed):
            print(f"begin {seed} {form}", flush=True)
            if os.environ.get("TANGRAD_TEST_DIES_AT") == str(seed):
                os.abort()  # so that a test sees what is told of it
            said = compared(seed, form)
            print(f"end {seed} {form} {said!r}", flush=True)


def run(first: int, count: int, tell: Callable[[str], Any] = str) -> tuple[Counter[str], list[str]]:
    """Run programs in processes; return how many had which outcome, and what was found.

    Args:
        first: the first seed. count: how many. tell: is given what is found at once.
    """
    told: Counter[str] = Counter()
    found: list[str] = []
    seed, last = first, first + count
    while seed < last:
        some = min(CHUNK, last - seed)
        command = [sys.executable, __file__, "--worker", str(seed), str(some)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS_EACH * some + 60
            )
            output, errors, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            output, errors, code = (late.stdout or b"").decode(), "it does not end", -1
        begun: Any = None
        for line in output.splitlines():
            word, _, rest = line.partition(" ")
            if word == "begin":
                begun = tuple(rest.split(" ", 1))
            elif word == "end":
                number, form, said = re.fullmatch(r"(\d+) ([a-z_ ]+) (['\"].*)", rest).groups()
                begun, outcome = None, eval(said)
                told[f"{form}: {outcome if outcome in FINE else 'different'}"] += 1
                if outcome not in FINE:
                    found.append(f"seed {number}, {form}: {outcome}")
                    tell(found[-1])
        if code == 0:
            seed += some
            continue
        at, form = begun or (str(seed), "before any")
        told[f"{form}: died"] += 1
        found.append(f"seed {at}, {form}: the process ended with {code}: {errors[-1500:]}")
        tell(found[-1])
        seed = int(at) + 1
    return told, found


def main(arguments: list[str]) -> int:
    """Run what the command line says."""
    if arguments[0] == "--worker":
        worker(int(arguments[1]), int(arguments[2]))
        return 0
    if arguments[0] == "--show":
        print(program_text(int(arguments[1])))
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

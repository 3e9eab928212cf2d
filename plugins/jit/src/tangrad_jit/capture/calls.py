"""Which Python code a run executes, and which functions in C it calls."""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextvars import ContextVar
from functools import lru_cache
from types import CodeType, FunctionType, NoneType
from typing import Any

import tangrad
from tangrad.plugin import innermost_tracer, serves_all_sizes
from tangrad_jit import _guards
from tangrad_jit.capture.bytecode import instructions, name_of
from tangrad_jit.capture.errors import CaptureError

__all__ = ["CallWatch", "answers_with_a_number", "asks_types", "is_library", "is_standard"]

_LIBRARY = tuple(
    os.path.dirname(path) + os.sep
    for path in (tangrad.__file__, os.path.dirname(__file__))
    if path is not None
)
_STANDARD = os.path.dirname(os.__file__) + os.sep
STANDARD = _guards.STANDARD
_NUMPY = os.sep + "numpy" + os.sep
_SITE = os.sep + "site-packages" + os.sep

_OPS = tuple(
    os.path.join(os.path.dirname(tangrad.__file__), name) + os.sep for name in ("ops", "nn")
)
_SIZES = frozenset(("shape", "size", "numel", "nelement"))
_ANSWERS = frozenset(("__float__", "__int__", "__index__", "__hash__", "__complex__"))
_COUNTS = frozenset(("min", "max", "ceil", "floor", "divmod", "range", "isqrt", "log2"))

# Methods that may set a generator to another place, which no node of a graph does; by identity,
# as code objects are slow to compare.
_SEEDING_CODE = tuple(
    getattr(tangrad.Generator, name).__code__
    for name in ("manual_seed", "seed", "set_offset", "_set_bytes")
)
_SEEDING = {id(code): code.co_name for code in _SEEDING_CODE}
# Functions in Python, of the library, whose answers no guard watches, where the program calls them.
_TELLING_CODE = (
    *(getattr(tangrad.Generator, n).__code__ for n in ("initial_seed", "get_offset", "get_state")),
    *(getattr(tangrad, n).__code__ for n in ("initial_seed", "get_rng_state", "get_num_threads")),
    threading.current_thread.__code__,
)
# Functions of the library that set what all calls share and no guard watches: a graph sets nothing.
_SETTING_CODE = tuple(
    getattr(tangrad, n).__code__
    for n in (
        *("set_num_threads", "set_num_interop_threads", "set_float32_matmul_precision"),
        *("set_flush_denormal", "set_warn_always", "set_autocast_dtype"),
        "set_autocast_cache_enabled",
    )
)
# The same of modules that few programs load.
_SETTING_IN = {
    "tangrad.multiprocessing": ("set_sharing_strategy",),
    "tangrad.__future__": (
        "set_overwrite_module_params_on_conversion",
        "set_swap_module_params_on_conversion",
    ),
}
_TELLING = {id(code): code.co_name for code in _TELLING_CODE}
# Functions of the standard library that read what a program may change: they are watched as its.
_READING_CODE = (os.getenv.__code__,)
_READING = frozenset(map(id, _READING_CODE))
# Of names of files: True for the library's own, STANDARD for Python's. Code is slow to hash.
_libraries: dict[str, Any] = {}
#: Modules whose functions in C depend on their arguments alone.
_PURE = {
    None,
    "_collections",
    "_collections_abc",
    "_functools",
    "_operator",
    "builtins",
    "cmath",
    "collections",
    "copyreg",
    "functools",
    "itertools",
    "math",
    "operator",
    "sys",
    "typing",
    "_abc",
    "_struct",
    "_typing",
    "_weakref",
    "_contextvars",
}
_FORBIDDEN = {
    "print": "prints only when it is recorded",
    "input": "reads what people type",
    "open": "reads or writes a file",
    "exec": "runs a text",
    "eval": "runs a text",
    "globals": "reads names that cannot be watched",
    "locals": "reads names that cannot be watched",
    "breakpoint": "stops only when it is recorded",
    "id": "tells where an object lies, which another may not",
}
# What the library may do as the program calls it, and what nobody may.
_ALLOWED_WITHIN = frozenset(("exec", "eval", "globals", "locals", "id", "get_ident", "_getframe"))
# Of tensors, what may differ between those for which a graph holds.
_HIDDEN = frozenset("_version _base grad_fn output_nr".split())
_TELLING_METHODS = frozenset(
    "data_ptr storage_offset untyped_storage storage _is_view is_set_to _typed_storage".split()
)


def _library_of(name: str) -> Any:
    """Return whose code a file has, as `_libraries` does."""
    found = _libraries.get(name)
    if found is None:
        own = name.startswith((*_LIBRARY, "<frozen importlib"))
        standard = name.startswith("<frozen") or (name.startswith(_STANDARD) and _SITE not in name)
        found = _libraries[name] = own or (STANDARD if standard else False)
    return found


def is_library(code: CodeType) -> bool:
    """Return whether code is the library's own, or Python's: it is trusted, not watched."""
    return bool(_library_of(code.co_filename)) and id(code) not in _READING


def is_standard(code: CodeType) -> bool:
    """Return whether code is Python's own."""
    return _library_of(code.co_filename) is STANDARD


class CallWatch:
    """Context manager: note the code objects that this thread executes.

    Args:
        follows_numbers: something stands for numbers, and says that it is one. Who asks its type
            is told otherwise, so code that may is refused before it runs; what is known to be
            executed is looked at earlier.
        sizes: told of each piece of the user's code that runs, or None.

    Attributes:
        executed: the user's code objects.
        refusal: why the run cannot be one graph, from the functions in C that the user's code
            called, or None.
        filter: what is told of calls, while it does not pause.
    """

    def __init__(self, follows_numbers: bool = False, sizes: Any = None) -> None:
        self.follows_numbers, self.sizes = follows_numbers, sizes
        self.executed: dict[CodeType, dict[str, Any]] = {}
        self.refusal: CaptureError | None = None
        self._places: list[tuple[int, int]] = []

    def __enter__(self) -> CallWatch:
        # What is called when garbage is collected is no part of the run.
        self._collects = gc.isenabled()
        gc.disable()
        self._previous = sys.getprofile()
        of_sizes = self.sizes is not None
        self._setting = {id(code): code.co_name for code in _setting_code()}
        told = (*_SEEDING_CODE, *_TELLING_CODE, *_READING_CODE, *_setting_code())
        self.filter = _guards.CallFilter(self._profile, _libraries, told, of_sizes)
        self.filter.start()
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._previous)
        if self._collects:
            gc.enable()

    def _profile(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if id(code) in _SEEDING and event in ("call", "return"):
            self._watch_generator(frame, event)
        library = is_library(code)
        if library and event == "c_call" and _library_of(code.co_filename) is STANDARD:
            self._watch_standard(frame, arg)
            return
        if id(code) in _TELLING and event == "call":
            self._watch_telling(frame, "may answer otherwise in the next call")
        elif id(code) in self._setting and event == "call":
            self._watch_telling(frame, "sets what all calls share, and a graph sets nothing")
        if library and (self.sizes is None or event != "call"):
            return
        if event == "call":
            if not library and code not in self.executed and not _serves_library(frame):
                if innermost_tracer() is None:
                    return  # a kernel's, as of a device in Python: the op stands for it
                if _imports(frame):
                    return
                self.executed[code] = frame.f_globals
                hidden = hidden_attribute(code)
                if hidden and self.refusal is None:
                    line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
                    told = f"{code.co_name}() reads .{hidden} of a tensor, which cannot be watched"
                    self.refusal = CaptureError(told, line)
                follows = self.follows_numbers or (self.sizes is not None and self.sizes.handed)
                if follows and asks_types(code):
                    line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
                    raise CaptureError(f"{code.co_name}() calls type(), maybe of a number", line)
            if self.sizes is not None:
                self._tell_sizes(frame, code, library)
            return
        if event != "c_call" or self.refusal is not None:
            return
        if _serves_library(frame):
            return
        reason = _why_not(arg)
        if reason is not None:
            self._refuse(reason, frame)

    def _watch_standard(self, frame: Any, function: Any) -> None:
        """Look at a function in C that Python's own code calls, for whom it was called."""
        reason = None if self.refusal is not None else _why_not(function, within=True)
        if reason is None:
            return
        while frame is not None and _library_of(frame.f_code.co_filename) is STANDARD:
            frame = frame.f_back
        if frame is not None and not is_library(frame.f_code):
            self._refuse(reason, frame)

    def _watch_telling(self, frame: Any, reason: str) -> None:
        caller = frame.f_back
        if self.refusal is None and caller is not None and not is_library(caller.f_code):
            name = frame.f_code.co_name
            self._refuse(f"{name}() {reason}", caller)

    def _refuse(self, reason: str, frame: Any) -> None:
        if innermost_tracer() is not None and not (_serves_library(frame) or _imports(frame)):
            line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            self.refusal = CaptureError(reason, line)

    def _tell_sizes(self, frame: Any, code: CodeType, library: bool) -> None:
        assert self.sizes is not None
        if not library and code in self.executed:
            if not _is_packages(frame):
                self.sizes.ran(code)
        elif counts_by_sizes(code):
            self.sizes.lose(f"{code.co_name}() of the library computes numbers of sizes")

    def _watch_generator(self, frame: Any, event: str) -> None:
        """Refuse a run in which a generator's place is another after a method that sets it."""
        now = _place_of(frame.f_locals["self"])
        if event == "call":
            self._places.append(now)
        elif self._places and self._places.pop() != now and self.refusal is None:
            while frame.f_back is not None and is_library(frame.f_code):
                frame = frame.f_back
            line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            reason = "the state of a random generator is set, and a graph sets none"
            self.refusal = CaptureError(reason, line)


def _setting_code() -> tuple[CodeType, ...]:
    """Return the code of the library's functions that set what all calls share."""
    loaded = ((sys.modules.get(module), names) for module, names in _SETTING_IN.items())
    late = (getattr(module, n) for module, names in loaded if module is not None for n in names)
    return (*_SETTING_CODE, *(function.__code__ for function in late))


@lru_cache(maxsize=8192)
def counts_by_sizes(code: CodeType) -> bool:
    """Return whether code of the core's ops may make numbers of sizes that are no sizes.

    Halves of sizes, their remainders, the smaller of two, and what is compared with a number: two
    runs do not tell how these depend on sizes. A function without a name is looked at with the one
    that holds it, where that is one; rules of definitions are such, and tell sizes of results.
    """
    checks = code.co_name.lstrip("_").startswith(("check", "<"))
    if not code.co_filename.startswith(_OPS) or checks or serves_all_sizes(code):
        return False
    return _counts(code) or any(_counts(c) for c in code.co_consts if isinstance(c, CodeType))


def _counts(code: CodeType) -> bool:
    import dis

    reads = not _SIZES.isdisjoint(code.co_names)
    if reads and not _COUNTS.isdisjoint(code.co_names):
        return True
    before = ""
    for found in dis.get_instructions(code):
        divides = found.opname == "BINARY_OP" and found.argrepr in ("//", "%", "//=", "%=")
        if divides and before not in ("ndim", "rank"):
            return True
        if reads and found.opname == "COMPARE_OP" and found.argval in ("<", ">", "<=", ">="):
            return True
        before = str(found.argval)
    return False


def _place_of(generator: Any) -> tuple[int, int]:
    """Return where a generator is; a sequential one has no offset, and graphs draw none of it."""
    try:
        return generator.initial_seed(), generator.get_offset()
    except NotImplementedError:
        return generator.initial_seed(), 0


def answers_with_a_number(code: CodeType) -> bool:
    """Return whether code is a method of whose answer Python asks that it is a number itself."""
    return code.co_name in _ANSWERS and not is_library(code)


@lru_cache(maxsize=4096)
def asks_types(code: CodeType) -> bool:
    """Return whether code, or code within it, may ask for the exact type of an object."""
    if "type" in code.co_names and any(
        name in ("LOAD_GLOBAL", "LOAD_NAME") and name_of(code, name, argument) == "type"
        for name, argument in instructions(code)
    ):
        return True
    return any(asks_types(inner) for inner in code.co_consts if isinstance(inner, CodeType))


@lru_cache(maxsize=4096)
def hidden_attribute(code: CodeType) -> str:
    """Return an attribute that code reads by which tensors differ that are alike to a graph, or "".

    Those of `self` are not tensors'.
    """
    if not _HIDDEN.isdisjoint(code.co_names):
        import dis

        steps = list(dis.get_instructions(code))
        for before, found, after in zip(steps, steps[1:], steps[2:], strict=False):
            if found.opname != "LOAD_ATTR" or found.argval not in _HIDDEN:
                continue
            # Whether there is a history is guarded.
            for_none = "NONE" in after.opname or (after.opname, after.argval) == (
                "LOAD_CONST",
                None,
            )
            if before.argval != "self" and not (found.argval == "grad_fn" and for_none):
                return str(found.argval)
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return next(filter(None, map(hidden_attribute, inner)), "")


def _serves_library(frame: Any) -> bool:
    """Return whether a frame is the library's by its origin, or NumPy's and called by it.

    The reference device computes by NumPy, in functions that are generated from expressions.
    """
    while frame is not None:
        if _is_generated(frame):
            return True
        if _NUMPY not in frame.f_code.co_filename:
            return False
        frame = frame.f_back
        if frame is not None and is_library(frame.f_code):
            return True
    return False


def _imports(frame: Any) -> bool:
    """Return whether a module is being imported, which is done once, graph or not.

    So are the hooks by which packages of the library offer what they have.
    """
    within = ""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        if within == "pluggy" and is_library(frame.f_code):
            return True
        within = (frame.f_globals.get("__name__") or "").partition(".")[0]
        frame = frame.f_back
    return False


def _is_packages(frame: Any) -> bool:
    """Return whether a frame is of one of the library's packages: a device, say."""
    module = frame.f_globals.get("__name__") or ""
    return bool(module.startswith("tangrad_"))


def _is_generated(frame: Any) -> bool:
    """Return whether the library made a frame's code from a text."""
    name = frame.f_code.co_filename
    if name in ("<expression>", "<primitive>"):
        return True
    module = frame.f_globals.get("__name__") or ""
    return name.startswith("<") and module.partition(".")[0].startswith("tangrad")


def _why_not(function: Any, within: bool = False) -> str | None:
    """Return why a graph cannot stand for a call of a function in C, or None if it can.

    Args:
        function: what is called. within: Python's own code calls it.
    """
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if within and name in _ALLOWED_WITHIN:
        return None
    module = getattr(function, "__module__", None)
    if isinstance(owner, type(sys)) and owner.__name__ == "builtins" and name in _FORBIDDEN:
        return f"{name}() {_FORBIDDEN[name]}"
    if module == "sys" and name == "_getframe":
        return "_getframe() shows the variables of callers, which cannot be watched"
    if module == "_warnings" and name.startswith("warn"):
        return "warn() warns only when it is recorded"
    if isinstance(owner, type(sys)) or owner is None:
        top = (module or "").partition(".")[0] or None
        if top in _PURE or top == "tangrad" or (top, name) == ("_thread", "allocate_lock"):
            return None
        return f"{module}.{name}() may answer otherwise in the next call, which cannot be watched"
    if isinstance(owner, tangrad.Tensor) and name in _TELLING_METHODS:
        return f"Tensor.{name}() may answer otherwise for another tensor, which cannot be watched"
    kinds = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    # A class in Python may have a method of the name, which has called the one in C.
    in_c = (k for k in kinds if not isinstance(vars(k).get(name), (NoneType, FunctionType)))
    kind = next(in_c, kinds[0])
    top = kind.__module__.partition(".")[0]
    if top in ("builtins", "collections", "_collections", "functools", "itertools", "operator"):
        return None
    if top.startswith("tangrad") or (isinstance(owner, type) and top in _PURE):
        return None
    if kind is ContextVar and name == "get":  # its value is guarded
        return None
    if any(k.__module__.startswith("tangrad") for k in kinds):
        return None
    return (
        f"{kind.__name__}.{name}() may answer otherwise in the next call, which cannot be watched"
    )

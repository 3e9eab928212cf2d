"""Random calls of every public function, as text that runs unchanged in tangrad and in torch.

A call is an expression over a library `T` and `t`, which makes a tensor. Half of the calls begin
from a sample of the op's definition and change one or two arguments, so that they get past the
first check; the others draw every argument. Run as a program, this file evaluates the calls that
its arguments name and prints what each library made of them, so that a crash or a hang ends a
process that somebody watches and not the tests.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import itertools
import json
import math
import os
import random
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

import tangrad
from tangrad.ops.definition import registry
from tangrad.ops.definition.samples import Sample, SampleDtype, Sampler, SampleTensor
from tangrad.ops.definition.schema import REQUIRED

SECONDS_PER_CALL = 20
# Bytes of address space: a call that asks for more gets an error, not the machine. 2^31 numbers of
# two bytes do not fit, which take longer to write than SECONDS_PER_CALL on a machine with little.
MEMORY = 4 << 30

# Never called: they change the process, wait, read files, or start what this program cannot stop.
LEFT_OUT = re.compile(
    r"\.(set_|use_|_|load|save|compile|from_file|manual_seed|seed|get_rng|get_num|get_device_mod"
    r"|autocast|is_storage|typename|vmap|cond$|while_loop|clear_autocast|record_stream|share_memory"
    r"|initial_seed|Generator|Stream|Event|GradScaler|Sym|sym_|DataParallel|module_load|apply_$|map"
    r"|register_|retain_grad|backward|data_ptr|storage|untyped_storage|no_grad|enable_grad"
    r"|inference_mode|is_inference|as_subclass|tolist|numpy|apply|from_dlpack|to_dlpack"
    r"|get_default|are_|is_warn|pin_memory|is_pinned|cuda|xpu|ipu|hpu|mtia|empty|new_empty|resize"
    r"|DistributedData|torch|parallel)"
)

DTYPES = (
    *("float32", "float32", "float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
    *("bool", "uint8", "int8", "int16", "int32", "int64", "int64", "uint16", "uint32", "uint64"),
)
SHAPES = (
    *((), (0,), (1,), (3,), (2, 3), (3, 3), (0, 3), (3, 0), (2, 0, 3), (2, 3, 4), (1, 2, 4, 4)),
    *((2, 1, 3, 1, 2), (2, 2, 5, 5, 5), (1,) * 24 + (2,), (5, 2), (4,), (0, 0)),
)
FORMS = (
    *("", "", "", "", "transposed", "channels last", "stepped", "expanded", "offset", "conj"),
    *("neg", "grad"),
)
FILLS = ("small", "small", "small", "special", "zeros", "extreme")
INTEGERS = (0, 1, -1, 2, -2, 3, -3, 7, 100, -100, 2**31, 2**63 - 1, -(2**63), 2**63)
NUMBERS = (0, 1, -1, 2, 0.5, -0.5, 1e-30, 1e308, 2**63 - 1, -(2**63), 2**64, 10**30, True)
WORDS = (
    *("mean", "sum", "none", "reflect", "constant", "replicate", "circular", "bilinear", "nearest"),
    *("bicubic", "linear", "area", "fro", "nuc", "floor", "trunc", "tanh", "ij", "xy", "complete"),
    *("reduced", "r", "raw", "amax", "prod", "lower", "midpoint", "L", "U", "ortho", "same", "x"),
    *("valid", "zeros", "border", "gelu", "relu", "cpu", "meta", ""),
)
WRONG = (
    *("None", "'x'", "object()", "[]", "()", "(1, 2)", "{}", "1.5", "T.float32", "len", "[None]"),
    *("[[1, 2], [3]]", "t((2, 3))", "[t((3,)), t((3,))]", "1j", "True", "3", "-1", "b'x'", "T"),
    *("T.Tensor", "range(3)", "(1, 'x')", "{1: 2}", "slice(None)", "T.device('cpu')", "..."),
)


# --- tensors --------------------------------------------------------------------------------------


def maker(library: Any) -> Callable[..., Any]:
    """Return the function `t` of one library: the same values for the same arguments."""

    def make(
        shape: tuple[int, ...],
        dtype: str = "float32",
        low: float = -3,
        high: float = 4,
        fill: str = "small",
        form: str = "",
    ) -> Any:
        made = library.from_numpy(_values(shape, dtype, low, high, fill))
        return FORMED[form](library, made.to(getattr(library, dtype)))

    return make


def _values(shape: tuple[int, ...], dtype: str, low: float, high: float, fill: str) -> np.ndarray:
    count = math.prod(shape)
    rng = np.random.Generator(np.random.Philox(count + len(shape)))
    kind = "float" if "float" in dtype or "complex" in dtype else "int"
    if fill == "zeros":
        return np.zeros(shape, np.float32)
    if fill == "special":
        chosen = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf] if kind != "int" else [0, 1, 1, 2]
        return np.resize(np.array(chosen, np.float32), shape)
    if fill == "extreme":
        chosen = [3e38, -3e38, 1e-45, -1e-45] if kind != "int" else [2**31, -(2**31), 127, 255]
        return np.resize(np.array(chosen, np.float64), shape)
    if kind == "int":
        return rng.integers(math.floor(low), max(math.ceil(high), math.floor(low) + 1), shape)
    return low + (high - low) * rng.random(shape)


def _expanded(library: Any, made: Any) -> Any:
    return made[..., :1].expand(made.shape) if made.ndim and made.numel() else made


def _stepped(library: Any, made: Any) -> Any:
    return library.stack([made, made], -1).select(-1, 0)


def _channels_last(made: Any) -> Any:
    return made.movedim(1, -1).contiguous().movedim(-1, 1) if made.ndim > 2 else made


def _conjugated(library: Any, made: Any) -> Any:
    return made.conj() if made.is_complex() else made


def _negated(library: Any, made: Any) -> Any:
    return made.conj().imag if made.is_complex() else made


def _recorded(library: Any, made: Any) -> Any:
    return made.requires_grad_() if made.is_floating_point() or made.is_complex() else made


FORMED: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda library, made: made,
    "transposed": lambda library, made: made.mT.contiguous().mT if made.ndim > 1 else made,
    "channels last": lambda library, made: _channels_last(made),
    "stepped": _stepped,
    "expanded": _expanded,
    "offset": lambda library, made: library.stack([made, made])[1],
    "conj": _conjugated,
    "neg": _negated,
    "grad": _recorded,
}


# --- the text of a call ---------------------------------------------------------------------------


class Parameter:
    """One parameter of a public function: name, type as schemas write it, and whether by name."""

    def __init__(self, name: str, type_: str, required: bool, keyword_only: bool) -> None:
        self.name, self.type = name, type_
        self.required, self.keyword_only = required, keyword_only


def write(path: str, seed: int) -> str:
    """Write the call number `seed` of the function at `path` (`T.add`, `T.Tensor.add`, ...)."""
    rng = random.Random(f"{path} {seed}")
    chosen = rng.choice(_forms(path))
    samples = _samples(chosen) if rng.random() < 0.6 else []
    if samples:
        args, kwargs = _from_sample(rng, chosen, rng.choice(samples))
    else:
        args, kwargs = _by_signature(rng, parameters(chosen))
    if inspect.isfunction(chosen) and path.startswith("T.Tensor.") and not args[0].startswith("t("):
        args[0] = _any_tensor(rng)  # what a method in Python is called on, nobody checks
    return _text(path, args, kwargs)


def _text(path: str, args: list[str], kwargs: dict[str, str]) -> str:
    return f"{path}({', '.join([*args, *(f'{k}={v}' for k, v in kwargs.items())])})"


def _forms(path: str) -> tuple[Any, ...]:
    """Return the definitions behind a path, or the function itself."""
    found = resolve(path, tangrad)
    op = found if isinstance(found, tangrad._C.Op) else None
    if op is None:
        return (found,)
    functional = op.functional or op
    return tuple(functional.overloads) or (functional,)


def parameters(function: Any) -> list[Parameter]:
    """Return the parameters of an op of ours, or of a function or class in Python."""
    if isinstance(function, tangrad._C.Op):
        d = function.definition
        return [
            Parameter(p.name, p.type, p.default is REQUIRED, p.keyword_only)
            for p in d.schema.params
            if not (d.random and p.name in ("seed", "offset"))
        ]
    found = []
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            continue
        annotation = p.annotation if isinstance(p.annotation, str) else "Any"
        found.append(
            Parameter(
                p.name,
                _type_of(annotation, p),
                p.default is p.empty and p.kind is not p.VAR_POSITIONAL,
                p.kind is p.KEYWORD_ONLY,
            )
        )
    return found


def _type_of(annotation: str, parameter: inspect.Parameter) -> str:
    if parameter.name in ("input", "self", "target", "other", "weight"):
        return "Tensor"
    if parameter.name == "dtype":
        return "dtype?"
    if parameter.name == "device":
        return "device?"
    known = {"int": "int", "float": "float", "bool": "bool", "str": "str", "Tensor": "Tensor"}
    plain = annotation.removesuffix(" | None")
    if plain in known:
        return known[plain] + ("?" if plain != annotation else "")
    if isinstance(parameter.default, str):
        return "str"
    return "size"


@cache
def _samples(function: Any) -> list[Sample]:
    definition = getattr(function, "definition", None)
    if definition is None or definition.samples is None:
        return []
    try:
        return list(definition.samples(Sampler("float32")))
    except Exception:  # samples for other dtypes only
        return []


def _from_sample(
    rng: random.Random, function: Any, sample: Sample
) -> tuple[list[str], dict[str, str]]:
    args = [_written(a) for a in sample.args]
    kwargs = {k: _written(v) for k, v in sample.kwargs.items()}
    declared = parameters(function)
    by_name = {p.name: p for p in declared}
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        place = rng.randrange(len(args) + len(kwargs) + 1)
        if place < len(args):
            p = declared[min(place, len(declared) - 1)]
            value = sample.args[place]
            args[place] = (
                _changed(rng, value)
                if isinstance(value, SampleTensor) and rng.random() < 0.7
                else _value(rng, p.type)
            )
        elif place < len(args) + len(kwargs):
            name = list(kwargs)[place - len(args)]
            kwargs[name] = _value(rng, by_name[name].type if name in by_name else "any")
        else:
            unused = [p for p in declared[len(args) :] if p.name not in kwargs]
            if unused:
                p = rng.choice(unused)
                kwargs[p.name] = _value(rng, p.type)
    return args, kwargs


def _written(value: Any) -> str:
    if isinstance(value, SampleTensor):
        return _tensor_like(value, value.dtype, "stepped" if value.strided else "")
    if isinstance(value, SampleDtype):
        return f"T.{value.name}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_written, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(value)


def _tensor_like(value: SampleTensor, dtype: str, form: str = "", fill: str = "small") -> str:
    low, high = -3.0, 4.0
    finite = value.array[np.isfinite(value.array)] if value.array.dtype.kind in "iuf" else ()
    if len(finite):
        low, high = float(finite.min()), float(finite.max()) + 0.5
    return _tensor(value.shape, dtype, low, high, fill, form)


def _tensor(
    shape: tuple[int, ...], dtype: str, low: float, high: float, fill: str, form: str
) -> str:
    text = f"t({shape}, {dtype!r}"
    if (low, high) != (-3, 4):
        text += f", {low:.4g}, {high:.4g}"
    if fill != "small":
        text += f", fill={fill!r}"
    return text + (f", form={form!r})" if form else ")")


def _changed(rng: random.Random, value: SampleTensor) -> str:
    """Write a tensor that differs from a sample's in one respect."""
    what = rng.choice(("shape", "dtype", "dtype", "form", "fill", "size"))
    if what == "dtype":
        return _tensor_like(value, rng.choice(DTYPES))
    if what == "form":
        return _tensor_like(value, value.dtype, rng.choice(FORMS))
    if what == "fill":
        return _tensor_like(value, value.dtype, fill=rng.choice(FILLS))
    shape = list(value.shape)
    if what == "size" and shape:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 5))
        return _tensor(tuple(shape), value.dtype, -3, 4, "small", "")
    return _tensor(rng.choice(SHAPES), value.dtype, -3, 4, "small", "")


def _by_signature(
    rng: random.Random, declared: list[Parameter]
) -> tuple[list[str], dict[str, str]]:
    args: list[str] = []
    kwargs: dict[str, str] = {}
    positional = True
    for p in declared:
        if not p.required and rng.random() < 0.6:
            positional = False
            continue
        value = _value(rng, p.type)
        if positional and not p.keyword_only:
            args.append(value)
        else:
            kwargs[p.name] = value
    return args, kwargs


def _value(rng: random.Random, type_: str) -> str:
    if rng.random() < 0.07:
        return rng.choice(WRONG)
    if type_.endswith("?"):
        if rng.random() < 0.3:
            return "None"
        type_ = type_[:-1]
    if type_ == "any":
        type_ = rng.choice(("Tensor", "Scalar", "int[]", "int", "str", "bool"))
    if type_ == "Operand":
        type_ = rng.choice(("Tensor", "Tensor", "Scalar"))
    return VALUES.get(type_, lambda r: r.choice(WRONG))(rng)


def _any_tensor(rng: random.Random) -> str:
    fill, form = rng.choice(FILLS), rng.choice(FORMS)
    return _tensor(rng.choice(SHAPES), rng.choice(DTYPES), -3, 4, fill, form)


def _small(rng: random.Random) -> int:
    return rng.choice(INTEGERS) if rng.random() < 0.3 else rng.randrange(-1, 4)


def _list(rng: random.Random, write_one: Callable[[random.Random], Any]) -> str:
    return "[" + ", ".join(str(write_one(rng)) for _ in range(rng.choice((0, 1, 2, 2, 3)))) + "]"


def _number(rng: random.Random) -> str:
    drawn = rng.choice(NUMBERS) if rng.random() < 0.7 else None
    return (
        rng.choice(("math.nan", "math.inf", "-math.inf", "2.5")) if drawn is None else repr(drawn)
    )


VALUES: dict[str, Callable[[random.Random], str]] = {
    "Tensor": _any_tensor,
    "Tensor[]": lambda rng: _list(rng, _any_tensor),
    "Scalar": lambda rng: "1 + 2j" if rng.random() < 0.1 else _number(rng),
    "float": _number,
    "int": lambda rng: repr(_small(rng)),
    "dim": lambda rng: repr(_small(rng)),
    "int[]": lambda rng: _list(rng, _small),
    "dim[]": lambda rng: _list(rng, _small),
    "size": lambda rng: repr(_small(rng)) if rng.random() < 0.6 else _list(rng, _small),
    "bool": lambda rng: rng.choice(("True", "False")),
    "str": lambda rng: repr(rng.choice(WORDS)),
    "dtype": lambda rng: f"T.{rng.choice(DTYPES)}",
    "device": lambda rng: rng.choice(("'cpu'", "T.device('cpu')", "'meta'", "'nowhere'")),
    "layout": lambda rng: "T.strided",
    "memory_format": lambda rng: rng.choice(
        ("T.contiguous_format", "T.channels_last", "T.preserve_format", "T.channels_last_3d")
    ),
    "generator": lambda rng: "None",
}


# --- what is called -------------------------------------------------------------------------------


def resolve(path: str, library: Any) -> Any:
    """Return what `T.linalg.norm` is in a library.

    Raises:
        AttributeError: it has no such name.
    """
    found = library
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


def paths(torch: Any) -> list[str]:
    """Return every public callable that both libraries have, modules' constructors included."""
    registry.load_all()
    places = {
        "T": tangrad,
        "T.Tensor": tangrad.Tensor,
        **{
            f"T.{name}": importlib.import_module(f"tangrad.{name}")
            for name in ("nn.functional", "linalg", "fft", "special", "signal.windows", "nn")
        },
    }
    found = []
    for prefix, place in places.items():
        for name in dir(place) if prefix != "T.nn.functional" else sorted(_functional()):
            path = f"{prefix}.{name}"
            if name.startswith("_") or LEFT_OUT.search(f".{name}"):
                continue
            try:
                ours, theirs = resolve(path, tangrad), resolve(path, torch)
            except (AttributeError, ImportError):
                continue
            if callable(ours) and callable(theirs) and _callable_class(ours):
                found.append(path)
    return found


def _functional() -> set[str]:
    shown = {n for n in dir(tangrad.nn.functional) if hasattr(tangrad.nn.functional, n)}
    for name, op in registry.OPS.items():
        if op.definition.namespace == "nn":
            shown.add(name)
    return shown


def _callable_class(found: Any) -> bool:
    if not isinstance(found, type):
        try:
            parameters(_forms_of(found))
        except (ValueError, TypeError):
            return False
        return True
    return issubclass(found, tangrad.nn.Module)


def _forms_of(found: Any) -> Any:
    if isinstance(found, tangrad._C.Op):
        functional = found.functional or found
        return functional.overloads[0] if functional.overloads else functional
    return found


# --- running --------------------------------------------------------------------------------------


def outcome(text: str, library: Any) -> dict[str, Any]:
    """Evaluate a call and describe its result or its error."""
    scope = {"T": library, "t": maker(library), "math": math}
    try:
        result = eval(text, scope)
    except Exception as error:
        classes = [c.__name__ for c in type(error).__mro__[:-2]]
        return {"error": classes, "text": str(error)[:300], "place": _place(error)}
    return {"result": _described(result)}


def _place(error: BaseException) -> str:
    """Return where an error was raised, for errors of ours that are not meant."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _described(result: Any) -> Any:
    if hasattr(result, "dtype") and hasattr(result, "shape"):
        return [str(result.dtype).rpartition(".")[2], list(result.shape)]
    if isinstance(result, (tuple, list)):
        return [_described(r) for r in result]
    return type(result).__name__


def sampled(names: list[str], count: int, first: int = 0) -> Iterator[tuple[str, int]]:
    """Yield (path, seed) for `count` calls of each name."""
    return itertools.product(names, range(first, first + count))


def main() -> None:
    """Evaluate the calls that standard input lists, one "path seed" a line, as lines of JSON."""
    import torch

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    for line in sys.stdin:
        path, seed = line.split()
        text = write(path, int(seed))
        report: dict[str, Any] = {"path": path, "seed": int(seed), "text": text}
        for name, library in (("torch", torch), ("tangrad", tangrad)):
            faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
            print(json.dumps({"start": name, **report}), flush=True)
            report[name] = outcome(text, library)
            faulthandler.cancel_dump_traceback_later()
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

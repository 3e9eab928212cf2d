"""The public names: what they are, where they stand, and the page that each has.

A name is public if it has no underscore in front and stands in `__all__` of a public module, or,
where a module has no `__all__`, if it was made by tangrad's packages. A module that is neither
listed in `SPACES` nor in `INNER` is an error, so nothing new stays without a page.
"""

from __future__ import annotations

import importlib
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Public modules, in the order of the index, with what they are.
SPACES: dict[str, str] = {
    "tangrad": "Tensors, ops, dtypes, settings",
    "tangrad.Tensor": "Methods and attributes of tensors",
    "tangrad.nn": "Modules, losses, parameters",
    "tangrad.nn.functional": "Modules' functions, without state",
    "tangrad.nn.init": "Values that parameters start with",
    "tangrad.nn.utils": "Clipping, fusing, vectors of parameters",
    "tangrad.nn.utils.rnn": "Padded and packed sequences",
    "tangrad.nn.utils.parametrize": "Parameters that are computed from others",
    "tangrad.nn.utils.parametrizations": "Orthogonal, spectral and weight norms",
    "tangrad.nn.utils.prune": "Pruning",
    "tangrad.nn.utils.stateless": "Modules called with other parameters",
    "tangrad.nn.attention": "Attention, and which kernels may serve it",
    "tangrad.nn.attention.bias": "Biases of attention",
    "tangrad.nn.attention.flex_attention": "Attention with a score of one's own",
    "tangrad.nn.parallel": "Data parallelism",
    "tangrad.optim": "Optimizers",
    "tangrad.optim.lr_scheduler": "Schedules of the learning rate",
    "tangrad.optim.swa_utils": "Averages of weights",
    "tangrad.autograd": "Gradients, and functions with a backward of one's own",
    "tangrad.autograd.functional": "Jacobians, Hessians and products with them",
    "tangrad.autograd.forward_ad": "Forward mode",
    "tangrad.autograd.graph": "Nodes, hooks of saved tensors",
    "tangrad.autograd.profiler": "The older interface of the profiler",
    "tangrad.func": "Function transforms: grad, vjp, jvp, vmap",
    "tangrad.linalg": "Linear algebra",
    "tangrad.fft": "Fourier transforms",
    "tangrad.special": "Special functions",
    "tangrad.signal.windows": "Windows",
    "tangrad.random": "Generators and their states",
    "tangrad.quasirandom": "Sobol's sequence",
    "tangrad.distributions": "Probability distributions",
    "tangrad.distributions.constraints": "Sets that values belong to",
    "tangrad.distributions.transforms": "Invertible maps between variables",
    "tangrad.distributions.kl": "Divergences",
    "tangrad.amp": "Mixed precision",
    "tangrad.serialization": "Files",
    "tangrad.serialization.safetensors": "safetensors files",
    "tangrad.utils.data": "Data sets, samplers, loaders",
    "tangrad.utils.checkpoint": "Activations that are computed again",
    "tangrad.utils.benchmark": "Timing",
    "tangrad.utils.flop_counter": "Counting operations",
    "tangrad.utils.module_tracker": "Which module runs",
    "tangrad.utils.tensorboard": "Event files for TensorBoard",
    "tangrad.utils.dlpack": "Exchange of memory",
    "tangrad.utils.hooks": "Handles of hooks",
    "tangrad.utils.model_zoo": "Files of weights by address",
    "tangrad.utils.collect_env": "What is installed",
    "tangrad.monitor": "Counters and events",
    "tangrad.profiler": "The profiler",
    "tangrad.jit": "Scripts and traces",
    "tangrad.compiler": "Settings of compilation",
    "tangrad.fx": "Programs as graphs",
    "tangrad.export": "Exported programs",
    "tangrad.onnx": "ONNX models",
    "tangrad.sparse": "Sparse tensors",
    "tangrad.masked": "Masked tensors",
    "tangrad.distributed": "Process groups and collectives",
    "tangrad.distributed.algorithms.join": "Uneven numbers of batches",
    "tangrad.distributed.checkpoint": "Checkpoints of several ranks",
    "tangrad.distributed.optim": "Optimizers in parts",
    "tangrad.futures": "Futures",
    "tangrad.multiprocessing": "Processes that share tensors",
    "tangrad.ao.quantization": "Quantization: workflow, observers",
    "tangrad.ao.nn.quantized": "Quantized modules",
    "tangrad.ao.nn.qat": "Modules for quantization-aware training",
    "tangrad.ao.nn.intrinsic": "Fused modules",
    "tangrad.ao.nn.quantizable": "Modules that can be quantized in part",
    "tangrad.ao.ns": "Comparing a model with its quantized form",
    "tangrad.vision": "Regions and boxes in pictures",
    "tangrad.text": "What torchtext computes in its extension",
    "tangrad.display": "Tensors, modules and loops as one sees them",
    "tangrad.plot": "Curves, matrices, filters and graphs as pictures",
    "tangrad.classes": "Classes of Python for scripts",
    "tangrad.array_api": "The Python array API standard",
    "tangrad.library": "Ops of one's own by PyTorch's names",
    "tangrad.hub": "Models by folder",
    "tangrad.overrides": "Functions that can be overridden",
    "tangrad.testing": "Comparing tensors in tests",
    "tangrad.return_types": "Named tuples of results",
    "tangrad.types": "Names of types",
    "tangrad.accelerator": "The machine's accelerator",
    "tangrad.cuda": "GPUs",
    "tangrad.cpu": "The CPU as a device",
    "tangrad.backends": "Settings of libraries below",
    "tangrad.backends.mps": "Apple's GPUs: what programs ask of them",
    "tangrad.version": "Versions",
    "tangrad.plugin": "What extenders import",
    "tangrad.plugin.compiled": "Devices that compile source",
}
# Modules that programs can reach and that are no part of the interface, with what they are.
INNER: dict[str, str] = {
    "cli": "the commands",
    "compat": "where names of the top level are kept",
    "devices": "part of the core",
    "discovery": "part of the core",
    "dispatch": "part of the core",
    "expr": "part of the core",
    "layouts": "part of the core",
    "storage": "part of the core",
    "ops": "each op has a page of its own",
    "functional": "functions of the top level, by PyTorch's older place",
    "torch_version": "the type of `__version__`",
    "quantization": "`tangrad.ao.quantization` by PyTorch's older place",
    "nn.intrinsic": "`tangrad.ao.nn.intrinsic` by PyTorch's older place",
    "nn.qat": "`tangrad.ao.nn.qat` by PyTorch's older place",
    "nn.quantizable": "`tangrad.ao.nn.quantizable` by PyTorch's older place",
    "nn.quantized": "`tangrad.ao.nn.quantized` by PyTorch's older place",
    "nn.modules": "where the classes of `tangrad.nn` are defined",
    "nn.parameter": "where the classes of parameters are defined",
}
# Types of values that need no page each: they are listed together on the page of their module.
PLAIN = (int, float, str, bool, tuple, frozenset, dict, list, type(None))
MISSING = object()  # what is listed and cannot be had here


@dataclass
class Entry:
    """A public object.

    Attributes:
        name: where it is shown first, such as `tangrad.nn.Linear`.
        value: the object.
        kind: "op", "class", "function", "value" or "module".
        others: its other public names.
        op: the name of the op whose form it is, or "".
    """

    name: str
    value: Any
    kind: str
    others: list[str] = field(default_factory=list)
    op: str = ""

    @property
    def names(self) -> list[str]:
        """Return all names."""
        return [self.name, *self.others]

    @property
    def space(self) -> str:
        """Return the public module that shows it first."""
        return self.name.rpartition(".")[0]


def of_tangrad(module: object) -> bool:
    """Tell whether a module, given by name, is one of tangrad's packages."""
    name = str(module)
    return name == "tangrad" or name.startswith(("tangrad.", "tangrad_"))


def find(space: str) -> Any:
    """Return a public module, or the class Tensor.

    Raises:
        LookupError: it is not installed.
    """
    import tangrad

    if space == "tangrad.Tensor":
        return tangrad.Tensor
    try:
        return importlib.import_module(space)
    except ImportError as error:
        raise LookupError(f"{space} is not installed: {error}") from None


def made_when_asked(space: str) -> list[str]:
    """Return the public names of a module that `dir` does not show: it makes them when asked."""
    import tangrad
    from tangrad.plugin import stubs

    if space == "tangrad":
        return [*stubs.dtype_names(tangrad), *stubs.legacy_names()]
    return ["is_available", "is_built"] if space == "tangrad.backends.mps" else []


def public_names(space: str) -> list[str]:
    """Return the public names of a module, sorted."""
    shown = {*_names_shown(space), *made_when_asked(space)}
    return sorted(name for name in shown if _get(find(space), name) is not MISSING)


def _names_shown(space: str) -> list[str]:
    module = find(space)
    stated = getattr(module, "__all__", None)
    if stated is not None and space not in ("tangrad", "tangrad.Tensor"):
        return list(stated)
    return [name for name in dir(module) if not name.startswith("_") and _shown(module, name)]


def _shown(module: Any, name: str) -> bool:
    """Tell whether a name of a module without `__all__` is meant to be seen."""
    value = _get(module, name)
    if isinstance(value, types.ModuleType):
        return of_tangrad(value.__name__)
    if isinstance(module, type):
        return True
    origin = getattr(value, "__module__", None)
    if origin is None or isinstance(value, PLAIN):
        return name != "TYPE_CHECKING"
    return of_tangrad(origin) and type(value).__name__ not in {"TypeVar", "_Feature"}


def _get(module: Any, name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(module, name)
        except (AttributeError, RuntimeError, ImportError, NotImplementedError):
            return MISSING


def collect() -> list[Entry]:
    """Return every public object once, with all its names.

    Raises:
        LookupError: a module is neither public nor inner.
    """
    by_identity: dict[object, Entry] = {}
    entries: list[Entry] = []
    for space, name in _all_names():
        full, value = f"{space}.{name}", _get(find(space), name)
        if isinstance(value, types.ModuleType):
            _check_listed(full)
            continue
        key = _identity(value)
        if key is not None and key in by_identity:
            by_identity[key].others.append(full)
            continue
        entry = Entry(full, value, _kind(value), op=_op_of(value))
        entries.append(entry)
        if key is not None:
            by_identity[key] = entry
    return entries


def _all_names() -> Iterator[tuple[str, str]]:
    for space in SPACES:
        try:
            names = public_names(space)
        except LookupError:
            continue
        yield from ((space, name) for name in names)


def _modules_shown() -> set[str]:
    """Return the modules that `tangrad` and its packages show at the top level."""
    import tangrad
    from tangrad.discovery import namespaces

    return {*tangrad._SUBMODULES, *namespaces.names()}


def _check_listed(full: str) -> None:
    short = full.removeprefix("tangrad.")
    if full in SPACES or short in INNER or any(s.startswith(f"{full}.") for s in SPACES):
        return
    if short not in _modules_shown():  # a file of a package, seen because something loaded it
        return
    raise LookupError(f"module {full} has no page: list it in SPACES or in INNER ({__file__})")


def _identity(value: Any) -> object | None:
    """Return what two names of one object have in common; None for values that have no page."""
    op = _op_of(value)
    if op:
        return ("op", op)
    if isinstance(value, type) or callable(value):
        return ("object", id(getattr(value, "__func__", value)))
    return None


def _op_of(value: Any) -> str:
    """Return the name of the op behind a function or a method of Tensor, or an empty string."""
    from tangrad import _C

    if isinstance(value, type):
        return ""
    found = value if isinstance(value, _C.Op) else getattr(value, "op", None)
    if not isinstance(found, _C.Op):
        return ""
    functional = found.functional or found
    return str(functional.name)


def _kind(value: Any) -> str:
    if _op_of(value):
        return "op"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"

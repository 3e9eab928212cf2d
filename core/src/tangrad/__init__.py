"""tangrad: a deep-learning framework with PyTorch's API in which every part is a separate package.

Importing it loads the compiled core and nothing else; every other name is loaded on first use.
"""

from __future__ import annotations

import sys as _sys
from os import urandom as _urandom

from tangrad import _C
from tangrad._C import OutOfMemoryError as OutOfMemoryError
from tangrad._C import Tensor as Tensor
from tangrad._C import UntypedStorage as UntypedStorage
from tangrad._C import can_cast as can_cast
from tangrad._C import channels_last as channels_last
from tangrad._C import channels_last_3d as channels_last_3d
from tangrad._C import contiguous_format as contiguous_format
from tangrad._C import device as device
from tangrad._C import dtype as dtype
from tangrad._C import get_default_device as get_default_device
from tangrad._C import get_default_dtype as get_default_dtype
from tangrad._C import is_grad_enabled as is_grad_enabled
from tangrad._C import is_inference_mode_enabled as is_inference_mode_enabled
from tangrad._C import layout as layout
from tangrad._C import memory_format as memory_format
from tangrad._C import preserve_format as preserve_format
from tangrad._C import promote_types as promote_types
from tangrad._C import result_type as result_type
from tangrad._C import set_default_device as set_default_device
from tangrad._C import set_default_dtype as set_default_dtype
from tangrad._C import strided as strided
from tangrad.compat.torch_version import TorchVersion as _TorchVersion
from tangrad.discovery import VERSION as _VERSION
from tangrad.discovery import namespaces as _namespaces
from tangrad.discovery import neutral as _neutral
from tangrad.tensor import protocol as _protocol
from tangrad.tensor.size import Size as Size

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without its import
if TYPE_CHECKING:
    from typing import Any

    from tangrad.tensor.construct import tensor as tensor

__version__ = _TorchVersion("2.13.0+tangrad" + _VERSION)

_C.install_constructor(
    _protocol.construct,
    staticmethod(_protocol.new_parameter),
    _protocol.TensorMeta,
    _protocol.ParameterMeta,
)
# Drawn here, not with the first number: as in PyTorch, forked children go on with their parent's.
_C.first_seed = int.from_bytes(_urandom(8), "little")
Tensor.__repr__ = _protocol.offered(_protocol.represent)
Tensor.__module__, _C.Parameter.__module__ = "tangrad", "tangrad.nn.parameter"
legacy_contiguous_format = contiguous_format
inf, nan, pi, e, newaxis = float("inf"), float("nan"), 3.141592653589793, 2.718281828459045, None

# Public names and where they live; everything else is an op, a dtype, a submodule or a plugin.
_LAZY = {
    name: module
    for module, names in {
        "tensor.construct": "tensor as_tensor asarray",
        "tensor.exchange": "from_numpy frombuffer from_dlpack from_file to_dlpack",
        "tensor.finfo": "finfo iinfo",
        "tensor.qscheme": (
            "qscheme per_channel_affine per_channel_affine_float_qparams per_channel_symmetric "
            "per_tensor_affine per_tensor_symmetric"
        ),
        "tensor.printing": "set_printoptions",
        "tensor.symbolic": (
            "SymBool SymFloat SymInt sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt "
            "sym_sum"
        ),
        "settings": (
            "are_deterministic_algorithms_enabled get_deterministic_debug_mode get_device_module "
            "get_float32_matmul_precision get_num_interop_threads "
            "is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled "
            "set_default_tensor_type set_deterministic_debug_mode set_float32_matmul_precision "
            "set_flush_denormal set_num_interop_threads set_warn_always "
            "use_deterministic_algorithms"
        ),
        "amp": "autocast",
        "amp.state": (
            "autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache "
            "get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype "
            "is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled "
            "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled "
            "set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype"
        ),
        "devices.streams": "AcceleratorError Event Stream",
        "compilation": "compile",
        "random.generator": (
            "Generator default_generator manual_seed seed initial_seed get_rng_state "
            "set_rng_state thread_safe_generator"
        ),
        "autograd.grad_mode": "no_grad enable_grad set_grad_enabled inference_mode",
        "compat.functions": (
            "_assert is_tensor is_floating_point is_complex is_storage numel typename is_nonzero "
            "is_conj is_neg is_inference broadcast_shapes detach_ get_device is_distributed "
            "is_same_size is_signed resize_as_"
        ),
        "tensor.storages": "StorageBase TypedStorage",
        "tensor.layouts": (
            "ccol_indices_copy col_indices_copy crow_indices_copy dequantize indices_copy "
            "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
            "q_zero_point resize_as_sparse_ row_indices_copy smm sspaddmm values_copy"
        ),
        "control_flow": "cond while_loop",
        "serialization": "save load SerializationError",
        "devices.threads": "get_num_threads init_num_threads set_num_threads",
        "func": "vmap",
    }.items()
    for name in names.split()
}
_SUBMODULES = (
    "accelerator amp autograd func linalg fft special signal "
    "torch_version types serialization utils multiprocessing plugin discovery "
    "ops random storage expr devices dispatch overrides testing return_types backends cpu "
    "version __config__ __future__ cli _C"
).split()
# Modules whose public place, which PyTorch gives them, is `tangrad.NAME`.
_OWN_PLACES = {
    name: f"compat.{name}"
    for name in ("_utils", "foreach", "functional", "functions", "stand_in", "torch_version")
}


def __getattr__(name: str) -> Any:
    if name == "__all__":  # not kept: names are added
        return _exported()
    found = _find(name)
    if name != "Storage":  # which follows the default dtype
        globals()[name] = found
    return found


def _find(name: str) -> Any:
    if name.startswith("__") and name not in ("__config__", "__future__"):
        raise AttributeError(f"module 'tangrad' has no attribute '{name}'")
    where = _LAZY.get(name)
    if where is not None:
        __import__(f"tangrad.{where}")
        return getattr(_sys.modules[f"tangrad.{where}"], name)
    if name in _SUBMODULES:
        __import__(f"tangrad.{name}")
        return _sys.modules[f"tangrad.{name}"]
    try:
        return _C.dtype_by_name(name)
    except TypeError:
        pass
    if name.endswith(("Tensor", "Storage")):
        from tangrad.tensor.legacy import find

        legacy = find(name)
        if legacy is not None:
            return legacy
    # Before ops, for PyTorch shows some at its top level with other arguments.
    if _namespaces.is_listed(name):
        return _namespaces.resolve(name)
    from tangrad.ops.definition import registry

    try:
        return registry.function(name)
    except AttributeError:
        pass
    if name.startswith("_foreach_"):  # of those that are no ops by themselves
        __import__("tangrad.compat.foreach")
        return _sys.modules["tangrad.compat.foreach"].find(name)
    from tangrad.tensor.foreign import find_registered

    found = find_registered(name)
    return found if found is not None else _namespaces.resolve(name)


def __dir__() -> list[str]:
    from tangrad.ops.definition import registry

    public = {
        name
        for name, op in registry.load_plain().items()
        if op.definition.function and op.definition.namespace is None
    }
    dtypes = "cdouble cfloat chalf double float half int long short".split()
    dtypes += [dtype.name for dtype in _C.registered_dtypes()]
    known = {*public, *globals(), *_LAZY, *_SUBMODULES, *_namespaces.names()}
    return sorted(known.union(dtypes))


def _exported() -> list[str]:
    """Return what `from tangrad import *` takes: the public names but those of modules."""
    from tangrad.discovery import discovery
    from tangrad.tensor.legacy import NAMES

    brought = {name.partition(".")[0] for name in discovery.names(discovery.NAMESPACES)}
    left_out = {*_SUBMODULES, *brought, "TYPE_CHECKING", "annotations"}
    modules = {name for name, value in globals().items() if type(value) is type(_sys)}
    left_out |= modules
    return [n for n in (*__dir__(), *NAMES) if not n.startswith("_") and n not in left_out]


def _find_method(name: str) -> object:
    """Return a method of Tensor that a part above it brings, or None."""
    if name == "backward":
        from tangrad.autograd import tensor_backward

        return tensor_backward
    if name == "module_load":
        from tangrad.utils.swap import module_load

        return module_load
    from tangrad.ops.definition import registry

    if not registry.is_known(name) and _namespaces.is_listed(f"Tensor.{name}"):
        return _namespaces.resolve(f"Tensor.{name}")
    try:
        found = registry.method(name)
    except AttributeError:
        return None
    return _C.method_of(found)


def _method_names() -> list[str]:
    from tangrad.ops.definition import registry

    return ["backward", "module_load", *registry.load_plain()]


def _flag_names() -> set[str]:
    return {*_C.registered_devices(), *_neutral.device_flags()}


def _find_layouts() -> None:
    """Let the plugins register their layouts; the compiled core asks when one is unknown."""
    from tangrad.discovery.hooks import call_hook_once

    call_hook_once("tangrad_register_layouts")


def _is_public(name: str) -> bool:
    from tangrad.ops.definition import registry

    return name in globals() or name in _LAZY or name in _SUBMODULES or registry.is_known(name)


def _find_driver(name: str) -> None:
    """Open the device driver of that name; the compiled core asks on first use."""
    from tangrad.devices.registry import open_device

    open_device(name)


def _slow_dispatch(op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> Any:
    """Load the Python side of dispatch on first use; it installs itself in this one's place."""
    from tangrad.dispatch.intercept import dispatch

    return dispatch(op, functional, args, out)


def _resolve(op: object, slot: int, kind: object) -> object:
    from tangrad.dispatch.resolution import resolve

    return resolve(op, slot, kind)


def _tell_of_tensors(number: int, nbytes: int) -> str:
    """Say which tensors hold the memory of an allocator that has too little."""
    # By name, as it stands on modules and optimizers.
    __import__("tangrad.holders")
    told: str = _sys.modules["tangrad.holders"].tell(number, nbytes)
    return told


def _find_op(name: str) -> object:
    from tangrad.ops.definition.registry import find

    return find(name)


_namespaces.install()
_namespaces.own_places, _namespaces.own_names = _OWN_PLACES, frozenset(_SUBMODULES)
_protocol.find_further, _protocol.further_names = _find_method, _method_names
_protocol.device_names = _flag_names
_C.set_driver_source(_find_driver, lambda name: name in _neutral.device_flags())
_C.set_layout_source(_find_layouts, _is_public)
_C.set_slow_dispatch(_slow_dispatch)
_C.set_resolver(_resolve)
_C.set_op_source(_find_op)
_C.set_teller_of_tensors(_tell_of_tensors)
del tensor  # the submodule; the name is the function
if __import__("os").environ.get("TANGRAD_RNG"):
    __import__("tangrad.random.generator")
    _sys.modules["tangrad.random.generator"].use_engine_of_environment()

"""Methods of Tensor that ask about layouts and dtypes that the core does not have.

A dense tensor answers what is true of it; what would make or needs a sparse, nested or quantized
tensor raises, with PyTorch's type of exception, and says why.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tangrad import _C
from tangrad.tensor.offered import offered


def dense_dim(self: Any) -> int:
    """Return how many dimensions are dense: all of a strided tensor."""
    if (method := of_layout(self, "dense_dim")) is not None:
        return int(method(self))
    dims: int = self.dim()
    return dims


def sparse_dim(self: Any) -> int:
    """Return how many dimensions are sparse: none of a strided tensor."""
    if (method := of_layout(self, "sparse_dim")) is not None:
        return int(method(self))
    return 0


def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> _C.Tensor:
    """Return the strided tensor of the same values, in another dtype if one is given.

    A strided tensor is returned itself.
    """
    if self.layout.definition is not None:
        if (method := of_layout(self, "to_dense")) is not None:
            return method(self, dtype, masked_grad=masked_grad)
        self = self.layout.definition.dense(self)
    return self if dtype is None else self.to(dtype)


@offered
def dequantize(self: Any) -> Any:
    """Return the tensor in float32, what is quantized by its scale; of a list, a tuple of them."""
    if isinstance(self, (list, tuple)):
        return tuple(map(dequantize, self))
    _require_tensor("dequantize", self)
    if (method := of_layout(self, "dequantize")) is not None:
        dequantized: _C.Tensor = method(self)
        return dequantized
    return self.to(_C.dtype_by_name("float32"))


def chalf(self: Any, *, memory_format: Any = None) -> _C.Tensor:
    """Convert to complex32: complex numbers with half-precision parts."""
    from tangrad.tensor.foreign import find_registered

    converted: _C.Tensor = self.to(find_registered("complex32"), memory_format=memory_format)
    return converted


def of_layout(self: Any, name: str) -> Any:
    """Return the method of that name which only tensors of self's layout have, or None."""
    definition = self.layout.definition
    return None if definition is None else definition.methods.get(name)


_conversions: dict[str, Any] = {}


def register_conversion(name: str, function: Any) -> None:
    """Let `Tensor.<name>` make tensors of a layout, where the core can only refuse.

    Args:
        name: one of the methods that wait for a package, such as "to_sparse".
        function: takes the tensor and the method's arguments.

    Raises:
        ValueError: the name is none that waits, or is taken by another function.
    """
    waiting = [known for known in TABLE if known not in ("dense_dim", "sparse_dim", "to_dense")]
    if name not in waiting:
        raise ValueError(
            f"register_conversion: '{name}' is no method that waits for a package; those are "
            f"{', '.join(sorted(waiting))}"
        )
    known = _conversions.setdefault(name, function)
    if known is not function:
        raise ValueError(
            f"register_conversion: '{name}' is taken by {known.__module__}.{known.__qualname__}"
        )


def _brought(self: Any, name: str) -> Any:
    """Return what a layout or a package does under the name, asking the plugins; None if nobody."""
    found = of_layout(self, name)
    if found is None and name not in _conversions:
        from tangrad.discovery.hooks import call_hook_once

        call_hook_once("tangrad_register_layouts")
    return found or _conversions.get(name)


def _require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, _C.Tensor):
        raise TypeError(
            f"{name}(): argument 'input' (position 1) must be Tensor, not {type(value).__name__}"
        )


# How many arguments may follow the tensor, at least and at most; none where nothing is said.
_COUNTS = {
    "smm": (1, 1),
    "sspaddmm": (2, 2),
    "sparse_mask": (1, 1),
    "sparse_resize_": (3, 3),
    "sparse_resize_and_clear_": (3, 3),
    "resize_as_sparse_": (1, 1),
    "to_mkldnn": (0, 1),
    "to_padded_tensor": (1, 2),
    "to_sparse": (0, 1),
    "to_sparse_bsc": (1, 2),
    "to_sparse_bsr": (1, 2),
    "to_sparse_csc": (0, 1),
    "to_sparse_csr": (0, 1),
}


def _require_count(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    least, most = _COUNTS.get(name, (0, 0))
    if len(args) > most:
        raise TypeError(
            f"{name}() takes {1 + most} positional argument(s) but {1 + len(args)} were given"
        )
    if len(args) + len(kwargs) < least:
        raise TypeError(f"{name}() is missing {least - len(args) - len(kwargs)} argument(s)")


def _title(layout: Any) -> str:
    """Return a layout's name as messages write it: `SparseCsr`."""
    return "".join(part.capitalize() for part in str(layout).rpartition(".")[2].split("_"))


def _wrong_layout(name: str, expected: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        _require_tensor(name, self)
        if (found := _brought(self, name)) is not None:
            return found(self, *args, **kwargs)
        _require_count(name, args, kwargs)
        raise RuntimeError(
            f"{name} expected {expected} tensor layout but got {_title(self.layout)} "
            f"({self.dtype}{list(self.shape)} on {self.device})"
        )

    return _named(refuse, name, f"Refuse a dense tensor: {name} is of {expected} ones.")


def _no_package(name: str, what: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        _require_tensor(name, self)
        if (found := _brought(self, name)) is not None:
            return found(self, *args, **kwargs)
        _require_count(name, args, kwargs)
        from tangrad.discovery.neutral import what_brings

        on = f"{name}, called on {self.dtype}{list(self.shape)} on {self.device},"
        raise NotImplementedError(
            what_brings(f"tensors.{what}", on)
            or f"{on} makes or takes {what} tensors: no installed package does it for this one"
        )

    return _named(refuse, name, f"Refuse: {what} tensors come with a package of their own.")


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


_COO, _CSR, _CSC = "sparse coordinate", "sparse row compressed", "sparse column compressed"

TABLE: dict[str, Any] = {
    "dense_dim": dense_dim,
    "sparse_dim": sparse_dim,
    "to_dense": to_dense,
    "dequantize": dequantize,
    "chalf": chalf,
    **{
        name: _wrong_layout(name, expected)
        for name, expected in {
            "coalesce": _COO,
            "is_coalesced": _COO,
            "indices": _COO,
            "values": "sparse",
            "crow_indices": _CSR,
            "col_indices": _CSR,
            "ccol_indices": _CSC,
            "row_indices": _CSC,
            "smm": _COO,
            "sspaddmm": _COO,
        }.items()
    },
    **{
        name: _no_package(name, "sparse")
        for name in (
            "to_sparse",
            "to_sparse_coo",
            "to_sparse_csr",
            "to_sparse_csc",
            "to_sparse_bsr",
            "to_sparse_bsc",
            "sparse_mask",
            "sparse_resize_",
            "sparse_resize_and_clear_",
            "resize_as_sparse_",
        )
    },
    "to_padded_tensor": _no_package("to_padded_tensor", "nested"),
    "to_mkldnn": _no_package("to_mkldnn", "mkldnn"),
    **{
        name: _no_package(name, "quantized")
        for name in (
            "int_repr",
            "qscheme",
            "q_scale",
            "q_zero_point",
            "q_per_channel_scales",
            "q_per_channel_zero_points",
            "q_per_channel_axis",
        )
    },
}

# Functions of the top level that have no method of their name.
FUNCTIONS: dict[str, Any] = {
    f"{name}_copy": _wrong_layout(f"{name}_copy", expected)
    for name, expected in {
        "indices": _COO,
        "values": "sparse",
        "crow_indices": _CSR,
        "col_indices": _CSR,
        "ccol_indices": _CSC,
        "row_indices": _CSC,
    }.items()
}
NAMES = (
    *FUNCTIONS,
    *("dequantize", "int_repr", "q_scale", "q_zero_point", "q_per_channel_scales"),
    *("q_per_channel_zero_points", "q_per_channel_axis", "resize_as_sparse_", "smm", "sspaddmm"),
)


@cache
def _shown(name: str) -> Any:
    return offered(FUNCTIONS[name]) if name in FUNCTIONS else getattr(_C.Tensor, name)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return _shown(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

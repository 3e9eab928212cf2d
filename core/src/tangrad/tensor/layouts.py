"""Methods of Tensor that ask about layouts and dtypes that the core does not have.

A dense tensor answers what is true of it; what would make or needs a sparse, nested or quantized
tensor raises, with PyTorch's type of exception, and says why.
"""

from __future__ import annotations

from typing import Any

from tangrad import _C


def dense_dim(self: Any) -> int:
    """Return how many dimensions are dense: all."""
    dims: int = self.dim()
    return dims


def sparse_dim(self: Any) -> int:
    """Return how many dimensions are sparse: none."""
    return 0


def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> _C.Tensor:
    """Return the tensor itself, in another dtype if one is given: it is dense."""
    return self if dtype is None else self.to(dtype)


def dequantize(self: Any) -> _C.Tensor:
    """Return the tensor in float32: it is not quantized."""
    _require_tensor("dequantize", self)
    return self.to(_C.dtype_by_name("float32"))


def chalf(self: Any, *, memory_format: Any = None) -> _C.Tensor:
    """Refuse: there is no dtype of complex numbers with half-precision parts.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "chalf: the dtype complex32 does not exist here; use .to(tangrad.complex64)"
    )


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


def _wrong_layout(name: str, expected: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        _require_tensor(name, self)
        _require_count(name, args, kwargs)
        raise RuntimeError(
            f"{name} expected {expected} tensor layout but got {self.layout} "
            f"({self.dtype}{list(self.shape)} on {self.device})"
        )

    return _named(refuse, name, f"Refuse a dense tensor: {name} is of {expected} ones.")


def _no_package(name: str, what: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        _require_tensor(name, self)
        _require_count(name, args, kwargs)
        raise NotImplementedError(
            f"{name}: {what} tensors are made by a package that brings them, and none is "
            f"installed (called on {self.dtype}{list(self.shape)} on {self.device})"
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


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return FUNCTIONS.get(name) or TABLE[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

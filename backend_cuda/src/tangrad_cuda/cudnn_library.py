"""cuDNN as a library: its functions of convolutions, and the ops and dtypes that they are for."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

from tangrad_cuda import libraries
from tangrad_cuda.planned import Calls

_INT, _SIZE, _POINTER = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_POINTERS = (_POINTER,) * 12
_WITHOUT = "tangrad.backends.cudnn.enabled = False"


class Kind(NamedTuple):
    """Which of a convolution's tensors are read and written, and how many algorithms there are."""

    read: tuple[str, str]
    written: str
    algorithms: int


KINDS = {
    "Forward": Kind(("x", "w"), "y", 8),
    "BackwardData": Kind(("w", "y"), "x", 6),
    "BackwardFilter": Kind(("x", "y"), "w", 7),
}
# {op: (kind, places of x, w, y and the bias, if any, among its results, then its arguments)}
OPS: dict[str, tuple[str, tuple[int, ...]]] = {
    "convolution": ("Forward", (1, 2, 0)),
    "convolution_biased": ("Forward", (1, 2, 0, 3)),
    "convolution_input": ("BackwardData", (0, 1, 2)),
    "convolution_weight": ("BackwardFilter", (1, 0, 2)),
    "convolution_weight_bias": ("BackwardFilter", (2, 0, 3, 1)),
}
_RUN = (*_POINTERS[:7], _INT, _POINTER, _SIZE, *_POINTERS[:3])
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnGetVersion": (),
    "cudnnGetErrorString": (_INT,),
    "cudnnCreate": (_POINTER,),
    "cudnnSetStream": _POINTERS[:2],
    "cudnnCreateTensorDescriptor": (_POINTER,),
    "cudnnSetTensorNdDescriptor": (_POINTER, _INT, _INT, _POINTER, _POINTER),
    "cudnnCreateFilterDescriptor": (_POINTER,),
    "cudnnSetFilterNdDescriptor": (_POINTER, _INT, _INT, _INT, _POINTER),
    "cudnnCreateConvolutionDescriptor": (_POINTER,),
    "cudnnSetConvolutionNdDescriptor": (_POINTER, _INT, *_POINTERS[:3], _INT, _INT),
    "cudnnSetConvolutionGroupCount": (_POINTER, _INT),
    "cudnnSetConvolutionMathType": (_POINTER, _INT),
    "cudnnDestroyTensorDescriptor": (_POINTER,),
    "cudnnDestroyFilterDescriptor": (_POINTER,),
    "cudnnDestroyConvolutionDescriptor": (_POINTER,),
    "cudnnAddTensor": _POINTERS[:7],
    "cudnnConvolutionBackwardBias": _POINTERS[:7],
    **{f"cudnnConvolution{kind}": _RUN for kind in KINDS},
    **{
        f"cudnnGetConvolution{kind}Algorithm_v7": (*_POINTERS[:5], _INT, *_POINTERS[:2])
        for kind in KINDS
    },
    **{
        f"cudnnFindConvolution{kind}AlgorithmEx": (
            *_POINTERS[:8],
            _INT,
            *_POINTERS[:3],
            _SIZE,
        )
        for kind in KINDS
    },
}
_OLDEST = 8000


class Type(NamedTuple):
    """How a dtype is stored and computed, by the library's numbers, and how it is scaled."""

    stored: int
    computed: int
    number: Any


TYPES = {
    "float32": Type(0, 0, ctypes.c_float),
    "float64": Type(1, 1, ctypes.c_double),
    "float16": Type(2, 0, ctypes.c_float),
    "bfloat16": Type(9, 0, ctypes.c_float),
}


@cache
def library() -> ctypes.CDLL:
    """Open cuDNN.

    Raises:
        RuntimeError: it is not installed, too old, or cannot be loaded.
    """
    found = libraries.opened("libcudnn.so", _FUNCTIONS, "cuDNN", "nvidia-cudnn-cu13", _WITHOUT)
    found.cudnnGetVersion.restype, found.cudnnGetErrorString.restype = _SIZE, ctypes.c_char_p
    if found.cudnnGetVersion() < _OLDEST:
        raise RuntimeError(
            f"cuDNN {found.cudnnGetVersion()} is too old, 8 is the first that is called; run: "
            f"pip install nvidia-cudnn-cu13, or go on without: {_WITHOUT}"
        )
    return found


call = Calls(library, lambda status: library().cudnnGetErrorString(status).decode(), _WITHOUT)

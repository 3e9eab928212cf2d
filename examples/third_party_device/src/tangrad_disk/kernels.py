"""Kernels of the device "disk": NumPy on files that the system maps into memory."""

import mmap

import numpy as np

from tangrad.plugin import Tensor, location


def add(outs, inputs, params):
    """Compute self + other; NumPy broadcasts."""
    left, right = (mapped(x, outs[0].dtype) for x in inputs)
    with np.errstate(all="ignore"):
        mapped(outs[0])[...] = left + right


def mm(outs, args):
    """Multiply two matrices."""
    left, right = args
    with np.errstate(all="ignore"):
        np.matmul(mapped(left), mapped(right), out=mapped(outs[0]))


def mapped(value, dtype=None):
    """Return a tensor as an array on its file, converted first if its dtype is another."""
    if not isinstance(value, Tensor):
        return value
    tensor = value if dtype is None else value.to(dtype)
    if tensor.numel() == 0:
        return np.empty(tensor.shape, tensor.dtype.name)
    handle, offset = location(tensor)
    strides = [stride * tensor.itemsize for stride in tensor.stride()]
    return np.ndarray(tensor.shape, tensor.dtype.name, mmap.mmap(handle, 0), offset, strides)

"""Kernels of the device "disk": NumPy on files that the system maps into memory."""

import mmap

import numpy as np

from tangrad.plugin import Tensor, location


def add(outs, inputs, params):
    """Compute self + other; NumPy broadcasts."""
    left, right = map(mapped, inputs)
    with np.errstate(all="ignore"):
        mapped(outs[0])[...] = left + right


def copy(outs, args):
    """Write a tensor into one of other strides or another dtype; NumPy broadcasts and casts."""
    with np.errstate(all="ignore"):
        mapped(outs[0])[...] = mapped(args[1])


def mm(outs, args):
    """Multiply two matrices."""
    left, right = args
    with np.errstate(all="ignore"):
        np.matmul(mapped(left), mapped(right), out=mapped(outs[0]))


def mapped(value):
    """Return a tensor as an array on its file; a number as it is."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() == 0:
        return np.empty(value.shape, value.dtype.name)
    handle, offset = location(value)
    strides = [stride * value.itemsize for stride in value.stride()]
    return np.ndarray(value.shape, value.dtype.name, mmap.mmap(handle, 0), offset, strides)

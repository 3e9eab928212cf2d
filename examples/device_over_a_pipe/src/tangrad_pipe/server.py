"""The other side of the pipe: a table of byte arrays, and NumPy on them. Imports no tangrad."""

import itertools
import pickle
import sys

import numpy as np

blocks = {}
handles = itertools.count(1)


def allocate(nbytes):
    """Return the handle of new memory."""
    handle = next(handles)
    blocks[handle] = np.empty(nbytes, np.uint8)
    return handle


def release(handle, nbytes):
    """Give memory back."""
    if blocks[handle].size != nbytes:
        raise ValueError(f"pipe: block {handle} has {blocks[handle].size} bytes, not {nbytes}")
    del blocks[handle]


def part(handle, offset, nbytes):
    """Return some bytes of a block."""
    if not 0 <= offset <= blocks[handle].size - nbytes:
        raise ValueError(f"pipe: bytes {offset} to {offset + nbytes} lie outside block {handle}")
    return blocks[handle][offset : offset + nbytes]


def write(handle, offset, source):
    """Take bytes."""
    part(handle, offset, len(source))[:] = np.frombuffer(source, np.uint8)


def read(handle, offset, nbytes):
    """Give bytes."""
    return part(handle, offset, nbytes).tobytes()


def copy(handle, offset, source, source_offset, nbytes):
    """Copy bytes, which may overlap: NumPy sees to it."""
    part(handle, offset, nbytes)[:] = part(source, source_offset, nbytes)


def compute(function, out, *operands):
    """Write the result of a function of NumPy."""
    with np.errstate(all="ignore"):
        array(out)[...] = getattr(np, function)(*map(array, operands))


def assign(out, source):
    """Write an array into another, which may have other strides and another dtype."""
    with np.errstate(all="ignore"):
        array(out)[...] = array(source)


def array(value):
    """Return a tensor as an array on its block; a number as it is."""
    if not isinstance(value, tuple):
        return value
    handle, offset, shape, strides, dtype = value
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, blocks[handle], offset, strides)


def main():
    """Answer until nobody asks."""
    known = {f.__name__: f for f in (allocate, release, write, read, copy, compute, assign)}
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (None, known[name](*arguments))
        except Exception as error:
            answer = (error, None)
        pickle.dump(answer, sys.stdout.buffer, protocol=5)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""Kernels of the device "pipe": they send where tensors lie, and no elements."""

from tangrad.plugin import Tensor, location


def kernel(driver, function):
    """Return a kernel that calls a function of NumPy on the other side."""

    def run(outs, operands, params=None):
        driver.call("compute", function, place(outs[0]), *map(place, operands))

    return run


def copy(driver):
    """Return a kernel that copies between strides and dtypes on the other side."""

    def run(outs, args):
        driver.call("assign", place(outs[0]), place(args[1]))

    return run


def place(value):
    """Return where a tensor lies, and how; a number as it is."""
    if not isinstance(value, Tensor):
        return value
    strides = [stride * value.itemsize for stride in value.stride()]
    return (*location(value), tuple(value.shape), strides, value.dtype.name)

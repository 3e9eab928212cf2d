"""Tensors without data that remember a device: `torch._subclasses`."""

from tangrad._subclasses.fake_tensor import FakeTensor as FakeTensor
from tangrad._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from tangrad._subclasses.fake_tensor import (
    UnsupportedFakeTensorException as UnsupportedFakeTensorException,
)

"""Tensors without data that remember a device: `torch._subclasses`."""

from tangrad_fx.fake_tensors.fake_tensor import FakeTensor as FakeTensor
from tangrad_fx.fake_tensors.fake_tensor import FakeTensorMode as FakeTensorMode
from tangrad_fx.fake_tensors.fake_tensor import (
    UnsupportedFakeTensorException as UnsupportedFakeTensorException,
)

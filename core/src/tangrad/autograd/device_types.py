"""PyTorch's numbers of the types of devices, which profiles name: `autograd.DeviceType`."""

from __future__ import annotations

import enum

__all__ = ["DeviceType"]

DeviceType = enum.Enum(
    "DeviceType",
    "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS MTIA Meta HPU VE "
    "Lazy IPU PrivateUse1",
    start=0,
    module="tangrad.autograd",
)

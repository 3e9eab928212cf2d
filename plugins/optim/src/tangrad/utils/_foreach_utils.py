"""Tensors sorted for calls on lists, by PyTorch's path: `torch.utils._foreach_utils`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import Tensor

__all__ = [
    "_device_has_foreach_support",
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_group_tensors_by_device_and_dtype",
    "_has_foreach_support",
]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Return the device types on which calls on lists are faster than calls one by one."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Return the device types whose optimizers have fused forms."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]:
    """Return lists of tensors, divided by device and dtype.

    Args:
        tensorlistlist: lists of one length; the tensors at one place belong together. Those of
            the first list say to which group they go, and none of them is None.
        with_indices: tell the places in the lists that were given, too.

    Returns:
        {(device, dtype): (lists, places)}; the places are [] without `with_indices`.

    Raises:
        RuntimeError: the first list is empty or holds None, or another has another length.
    """
    found: dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]] = {}
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: the first list holds no tensors")
    lengths = {len(tensors) for tensors in tensorlistlist if tensors}
    if len(lengths) != 1:
        raise RuntimeError(
            "_group_tensors_by_device_and_dtype: all lists must have one length, or none, but "
            f"they have {[len(tensors) for tensors in tensorlistlist]}"
        )
    for place, first in enumerate(tensorlistlist[0]):
        if first is None:
            raise RuntimeError(
                "_group_tensors_by_device_and_dtype: the first list must hold no None, but does "
                f"at {place}"
            )
        lists, places = found.setdefault(
            (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
        )
        for tensors, group in zip(tensorlistlist, lists, strict=True):
            if tensors:
                group.append(tensors[place])
        if with_indices:
            places.append(place)
    return found


def _device_has_foreach_support(device: Any) -> bool:
    """Return whether PyTorch would take lists on a device for faster."""
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Any) -> bool:
    """Return whether tensors may be given to one call on a list."""
    return _device_has_foreach_support(device) and all(
        t is None or type(t) is Tensor for t in tensors
    )

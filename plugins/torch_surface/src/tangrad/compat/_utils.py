"""What other libraries take from PyTorch's private module `torch._utils`."""

from __future__ import annotations

import itertools
import operator
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tangrad
from tangrad.nn.parameter import Parameter

__name__ = "tangrad._utils"  # where PyTorch has it, which pickles say


def _get_device_module(device_type: str) -> Any:
    """Return the module of a type of device, such as `tangrad.cuda`.

    Raises:
        RuntimeError: there is none.
    """
    module = getattr(tangrad, device_type, None)
    if module is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as "
            f"'torch.{device_type}'."
        )
    return module


def _flatten_dense_tensors(tensors: Sequence[Any]) -> Any:
    """Return the elements of tensors of one dtype one after the other, in one dimension."""
    if not tensors:
        raise ValueError("_flatten_dense_tensors: expected at least one tensor")
    return tangrad.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return views of a flat tensor in the shapes of others, in order.

    Raises:
        RuntimeError: it has fewer elements than they.
    """
    needed = sum(t.numel() for t in tensors)
    if flat.numel() < needed:
        raise RuntimeError(
            f"_unflatten_dense_tensors: {needed} elements are needed, the flat tensor has "
            f"{flat.numel()}"
        )
    found, at = [], 0
    for t in tensors:
        found.append(flat.narrow(0, at, t.numel()).view(t.shape))
        at += t.numel()
    return tuple(found)


def _take_tensors(tensors: Iterable[Any], size_limit: int) -> Iterator[list[Any]]:
    """Yield groups of tensors of one type, each of at most so many bytes or of one tensor."""
    groups: dict[str, tuple[list[Any], int]] = defaultdict(lambda: ([], 0))
    for t in tensors:
        held, size = groups[t.type()]
        if held and size + t.nbytes > size_limit:
            yield held
            held, size = [], 0
        held.append(t)
        groups[t.type()] = (held, size + t.nbytes)
    yield from (held for held, _ in groups.values() if held)


def _reorder_tensors_as(tensors: Iterable[Any], ordered_tensors: Iterable[Any]) -> tuple[Any, ...]:
    """Return tensors in an order in which their types follow each other as those of others."""
    by_type = defaultdict(list)
    for t in tensors:
        by_type[t.type()].append(t)
    queues = {kind: iter(held) for kind, held in by_type.items()}
    return tuple(next(queues[t.type()]) for t in ordered_tensors)


def _accumulate(iterable: Iterable[Any], fn: Callable[[Any, Any], Any] = operator.add) -> Any:
    """Iterate over running totals."""
    return itertools.accumulate(iterable, fn)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the number of a device.

    Args:
        device: a device, its name, its number, or None.
        optional: whether None, and a device without a number, stand for number 0.
        allow_cpu: whether the host may be given, whose number is -1.

    Raises:
        ValueError: it has none.
    """
    if isinstance(device, int):
        return device
    found = tangrad.device(device) if isinstance(device, str) else device
    if isinstance(found, tangrad.device):
        if found.type == "cpu" and allow_cpu:
            return -1
        if found.type != "cpu" and found.index is not None:
            return int(found.index)
        if found.type == "cpu":
            raise ValueError(f"Expected a non cpu device, but got: {device}")
    if optional:
        return 0
    raise ValueError(f"Expected a device with a specified index or an integer, but got: {device}")


def _element_size(dtype: Any) -> int:
    """Return how many bytes an element of a dtype takes."""
    return int(dtype.itemsize)


def _get_available_device_type() -> str | None:
    accelerator = tangrad.accelerator.current_accelerator()
    return None if accelerator is None else str(accelerator.type)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """Return a tensor on a typed storage."""
    empty = tangrad.empty(0, dtype=storage.dtype, device=storage.device)
    return empty.set_(storage._untyped_storage, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """Return a tensor on a typed storage, with what pickles say of it."""
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    return made.requires_grad_(requires_grad)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """Return a parameter."""
    return Parameter(data, requires_grad)


class KeyErrorMessage(str):
    """A text that shows itself as it is, for a KeyError would quote it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self


class ExceptionWrapper:
    """Carry an exception to another thread or process.

    Args:
        exc_info: what `sys.exc_info()` gives; by default of the exception being handled.
        where: told in the message, such as "in worker 0".
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.where = where
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))

    def reraise(self) -> None:
        """Raise an exception of the same class, whose message has the traceback."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        try:
            error = self.exc_type(text)
        except Exception:
            # Its class wants other arguments than a text.
            raise RuntimeError(text) from None
        raise error

"""Exchange two tensors in place, and say what a module's tensor is exchanged for."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tangrad import _C
from tangrad.dispatch.overrides import handle_torch_function, has_torch_function_variadic


class _Counted(threading.local):
    """What a look at all objects found, for as long as a module converts or loads."""

    uses: dict[int, Any] | None = None


_counted = _Counted()


@contextmanager
def counting_once() -> Iterator[None]:
    """Let swaps look for views and saved values once: each look goes through all that lives."""
    before = _counted.uses
    if before is None:
        _counted.uses = {}
    try:
        yield
    finally:
        _counted.uses = before


def _poisoned(grad_outputs: Any) -> None:
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: its leaf was "
        "swapped after the graph was recorded. Convert a module (cpu(), half(), load_state_dict, "
        "...) before running forward, or after both forward and backward."
    )


def _accumulator(t: Any, name: str) -> Any:
    """Return the node that adds up gradients of a leaf, or None; refuse any other use of `t`."""
    uses = _C.use_count(t, _counted.uses)
    node = _C.accumulator_node(t) if t.is_leaf else None
    if uses > (1 if node is None else 2):
        raise RuntimeError(
            f"Expected use_count of {name} to be 1 or 2 with an AccumulateGrad node but got {uses} "
            "make sure you are not holding references to the tensor in other places: views of it, "
            "or a graph that saved it."
        )
    return node


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange what two tensor objects are: values, history, gradient, attributes and class.

    Whoever holds `t1` holds what `t2` was from then on, and the other way round. A graph that was
    recorded with one of them as a leaf can no longer reach it: its backward raises.

    Args:
        t1: a tensor, of any shape, dtype, device and class.
        t2: another.

    Raises:
        RuntimeError: one of them has weak references, views, or values that a graph saved, or
            their classes have different slots.
    """
    import copyreg

    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = copyreg._slotnames  # type: ignore[attr-defined]
    if set(slots(type(t1))) != set(slots(type(t2))):
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    nodes = [_accumulator(t1, "t1"), _accumulator(t2, "t2")]
    _C.swap_contents(t1, t2)
    for node in nodes:
        if node is not None:
            node.register_prehook(_poisoned)


def module_load(self: Any, other: Any, assign: bool = False) -> Any:
    """Return what `self`, of a module, becomes when `other`, of a state dict, is loaded into it.

    A subclass says so by overriding it, or by `__torch_function__`. `load_state_dict` asks where
    `tangrad.__future__.set_swap_module_params_on_conversion(True)` was called.

    Args:
        other: the tensor of the state dict.
        assign: what `load_state_dict` was told.

    Returns:
        A new tensor object: `self`, into which `other` was copied, or `other` where `assign`.
    """
    if has_torch_function_variadic(self, other):
        return handle_torch_function(
            _C.Tensor.module_load, (self, other), self, other, assign=assign
        )
    return (other if assign else self.copy_(other)).detach()

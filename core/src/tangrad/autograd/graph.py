"""The graph as an object: nodes, edges, and what stands between saving and unpacking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tangrad import _C
from tangrad.autograd.hooks import RemovableHandle
from tangrad.autograd.saved_mutation import allow_mutation_on_saved_tensors

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class Node(ABC):
    """A step of the graph, of whichever class: a virtual base class of all nodes' classes."""

    @abstractmethod
    def name(self) -> str:
        """Return the name, such as "MulBackward0"."""

    @property
    @abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that the gradients go on to, each with the number of its result."""

    @abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for notes."""

    @property
    @abstractmethod
    def _input_metadata(self) -> list[Any]:
        """What is known of the results, whose gradients come in."""

    @abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after the node; it may return new grad_inputs."""

    @abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before the node runs; it may return new grad_outputs."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        return True if cls is Node and issubclass(subclass, _C.Node) else NotImplemented


class SavedTensor:
    """What a node has saved of a tensor, as its attributes `_raw_saved_...` would show it."""

    def __init__(self) -> None:
        raise RuntimeError(
            "Trying to create a SavedTensor object from Python is forbidden: nodes make them"
        )


class GradientEdge(NamedTuple):
    """Where a tensor's gradient arrives.

    Attributes:
        node: the node. output_nr: which of its results the tensor is. ownership_token: what else
            must stay alive; here the node holds all of it.
    """

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Return the edge along which a tensor's gradient arrives.

    Raises:
        RuntimeError: the tensor does not require gradients.
    """
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    if tensor.grad_fn is not None:
        return GradientEdge(tensor.grad_fn, tensor.output_nr)
    return GradientEdge(tensor.view_as(tensor).grad_fn.next_functions[0][0], 0)


def increment_version(tensor: Any) -> None:
    """Say that a tensor (or each of several) was written by code that tangrad does not see."""
    for t in (tensor,) if isinstance(tensor, _C.Tensor) else tensor:
        _C.increment_version(t)


class saved_tensors_hooks:
    """Context manager: `pack_hook(tensor)` makes what nodes save, `unpack_hook` the tensor again.

    Args:
        pack_hook: tensor -> anything. unpack_hook: that -> an equal tensor.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        _C.push_saved_tensor_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: Any) -> None:
        _C.pop_saved_tensor_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: what nodes save waits for backward in host memory.

    Args:
        pin_memory: has no effect on devices without pinned memory.
        device_type: accepted for compatibility.
    """

    def __init__(self, pin_memory: bool = False, device_type: str | None = None) -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks:
    """Context manager: installing saved-tensor hooks raises RuntimeError with a message."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        self.previous = _C.disable_saved_tensor_hooks(self.error_message)

    def __exit__(self, *exc: Any) -> None:
        _C.disable_saved_tensor_hooks(self.previous)


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call a hook when the gradients of several tensors are there.

    Args:
        tensors: tensors that require gradients.
        fn: with mode "all" called once per backward with one gradient (or None) per tensor; with
            mode "any" called with the first gradient that arrives.

    Raises:
        ValueError: another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state: dict[str, Any] = {"walk": None}

    def hook_of(k: int) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            walk, expected = _C.gradients_to_come(tensors)
            if state["walk"] != walk:
                state.update(walk=walk, grads=[None] * len(tensors), left=expected)
                if mode == "any":
                    fn(g)
            state["grads"][k] = g
            state["left"] -= 1
            if state["left"] == 0 and mode == "all":
                fn(state.pop("grads"))

        return hook

    handles = [t.register_hook(hook_of(k)) for k, t in enumerate(tensors)]
    return _Several(handles)


class _Several(RemovableHandle):
    """Handle of several hooks at once."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        super().__init__({})
        self.handles = list(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

"""Functions with a derivative written by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.autograd.function_call import FunctionCtx, FunctionRules, has_setup_context
from tangrad.autograd.function_call import _FunctionNode as BackwardCFunction
from tangrad.autograd.function_levels import apply
from tangrad.autograd.graph import Node
from tangrad.dispatch.levels import map_tensors

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


class Function(FunctionRules):
    """A differentiable function with a derivative of one's own.

    Override `forward` and `backward` (or `vjp`), and for transforms `setup_context`, `vmap` (or
    set `generate_vmap_rule`) and `jvp`; all are static methods. Call it by `apply`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself, as .apply().",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise RuntimeError: functions are called by `apply`."""
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Make forward "
            "and backward static methods, and call the function by .apply()"
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function, recording it.

        Raises:
            RuntimeError: an output that was marked dirty is no input, or cannot be written.
        """
        # Beside setup_context, which is told of all inputs, forward may have defaults.
        forward = cls.forward
        if kwargs or (
            (getattr(forward, "__defaults__", None) or getattr(forward, "__kwdefaults__", None))
            and has_setup_context(cls)
        ):
            args = _bound(cls, args, kwargs)
        return apply(cls, args)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments by place, each of which backward gives a gradient."""
    import inspect

    alone = has_setup_context(cls)
    bound = inspect.signature(cls.forward).bind(*(args if alone else (None, *args)), **kwargs)
    if alone:
        bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{cls.__name__}.apply(): {', '.join(bound.kwargs)} cannot be given by name: forward "
            "takes it by keyword only, or an argument before it is missing"
        )
    return bound.args if alone else bound.args[1:]


class InplaceFunction(Function):
    """A Function with the flag `inplace`, as older code expects it."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class NestedIOFunction(Function):
    """A Function that older code derives from to take nested arguments."""


# --- once_differentiable
# ---------------------------------------------------------------------------


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward whose result must not be differentiated again."""
    from functools import wraps

    @wraps(fn)
    def backward(ctx: Any, *args: Any) -> Any:
        mode = _C._set_grad_enabled(False)
        try:
            outputs = fn(ctx, *args)
        finally:
            _C._set_grad_enabled(mode)
        recorded = mode and any(isinstance(a, _C.Tensor) and a.requires_grad for a in args)
        if not recorded:
            return outputs
        return _undifferentiable(outputs)

    return backward


def _undifferentiable(outputs: Any) -> Any:
    """Return the results of a backward with one node before them, which raises when it runs."""
    raises = DelayedError(
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )
    if not isinstance(outputs, (tuple, list)):
        return map_tensors(lambda t: raises(_leaf_of(t)), outputs)
    found = raises(*map(_leaf_of, outputs))
    return found if len(outputs) > 1 else (found,)


class DelayedError:
    """Call it on tensors for copies of them through which backward cannot go.

    Args:
        message: of the RuntimeError that backward raises.
        num_inputs: accepted for compatibility.
    """

    def __init__(self, message: Any, num_inputs: int | None = None) -> None:
        self.message = message.decode() if isinstance(message, bytes) else message

    def __call__(self, *inputs: Any) -> Any:
        outputs = _Undifferentiable.apply(*inputs)
        for output in outputs:
            if isinstance(output, _C.Tensor) and output.grad_fn is not None:
                output.grad_fn.message = self.message
        return outputs if len(outputs) != 1 else outputs[0]


Node.register(DelayedError)


def _leaf_of(output: Any) -> Any:
    """Return a tensor as a leaf, if it can be one."""
    if not isinstance(output, _C.Tensor):
        return output
    leaf = output.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


class _Undifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        return tuple(v.clone() if isinstance(v, _C.Tensor) else v for v in values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.message)


_Undifferentiable._backward_cls.__name__ = "Error"

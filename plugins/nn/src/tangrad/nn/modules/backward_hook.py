"""Full backward hooks: two identities in the graph, around a module, that see the gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tangrad


class _Boundary(tangrad.autograd.Function):
    """The identity on tensors; in backward, a callback sees and may replace their gradients."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[..., Any], materialize: bool, *tensors: Any) -> Any:
        ctx.callback = callback
        ctx.set_materialize_grads(materialize)
        outputs = tuple(tensor.view_as(tensor) for tensor in tensors)
        ctx.mark_non_differentiable(
            *(out for out, tensor in zip(outputs, tensors, strict=True) if not tensor.requires_grad)
        )
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        replaced = zip(ctx.callback(gradients), ctx.needs_input_grad[2:], strict=True)
        return (None, None, *(gradient if wanted else None for gradient, wanted in replaced))


class BackwardHook:
    """Run full backward hooks of one call: between a boundary at its input and one at its output.

    Args:
        module: the module called.
        user_hooks: its full backward hooks.
        user_pre_hooks: its full backward pre-hooks.
    """

    def __init__(self, module: Any, user_hooks: list[Any], user_pre_hooks: list[Any]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_positions: list[int] | None = None
        self.output_positions: list[int] | None = None
        self.n_inputs = -1
        self.n_outputs = -1

    def setup_input_hook(self, args: Any) -> Any:
        """Return the arguments with their tensors passed through the input boundary."""
        self.n_inputs = len(args)
        args, self.input_positions = self._pass(args, self._at_input, materialize=True)
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """Return the output with its tensors passed through the output boundary."""
        single = not isinstance(result, tuple)
        outputs = (result,) if single else result
        self.n_outputs = len(outputs)
        outputs, self.output_positions = self._pass(outputs, self._at_output, materialize=False)
        return outputs[0] if single else outputs

    def _pass(self, values: Any, callback: Any, materialize: bool) -> tuple[Any, list[int] | None]:
        positions = [i for i, value in enumerate(values) if isinstance(value, tangrad.Tensor)]
        tensors = [values[i] for i in positions]
        if not (tangrad.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
            return values, None
        replaced = list(values)
        passed = _Boundary.apply(callback, materialize, *tensors)
        for position, tensor in zip(positions, passed, strict=True):
            replaced[position] = tensor
        if hasattr(values, "_fields"):
            return type(values)(*replaced), positions
        return type(values)(replaced), positions

    def _at_output(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.output_positions is not None
        grad_outputs = _spread(gradients, self.output_positions, self.n_outputs)
        for hook in self.user_pre_hooks:
            grad_outputs = _replaced(hook(self.module, grad_outputs), grad_outputs, "grad_output")
        self.grad_outputs = grad_outputs
        if self.input_positions is None:
            self._without_input_gradients()
        return tuple(grad_outputs[i] for i in self.output_positions)

    def _without_input_gradients(self) -> None:
        # No input required a gradient, so nothing will arrive at the input boundary.
        if self.user_hooks:
            warnings.warn(
                f"the full backward hook of {type(self.module).__name__} runs when the gradient "
                "of the output is known, and without gradients of inputs: none requires one",
                stacklevel=2,
            )
        grad_inputs = (None,) * self.n_inputs
        for hook in self.user_hooks:
            result = hook(self.module, grad_inputs, self.grad_outputs)
            if result is not None and not (
                isinstance(result, tuple) and all(value is None for value in result)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )
        self.grad_outputs = None

    def _at_input(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        # Without gradients of the output, the loss does not depend on the input through `module`.
        if self.grad_outputs is None:
            return gradients
        assert self.input_positions is not None
        grad_inputs = _spread(gradients, self.input_positions, self.n_inputs)
        for hook in self.user_hooks:
            result = hook(self.module, grad_inputs, self.grad_outputs)
            grad_inputs = _replaced(result, grad_inputs, "grad_input")
        self.grad_outputs = None
        return tuple(grad_inputs[i] for i in self.input_positions)


def _spread(values: tuple[Any, ...], positions: list[int], length: int) -> tuple[Any, ...]:
    """Put `values` at their `positions` among `length` Nones."""
    spread = [None] * length
    for position, value in zip(positions, values, strict=True):
        spread[position] = value
    return tuple(spread)


def _replaced(result: Any, current: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Return what a hook answered, or `current` when it answered None."""
    if result is None:
        return current
    if not isinstance(result, tuple):
        result = (result,)
    if len(result) != len(current):
        raise RuntimeError(
            f"Backward hook returned an invalid number of {name}, got {len(result)}, "
            f"but expected {len(current)}"
        )
    return result

"""Gradients of each sample of a batch, for libraries of differential privacy."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tangrad
from tangrad.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["call_for_per_sample_grads"]


class _Samples(tangrad.autograd.Function):
    """Repeat a parameter for every sample; gradients go to its `grad_sample`, not to its `grad`."""

    @staticmethod
    def forward(ctx: Any, parameter: Any, batch_size: int, scale: int) -> Any:
        ctx.parameter, ctx.scale = parameter, scale
        return parameter.expand(batch_size, *parameter.shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[None, None, None]:
        parameter, found = ctx.parameter, grad.detach() * ctx.scale
        before = getattr(parameter, "grad_sample", None)
        parameter.grad_sample = found if before is None else before + found
        return None, None, None


def _size_of_batch(values: list[Any], batch_dim: int) -> int:
    sizes = [x.shape[batch_dim] for x in values if isinstance(x, tangrad.Tensor)]
    if not sizes:
        raise RuntimeError(
            "call_for_per_sample_grads: unable to find a tensor in the passed args and kwargs; "
            "give batch_size"
        )
    if set(sizes) != {sizes[0]}:
        other = next(size for size in sizes if size != sizes[0])
        raise RuntimeError(
            "call_for_per_sample_grads: found at least one input with batch size "
            f"{sizes[0]} and one with batch size {other}; give batch_size"
        )
    return int(sizes[0])


def _check(module: Any, batch_size: Any, loss_reduction: str) -> None:
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}"
        )
    if not isinstance(module, tangrad.nn.Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(
            f"Batch size passed must be None or an integer, got {type(batch_size).__name__}"
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for name, parameter in module.named_parameters():
        if getattr(parameter, "grad_sample", None) is not None:
            raise RuntimeError(
                f"call_for_per_sample_grads: {name} has a grad_sample of an earlier call, to which "
                "another would be added; set it to None first"
            )


def call_for_per_sample_grads(
    module: Any,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable[..., Any]:
    """Return a module's forward whose backward writes each sample's gradient to `grad_sample`.

    Every sample goes through the module as a batch of one.

    Args:
        module: its trainable parameters get `grad_sample`, of shape (batch, *parameter).
        batch_size: by default that of the tensors among the arguments.
        loss_reduction: "sum", or "mean" if the loss is a mean over the batch.
        batch_first: samples lie along dimension 0, otherwise along 1.

    Raises:
        RuntimeError: an argument is wrong, or gradients of an earlier call are still there.
    """
    _check(module, batch_size, loss_reduction)
    batch_dim = 0 if batch_first else 1

    @wraps(module.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        values, form = tree_flatten((args, kwargs))
        size = batch_size or _size_of_batch(values, batch_dim)
        scale = size if loss_reduction == "mean" else 1
        repeated = {
            name: _Samples.apply(p, size, scale)
            for name, p in module.named_parameters()
            if p.requires_grad
        }
        dims = [
            batch_dim
            if isinstance(x, tangrad.Tensor) and x.dim() > batch_dim and x.shape[batch_dim] == size
            else None
            for x in values
        ]

        def of_one(parameters: Any, *values: Any) -> Any:
            alone = [
                x if dim is None else x.unsqueeze(batch_dim)
                for x, dim in zip(values, dims, strict=True)
            ]
            given, named = tree_unflatten(alone, form)
            result = tangrad.func.functional_call(module, parameters, given, named)
            return tree_map(lambda x: x.squeeze(batch_dim), result)

        run = tangrad.func.vmap(
            of_one, in_dims=(0, *dims), out_dims=batch_dim, randomness="different"
        )
        return run(repeated, *values)

    return call

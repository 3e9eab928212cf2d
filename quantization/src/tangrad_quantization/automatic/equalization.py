"""Cross-layer equalization: channels of one layer get like ranges, and the next layer undoes it.

Nagel et al., "Data-free quantization through weight equalization and bias correction" (2019): where
nothing but functions with f(s x) = s f(x), s > 0, stand between two layers, as ReLU and pooling
are, a channel of the first may be divided by a number with which the second multiplies it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization.automatic.calibration import (
    call,
    layers_in_order,
    outputs_agree,
    tensors_of,
)

__all__ = ["cross_layer_equalization", "equalize", "equalize_found"]

_ROUNDS = 50


def _columns(module: Any, channels: int) -> Any:
    """Return a view of the weight as [out, channels, rest]: what reads each channel."""
    weight = module.weight
    if isinstance(module, nn.Linear):  # behind a convolution, each channel has several columns
        return weight.reshape(weight.shape[0], channels, -1)
    return weight.reshape(weight.shape[0], weight.shape[1], -1)


def _fits(first: Any, second: Any) -> bool:
    """Return whether the channels that the first layer makes may be those that the second reads."""
    if getattr(first, "groups", 1) != 1 or getattr(second, "groups", 1) != 1:
        return False
    channels = first.weight.shape[0]
    read = second.weight.shape[1]
    if isinstance(second, nn.Linear) and not isinstance(first, nn.Linear):
        return bool(read % channels == 0)
    return bool(read == channels)


def cross_layer_equalization(module1: Any, module2: Any) -> float:
    """Give the output channels of one layer and the input channels of the next equal ranges.

    Args:
        module1: a linear layer or convolution; its weight and bias are changed in place.
        module2: the layer that reads its output.

    Returns:
        How far the largest of the factors was from 1.

    Raises:
        ValueError: a module is neither linear nor a convolution, or the channels do not fit.
    """
    for module in (module1, module2):
        if not isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            raise ValueError(
                f"cross_layer_equalization: {type(module).__name__} is neither a linear layer nor "
                f"a convolution"
            )
    if not _fits(module1, module2):
        raise ValueError(
            f"cross_layer_equalization: the output channels of {type(module1).__name__} "
            f"{list(module1.weight.shape)} are not the input channels of "
            f"{type(module2).__name__} {list(module2.weight.shape)}, without groups"
        )
    with tangrad.no_grad():
        made = module1.weight.reshape(module1.weight.shape[0], -1)
        read = _columns(module2, len(made))
        first = made.amax(1) - made.amin(1)
        second = read.amax((0, 2)) - read.amin((0, 2))
        factors = (first * second).sqrt() / second
        dead = ~(factors.isfinite() & (factors > 0))
        factors = tangrad.where(dead, tangrad.ones_like(factors), factors)
        over = (-1, *[1] * (module1.weight.dim() - 1))
        module1.weight.div_(factors.reshape(over))
        if module1.bias is not None:
            module1.bias.div_(factors)
        module2.weight.copy_((read * factors[:, None]).reshape(module2.weight.shape))
        return float(factors.log2().abs().max().item())


def equalize(
    model: Any,
    paired_modules_list: Iterable[Iterable[str]],
    threshold: float = 1e-4,
    inplace: bool = True,
) -> Any:
    """Equalize chains of layers, again and again until nothing changes by much.

    Args:
        model: the float model, with batch norms folded.
        paired_modules_list: chains of paths of modules, each of which reads the one before through
            functions like ReLU alone.
        threshold: of the change, in powers of two, at which to stop.
        inplace: change the model itself.

    Returns:
        The model, or a copy.

    Raises:
        ValueError: the channels of two layers do not fit.
        AttributeError: the model has no module of a path.
    """
    model = model if inplace else copy.deepcopy(model)
    chains = [[model.get_submodule(path) for path in chain] for chain in paired_modules_list]
    for _ in range(_ROUNDS):
        changes = [
            cross_layer_equalization(first, second)
            for chain in chains
            for first, second in itertools.pairwise(chain)
        ]
        if not changes or max(changes) < threshold:
            break
    return model


def equalize_found(model: Any, batch: Any) -> list[tuple[str, str]]:
    """Equalize layers that follow each other, wherever the model computes the same afterwards.

    Which those are, is tried: layers that run one after the other are equalized, and it is undone
    where the output changes, because something else than ReLU and its like stands between.

    Args:
        model: the float model, with batch norms folded; it is changed.
        batch: what it is called with.

    Returns:
        The paths of the pairs.
    """
    layers = layers_in_order(model, batch)
    found = []
    with tangrad.no_grad():
        for (first_path, first), (second_path, second) in itertools.pairwise(layers):
            if not _fits(first, second):
                continue
            held = [p.detach().clone() for m in (first, second) for p in m.parameters()]
            before = tensors_of(call(model, batch))
            cross_layer_equalization(first, second)
            if outputs_agree(before, tensors_of(call(model, batch))):
                found.append((first_path, second_path))
                continue
            parameters = [p for m in (first, second) for p in m.parameters()]
            for parameter, old in zip(parameters, held, strict=True):
                parameter.copy_(old)
    equalize(model, found)
    return found

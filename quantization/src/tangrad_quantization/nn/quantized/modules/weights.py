"""What quantized modules share: quantizing a weight by its observer, and reading observers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import qparams
from tangrad_quantization.dtypes import limits
from tangrad_quantization.layouts import layout


class WeightedQuantizedModule(nn.Module):
    """A quantized module with a weight, made of a float one by `from_float`."""

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for an observed float one."""
        raise NotImplementedError(f"{cls.__name__} is not made of a float module")


def move_packed(module: Any, function: Any) -> None:
    """Pack a module's weight anew where `Module.to` moves tensors to another device."""
    if module._packed_params is None:
        return
    weight, bias = module._weight_bias()
    moved = function(weight)
    if moved.device != weight.device:
        module.set_weight_bias(moved, None if bias is None else function(bias))


def quantized_weight(weight: Any, observer: Any) -> Any:
    """Quantize a weight by what its observer says.

    Raises:
        ValueError: the observer's scheme is unknown.
    """
    scale, zero_point = observer.calculate_qparams()
    weight, scheme = weight.detach().float().contiguous(), observer.qscheme
    if scheme in (tangrad.per_tensor_symmetric, tangrad.per_tensor_affine):
        return layout.quantize_per_tensor(weight, float(scale), int(zero_point), observer.dtype)
    if scheme in (tangrad.per_channel_symmetric, tangrad.per_channel_affine):
        return layout.quantize_per_channel(
            weight, scale.double(), zero_point.long(), observer.ch_axis, observer.dtype
        )
    if scheme == tangrad.per_channel_affine_float_qparams:
        return layout.quantize_per_channel(
            weight, scale.float(), zero_point.float(), observer.ch_axis, observer.dtype
        )
    raise ValueError(f"Unexpected qscheme {scheme}")


def observed_weight(module: Any, observer: Any, use_precomputed: bool = False) -> Any:
    """Let an observer see a module's weight, and return the weight quantized to qint8.

    Raises:
        AssertionError: the observer aims at another dtype.
    """
    if not use_precomputed:
        observer(module.weight)
    if observer.dtype != tangrad.qint8:
        raise AssertionError(f"Weight observer must have dtype tangrad.qint8, got {observer.dtype}")
    return quantized_weight(module.weight, observer)


def output_scale(module: Any) -> tuple[float, int]:
    """Return the scale and the zero point that were observed at a module's output.

    Raises:
        AssertionError: the module has no observer.
        RuntimeError: what the observer saw is not finite.
    """
    observer = getattr(module, "activation_post_process", None)
    if observer is None:
        raise AssertionError(
            f"{type(module).__name__} has no observer of its output: call prepare, and run "
            f"calibration data through the model, before convert"
        )
    scale, zero_point = observed_qparams(observer, type(module).__name__)
    return float(scale), int(zero_point)


def has_seen(observer: Any) -> bool:
    """Return whether data came through an observer, or it needs none."""
    watching = getattr(observer, "activation_post_process", observer)
    low, high = getattr(watching, "min_val", None), getattr(watching, "max_val", None)
    if low is None or high is None:
        return True
    return bool(low.numel() and (low <= high).all() and low.isfinite().all())


def observed_qparams(observer: Any, what: str) -> tuple[Any, Any]:
    """Return the scale and the zero point that an observer gives: 1 and 0 where it saw nothing.

    A part of a model that evaluation passes by, such as an auxiliary classifier, sees no data; as
    in PyTorch, it is converted all the same, with a warning.

    Args:
        observer: of an activation.
        what: the module's name, where the observer knows no place in a model.

    Raises:
        RuntimeError: what it saw is not finite.
    """
    if has_seen(observer):
        found: tuple[Any, Any] = observer.calculate_qparams()
        return found
    watching = getattr(observer, "activation_post_process", observer)
    where = getattr(observer, "path", "") or getattr(watching, "path", "") or what
    kind, low, high = type(watching).__name__, watching.min_val, watching.max_val
    if low.numel() and not ((low == math.inf) & (high == -math.inf)).all():
        raise RuntimeError(
            f"convert: the observer at '{where}' saw what is not finite ({kind}, range {low} to "
            f"{high}): look for the data or the layer that makes it"
        )
    warnings.warn(
        f"convert: the observer at '{where}' saw nothing ({kind}), so its scale is 1 and its zero "
        "point 0: run calibration data through the prepared model first, through this module too, "
        "or set its qconfig to None",
        stacklevel=2,
    )
    return tangrad.tensor([1.0]), tangrad.tensor([0], dtype=tangrad.int32)


def require_float(cls: Any, module: Any, kinds: Any) -> None:
    """Refuse a module of which `cls` is not made.

    Raises:
        AssertionError: it is so.
    """
    if type(module) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise AssertionError(
            f"nnq.{cls.__name__}.from_float only works for {names} but got: {type(module).__name__}"
        )
    if not hasattr(module, "qconfig"):
        raise AssertionError("Input float module must have qconfig defined")


def fold_norm(module: Any, fuse: Any) -> None:
    """Have a module trained with a batch norm take that into its weight and bias.

    Args:
        module: has the norm as `bn`.
        fuse: `fuse_conv_bn_weights` or `fuse_linear_bn_weights`.
    """
    bn = module.bn
    module.weight, module.bias = fuse(
        module.weight, module.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )


def save_scale(module: Any, destination: Any, prefix: str) -> None:
    """Put the scale and the zero point of a module's output into a state dict."""
    destination[prefix + "scale"] = tangrad.tensor(module.scale)
    destination[prefix + "zero_point"] = tangrad.tensor(module.zero_point)


def check_scale(module: Any, state: Any, prefix: str) -> tuple[float, int]:
    """Return the scale and the zero point of a module's output in a state dict.

    Raises:
        RuntimeError: they are missing, as in the state of a float model.
        ValueError: they are impossible.
    """
    for name in ("scale", "zero_point"):
        if prefix + name not in state:
            raise RuntimeError(
                f"load_state_dict: '{prefix}{name}' of the quantized {type(module).__name__} is "
                f"missing; the state is that of a float model, which has to be quantized first, "
                f"or of another one"
            )
    where = "load_state_dict: '{}{}'".format
    scale = qparams.check_scale(where(prefix, "scale"), float(state[prefix + "scale"]))
    dtype = getattr(module, "dtype", None)
    low, high = limits(dtype) or (-128, 255)  # of qint8 and quint8, either of which it may be
    zero_point = state[prefix + "zero_point"].item()
    return scale, qparams.check_zero_point(
        where(prefix, "zero_point"), zero_point, low, high, dtype or "qint8 and quint8"
    )


def take_scale(module: Any, state: Any, prefix: str) -> None:
    """Take the scale and the zero point of a module's output out of a state dict.

    Raises:
        RuntimeError: they are missing, as in the state of a float model.
        ValueError: they are impossible.
    """
    module.scale, module.zero_point = check_scale(module, state, prefix)
    del state[prefix + "scale"], state[prefix + "zero_point"]


class Ends:
    """What modules share that hold the scale and the zero point of their output as buffers."""

    _read: tuple[Any, Any, tuple[float, int]] | None = None

    def ends(self: Any) -> tuple[float, int]:
        """Return the scale and the zero point as numbers.

        They are read where they were written since: a program that is traced may not look at them.
        """
        held = self.scale, self.zero_point
        written = [getattr(t, "_version", 0) for t in held]  # some hold plain numbers
        known = self._read
        if known is None or any(a is not b for a, b in zip(known[0], held, strict=True)):
            known = None
        if known is None or known[1] != written:
            known = self._read = held, written, (float(held[0]), int(held[1]))
        found: tuple[float, int] = known[2]
        return found


class ScaleBuffers(Ends):
    """The same, where a state dict is checked before it is taken."""

    def _load_from_state_dict(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
        if prefix + "scale" in state_dict and prefix + "zero_point" in state_dict:
            check_scale(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]


def pop_quantized(state: Any, key: str, module: Any) -> Any:
    """Take a quantized weight, a copy of what was given, out of a state dict.

    Raises:
        RuntimeError: it is missing or not quantized, as in the state of a float model.
    """
    name = type(module).__name__
    if key not in state:
        raise RuntimeError(
            f"load_state_dict: '{key}' of the quantized {name} is missing; the state is that of "
            f"another model, or of a float one, which has to be quantized first"
        )
    weight = state.pop(key)
    if not layout.is_quantized(weight):
        found = f"{weight.dtype}" if isinstance(weight, tangrad.Tensor) else type(weight).__name__
        raise RuntimeError(
            f"load_state_dict: '{key}' of the quantized {name} must be a quantized tensor, got "
            f"{found}; the state is that of a float model, which has to be quantized first"
        )
    return weight.clone()


def pop_bias(state: Any, prefix: str) -> Any:
    """Take a bias, a copy of what was given, out of a state dict; None if there is none."""
    bias = state.pop(prefix + "bias", None)
    return None if bias is None else bias.detach().clone()

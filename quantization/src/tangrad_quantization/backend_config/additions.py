"""Patterns that oneDNN fuses beyond the common ones: sums after convolutions, other activations."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from tangrad_quantization.backend_config.backend_config import BackendPatternConfig, DTypeConfig
from tangrad_quantization.backend_config.operators import fused, two_as
from tangrad_quantization.fuser_method_mappings import MatchAllNode
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn.quantized import reference as nnqr


class _Addition:
    """A convolution, perhaps with a batch norm, whose output is added to something.

    Args:
        left: whether the convolution is the first argument of the sum.
        norm: whether a batch norm stands between.
        relu: whether a ReLU follows.
        function: the sum.
    """

    def __init__(self, left: bool, norm: bool, relu: bool, function: Any) -> None:
        self.left, self.norm, self.relu, self.function = left, norm, relu, function

    def pattern(self) -> Any:
        """Return the nested pattern."""
        own = (nn.BatchNorm2d, nn.Conv2d) if self.norm else nn.Conv2d
        sides = (own, MatchAllNode) if self.left else (MatchAllNode, own)
        return (nn.ReLU, (self.function, *sides)) if self.relu else (self.function, *sides)

    def _parts(self, matched: Any) -> tuple[Any, Any, Any, Any]:
        """Return the ReLU, the sum, the convolution (and norm) and the other side of a match."""
        relu, addition = matched if self.relu else (None, matched)
        add, first, second = addition
        return (relu, add, first, second) if self.left else (relu, add, second, first)

    def root(self, matched: Any) -> Any:
        """Return the node of the convolution."""
        own = self._parts(matched)[2]
        return own[1] if self.norm else own

    def extra(self, matched: Any) -> list[Any]:
        """Return the nodes that the fused module takes beside the convolution's input."""
        return [self._parts(matched)[3]]

    def fuse(self, is_qat: bool, *matched: Any) -> Any:
        """Make the fused module.

        Raises:
            NotImplementedError: the model is to be trained, and there is a batch norm.
        """
        relu, add, own, _ = self._parts(matched)
        if self.norm:
            if is_qat:
                raise NotImplementedError(f"Cannot fuse train modules: {matched}")
            own = fuse_conv_bn_eval(own[1], own[0])
        return nni.ConvAddReLU2d(own, add, relu) if self.relu else nni.ConvAdd2d(own, add)


def addition_configs(types: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Return the patterns of sums after convolutions over two dimensions."""
    made = []
    for relu in (False, True):
        kind = nni.ConvAddReLU2d if relu else nni.ConvAdd2d
        for left, norm, function in itertools.product(
            (True, False), (True, False), (tangrad.add, operator.add)
        ):
            addition = _Addition(left, norm, relu, function)
            config = fused(None, types, addition.fuse, kind)
            config._set_pattern_complex_format(addition.pattern())
            config._set_root_node_getter(addition.root)
            made.append(config._set_extra_inputs_getter(addition.extra))
        whole = BackendPatternConfig(kind).set_dtype_configs(types).set_root_module(nn.Conv2d)
        made.append(whole.set_reference_quantized_module(nnqr.Conv2d))
    return made


def _linear_bn_leaky_relu(is_qat: bool, linear: Any, bn: Any, leaky_relu: Any) -> Any:
    if len({module.training for module in (linear, bn, leaky_relu)}) > 1:
        raise AssertionError(
            "Linear, BN and LeakyReLU all must be in the same mode (train or eval)."
        )
    if is_qat:
        raise NotImplementedError(f"Cannot fuse train modules: {(linear, bn, leaky_relu)}")
    return nni.LinearLeakyReLU(fuse_linear_bn_eval(linear, bn), leaky_relu)


_FOLLOWERS: tuple[tuple[Any, Any, Callable[..., Any]], ...] = (
    (nni.LinearLeakyReLU, nn.LeakyReLU, F.leaky_relu),
    (nni.LinearTanh, nn.Tanh, tangrad.tanh),
)


def follower_configs(types: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Return the patterns of leaky ReLU and tanh after linear layers."""
    made = []
    for kind, module, function in _FOLLOWERS:
        made += [
            fused((nn.Linear, module), types, two_as(kind), kind),
            fused((nn.Linear, function), types, two_as(kind), kind),
            BackendPatternConfig(kind)
            .set_dtype_configs(types)
            .set_root_module(nn.Linear)
            .set_reference_quantized_module(nnqr.Linear),
            BackendPatternConfig((F.linear, module)).set_dtype_configs(types),
            BackendPatternConfig((F.linear, function)).set_dtype_configs(types),
        ]
    three = (nn.Linear, nn.BatchNorm1d, nn.LeakyReLU)
    return [*made, fused(three, types, _linear_bn_leaky_relu, nni.LinearLeakyReLU)]

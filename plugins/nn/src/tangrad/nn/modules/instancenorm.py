"""Normalization of each sample (Ulyanov et al. 2016, https://arxiv.org/abs/1607.08022)."""

from __future__ import annotations

import warnings
from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    """Normalize each channel of each sample over its elements; see `InstanceNorm2d`."""

    _dimensions: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _check_input_dim(self, input: Any) -> None:
        rank = self._dimensions
        if input.dim() not in (rank + 1, rank + 2):
            raise ValueError(
                f"expected {rank + 1}D or {rank + 2}D input (got {input.dim()}D input)"
            )

    def _get_no_batch_dim(self) -> int:
        """Return how many dimensions a single sample has."""
        return self._dimensions + 1

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        self._check_input_dim(input)
        batched = input.dim() != self._get_no_batch_dim()
        channels = input.shape[1 if batched else 0]
        if channels != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={int(batched)} to match num_features "
                    f"({self.num_features}), but got: {channels}."
                )
            warnings.warn(
                f"input's size at dim={int(batched)} does not match num_features. You can "
                "silence this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=2,
            )
        result = F.instance_norm(
            input if batched else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return result if batched else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each of sequences (N, C, L); N may be missing.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of a batch in the running statistics.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        track_running_stats: whether to keep running statistics, used in evaluation.
        device: device of parameters and statistics.
        dtype: their dtype.
        bias: whether to learn the summand, when `affine`.
    """

    _dimensions = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalize each channel of each of images (N, C, H, W); N may be missing.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of a batch in the running statistics.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        track_running_stats: whether to keep running statistics, used in evaluation.
        device: device of parameters and statistics.
        dtype: their dtype.
        bias: whether to learn the summand, when `affine`.
    """

    _dimensions = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalize each channel of each of volumes (N, C, D, H, W); N may be missing.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of a batch in the running statistics.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        track_running_stats: whether to keep running statistics, used in evaluation.
        device: device of parameters and statistics.
        dtype: their dtype.
        bias: whether to learn the summand, when `affine`.
    """

    _dimensions = 3


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """An `InstanceNorm1d` that takes `num_features` from its first input.

    Arguments are those of `InstanceNorm1d`, without `num_features`; `affine` and
    `track_running_stats` are true by default.
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """An `InstanceNorm2d` that takes `num_features` from its first input.

    Arguments are those of `InstanceNorm2d`, without `num_features`; `affine` and
    `track_running_stats` are true by default.
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """An `InstanceNorm3d` that takes `num_features` from its first input.

    Arguments are those of `InstanceNorm3d`, without `num_features`; `affine` and
    `track_running_stats` are true by default.
    """

    cls_to_become = InstanceNorm3d

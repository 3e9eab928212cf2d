"""Normalization over the batch (Ioffe, Szegedy 2015, https://arxiv.org/abs/1502.03167)."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d"]


class _NormBase(Module):
    """Hold parameters and running statistics per channel; see `BatchNorm2d`."""

    _version = 2

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            empty = Parameter(tangrad.empty(num_features, **options)) if wanted else None
            self.register_parameter(name, empty)
        tracked = track_running_stats
        self.register_buffer(
            "running_mean", tangrad.zeros(num_features, **options) if tracked else None
        )
        self.register_buffer(
            "running_var", tangrad.ones(num_features, **options) if tracked else None
        )
        self.register_buffer("num_batches_tracked", self._no_batches(device) if tracked else None)
        self.reset_parameters()

    @staticmethod
    def _no_batches(device: Any) -> Any:
        return tangrad.tensor(0, dtype=tangrad.int64, device=device)

    def reset_running_stats(self) -> None:
        """Forget the batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forget the batches seen; set the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _check_input_dim")

    def extra_repr(self) -> str:
        """Show the sizes and options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        # Version 1 did not count batches.
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            known = count is not None and count.device.type != "meta"
            state_dict[key] = count if known else self._no_batches(None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    def forward(self, input: Any) -> Any:
        """Return a tensor of the input's shape."""
        self._check_input_dim(input)
        share = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                share = 1.0 / float(self.num_batches_tracked)
        has_statistics = self.running_mean is not None or self.running_var is not None
        updates = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if updates else None,
            self.running_var if updates else None,
            self.weight,
            self.bias,
            self.training or not has_statistics,
            share,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalize each channel of (N, C) or (N, C, L) over the batch.

    Arguments are those of `BatchNorm2d`.
    """

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Normalize each channel of (N, C, H, W) over the batch.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of a batch in the running statistics; None for their plain mean.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        track_running_stats: whether to keep `running_mean`, `running_var` and
            `num_batches_tracked`, used in evaluation.
        device: device of parameters and statistics.
        dtype: their dtype.
        bias: whether to learn the summand, when `affine`.
    """

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")

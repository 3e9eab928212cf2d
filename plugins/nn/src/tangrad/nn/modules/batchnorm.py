"""Normalization over the batch (Ioffe, Szegedy 2015, https://arxiv.org/abs/1502.03167)."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.lazy import LazyModuleMixin
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from tangrad.ops.nn.fusing import fuses

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


def _normalization() -> Any:
    """Return the definitions, which importing modules does not load."""
    from tangrad.ops.nn.normalization import batch

    return batch


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
    def _counts_in_one_pass(self, input: Any, share: float) -> bool:
        mean, var = self.running_mean, self.running_var
        if mean is None or var is None or self.eps <= 0:
            return False
        return share > 0 and fuses(input) and _normalization().in_one_pass(input, [mean, var])

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        self._check_input_dim(input)
        share = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            if self._counts_in_one_pass(input, share):
                return _normalization().normalized_and_counted(
                    input,
                    [self.running_mean, self.running_var],
                    self.weight,
                    self.bias,
                    share,
                    self.eps,
                    self.num_batches_tracked,
                )[0]
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


class BatchNorm3d(_BatchNorm):
    """Normalize each channel of (N, C, D, H, W) over the batch.

    Arguments are those of `BatchNorm2d`.
    """

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class SyncBatchNorm(_BatchNorm):
    """Normalize each channel of (N, C, *) over the batches of all processes of a group.

    Without a group of several processes this is `BatchNorm1d` to `3d`, for any number of
    dimensions.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of a batch in the running statistics; None for their plain mean.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        track_running_stats: whether to keep running statistics, used in evaluation.
        process_group: the processes.
        device: device of parameters and statistics.
        dtype: their dtype.

    In training all processes have to run the layer, with batches that may differ in size.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        if self.training and _processes(self.process_group) > 1:
            self._check_input_dim(input)
            return self._over_all_processes(input)
        return super().forward(input)

    def _over_all_processes(self, input: Any) -> Any:
        """Normalize by mean and variance over all processes; gradients flow through both."""
        sums = tangrad.distributed.nn.functional
        others = [dim for dim in range(input.dim()) if dim != 1]
        shape = [-1 if dim == 1 else 1 for dim in range(input.dim())]
        count = input.new_full((1,), input.numel() / input.shape[1])
        local = tangrad.cat([input.sum(others), count])
        every = sums.all_reduce(local, group=self.process_group)
        total = every[-1].detach()
        mean = every[:-1] / total
        apart = input - mean.reshape(shape)
        squares = sums.all_reduce((apart * apart).sum(others), group=self.process_group)
        variance = squares / total
        self._remember(mean.detach(), (squares / (total - 1)).detach())
        result = apart * (variance + self.eps).rsqrt().reshape(shape)
        if self.affine:
            result = result * self.weight.reshape(shape) + self.bias.reshape(shape)
        return result

    def _remember(self, mean: Any, variance: Any) -> None:
        """Move the running statistics towards those of a batch."""
        if not self.track_running_stats:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """Return `module` with every batch normalization in it replaced by this class.

        Args:
            module: the module; its parameters and statistics are taken over, not copied.
            process_group: the processes over which to normalize.
        """
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(made, name, getattr(module, name))
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


def _processes(group: Any) -> int:
    """Return how many processes are connected."""
    connected = tangrad.distributed
    if not connected.is_available() or not connected.is_initialized():
        return 1
    return int(connected.get_world_size(group))


# Normalizations that take the number of channels from their first input ---------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Declare and make the parameters and statistics of a lazy normalization."""

    weight: Any
    bias: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=bias)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = self._no_batches(device)

    def reset_parameters(self) -> None:
        """Forget the batches seen and reset the parameters, if they are made."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        """Make parameters and statistics for an input (N, C, *)."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(self, name)
            if value is not None:
                value.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A `BatchNorm1d` that takes `num_features` from its first input.

    Arguments are those of `BatchNorm2d`, without `num_features`.
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A `BatchNorm2d` that takes `num_features` from its first input.

    Arguments are those of `BatchNorm2d`, without `num_features`.
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A `BatchNorm3d` that takes `num_features` from its first input.

    Arguments are those of `BatchNorm2d`, without `num_features`.
    """

    cls_to_become = BatchNorm3d

"""PyTorch's inner ops whose arguments differ from those of the functions here, for archives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F

__all__ = ["INNER_OPS", "SEVERAL"]

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}

# Functions of the library that return so many tensors.
SEVERAL = {
    "lstm": 3,
    "gru": 2,
    "rnn_tanh": 2,
    "rnn_relu": 2,
    "lstm_cell": 2,
    "native_batch_norm": 3,
    "native_group_norm": 3,
    "native_dropout": 2,
    "_unique2": 3,
    "unique_dim": 3,
    "unique_consecutive": 3,
    "max_pool1d_with_indices": 2,
    "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 2,
    **{f"adaptive_max_pool{d}d": 2 for d in (1, 2, 3)},
    **{f"fractional_max_pool{d}d": 2 for d in (2, 3)},
}


_CONVOLUTIONS = {d: getattr(tangrad, f"conv{d}d") for d in (1, 2, 3)}
_TRANSPOSED = {d: getattr(tangrad, f"conv_transpose{d}d") for d in (1, 2, 3)}


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    benchmark: Any = False,
    deterministic: Any = False,
    cudnn_enabled: Any = True,
    allow_tf32: Any = True,
) -> Any:
    """Convolve, forwards or transposed, in as many dimensions as the weight has."""
    dims = weight.dim() - 2
    if transposed:
        call = _TRANSPOSED[dims]
        return call(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _CONVOLUTIONS[dims](input, weight, bias, stride, padding, dilation, groups)


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Any, target: Any, reduction: Any = 1) -> Any:
        return function(input, target, reduction=_REDUCTIONS[reduction])

    return call


def smooth_l1_loss(self: Any, target: Any, reduction: Any = 1, beta: Any = 1.0) -> Any:
    """Return the smooth L1 loss."""
    return F.smooth_l1_loss(self, target, reduction=_REDUCTIONS[reduction], beta=beta)


def huber_loss(self: Any, target: Any, reduction: Any = 1, delta: Any = 1.0) -> Any:
    """Return the Huber loss."""
    return F.huber_loss(self, target, reduction=_REDUCTIONS[reduction], delta=delta)


def kl_div(self: Any, target: Any, reduction: Any = 1, log_target: Any = False) -> Any:
    """Return the Kullback-Leibler divergence."""
    return F.kl_div(self, target, reduction=_REDUCTIONS[reduction], log_target=log_target)


def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: Any = 1
) -> Any:
    """Return the binary cross entropy of logits."""
    return F.binary_cross_entropy_with_logits(
        self, target, weight, reduction=_REDUCTIONS[reduction], pos_weight=pos_weight
    )


def poisson_nll_loss(
    input: Any, target: Any, log_input: Any, full: Any, eps: Any, reduction: Any
) -> Any:
    """Return the negative log likelihood of a Poisson distribution."""
    return F.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction]
    )


def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: Any = 0.0, reduction: Any = 1
) -> Any:
    """Return the loss of pairs in the wrong order."""
    return F.margin_ranking_loss(
        input1, input2, target, margin=margin, reduction=_REDUCTIONS[reduction]
    )


def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: Any = 0.0, reduction: Any = 1
) -> Any:
    """Return the loss of pairs by their cosine."""
    return F.cosine_embedding_loss(
        input1, input2, target, margin=margin, reduction=_REDUCTIONS[reduction]
    )


def hinge_embedding_loss(self: Any, target: Any, margin: Any = 1.0, reduction: Any = 1) -> Any:
    """Return the hinge loss of distances."""
    return F.hinge_embedding_loss(self, target, margin=margin, reduction=_REDUCTIONS[reduction])


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: Any = 1.0,
    p: Any = 2.0,
    eps: Any = 1e-6,
    swap: Any = False,
    reduction: Any = 1,
) -> Any:
    """Return the loss of triplets."""
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_REDUCTIONS[reduction]
    )


def multi_margin_loss(
    self: Any,
    target: Any,
    p: Any = 1,
    margin: Any = 1.0,
    weight: Any = None,
    reduction: Any = 1,
) -> Any:
    """Return the hinge loss of several classes."""
    return F.multi_margin_loss(self, target, p, margin, weight, reduction=_REDUCTIONS[reduction])


def constant_pad_nd(self: Any, pad: Any, value: Any = 0) -> Any:
    """Pad by a constant."""
    return F.pad(self, pad, value=value)


def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: Any,
    momentum: Any,
    eps: Any,
    cudnn_enabled: Any = True,
) -> Any:
    """Normalize each channel of each sample."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def rrelu(
    self: Any,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: Any = False,
    generator: Any = None,
) -> Any:
    """Return x where it is positive, and a random part of it elsewhere."""
    return F.rrelu(self, lower, upper, training)


def cross_entropy_loss(
    self: Any,
    target: Any,
    weight: Any = None,
    reduction: Any = 1,
    ignore_index: Any = -100,
    label_smoothing: Any = 0.0,
) -> Any:
    """Return the cross entropy of logits."""
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=_REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


def nll_loss(
    self: Any, target: Any, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100
) -> Any:
    """Return the negative log likelihood."""
    return F.nll_loss(
        self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]
    )


def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: Any = 1) -> Any:
    """Return the binary cross entropy of probabilities."""
    return F.binary_cross_entropy(self, target, weight, reduction=_REDUCTIONS[reduction])


def _resized(mode: str, antialias: bool = False) -> Callable[..., Any]:
    if mode.startswith("nearest"):

        def nearest(input: Any, output_size: Any, scale_factors: Any = None) -> Any:
            return F.interpolate(input, output_size, scale_factors, mode=mode)

        return nearest

    def smooth(input: Any, output_size: Any, align_corners: Any, scale_factors: Any = None) -> Any:
        return F.interpolate(
            input,
            output_size,
            scale_factors,
            mode=mode,
            align_corners=align_corners,
            antialias=antialias,
        )

    return smooth


def _padded(mode: str) -> Callable[..., Any]:
    def call(self: Any, padding: Any) -> Any:
        return F.pad(self, padding, mode=mode)

    return call


def random(
    self: Any, low: Any = None, high: Any = None, generator: Any = None, out: Any = None
) -> Any:
    """Return a tensor of the same size of random integers: of `low` alone, below it."""
    target = tangrad.empty_like(self) if out is None else out.resize_(self.shape)
    if low is None:
        return target.random_(generator=generator)
    if high is None:
        return target.random_(low, generator=generator)
    return target.random_(low, high, generator=generator)


def subcmul(self: Any, other: Any, alpha: Any = 1) -> Any:
    """Return what an op returns that PyTorch has for its tests of archives."""
    return self - other * alpha


def elu(self: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere, both scaled."""
    return F.elu(self * input_scale, alpha) * scale


def _largest(name: str) -> Callable[..., Any]:
    """Return a pooling that gives the places of the largest elements, too."""
    pool = getattr(F, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **kwargs, return_indices=True)

    return call


def _fractional(name: str) -> Callable[..., Any]:
    pool = getattr(F, name)

    def call(self: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
        return pool(
            self, kernel_size, output_size, return_indices=True, _random_samples=random_samples
        )

    return call


def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: Any,
    momentum: Any,
    eps: Any,
    cudnn_enabled: Any = True,
) -> Any:
    """Normalize each channel by its mean and variance, or by running ones."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def index(self: Any, indices: Any) -> Any:
    """Return the elements at places: one tensor of numbers or truth values for each dimension."""
    return self[tuple(slice(None) if one is None else one for one in indices)]


def number_tensor(value: Any) -> Any:
    """Return a number as a tensor."""
    return tangrad.tensor(value)


def _unique(name: str, *order: str) -> Callable[..., Any]:
    """Return an op that lists distinct elements, where they are, and how often, or nothing."""
    find = getattr(tangrad, name)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        found = find(input, **given)
        found = list(found) if isinstance(found, tuple) else [found]
        nothing = tangrad.empty(0, dtype=tangrad.int64, device=input.device)
        rest = iter(found[1:])
        flags = given.get("return_inverse"), given.get("return_counts")
        return (found[0], *(next(rest) if flag else nothing for flag in flags))

    return call


_FLAGS = "return_inverse", "return_counts"

INNER_OPS: dict[str, Callable[..., Any]] = {
    "_unique2": _unique("unique", "sorted", *_FLAGS),
    "unique_dim": _unique("unique", "dim", "sorted", *_FLAGS),
    "unique_consecutive": _unique("unique_consecutive", *_FLAGS, "dim"),
    "_convolution": convolution,
    "cross_entropy_loss": cross_entropy_loss,
    "nll_loss": nll_loss,
    "nll_loss_nd": nll_loss,
    "nll_loss2d": nll_loss,
    "binary_cross_entropy": binary_cross_entropy,
    **{
        name: _loss(getattr(F, name))
        for name in ("mse_loss", "l1_loss", "soft_margin_loss", "multilabel_margin_loss")
    },
    "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss,
    "kl_div": kl_div,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "poisson_nll_loss": poisson_nll_loss,
    "margin_ranking_loss": margin_ranking_loss,
    "cosine_embedding_loss": cosine_embedding_loss,
    "hinge_embedding_loss": hinge_embedding_loss,
    "triplet_margin_loss": triplet_margin_loss,
    "multi_margin_loss": multi_margin_loss,
    "constant_pad_nd": constant_pad_nd,
    "instance_norm": instance_norm,
    "batch_norm": batch_norm,
    "index": index,
    **{f"adaptive_max_pool{d}d": _largest(f"adaptive_max_pool{d}d") for d in (1, 2, 3)},
    **{f"fractional_max_pool{d}d": _fractional(f"fractional_max_pool{d}d") for d in (2, 3)},
    **{f"max_pool{d}d_with_indices": _largest(f"max_pool{d}d") for d in (1, 2, 3)},
    "rrelu": rrelu,
    "log_sigmoid": F.logsigmoid,
    **{name: getattr(F, name) for name in ("glu", "hardshrink", "softshrink", "celu", "threshold")},
    **{f"avg_pool{d}d": getattr(F, f"avg_pool{d}d") for d in (1, 2, 3)},
    **{f"upsample_nearest{d}d": _resized("nearest") for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d": _resized("nearest-exact") for d in (1, 2, 3)},
    "_upsample_bilinear2d_aa": _resized("bilinear", True),
    "_upsample_bicubic2d_aa": _resized("bicubic", True),
    "upsample_linear1d": _resized("linear"),
    "upsample_bilinear2d": _resized("bilinear"),
    "upsample_trilinear3d": _resized("trilinear"),
    "upsample_bicubic2d": _resized("bicubic"),
    **{f"reflection_pad{d}d": _padded("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d": _padded("replicate") for d in (1, 2, 3)},
    "elu": elu,
    "random": random,
    "_test_serialization_subcmul": subcmul,
    "NumToTensor": number_tensor,
}

"""What PyTorch's top level has of layers and losses: `torch.layer_norm`, `torch.dropout`, ...

Each is a function of `nn.functional` in another dress: every argument is given by place, a
reduction by its number, some tensors come in another order. Programs call them where they bypass
`nn.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, prod
from typing import Any

import tangrad
from tangrad.compat.declared import declared
from tangrad.nn import functional as F
from tangrad.nn.utils.weight_norm import norms_except, with_norms
from tangrad.plugin import overridable

# What no number says is 0. PyTorch's signatures write 1 where its calls take 0, as these do.
_REDUCTIONS = {1: "mean", 2: "sum"}


def _reduction(number: int) -> str:
    return _REDUCTIONS.get(number, "none")


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


# Dropout ------------------------------------------------------------------------------------------


@declared("(Tensor input, float p, bool train)")
def dropout(input: Any, p: float, train: bool) -> Any:
    """Zero elements with probability p and scale the others by 1 / (1 - p), in training."""
    return F.dropout(input, _probability(p), train)


@declared("(Tensor input, float p, bool train)")
def dropout_(input: Any, p: float, train: bool) -> Any:
    """Apply `dropout` in place."""
    return F.dropout(input, _probability(p), train, inplace=True)


@declared("(Tensor input, float p, bool train)")
def feature_dropout(input: Any, p: float, train: bool) -> Any:
    """Zero channels of (N, C, ...) with probability p and scale the others, in training.

    Raises:
        RuntimeError: the input has fewer than two dimensions.
    """
    if not train or _probability(p) == 0 or not input.numel():
        return input
    if p == 1:
        return input * 0
    if input.dim() < 2:
        raise RuntimeError("feature_dropout: Feature dropout requires at least 2 dimensions")
    flat = input.reshape((*input.shape[:2], -1))
    return F.dropout1d(flat, p).reshape(input.shape)


@declared("(Tensor input, float p, bool train)")
def feature_dropout_(input: Any, p: float, train: bool) -> Any:
    """Apply `feature_dropout` in place."""
    return input.copy_(feature_dropout(input, p, train))


@declared("(Tensor input, float p, bool train)")
def alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """Replace elements with probability p by the limit of SELU, in training."""
    return F.alpha_dropout(input, _probability(p), train)


@declared("(Tensor input, float p, bool train)")
def alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """Apply `alpha_dropout` in place."""
    return F.alpha_dropout(input, _probability(p), train, inplace=True)


@declared("(Tensor input, float p, bool train)")
def feature_alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """Replace channels with probability p by the limit of SELU, in training."""
    return F.feature_alpha_dropout(input, _probability(p), train)


@declared("(Tensor input, float p, bool train)")
def feature_alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """Apply `feature_alpha_dropout` in place."""
    return F.feature_alpha_dropout(input, _probability(p), train, inplace=True)


@declared("(Tensor input, float p, bool? train)")
def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Return the input with elements dropped unless train is False, and which were kept."""
    if train is False:
        return input.clone(), tangrad.ones_like(input, dtype=tangrad.bool)
    kept = tangrad.empty_like(input, dtype=tangrad.bool).bernoulli_(1 - p)
    return input * kept * (1 / (1 - p) if p < 1 else 0.0), kept


# Normalization ------------------------------------------------------------------------------------


@declared(
    "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
    "Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)"
)
def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Normalize each channel over the batch; see `nn.functional.batch_norm`."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@declared("(Tensor input, Tensor? running_mean, Tensor? running_var, float momentum)")
def batch_norm_update_stats(
    input: Any, running_mean: Any, running_var: Any, momentum: float
) -> Any:
    """Return each channel's mean and variance, and move the running ones towards them.

    Args:
        input: (N, C, ...).
        running_mean: of shape (C,), written; or None.
        running_var: so is it, by the variance without bias; or None.
        momentum: the part of the new value.

    Returns:
        The mean and the biased variance, each of shape (C,).

    Raises:
        IndexError: the input has fewer than two dimensions.
        RuntimeError: it has no elements, or a running value another number of channels.
    """
    if input.dim() < 2:
        raise IndexError(
            f"batch_norm_update_stats: expected at least 2D input, got {list(input.shape)}"
        )
    if not input.numel():
        raise RuntimeError(
            "batch_norm_update_stats: input tensor must have at least one element, but got "
            f"input_sizes = {list(input.shape)}"
        )
    channels, count = input.shape[1], input.numel() // input.shape[1]
    variance, mean = tangrad.var_mean(input, [0, *range(2, input.dim())], correction=0)
    unbiased = count / (count - 1) if count > 1 else nan
    with tangrad.no_grad():
        for name, running, new in (
            ("running_mean", running_mean, mean.detach()),
            ("running_var", running_var, variance.detach() * unbiased),
        ):
            if running is None:
                continue
            if running.shape != (channels,):
                raise RuntimeError(
                    f"batch_norm_update_stats: {name} should contain {channels} elements, not "
                    f"{list(running.shape)}"
                )
            running.mul_(1 - momentum).add_(new, alpha=momentum)
    return mean, variance


@declared(
    "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
    "Tensor? running_var, bool use_input_stats, float momentum, float eps, "
    "bool cudnn_enabled)"
)
def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Normalize each channel of each sample; see `nn.functional.instance_norm`."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


@declared(
    "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05, bool cudnn_enable=True)"
)
def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Any:
    """Normalize over the last dimensions; see `nn.functional.layer_norm`."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@declared(
    "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05, bool cudnn_enabled=True)"
)
def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Any:
    """Normalize groups of channels; see `nn.functional.group_norm`."""
    if input.ndim < 2:
        return F.group_norm(input, num_groups, weight, bias, eps)  # which refuses it
    samples, channels, *spatial = input.shape
    size = prod(spatial)
    # Not F.group_norm, which refuses groups of one value.
    return tangrad.native_group_norm(input, weight, bias, samples, channels, size, num_groups, eps)[
        0
    ]


@declared("(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)")
def rms_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    """Divide by the root mean square; see `nn.functional.rms_norm`."""
    return F.rms_norm(input, normalized_shape, weight, eps)


@declared("(Tensor v, int pow=2, int dim=0)")
def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """Return the norms of order `pow` over all dimensions but one, which are kept.

    With dim=-1 the norm of the whole.
    """
    if pow == 2:
        return norms_except(v, dim)
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return v.norm(pow, others, keepdim=True)


@declared("(Tensor v, Tensor g, int dim=0)")
def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """Return `v` scaled to have the norms `g`, over all dimensions but `dim`."""
    return with_norms(v, g, dim)


# Lookups and pooling ------------------------------------------------------------------------------


@declared(
    "(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False)"
)
def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Look rows up; `padding_idx` has no gradient, -1 stands for none."""
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


@declared(
    "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, "
    "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, "
    "int? padding_idx=None)"
)
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Reduce rows within bags; see `nn.functional.embedding_bag`, whose modes are 0, 1 and 2 here.

    Returns:
        The bags; the bag of each index; how many indices each has; for "max", the row that gave
        each number, 0 in an empty bag.
    """
    found = F.embedding_bag(
        *(indices, weight, offsets, None, 2.0, scale_grad_by_freq),
        *({0: "sum", 1: "mean", 2: "max"}.get(mode, str(mode)), sparse, per_sample_weights),
        *(include_last_offset, padding_idx),
    )
    count, bags = len(found), tangrad.ops.bag_numbers(offsets, len(indices), include_last_offset)
    within = bags
    if padding_idx is not None:
        within = bags.masked_fill(indices == padding_idx % len(weight), count)
    ones = tangrad.ones_like(within, dtype=offsets.dtype)
    counted = offsets.new_zeros((count + 1,)).index_add(0, within, ones)
    sizes = rows = counted.narrow(0, 0, count)
    if mode == 2:
        places = tangrad.ops.bag_argmax(weight.detach()[indices], within, count)
        rows = tangrad.where(places < 0, 0, indices[places.clamp(min=0)])
    return found, bags, sizes, rows


def _grouped_mm(
    self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Multiply groups of matrices; see `nn.functional.grouped_mm`."""
    return F.grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


@declared(
    "(Tensor input, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], "
    "int[1] dilation=[1], bool ceil_mode=False)"
)
def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Take the largest element of windows; see `nn.functional.max_pool1d`."""
    return F.max_pool1d(input, kernel_size, stride or None, padding, dilation, ceil_mode)


@declared(
    "(Tensor input, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], "
    "int[1] dilation=[1], bool ceil_mode=False)"
)
def max_pool1d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Take the largest element of windows, with its place."""
    return F.max_pool1d(
        input, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True
    )


@declared(
    "(Tensor input, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "
    "int[2] dilation=1, bool ceil_mode=False)"
)
def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Take the largest element of windows; see `nn.functional.max_pool2d`."""
    return F.max_pool2d(input, kernel_size, stride or None, padding, dilation, ceil_mode)


@declared(
    "(Tensor input, int[3] kernel_size, int[3] stride=[], int[3] padding=0, "
    "int[3] dilation=1, bool ceil_mode=False)"
)
def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Take the largest element of windows; see `nn.functional.max_pool3d`."""
    return F.max_pool3d(input, kernel_size, stride or None, padding, dilation, ceil_mode)


@declared("(Tensor input, int[1] output_size)")
def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    """Take the largest element of `output_size` windows, with its place."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)


@declared("(Tensor theta, int[] size, bool align_corners)")
def affine_grid_generator(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    """Make a flow field; see `nn.functional.affine_grid`."""
    return F.affine_grid(theta, size, align_corners)


# Convolution --------------------------------------------------------------------------------------

_CONVOLUTIONS = {
    False: ("conv1d", "conv2d", "conv3d"),
    True: ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
}


@declared(
    "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
    "int[] dilation, bool transposed, int[] output_padding, int groups)"
)
def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Convolve in one to three dimensions; see `nn.functional.conv2d`.

    Raises:
        RuntimeError: the weight has none of three to five dimensions.
    """
    dims = weight.dim() - 2
    if dims not in (1, 2, 3):
        raise RuntimeError(
            f"convolution: expected a weight of 3 to 5 dimensions, got shape {list(weight.shape)}"
        )
    convolve = getattr(F, _CONVOLUTIONS[bool(transposed)][dims - 1])
    if transposed:
        return convolve(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolve(input, weight, bias, stride, padding, dilation, groups)


# Losses -------------------------------------------------------------------------------------------


@declared("(Tensor input, Tensor target, int reduction=0, *, bool log_target=False)")
def kl_div(input: Any, target: Any, reduction: int = 0, *, log_target: bool = False) -> Any:
    """Return the Kullback-Leibler divergence; see `nn.functional.kl_div`."""
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


@declared(
    "(Tensor input, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=0)"
)
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 0
) -> Any:
    """Return the cross entropy of sigmoid(input); see `nn.functional`."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


@declared("(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=0)")
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0
) -> Any:
    """Return the loss of cosines; see `nn.functional.cosine_embedding_loss`."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


@declared("(Tensor input, Tensor target, float margin=1., int reduction=0)")
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: int = 0) -> Any:
    """Return the hinge loss; see `nn.functional.hinge_embedding_loss`."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


@declared("(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=0)")
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0
) -> Any:
    """Return the ranking loss of what broadcasts; see `nn.functional.margin_ranking_loss`."""
    operands = tangrad.broadcast_tensors(input1, input2, target)
    return F.margin_ranking_loss(*operands, margin, reduction=_reduction(reduction))


@declared(
    "(Tensor anchor, Tensor positive, Tensor negative, float margin=1., float p=2., "
    "float eps=1e-06, bool swap=False, int reduction=0)"
)
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int = 0,
) -> Any:
    """Return the loss of triplets; see `nn.functional.triplet_margin_loss`."""
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction)
    )


@declared("(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction)")
def poisson_nll_loss(
    input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int
) -> Any:
    """Return the likelihood of counts; see `nn.functional.poisson_nll_loss`."""
    return F.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


@overridable
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """Return the loss of unaligned sequences; see `nn.functional.ctc_loss`."""
    return F.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        _reduction(reduction),
        zero_infinity,
    )


# Norms --------------------------------------------------------------------------------------------


@overridable
def frobenius_norm(
    input: Any, dim: Any, keepdim: bool = False, *, out: tangrad.Tensor | None = None
) -> Any:
    """Return the root of the sum of squares over one or two dimensions; none given are all.

    Raises:
        RuntimeError: more than two dimensions are given.
        TypeError: `dim` is neither an integer nor several.
    """
    dims = (dim,) if isinstance(dim, int) else dim
    if not isinstance(dims, (tuple, list)):
        raise TypeError(
            "frobenius_norm(): argument 'dim' (position 2) must be tuple of ints, "
            f"not {type(dim).__name__}"
        )
    if len(dims) > 2:
        raise RuntimeError(
            f"frobenius_norm: expected at most 2 dimensions, but got dim={tuple(dims)}; "
            "linalg.vector_norm takes any number"
        )
    return tangrad.linalg.vector_norm(input, 2, tuple(dims) or None, keepdim, out=out)


@overridable
def nuclear_norm(input: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """Return the sum of the singular values of a matrix; `nuclear_norm(x, keepdim)` works, too."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return tangrad.linalg.matrix_norm(input, "nuc", dim, keepdim)

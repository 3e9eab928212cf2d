"""Which file of this folder makes the kernel of which op."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Ops whose kernels follow from what their definition declares.
_BY_KIND = {"pointwise": "pointwise", "reduction": "reductions", "scan": "scans"}
# {file: ops}; each file has a function `kernel_for(driver, op, dtype)`.
_FAMILIES = {
    "fills": "fill_ _sequence _spaced",
    "draws": (
        "uniform_ normal_ exponential_ bernoulli_number_ bernoulli_tensor random_between_ "
        "native_dropout"
    ),
    "softmax": ("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"),
    "losses": "nll_loss_elements nll_loss_total nll_loss_total_backward",
    "products": "mm bmm linear linear_weight_bias",
    "convolutions": (
        "convolution convolution_input convolution_weight convolution_biased "
        "convolution_weight_bias"
    ),
    "normalization": (
        "native_layer_norm native_layer_norm_backward _batch_norm _batch_norm_backward "
        "_batch_moments_"
    ),
    "places": (
        "gather index_select index_add index_select_backward index_copy index_fill_scalar "
        "scatter_src scatter_value scatter_add scatter_multiply scatter_extreme"
    ),
    "indices": "index _index_put masked_select masked_scatter nonzero_table",
    "sorting": "sort topk _permutation_of",
    "searching": "_searchsorted linear_recurrence",
    "attention": "_attention _attention_backward",
    "pooling": (
        "max_pool_with_indices max_pool_values max_pool_backward adaptive_max_pool "
        "window_average window_average_backward"
    ),
    "movement": (
        "cat constant_pad_nd select_backward slice_backward diagonal_backward "
        "unfold_backward tril triu flip"
    ),
    "lists": "_norms _total_norm _foreach_mul_tensor_",
    "variates": "poisson_tensor _standard_gamma _binomial",
    "counting": "bincount _distinct",
    "recurrent": "_recurrent_layer _recurrent_layer_backward",
    "optimizers": "_fused_sgd_ _fused_adam_ _fused_adamw_",
}
_BY_NAME = {op: module for module, ops in _FAMILIES.items() for op in ops.split()}


def kernel_for(driver: Compiler, op: Any, dtype: Any) -> Callable[..., Any] | None:
    """Return the kernel of an op for a promoted dtype, None where there is none."""
    if dtype.name not in KINDS:
        return None
    module = _BY_NAME.get(op.name) if op.kind == "kernel" else _BY_KIND.get(op.kind)
    if module is None:
        return None
    family = importlib.import_module(f"tangrad_source_kernels.{module}")
    found: Callable[..., Any] | None = family.kernel_for(driver, op, dtype.name)
    return found

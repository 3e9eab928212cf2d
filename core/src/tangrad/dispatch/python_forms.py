"""How PyTorch's functions that are written in Python hand a call to `__torch_function__`.

Those in C hand it over as it was written; those in Python have bound their arguments by then: the
first few go by position, all others by keyword, with defaults filled in.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from tangrad import _C

# By how many arguments go by position. Ops by their names, which are also methods'.
_OPS: dict[int, str] = {
    0: "meshgrid",
    1: "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout glu "
    "gumbel_softmax instance_norm interpolate lobpcg lu norm pca_lowrank softsign svd_lowrank "
    "tanhshrink unique unique_consecutive unravel_index",
    2: "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices "
    "adaptive_max_pool3d_with_indices affine_grid binary_cross_entropy "
    "binary_cross_entropy_with_logits cdist cross_entropy embedding embedding_bag "
    "fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices "
    "fractional_max_pool3d_with_indices grid_sample group_norm hinge_embedding_loss huber_loss "
    "kl_div l1_loss layer_norm local_response_norm max_pool1d max_pool2d max_pool3d "
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices mse_loss "
    "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss pad "
    "poisson_nll_loss rms_norm smooth_l1_loss soft_margin_loss split stft tensordot",
    3: "batch_norm cosine_embedding_loss gaussian_nll_loss lp_pool1d lp_pool2d lp_pool3d "
    "margin_ranking_loss max_unpool1d max_unpool2d max_unpool3d triplet_margin_loss",
    4: "ctc_loss",
}
# Functions of Python, and methods of Tensor, by module and name.
_FUNCTIONS: dict[str, dict[int, str]] = {
    "nn.functional": {
        1: "celu elu hardtanh leaky_relu log_softmax mish normalize relu relu6 rrelu selu silu "
        "softmax softmin",
        2: "unfold",
        3: "fold threshold triplet_margin_with_distance_loss",
    },
    "nn.linear_cross_entropy": {3: "linear_cross_entropy"},
    "nn.multi_head": {13: "multi_head_attention_forward"},
    "nn.init": {0: "uniform_ normal_ constant_ kaiming_uniform_"},
    "autograd": {1: "tensor_backward"},
    "utils.swap": {2: "module_load"},
    "tensor.memory": {2: "resize_as"},
    "tensor.protocol": {1: "represent"},
    "tensor.symbolic": {
        1: "sym_float sym_int sym_not sym_sqrt",
        2: "sym_max sym_min",
        3: "sym_ite",
    },
}

# Methods that Tensor has in C here: how many arguments go by position, and what is filled in.
_MEMBERS: dict[str, tuple[int, dict[str, Any]]] = {
    "__array__": (1, {"dtype": None}),
    "__array_wrap__": (1, {}),
    "__deepcopy__": (2, {}),
    "__dlpack__": (1, {"stream": -1, "max_version": None, "dl_device": None, "copy": None}),
    "__format__": (2, {}),
    "__reduce_ex__": (2, {}),
    "__setstate__": (2, {}),
    "register_hook": (2, {}),
    "register_post_accumulate_grad_hook": (2, {}),
}
# Parameters that PyTorch's function does not have, and those that only PyTorch's has.
_OURS_ALONE = {"l1_loss": ("weight",)}
_THEIRS_ALONE: dict[str, dict[str, Any]] = {"tensordot": {"out": None}}


def as_pytorch_hands(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], asked_first: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments and keywords of a call as PyTorch's handlers get them.

    Args:
        function: what was called.
        args, kwargs: as they were written.
        asked_first: the modes, if there are any.
    """
    if isinstance(function, _C.Op) and function.name == "einsum":
        # Objects get the operands of a list one by one; a mode, which is asked first, the list.
        as_list = len(args) == 2 and isinstance(args[1], (list, tuple))
        return (args if asked_first or not as_list else (args[0], *args[1])), kwargs
    count = _positional(function)
    if count is None:
        return args, kwargs
    names, defaults = _signature(function)
    if isinstance(function, _C.Op) and function.varargs == 0:
        # All tensors go by position.
        return args, {**{name: defaults[name] for name in names[1:]}, **kwargs}
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or any(name in given for name in kwargs):
        return args, kwargs  # the call is wrong, and its error is to come
    aliases = function.definition.keyword_aliases if isinstance(function, _C.Op) else {}
    given |= {aliases.get(k, k) if k not in names else k: value for k, value in kwargs.items()}
    bound = {**defaults, **given}
    first = names[:count]
    if not all(name in bound for name in first):
        return args, kwargs
    rest = [name for name in dict.fromkeys((*names, *bound)) if name in bound and name not in first]
    return tuple(bound[name] for name in first), {name: bound[name] for name in rest}


def _positional(function: Any) -> int | None:
    """Return how many arguments go by position where PyTorch binds them; None where it does not."""
    if isinstance(function, _C.Op):
        return _by_name().get(function.name)
    if isinstance(function, _C.Overridable):
        place = function.__module__.partition(".")[2]
        return _by_function().get((place, function.__name__))
    member = _MEMBERS.get(getattr(function, "__name__", ""))
    return None if member is None else member[0]


@cache
def _by_name() -> dict[str, int]:
    return {name: count for count, names in _OPS.items() for name in names.split()}


@cache
def _by_function() -> dict[tuple[str, str], int]:
    return {
        (place, name): count
        for place, table in _FUNCTIONS.items()
        for count, names in table.items()
        for name in names.split()
    }


@cache
def _signature(function: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the names of a function's parameters, and the defaults of those that have one."""
    if isinstance(function, _C.Op):
        one = function.overloads[0] if function.overloads else function
        params = [
            p
            for p in one.definition.schema.params
            if p.name not in _OURS_ALONE.get(function.name, ())
        ]
        defaults = {p.name: p.default for p in params if not p.required}
        return [p.name for p in params], defaults | _THEIRS_ALONE.get(function.name, {})
    found = inspect.signature(function).parameters.values()
    names = [p.name for p in found if p.kind is not p.VAR_KEYWORD]
    if not isinstance(function, _C.Overridable):
        return names, _MEMBERS[function.__name__][1]
    return names, {p.name: p.default for p in found if p.default is not p.empty}

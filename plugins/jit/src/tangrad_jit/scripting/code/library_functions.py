"""Further functions of `nn.functional` as the code of archives, in terms of PyTorch's inner ops.

A parameter that takes one number or several is a list here: the printer writes a list where a call
gives a number (`code/printer.py`), and the text repeats the only member of one where that matters.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FURTHER_FUNCTIONS", "REDUCED", "text_of_call"]

REDUCED = """  number = 1
  if reduction == "none":
    number = 0
  if reduction == "sum":
    number = 2
"""
_OLD = "size_average: Optional[bool]=None, reduce: Optional[bool]=None"
_WINDOW = "kernel_size: List[int], stride: Optional[List[int]]=None, padding: List[int]=[0]"


def _resizing() -> str:
    """Return the calls of `interpolate`, by mode and dimensions."""
    text = ""
    for mode, name in (
        ("nearest", "upsample_nearest"),
        ("nearest-exact", "_upsample_nearest_exact"),
    ):
        for d in (1, 2, 3):
            text += (
                f'  if torch.__and__(mode == "{mode}", dim == {d}):\n'
                f"    return torch.{name}{d}d(input, sizes, factors)\n"
            )
    for name in ("bilinear", "bicubic"):
        text += (
            f'  if torch.__and__(mode == "{name}", torch.__and__(dim == 2, antialias)):\n'
            f"    return torch._upsample_{name}2d_aa(input, sizes, corners, factors)\n"
        )
    for name, d in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)):
        text += (
            f'  if torch.__and__(mode == "{name}", dim == {d}):\n'
            f"    return torch.upsample_{name}{d}d(input, sizes, corners, factors)\n"
        )
    return text


_INTERPOLATE = f"""def interpolate(input: Tensor, size: Optional[List[int]]=None,
    scale_factor: Optional[List[float]]=None, mode: str="nearest",
    align_corners: Optional[bool]=None, recompute_scale_factor: Optional[bool]=None,
    antialias: bool=False) -> Tensor:
  dim = torch.sub(torch.dim(input), 2)
  corners = False
  if align_corners is not None:
    corners = align_corners
  sizes = annotate(Optional[List[int]], None)
  factors = annotate(Optional[List[float]], None)
  known = annotate(List[int], [])
  if size is not None:
    known = size
    if torch.eq(torch.len(size), 1):
      known = torch.mul(size, dim)
    sizes = known
  if scale_factor is not None:
    scales = scale_factor
    if torch.eq(torch.len(scale_factor), 1):
      scales = torch.mul(scale_factor, dim)
    again = mode == "area"
    if recompute_scale_factor is not None:
      again = torch.__or__(again, recompute_scale_factor)
    if again:
      for i in range(dim):
        length = torch.size(input, torch.add(i, 2))
        known = torch.append(known, int(torch.floor(torch.mul(length, scales[i]))))
      sizes = known
    else:
      factors = scales
  if torch.__and__(mode == "area", dim == 1):
    return torch.adaptive_avg_pool1d(input, known)
  if torch.__and__(mode == "area", dim == 2):
    return torch.adaptive_avg_pool2d(input, known)
  if torch.__and__(mode == "area", dim == 3):
    return torch.adaptive_avg_pool3d(input, known)
{_resizing()}  ops.prim.RaiseException("interpolate: the mode does not fit the input's dimensions")
  return input
"""


def _adaptive(kind: str, d: int) -> str:
    name = f"adaptive_{kind}_pool{d}d"
    given = "output_size: List[int]" + (", return_indices: bool=False" if kind == "max" else "")
    call = f"torch.{name}(input, sizes)"
    if kind == "max":
        call = f"({call})[0]"
    return f"""def {name}(input: Tensor, {given}) -> Tensor:
  sizes = output_size
  if torch.eq(torch.len(output_size), 1):
    sizes = torch.mul(output_size, {d})
  return {call}
"""


def _dropped(name: str, op: str, training: bool) -> str:
    return f"""def {name}(input: Tensor, p: float=0.5, training: bool={training},
    inplace: bool=False) -> Tensor:
  if inplace:
    return torch.{op}_(input, p, training)
  return torch.{op}(input, p, training)
"""


def _reduced(name: str, given: str, passed: str, op: str = "", last: str = "") -> str:
    return f"""def {name}({given}, {_OLD},
    reduction: str="mean"{last}) -> Tensor:
{REDUCED}  return torch.{op or name}({passed})
"""


def _of_windows(name: str, op: str, required: list[str]) -> str:
    optional = ["dilation", "padding", "stride"]
    given = [f"{key}: List[int]" for key in required]
    given += [f"{key}: List[int]=[{int(key != 'padding')}]" for key in optional]
    lists = [*required, *optional]
    text = f"def {name}(input: Tensor, {', '.join(given[:3])},\n    {', '.join(given[3:])})"
    text += " -> Tensor:\n"
    for k, key in enumerate(lists):
        text += f"  _{k} = {key}\n  if torch.eq(torch.len({key}), 1):\n"
        text += f"    _{k} = torch.mul({key}, 2)\n"
    return text + f"  return torch.{op}(input, {', '.join(f'_{k}' for k in range(len(lists)))})\n"


_PAIR = "input1: Tensor, input2: Tensor, target: Tensor"


def _unique(name: str, inverse: bool, counts: bool) -> str:
    """Return the text of `unique` or `unique_consecutive` with the results that are asked for."""
    picked = ["values", *["inverse"] * inverse, *["counts"] * counts]
    result = f"Tuple[{', '.join(['Tensor'] * len(picked))}]" if picked[1:] else "Tensor"
    flags = "return_inverse, return_counts"
    call = f"values, inverse, counts = torch.unique_consecutive(input, {flags}, dim)"
    calls = f"  {call}\n"
    if name == "unique":
        calls = f"""  if dim is not None:
    values, inverse, counts = torch.unique_dim(input, dim, sorted, {flags})
  else:
    values, inverse, counts = torch._unique2(input, sorted, {flags})
"""
    ordered = "sorted: bool=True," if name == "unique" else ""
    return f"""def {unique_name(name, inverse, counts)}(input: Tensor, {ordered}
    return_inverse: bool=False, return_counts: bool=False, dim: Optional[int]=None) -> {result}:
{calls}  return {f"({', '.join(picked)})" if picked[1:] else picked[0]}
"""


def unique_name(name: str, inverse: bool, counts: bool) -> str:
    """Return what the text is called: each set of results has its own."""
    return name + "_inverse" * inverse + "_counts" * counts


def text_of_call(name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    """Return the text that a call of the top level runs by, or "" where PyTorch has such an op.

    Args:
        name: of the function.
        args, kwargs: nodes of the tree, as they are given.
    """
    if name not in UNIQUE:
        return ""
    first = UNIQUE[name]
    given = {**dict(zip(("return_inverse", "return_counts"), args[first:], strict=False)), **kwargs}
    flags = [
        getattr(given.get(key), "value", False) is True
        for key in ("return_inverse", "return_counts")
    ]
    return unique_name(name, *flags)


# Where the flags of such a function begin.
UNIQUE = {"unique": 2, "unique_consecutive": 1}

FURTHER_FUNCTIONS: dict[str, str] = {
    **{
        unique_name(name, inverse, counts): _unique(name, inverse, counts)
        for name in UNIQUE
        for inverse in (False, True)
        for counts in (False, True)
    },
    "interpolate": _INTERPOLATE,
    "grid_sample": """def grid_sample(input: Tensor, grid: Tensor, mode: str="bilinear",
    padding_mode: str="zeros", align_corners: Optional[bool]=None) -> Tensor:
  how = 0
  if mode == "nearest":
    how = 1
  if mode == "bicubic":
    how = 2
  beyond = 0
  if padding_mode == "border":
    beyond = 1
  if padding_mode == "reflection":
    beyond = 2
  corners = False
  if align_corners is not None:
    corners = align_corners
  return torch.grid_sampler(input, grid, how, beyond, corners)
""",
    "affine_grid": """def affine_grid(theta: Tensor, size: List[int],
    align_corners: Optional[bool]=None) -> Tensor:
  corners = False
  if align_corners is not None:
    corners = align_corners
  return torch.affine_grid_generator(theta, size, corners)
""",
    "normalize": """def normalize(input: Tensor, p: float=2., dim: List[int]=[1],
    eps: float=1e-12) -> Tensor:
  length = torch.clamp_min(torch.norm(input, p, dim, True), eps)
  return torch.div(input, torch.expand_as(length, input))
""",
    "max_pool3d": f"""def max_pool3d(input: Tensor, {_WINDOW}, dilation: List[int]=[1],
    ceil_mode: bool=False) -> Tensor:
  steps = kernel_size
  if stride is not None:
    steps = stride
  return torch.max_pool3d(input, kernel_size, steps, padding, dilation, ceil_mode)
""",
    "avg_pool3d": f"""def avg_pool3d(input: Tensor, {_WINDOW}, ceil_mode: bool=False,
    count_include_pad: bool=True, divisor_override: Optional[int]=None) -> Tensor:
  steps = kernel_size
  if stride is not None:
    steps = stride
  return torch.avg_pool3d(input, kernel_size, steps, padding, ceil_mode, count_include_pad,
    divisor_override)
""",
    "adaptive_avg_pool2d": _adaptive("avg", 2),
    "adaptive_avg_pool3d": _adaptive("avg", 3),
    **{f"adaptive_max_pool{d}d": _adaptive("max", d) for d in (1, 2, 3)},
    "dropout1d": _dropped("dropout1d", "feature_dropout", True),
    "dropout2d": _dropped("dropout2d", "feature_dropout", True),
    "dropout3d": _dropped("dropout3d", "feature_dropout", True),
    "alpha_dropout": _dropped("alpha_dropout", "alpha_dropout", False),
    "feature_alpha_dropout": _dropped("feature_alpha_dropout", "feature_alpha_dropout", False),
    "binary_cross_entropy": _reduced(
        "binary_cross_entropy",
        "input: Tensor, target: Tensor, weight: Optional[Tensor]=None",
        "input, target, weight, number",
    ),
    "binary_cross_entropy_with_logits": _reduced(
        "binary_cross_entropy_with_logits",
        "input: Tensor, target: Tensor, weight: Optional[Tensor]=None",
        "input, target, weight, pos_weight, number",
        last=", pos_weight: Optional[Tensor]=None",
    ),
    "smooth_l1_loss": _reduced(
        "smooth_l1_loss",
        "input: Tensor, target: Tensor",
        "input, target, number, beta",
        last=", beta: float=1.",
    ),
    "soft_margin_loss": _reduced(
        "soft_margin_loss", "input: Tensor, target: Tensor", "input, target, number"
    ),
    "multilabel_margin_loss": _reduced(
        "multilabel_margin_loss", "input: Tensor, target: Tensor", "input, target, number"
    ),
    "hinge_embedding_loss": _reduced(
        "hinge_embedding_loss",
        "input: Tensor, target: Tensor, margin: float=1.",
        "input, target, margin, number",
    ),
    "margin_ranking_loss": _reduced(
        "margin_ranking_loss",
        f"{_PAIR}, margin: float=0.",
        "input1, input2, target, margin, number",
    ),
    "cosine_embedding_loss": _reduced(
        "cosine_embedding_loss",
        f"{_PAIR}, margin: float=0.",
        "input1, input2, target, margin, number",
    ),
    "triplet_margin_loss": _reduced(
        "triplet_margin_loss",
        "anchor: Tensor, positive: Tensor, negative: Tensor, margin: float=1., p: float=2.,\n"
        "    eps: float=1e-06, swap: bool=False",
        "anchor, positive, negative, margin, p, eps, swap, number",
    ),
    "kl_div": f"""def kl_div(input: Tensor, target: Tensor, {_OLD}, reduction: str="mean",
    log_target: bool=False) -> Tensor:
{REDUCED}  if reduction == "batchmean":
    total = torch.kl_div(input, target, 2, log_target=log_target)
    return torch.div(total, torch.size(input, 0))
  return torch.kl_div(input, target, number, log_target=log_target)
""",
    "huber_loss": f"""def huber_loss(input: Tensor, target: Tensor, reduction: str="mean",
    delta: float=1.) -> Tensor:
{REDUCED}  return torch.huber_loss(input, target, number, delta)
""",
    "celu": """def celu(input: Tensor, alpha: float=1., inplace: bool=False) -> Tensor:
  if inplace:
    return torch.celu_(input, alpha)
  return torch.celu(input, alpha)
""",
    "threshold": """def threshold(input: Tensor, threshold: float, value: float,
    inplace: bool=False) -> Tensor:
  if inplace:
    return torch.threshold_(input, threshold, value)
  return torch.threshold(input, threshold, value)
""",
    "rrelu": """def rrelu(input: Tensor, lower: float=0.125, upper: float=0.3333333333333333,
    training: bool=False, inplace: bool=False) -> Tensor:
  if inplace:
    return torch.rrelu_(input, lower, upper, training)
  return torch.rrelu(input, lower, upper, training)
""",
    "glu": """def glu(input: Tensor, dim: int=-1) -> Tensor:
  return torch.glu(input, dim)
""",
    "softshrink": """def softshrink(self: Tensor, lambd: float=0.5) -> Tensor:
  return torch.softshrink(self, lambd)
""",
    "softsign": """def softsign(self: Tensor) -> Tensor:
  return torch.div(self, torch.add(torch.abs(self), 1))
""",
    "tanhshrink": """def tanhshrink(self: Tensor) -> Tensor:
  return torch.sub(self, torch.tanh(self))
""",
    "logsigmoid": """def logsigmoid(self: Tensor) -> Tensor:
  return torch.log_sigmoid(self)
""",
    "softmin": """def softmin(input: Tensor, dim: Optional[int]=None, _stacklevel: int=3,
    dtype: Optional[int]=None) -> Tensor:
  number = -1
  if dim is not None:
    number = dim
  return torch.softmax(torch.neg(input), number, dtype)
""",
    "instance_norm": """def instance_norm(input: Tensor, running_mean: Optional[Tensor]=None,
    running_var: Optional[Tensor]=None, weight: Optional[Tensor]=None,
    bias: Optional[Tensor]=None, use_input_stats: bool=True, momentum: float=0.1,
    eps: float=1e-05) -> Tensor:
  return torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
    momentum, eps, True)
""",
    "rms_norm": """def rms_norm(input: Tensor, normalized_shape: List[int],
    weight: Optional[Tensor]=None, eps: Optional[float]=None) -> Tensor:
  return torch.rms_norm(input, normalized_shape, weight, eps)
""",
    "unfold": _of_windows("unfold", "im2col", ["kernel_size"]),
    "fold": _of_windows("fold", "col2im", ["output_size", "kernel_size"]),
}

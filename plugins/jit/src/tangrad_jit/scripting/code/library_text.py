"""Functions and modules of `nn` as the code of archives: in terms of PyTorch's inner ops.

`FUNCTIONS` has what `nn.functional` takes by its names, and contexts; `module_text` writes
`forward` of a module of `tangrad.nn`, with its numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.code.library_attention import ATTENTION_SIGNATURE, attention_text
from tangrad_jit.scripting.code.library_functions import FURTHER_FUNCTIONS, REDUCED
from tangrad_jit.scripting.code.library_losses import LOSS_SIGNATURES, LOSSES

__all__ = ["FUNCTIONS", "module_text"]


def _pointwise(name: str, parameters: str = "", inner: str = "") -> str:
    """Return a function with an in-place form."""
    given = f", {parameters}" if parameters else ""
    passed = f", {inner}" if inner else ""
    return f"""def {name}(input: Tensor{given}, inplace: bool=False) -> Tensor:
  if inplace:
    return torch.{name}_(input{passed})
  return torch.{name}(input{passed})
"""


def _along(name: str) -> str:
    return f"""def {name}(input: Tensor, dim: Optional[int]=None, _stacklevel: int=3,
    dtype: Optional[int]=None) -> Tensor:
  number = -1
  if dim is not None:
    number = dim
  return torch.{name}(input, number, dtype)
"""


def _loss(name: str) -> str:
    return f"""def {name}(input: Tensor, target: Tensor, reduction: str="mean") -> Tensor:
{REDUCED}  return torch.{name}(input, target, number)
"""


def _pool(d: int, kind: str) -> str:
    given = "kernel_size: List[int], stride: Optional[List[int]]=None, padding: List[int]=[0]"
    # Quantized tensors take no single number for several dimensions.
    whole = "".join(
        f"""  {name} = {value}
  if torch.eq(torch.len({name}), 1):
    {name} = torch.mul({name}, {d})
"""
        for name, value in (("size", "kernel_size"), ("ends", "padding"))
    )
    whole += f"""  steps = size
  if stride is not None:
    steps = stride
    if torch.eq(torch.len(steps), 1):
      steps = torch.mul(steps, {d})
"""
    if kind == "max":
        return f"""def max_pool{d}d(input: Tensor, {given}, dilation: List[int]=[1],
    ceil_mode: bool=False) -> Tensor:
{whole}  apart = dilation
  if torch.eq(torch.len(apart), 1):
    apart = torch.mul(apart, {d})
  return torch.max_pool{d}d(input, size, steps, ends, apart, ceil_mode)
"""
    return f"""def avg_pool{d}d(input: Tensor, {given}, ceil_mode: bool=False,
    count_include_pad: bool=True, divisor_override: Optional[int]=None) -> Tensor:
{whole}  return torch.avg_pool{d}d(input, size, steps, ends, ceil_mode, count_include_pad,
    divisor_override)
"""


def _lp_pool_function(d: int) -> str:
    """Return a function whose numbers and sizes are of the types that a call gives them."""
    several = "Union[List[int], int]"
    return f"""def lp_pool{d}d(input: Tensor, norm_type: Union[float, int],
    kernel_size: {several}, stride: Union[List[int], NoneType, int]=None,
    ceil_mode: bool=False) -> Tensor:
  if isinstance(norm_type, (int,)):
    power = float(norm_type)
  else:
    power = norm_type
  if isinstance(kernel_size, (int,)):
    size = torch.mul([kernel_size], {d})
  else:
    size = kernel_size
  steps = size
  if stride is not None:
    if isinstance(stride, (int,)):
      steps = torch.mul([stride], {d})
    else:
      steps = stride
  mean = torch.avg_pool{d}d(torch.pow(input, power), size, steps, {[0] * d}, ceil_mode)
  held = torch.mul(torch.sign(mean), torch.relu(torch.abs(mean)))
  count = 1
  for n in size:
    count = torch.mul(count, n)
  return torch.pow(torch.mul(held, count), torch.div(1., power))
"""


FUNCTIONS: dict[str, str] = {
    **FURTHER_FUNCTIONS,
    **{f"lp_pool{d}d": _lp_pool_function(d) for d in (1, 2, 3)},
    "linear": """def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor]=None) -> Tensor:
  return torch.linear(input, weight, bias)
""",
    "gelu": """def gelu(self: Tensor, approximate: str="none") -> Tensor:
  return torch.gelu(self, approximate=approximate)
""",
    "softplus": """def softplus(self: Tensor, beta: float=1., threshold: float=20.) -> Tensor:
  return torch.softplus(self, beta, threshold)
""",
    "dropout": """def dropout(input: Tensor, p: float=0.5, training: bool=True,
    inplace: bool=False) -> Tensor:
  if inplace:
    return torch.dropout_(input, p, training)
  return torch.dropout(input, p, training)
""",
    "embedding": """def embedding(input: Tensor, weight: Tensor,
    padding_idx: Optional[int]=None) -> Tensor:
  place = -1
  if padding_idx is not None:
    place = padding_idx
  return torch.embedding(weight, input, place, False, False)
""",
    "layer_norm": """def layer_norm(input: Tensor, normalized_shape: List[int],
    weight: Optional[Tensor]=None, bias: Optional[Tensor]=None, eps: float=1e-05) -> Tensor:
  return torch.layer_norm(input, normalized_shape, weight, bias, eps)
""",
    "group_norm": """def group_norm(input: Tensor, num_groups: int,
    weight: Optional[Tensor]=None, bias: Optional[Tensor]=None, eps: float=1e-05) -> Tensor:
  return torch.group_norm(input, num_groups, weight, bias, eps)
""",
    "batch_norm": """def batch_norm(input: Tensor, running_mean: Optional[Tensor],
    running_var: Optional[Tensor], weight: Optional[Tensor]=None, bias: Optional[Tensor]=None,
    training: bool=False, momentum: float=0.1, eps: float=1e-05) -> Tensor:
  return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum,
    eps, True)
""",
    "cross_entropy": f"""def cross_entropy(input: Tensor, target: Tensor,
    weight: Optional[Tensor]=None, size_average: Optional[bool]=None, ignore_index: int=-100,
    reduce: Optional[bool]=None, reduction: str="mean", label_smoothing: float=0.) -> Tensor:
{REDUCED}  return torch.cross_entropy_loss(input, target, weight, number, ignore_index,
    label_smoothing)
""",
    "nll_loss": f"""def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor]=None,
    size_average: Optional[bool]=None, ignore_index: int=-100, reduce: Optional[bool]=None,
    reduction: str="mean") -> Tensor:
{REDUCED}  return torch.nll_loss_nd(input, target, weight, number, ignore_index)
""",
    "mse_loss": _loss("mse_loss"),
    "l1_loss": _loss("l1_loss"),
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
    **{name: _pointwise(name) for name in ("relu", "relu6", "silu", "mish", "hardswish")},
    "hardsigmoid": _pointwise("hardsigmoid"),
    "selu": _pointwise("selu"),
    "leaky_relu": _pointwise("leaky_relu", "negative_slope: float=0.01", "negative_slope"),
    "elu": _pointwise("elu", "alpha: float=1.", "alpha"),
    "hardtanh": _pointwise("hardtanh", "min_val: float=-1., max_val: float=1.", "min_val, max_val"),
    "max_pool1d": _pool(1, "max"),
    "max_pool2d": _pool(2, "max"),
    "avg_pool2d": _pool(2, "avg"),
    "one_hot": """def one_hot(input: Tensor, num_classes: int=-1) -> Tensor:
  return torch.one_hot(input, num_classes)
""",
    "pad": """def pad(input: Tensor, pad: List[int], mode: str="constant",
    value: Optional[float]=None) -> Tensor:
  return torch.pad(input, pad, mode, value)
""",
    "scaled_dot_product_attention": """def scaled_dot_product_attention(query: Tensor,
    key: Tensor, value: Tensor, attn_mask: Optional[Tensor]=None, dropout_p: float=0.,
    is_causal: bool=False) -> Tensor:
  return torch.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal)
""",
    **{
        f"context_{name}": f"""class context_{name}:
  before : bool
  def __init__(self) -> NoneType:
    self.before = False
    return None
  def __enter__(self) -> NoneType:
    self.before = torch.is_grad_enabled()
    torch.set_grad_enabled({enabled})
    return None
  def __exit__(self, type: Any, value: Any, traceback: Any) -> NoneType:
    torch.set_grad_enabled(self.before)
    return None
"""
        for name, enabled in (("no_grad", False), ("enable_grad", True))
    },
}


def _sizes(value: Any, count: int) -> str:
    return str([value] * count if isinstance(value, int) else list(value))


def _conv(module: Any) -> str:
    d = len(module.kernel_size)
    if module.padding_mode != "zeros":
        return ""
    if module.transposed:
        return (
            "if output_size is not None:\n"
            '  ops.prim.RaiseException("output_size is not kept in archives")\n'
            f"return torch.conv_transpose{d}d(input, self.weight, self.bias, "
            f"{list(module.stride)}, {list(module.padding)}, {list(module.output_padding)}, "
            f"{module.groups}, {list(module.dilation)})"
        )
    padding = f'"{module.padding}"' if isinstance(module.padding, str) else list(module.padding)
    return (
        f"return torch.conv{d}d(input, self.weight, self.bias, {list(module.stride)}, {padding}, "
        f"{list(module.dilation)}, {module.groups})"
    )


def _batch_norm(module: Any) -> str:
    momentum = 0.1 if module.momentum is None else module.momentum
    if module.momentum is None:
        return ""
    lines = []
    if module.running_mean is None:
        training = "True"
    else:
        lines = ["if self.training:", "  count = torch.add_(self.num_batches_tracked, 1)"]
        training = "self.training"
    lines.append(
        "return torch.batch_norm(input, self.weight, self.bias, self.running_mean, "
        f"self.running_var, {training}, {momentum!r}, {module.eps!r}, True)"
    )
    return "\n".join(lines)


def _pooled(name: str, d: int) -> Callable[[Any], str]:
    def text(module: Any) -> str:
        if getattr(module, "return_indices", False):
            return ""
        sizes = [
            _sizes(value, d)
            for value in (
                module.kernel_size,
                module.kernel_size if module.stride is None else module.stride,
                module.padding,
            )
        ]
        if name == "max":
            sizes.append(_sizes(module.dilation, d))
            return f"return torch.max_pool{d}d(input, {', '.join(sizes)}, {module.ceil_mode})"
        return (
            f"return torch.avg_pool{d}d(input, {', '.join(sizes)}, {module.ceil_mode}, "
            f"{module.count_include_pad})"
        )

    return text


def _adaptive(kind: str, d: int) -> Callable[[Any], str]:
    def text(module: Any) -> str:
        size = module.output_size
        if getattr(module, "return_indices", False):
            return ""
        if not isinstance(size, int) and None in tuple(size):
            return ""
        call = f"torch.adaptive_{kind}_pool{d}d(input, {_sizes(size, d)})"
        return f"return ({call})[0]" if kind == "max" else f"return {call}"

    return text


def _recurrent(module: Any) -> str:
    names = [
        f"self.{w}_l{layer}{suffix}"
        for layer in range(module.num_layers)
        for suffix in (("", "_reverse") if module.bidirectional else ("",))
        for w in ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if module.bias else ()))
    ]
    directions = 2 if module.bidirectional else 1
    kind = {"LSTM": "lstm", "GRU": "gru"}.get(type(module).__name__, "")
    if type(module).__name__ == "RNN":
        kind = f"rnn_{module.nonlinearity}"
    if not kind or getattr(module, "proj_size", None):
        return ""
    batch = 0 if module.batch_first else 1
    zeros = (
        f"torch.zeros([{module.num_layers * directions}, torch.size(input, {batch}), "
        f"{module.hidden_size}], dtype=input.dtype, device=input.device)"
    )
    flags = (
        f"{module.bias}, {module.num_layers}, {float(module.dropout)!r}, self.training, "
        f"{module.bidirectional}, {module.batch_first}"
    )
    weights = ", ".join(names)
    if kind != "lstm":
        return (
            f"if hx is None:\n  hx = {zeros}\n"
            f"y, h = torch.{kind}(input, hx, [{weights}], {flags})\nreturn (y, h)"
        )
    return (
        f"if hx is None:\n  zeros = {zeros}\n  hx = (zeros, zeros)\n"
        f"y, h, c = torch.lstm(input, [hx[0], hx[1]], [{weights}], {flags})\nreturn (y, (h, c))"
    )


def _cell(name: str) -> Callable[[Any], str]:
    def text(module: Any) -> str:
        zeros = (
            f"torch.zeros([torch.size(input, 0), {module.hidden_size}], dtype=input.dtype, "
            "device=input.device)"
        )
        weights = "self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh"
        if name != "lstm":
            kind = name if name == "gru" else f"rnn_{module.nonlinearity}"
            return f"if hx is None:\n  hx = {zeros}\nreturn torch.{kind}_cell(input, hx, {weights})"
        return (
            f"if hx is None:\n  zeros = {zeros}\n  hx = (zeros, zeros)\n"
            f"h, c = torch.lstm_cell(input, [hx[0], hx[1]], {weights})\nreturn (h, c)"
        )

    return text


def _embedding(module: Any) -> str:
    if module.max_norm is not None:
        return ""
    place = -1 if module.padding_idx is None else module.padding_idx
    return (
        f"return torch.embedding(self.weight, input, {place}, {module.scale_grad_by_freq}, False)"
    )


def _constant_pad(module: Any) -> str:
    value = float(getattr(module, "value", 0.0))
    return f"return torch.constant_pad_nd(input, {list(module.padding)}, {value!r})"


def _pad(name: str) -> Callable[[Any], str]:
    return lambda m: f"return torch.{name}(input, {list(m.padding)})"


def _lp_pool(module: Any) -> str:
    d = int(type(module).__name__[-2])
    size = [module.kernel_size] * d if isinstance(module.kernel_size, int) else module.kernel_size
    stride = size if module.stride is None else _sizes(module.stride, d)
    norm = float(module.norm_type)
    return (
        f"mean = torch.avg_pool{d}d(torch.pow(input, {norm!r}), {list(size)}, {stride}, "
        f"{[0] * d}, {module.ceil_mode})\n"
        "held = torch.mul(torch.sign(mean), torch.relu(torch.abs(mean)))\n"
        f"return torch.pow(torch.mul(held, {math.prod(size)}), {1.0 / norm!r})"
    )


def _instance_norm(module: Any) -> str:
    uses_input = "True" if not module.track_running_stats else "self.training"
    return (
        "return torch.instance_norm(input, self.weight, self.bias, self.running_mean, "
        f"self.running_var, {uses_input}, {module.momentum!r}, {module.eps!r}, True)"
    )


def _in_place(name: str, *attributes: str) -> Callable[[Any], str]:
    def text(module: Any) -> str:
        given = "".join(f", {getattr(module, a)!r}" for a in attributes)
        return f"return torch.{name}{'_' if module.inplace else ''}(input{given})"

    return text


def _soft(name: str) -> Callable[[Any], str]:
    return lambda m: "" if m.dim is None else f"return torch.{name}(input, {m.dim}, None)"


_MODULES: dict[type, Callable[[Any], str]] = {
    nn.Identity: lambda m: "return input",
    **dict.fromkeys(
        (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear),
        lambda m: "return torch.linear(input, self.weight, self.bias)",
    ),
    nn.MultiheadAttention: attention_text,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _conv),
    **dict.fromkeys((nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d), _constant_pad),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), _constant_pad),
    **{
        getattr(nn, f"{kind}Pad{d}d"): _pad(f"{kind.lower()}_pad{d}d")
        for kind in ("Reflection", "Replication")
        for d in (1, 2, 3)
    },
    **dict.fromkeys((nn.LPPool1d, nn.LPPool2d, nn.LPPool3d), _lp_pool),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), _instance_norm),
    nn.RReLU: lambda m: (
        f"return torch.rrelu{'_' if m.inplace else ''}(input, {m.lower!r}, {m.upper!r}, "
        "self.training)"
    ),
    nn.CELU: _in_place("celu", "alpha"),
    nn.SELU: _in_place("selu"),
    nn.Mish: _in_place("mish"),
    nn.Threshold: _in_place("threshold", "threshold", "value"),
    nn.GLU: lambda m: f"return torch.glu(input, {m.dim})",
    nn.LogSigmoid: lambda m: "return torch.log_sigmoid(input)",
    nn.Softsign: lambda m: "return torch.div(input, torch.add(torch.abs(input), 1))",
    nn.Tanhshrink: lambda m: "return torch.sub(input, torch.tanh(input))",
    nn.Hardshrink: lambda m: f"return torch.hardshrink(input, {m.lambd!r})",
    nn.Softshrink: lambda m: f"return torch.softshrink(input, {m.lambd!r})",
    nn.PixelShuffle: lambda m: f"return torch.pixel_shuffle(input, {m.upscale_factor})",
    nn.PixelUnshuffle: lambda m: f"return torch.pixel_unshuffle(input, {m.downscale_factor})",
    nn.ChannelShuffle: lambda m: f"return torch.channel_shuffle(input, {m.groups})",
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    nn.LayerNorm: lambda m: (
        f"return torch.layer_norm(input, {list(m.normalized_shape)}, self.weight, self.bias, "
        f"{m.eps!r})"
    ),
    nn.GroupNorm: lambda m: (
        f"return torch.group_norm(input, {m.num_groups}, self.weight, self.bias, {m.eps!r})"
    ),
    nn.ReLU: _in_place("relu"),
    nn.ReLU6: _in_place("relu6"),
    nn.SiLU: _in_place("silu"),
    nn.Hardswish: _in_place("hardswish"),
    nn.Hardsigmoid: _in_place("hardsigmoid"),
    nn.LeakyReLU: _in_place("leaky_relu", "negative_slope"),
    nn.ELU: _in_place("elu", "alpha"),
    nn.Hardtanh: _in_place("hardtanh", "min_val", "max_val"),
    nn.GELU: lambda m: f'return torch.gelu(input, approximate="{m.approximate}")',
    nn.Tanh: lambda m: "return torch.tanh(input)",
    nn.Sigmoid: lambda m: "return torch.sigmoid(input)",
    nn.Softmax: _soft("softmax"),
    nn.LogSoftmax: _soft("log_softmax"),
    nn.Softplus: lambda m: f"return torch.softplus(input, {m.beta!r}, {m.threshold!r})",
    nn.PReLU: lambda m: "return torch.prelu(input, self.weight)",
    nn.Dropout: lambda m: (
        f"return torch.dropout{'_' if m.inplace else ''}(input, {float(m.p)!r}, self.training)"
    ),
    nn.Dropout2d: lambda m: f"return torch.feature_dropout(input, {float(m.p)!r}, self.training)",
    nn.MaxPool1d: _pooled("max", 1),
    nn.MaxPool2d: _pooled("max", 2),
    nn.MaxPool3d: _pooled("max", 3),
    nn.AvgPool1d: _pooled("avg", 1),
    nn.AvgPool2d: _pooled("avg", 2),
    nn.AvgPool3d: _pooled("avg", 3),
    **{
        getattr(nn, f"Adaptive{kind}Pool{d}d"): _adaptive(kind.lower(), d)
        for kind in ("Avg", "Max")
        for d in (1, 2, 3)
    },
    nn.Flatten: lambda m: f"return torch.flatten(input, {m.start_dim}, {m.end_dim})",
    nn.Embedding: _embedding,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
    nn.RNN: _recurrent,
    nn.LSTMCell: _cell("lstm"),
    nn.GRUCell: _cell("gru"),
    nn.RNNCell: _cell("rnn"),
}

_MODULES.update(LOSSES)

_SIGNATURES: dict[type, tuple[str, str]] = {
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        ("output_size: Optional[List[int]]=None", "Tensor"),
    ),
    nn.LSTM: (
        "hx: Optional[Tuple[Tensor, Tensor]]=None",
        "Tuple[Tensor, Tuple[Tensor, Tensor]]",
    ),
    **dict.fromkeys((nn.GRU, nn.RNN), ("hx: Optional[Tensor]=None", "Tuple[Tensor, Tensor]")),
    nn.LSTMCell: ("hx: Optional[Tuple[Tensor, Tensor]]=None", "Tuple[Tensor, Tensor]"),
    **dict.fromkeys((nn.GRUCell, nn.RNNCell), ("hx: Optional[Tensor]=None", "Tensor")),
    nn.MultiheadAttention: ("", "Tuple[Tensor, Optional[Tensor]]"),
}
_PARAMETERS = {**LOSS_SIGNATURES, nn.MultiheadAttention: ATTENTION_SIGNATURE}


def module_text(module: nn.Module, name: str) -> str:
    """Return the code of `forward` of a module of the library, or "" where archives have none.

    Args:
        module: the module, whose numbers the code has as constants.
        name: the qualified name of its class in the archive.
    """
    forward = type(module).forward
    known = (c for c in type(module).__mro__ if c in _MODULES)
    cls = next((c for c in known if getattr(c, "forward", None) is forward), None)
    body = "" if cls is None else _MODULES[cls](module)
    if not body or cls is None:
        return ""
    further, returned = _SIGNATURES.get(cls, ("", "Tensor"))
    parameters = _PARAMETERS.get(cls, ("input: Tensor", *filter(None, [further])))
    given = ",\n    ".join([f"self: {name}", *parameters])
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"  def forward({given}) -> {returned}:\n{lines}"

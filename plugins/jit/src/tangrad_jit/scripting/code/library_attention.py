"""`nn.MultiheadAttention` as the code of archives."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ATTENTION_SIGNATURE", "attention_text"]

ATTENTION_SIGNATURE = (
    ("query: Tensor", "key: Tensor", "value: Tensor")
    + ("key_padding_mask: Optional[Tensor]=None", "need_weights: bool=True")
    + ("attn_mask: Optional[Tensor]=None", "average_attn_weights: bool=True")
    + ("is_causal: bool=False",)
)

_BODY = """batched = torch.dim(query) == 3
if batched:
  q = {first}query{last}
  k = {first}key{last}
  v = {first}value{last}
else:
  q = torch.unsqueeze(query, 1)
  k = torch.unsqueeze(key, 1)
  v = torch.unsqueeze(value, 1)
rows = torch.size(q, 0)
batch = torch.size(q, 1)
columns = torch.size(k, 0)
groups = torch.mul(batch, {heads})
{projected}
q = torch.transpose(torch.reshape(q, [rows, groups, {size}]), 0, 1)
k = torch.transpose(torch.reshape(k, [columns, groups, {size}]), 0, 1)
v = torch.transpose(torch.reshape(v, [columns, groups, {size}]), 0, 1)
scores = torch.bmm(torch.mul(q, {scale!r}), torch.transpose(k, 1, 2))
if attn_mask is not None:
  mask = attn_mask
  if torch.is_floating_point(attn_mask):
    scores = torch.add(scores, mask)
  else:
    scores = torch.masked_fill(scores, mask, -inf)
if key_padding_mask is not None:
  padding = torch.reshape(key_padding_mask, [batch, 1, 1, columns])
  padding = torch.reshape(torch.expand(padding, [-1, {heads}, -1, -1]), [groups, 1, columns])
  if torch.is_floating_point(key_padding_mask):
    scores = torch.add(scores, padding)
  else:
    scores = torch.masked_fill(scores, padding, -inf)
weights = torch.softmax(scores, -1)
out = torch.bmm(torch.dropout(weights, {dropout!r}, self.training), v)
out = torch.reshape(torch.transpose(out, 0, 1), [rows, batch, {width}])
out = (self.out_proj).forward(out)
weights = torch.reshape(weights, [batch, {heads}, rows, columns])
if average_attn_weights:
  weights = torch.mean(weights, [1])
if batched:
  out = {first}out{last}
else:
  out = torch.squeeze(out, 1)
  weights = torch.squeeze(weights, 0)
told = annotate(Optional[Tensor], None)
if need_weights:
  told = weights
return (out, told)"""


def attention_text(module: Any) -> str:
    """Return the body of `forward`, or "" where archives have none."""
    if module.bias_k is not None or module.add_zero_attn:
        return ""
    names = [f"self.{name}_proj_weight" for name in "qkv"]
    lines = []
    if module._qkv_same_embed_dim:
        lines.append("projections = torch.chunk(self.in_proj_weight, 3)")
        names = [f"torch.__getitem__(projections, {k})" for k in range(3)]
    shifts = ["None"] * 3
    if module.in_proj_bias is not None:
        lines.append("shifts = torch.chunk(self.in_proj_bias, 3)")
        shifts = [f"torch.__getitem__(shifts, {k})" for k in range(3)]
    lines += [
        f"{name} = torch.linear({name}, {weight}, {shift})"
        for name, weight, shift in zip("qkv", names, shifts, strict=True)
    ]
    first, last = ("torch.transpose(", ", 0, 1)") if module.batch_first else ("", "")
    size = module.embed_dim // module.num_heads
    return _BODY.format(
        first=first,
        last=last,
        heads=module.num_heads,
        size=size,
        width=module.embed_dim,
        scale=1 / math.sqrt(size),
        dropout=float(module.dropout),
        projected="\n".join(lines),
    )

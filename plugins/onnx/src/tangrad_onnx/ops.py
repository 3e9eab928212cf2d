"""Operators of ONNX as functions: `torch.onnx.ops`. An export writes each as one node.

`attention` and `rotary_embedding` compute what the standard says; what `symbolic` names is known
to who runs the file alone, so that it gives zeros here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.overrides import handle_torch_function, has_torch_function
from tangrad_onnx.operators.attention import Attention, RotaryEmbedding
from tangrad_onnx.values import TENSOR_TYPES

__all__ = ["attention", "rotary_embedding", "symbolic", "symbolic_multi_out"]

Attributes = Mapping[str, Any]


def symbolic(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Attributes | None = None,
    *,
    dtype: Any,
    shape: Sequence[int],
    version: int | None = None,
    metadata_props: dict[str, str] | None = None,
) -> Tensor:
    """Return zeros; an export writes a node of any operator in the place of the call.

    Args:
        domain_op: "domain::Operator", or "Operator" of ai.onnx.
        inputs: of the node; None for one that is left out.
        attrs: of the node: numbers, text, or lists of these.
        dtype: of the result, or its number in ONNX.
        shape: of the result.
        version: of the domain, 1 by default.
        metadata_props: texts that the node carries.

    Raises:
        ValueError: an attribute is of another type.
        RuntimeError: `dtype` is a number that is no tensor's.
    """
    found = symbolic_multi_out(
        domain_op,
        inputs,
        attrs,
        dtypes=(dtype,),
        shapes=(shape,),
        version=version,
        metadata_props=metadata_props,
    )
    return found[0]


def symbolic_multi_out(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Attributes | None = None,
    *,
    dtypes: Sequence[Any],
    shapes: Sequence[Sequence[int]],
    version: int | None = None,
    metadata_props: dict[str, str] | None = None,
) -> Sequence[Tensor]:
    """Return a tuple of zeros; see `symbolic`.

    Args:
        domain_op, inputs, attrs, version, metadata_props: as those of `symbolic`.
        dtypes, shapes: of each result.

    Raises:
        ValueError: an attribute is of another type.
        RuntimeError: there are more shapes than dtypes, or fewer; a number is no dtype's.
    """
    if has_torch_function(()):
        return handle_torch_function(
            symbolic_multi_out,
            (),
            domain_op,
            list(inputs),
            dict(attrs or {}),
            dtypes=tuple(dtypes),
            shapes=tuple(tuple(shape) for shape in shapes),
            version=version,
            metadata_props=metadata_props,
        )
    if len(shapes) != len(dtypes):
        raise RuntimeError(
            f"Number of shapes ({len(shapes)}) must match number of dtypes ({len(dtypes)})"
        )
    for key, value in (attrs or {}).items():
        _check_attribute(key, value)
    return tuple(
        tangrad.zeros(tuple(shape), dtype=_dtype(dtype))
        for dtype, shape in zip(dtypes, shapes, strict=True)
    )


def _check_attribute(key: str, value: Any) -> None:
    parts = value if isinstance(value, (list, tuple)) else [value]
    kinds = {type(part) for part in parts}
    if not kinds <= {int, float, bool} and kinds != {str}:
        raise ValueError(
            f"Unsupported attribute type for {key}: {type(value)}; give numbers, text, or a list "
            "of either"
        )


def _dtype(given: Any) -> Any:
    if not isinstance(given, int):
        return given
    if given not in TENSOR_TYPES:
        raise RuntimeError(
            f"{given} is invalid as an ONNX data type. Valid values are {sorted(TENSOR_TYPES)}"
        )
    return TENSOR_TYPES[given]


def rotary_embedding(
    X: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Turn pairs of elements by angles that depend on the position (operator RotaryEmbedding, 23).

    Args:
        X: (batch, heads, length, size), or (batch, length, heads * size) with `num_heads`.
        cos_cache, sin_cache: (positions, size / 2), or of each place without `position_ids`.
        position_ids: (batch, length), which rows of the caches to take.
        interleaved: whether pairs lie beside each other, and not half a head apart.
        num_heads: of an input of three dimensions.
        rotary_embedding_dim: how many elements of a head are turned; all with 0.
    """
    given = X, cos_cache, sin_cache, position_ids
    named: dict[str, Any] = {
        "interleaved": interleaved,
        "num_heads": num_heads,
        "rotary_embedding_dim": rotary_embedding_dim,
    }
    if has_torch_function(()):
        turned: Tensor = handle_torch_function(rotary_embedding, (), *given, **named)
        return turned
    return RotaryEmbedding(
        *given,
        interleaved=int(interleaved),
        num_heads=num_heads or None,
        rotary_embedding_dim=rotary_embedding_dim,
    )


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attend as the operator Attention of opset 23 says.

    Args:
        Q, K, V: (batch, heads, length, size), or (batch, length, heads * size) with the numbers of
            heads.
        attn_mask: booleans, or numbers that are added; broadcast to the scores.
        past_key, past_value: (batch, heads, length, size), in front of K and V.
        is_causal: whether a position sees none behind it.
        kv_num_heads, q_num_heads: of inputs of three dimensions.
        qk_matmul_output_mode: which scores the fourth result is: 0 the scaled products, 1 with the
            soft cap, 2 with the mask, too, 3 the probabilities.
        scale: of the products; 1 over the root of the size by default.
        softcap: where scores are bounded, if it is not 0.
        softmax_precision: number in ONNX of the dtype that the softmax is computed in.

    Returns:
        The result, the keys and values with those of the past, and the scores.
    """
    given = Q, K, V, attn_mask, past_key, past_value
    named: dict[str, Any] = {
        "is_causal": is_causal,
        "kv_num_heads": kv_num_heads,
        "q_num_heads": q_num_heads,
        "qk_matmul_output_mode": qk_matmul_output_mode,
        "scale": scale,
        "softcap": softcap,
        "softmax_precision": softmax_precision,
    }
    if has_torch_function(()):
        kept: tuple[Tensor, Tensor, Tensor, Tensor] = handle_torch_function(
            attention, (), *given, **named
        )
        return kept
    named |= {
        "is_causal": int(is_causal),
        "kv_num_heads": kv_num_heads or None,
        "q_num_heads": q_num_heads or None,
    }
    found: tuple[Tensor, Tensor, Tensor, Tensor] = Attention(*given, **named)
    return found

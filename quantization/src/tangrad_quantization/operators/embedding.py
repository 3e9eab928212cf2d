"""Embeddings whose rows are quantized: as quantized tensors, or as bytes with scales beside them.

Rows of bytes are those of FBGEMM: the integers, then the row's scale and least number, both
float32 behind integers of 8 bits, float16 behind shorter ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_quantization import functional
from tangrad_quantization.dtypes import RANGES
from tangrad_quantization.layouts import layout

__all__ = [
    *("embedding_bag_prepack", "embedding_bag_unpack", "embedding_byte", "embedding_4bit"),
    *("embedding_bag_byte", "embedding_bag_4bit"),
    *("embedding_bag_byte_prepack", "embedding_bag_4bit_prepack", "embedding_bag_2bit_prepack"),
    *("embedding_bag_byte_unpack", "embedding_bag_4bit_unpack", "embedding_bag_2bit_unpack"),
    *("embedding_bag_byte_rowwise_offsets", "embedding_bag_4bit_rowwise_offsets"),
    "embedding_bag_2bit_rowwise_offsets",
    *(f"embedding_bag_{bits}_prepack_with_rowwise_min_max" for bits in ("byte", "4bit", "2bit")),
]

_MODES = ("sum", "mean")


def embedding_bag_prepack(weight: Any) -> Any:
    """Return a weight that is quantized by rows, as the other ops take it."""
    layout.require(weight, "quantized::embedding_bag_prepack", layout.PER_CHANNEL)
    return weight


def embedding_bag_unpack(W_prepack: Any) -> Any:
    """Return the quantized weight."""
    return W_prepack


def _of_bits(weight: Any, name: str, bits: int) -> Any:
    layout.require(weight, f"quantized::{name}", layout.PER_CHANNEL)
    found = RANGES[weight.dtype.name].bits
    if found != bits:
        raise RuntimeError(
            f"quantized::{name}: the weight must have {bits} bits, got {weight.dtype}"
            f"{list(weight.shape)} of {found}"
        )
    return weight


def _look_up(name: str, bits: int) -> Callable[..., Any]:
    def embedding(weight: Any, indices: Any, pruned_weights: bool = False) -> Any:
        _refuse_pruned(name, pruned_weights)
        return functional.embedding(indices, _of_bits(weight, name, bits))

    embedding.__name__ = embedding.__qualname__ = name
    embedding.__doc__ = f"Look up rows of {bits} bits, and return them as float32."
    return embedding


def _refuse_pruned(name: str, pruned: bool) -> None:
    if pruned:
        raise NotImplementedError(f"quantized::{name}: pruned weights are not supported")


def _mode(name: str, mode: int) -> str:
    if mode not in (0, 1):
        raise RuntimeError(f"quantized::{name}: mode must be 0 (sum) or 1 (mean), got {mode}")
    return _MODES[mode]


def _bags(name: str, doc: str, looked_up: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def embedding_bag(
        weight: Any,
        indices: Any,
        offsets: Any = None,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        pruned_weights: bool = False,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
        include_last_offset: bool = False,
    ) -> Any:
        _refuse_pruned(name, pruned_weights)
        rows = looked_up(weight, indices.reshape(-1))
        return functional.embedding_bag(
            rows, indices, offsets, _mode(name, mode), per_sample_weights, include_last_offset
        )

    embedding_bag.__name__ = embedding_bag.__qualname__ = name
    embedding_bag.__doc__ = doc
    return embedding_bag


def _bags_of(name: str, bits: int) -> Callable[..., Any]:
    return _bags(
        name,
        f"Sum or average bags of rows of {bits} bits, and return them as float32.",
        lambda weight, indices: functional.embedding(indices, _of_bits(weight, name, bits)),
    )


def _checked(name: str, weight: Any, optimized_qparams: bool) -> Any:
    """Return a matrix of finite float32 numbers, or refuse."""
    if optimized_qparams:
        raise NotImplementedError(
            f"quantized::{name}: optimized_qparams is not supported; quantize by rows with a "
            f"HistogramObserver"
        )
    if weight.dim() != 2 or weight.dtype not in (tangrad.float32, tangrad.float16):
        raise RuntimeError(
            f"quantized::{name}: expected a matrix of float32, got {weight.dtype}"
            f"{list(weight.shape)}"
        )
    if not bool(tangrad.isfinite(weight).all()):
        raise RuntimeError(f"quantized::{name}: the weight holds NaN or infinity")
    return weight.detach().to(tangrad.float32)


def _rows_of_bytes(numbers: Any, least: Any, most: Any, bits: int) -> Any:
    """Return rows of integers, quantized between `least` and `most`, [rows, 1] each."""
    ends, levels = tangrad.float32 if bits == 8 else tangrad.float16, 2**bits - 1
    least = least.to(ends)
    extent = most - least.to(tangrad.float32)
    scale = (extent / levels).to(ends)
    if bits == 8:
        inverse = levels / (extent + 1e-8)
    else:
        inverse = 1 / scale.to(tangrad.float32)
        scale = scale.masked_fill(inverse.isinf(), 1.0)
        inverse = inverse.masked_fill(inverse.isinf(), 1.0)
    integers = ((numbers - least.to(tangrad.float32)) * inverse).round().clamp(0, levels)
    held = layout.join_bits(integers.to(tangrad.uint8), bits)
    tail = tangrad.cat((scale, least), 1).contiguous().view(tangrad.uint8)
    return tangrad.cat((held, tail), 1)


def _packer(name: str, bits: int) -> Callable[..., Any]:
    def prepack(
        weight: Any, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16
    ) -> Any:
        numbers = _checked(name, weight, optimized_qparams)
        least, most = numbers.amin(1, keepdim=True), numbers.amax(1, keepdim=True)
        return _rows_of_bytes(numbers, least, most, bits)

    prepack.__name__ = prepack.__qualname__ = name
    prepack.__doc__ = f"Return rows of integers of {bits} bits, each with its scale and minimum."
    return prepack


def _packer_between(name: str, bits: int) -> Callable[..., Any]:
    def prepack(
        weight: Any,
        rowwise_min_max: Any,
        optimized_qparams: bool = False,
        nbins: int = 200,
        ratio: float = 0.16,
    ) -> Any:
        numbers = _checked(name, weight, optimized_qparams)
        ends = rowwise_min_max.detach().to(tangrad.float32)
        if tuple(ends.shape) != (len(numbers), 2):
            raise RuntimeError(
                f"quantized::{name}: rowwise_min_max must have shape [{len(numbers)}, 2], a row "
                f"for each of the weight, got {list(ends.shape)}"
            )
        if not bool((ends[:, 0] <= ends[:, 1]).all()):
            raise RuntimeError(f"quantized::{name}: each minimum must be at most its maximum")
        return _rows_of_bytes(numbers, ends[:, :1], ends[:, 1:], bits)

    prepack.__name__ = prepack.__qualname__ = name
    prepack.__doc__ = f"Return rows of integers of {bits} bits, quantized between given ends."
    return prepack


def _unpacked(rows: Any, bits: int, name: str) -> Any:
    ends = tangrad.float32 if bits == 8 else tangrad.float16
    tail = 2 * ends.itemsize
    if rows.dim() != 2 or rows.dtype != tangrad.uint8 or rows.shape[1] < tail:
        raise RuntimeError(
            f"quantized::{name}: expected rows of bytes as the prepack op makes them, got "
            f"{rows.dtype}{list(rows.shape)}"
        )
    width = rows.shape[1] - tail
    numbers = rows[:, width:].contiguous().view(ends).to(tangrad.float32)
    levels = layout.split_bits(rows[:, :width].contiguous(), bits, width * 8 // bits)
    return levels.to(tangrad.float32) * numbers[:, :1] + numbers[:, 1:]


def _unpacker(name: str, bits: int) -> Callable[..., Any]:
    def unpack(weight: Any) -> Any:
        return _unpacked(weight, bits, name)

    unpack.__name__ = unpack.__qualname__ = name
    unpack.__doc__ = f"Return the numbers, float32, of rows of {bits} bits."
    return unpack


def _bags_of_bytes(name: str, bits: int) -> Callable[..., Any]:
    return _bags(
        name,
        f"Sum or average bags of rows of {bits} bits with their scales beside them.",
        lambda weight, indices: _unpacked(weight.index_select(0, indices), bits, name),
    )


embedding_byte, embedding_4bit = _look_up("embedding_byte", 8), _look_up("embedding_4bit", 4)
embedding_bag_byte = _bags_of("embedding_bag_byte", 8)
embedding_bag_4bit = _bags_of("embedding_bag_4bit", 4)
embedding_bag_byte_prepack = _packer("embedding_bag_byte_prepack", 8)
embedding_bag_4bit_prepack = _packer("embedding_bag_4bit_prepack", 4)
embedding_bag_2bit_prepack = _packer("embedding_bag_2bit_prepack", 2)
embedding_bag_byte_unpack = _unpacker("embedding_bag_byte_unpack", 8)
embedding_bag_4bit_unpack = _unpacker("embedding_bag_4bit_unpack", 4)
embedding_bag_2bit_unpack = _unpacker("embedding_bag_2bit_unpack", 2)
embedding_bag_byte_rowwise_offsets = _bags_of_bytes("embedding_bag_byte_rowwise_offsets", 8)
embedding_bag_4bit_rowwise_offsets = _bags_of_bytes("embedding_bag_4bit_rowwise_offsets", 4)
embedding_bag_2bit_rowwise_offsets = _bags_of_bytes("embedding_bag_2bit_rowwise_offsets", 2)
embedding_bag_byte_prepack_with_rowwise_min_max = _packer_between(
    "embedding_bag_byte_prepack_with_rowwise_min_max", 8
)
embedding_bag_4bit_prepack_with_rowwise_min_max = _packer_between(
    "embedding_bag_4bit_prepack_with_rowwise_min_max", 4
)
embedding_bag_2bit_prepack_with_rowwise_min_max = _packer_between(
    "embedding_bag_2bit_prepack_with_rowwise_min_max", 2
)

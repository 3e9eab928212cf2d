"""Linear layers whose weight was made sparse in blocks before it was quantized.

They compute as the dense ones do, with the same integers: a block of zeros costs what others cost.
What they keep beside the dense layers is the shape of the blocks, for backends that skip them.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.quantized import dynamic as nnqd

_SIZES = ("row_block_size", "col_block_size")


class _Blocks:
    """What the classes below share; stands before the dense class.

    Args:
        in_features, out_features: sizes of the input and of the output.
        row_block_size, col_block_size: the shape of blocks.
        bias: whether there is one.
        dtype: of the weight, qint8.
    """

    def __init__(
        self: Any,
        in_features: int,
        out_features: int,
        row_block_size: int = 1,
        col_block_size: int = 4,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        if dtype not in (None, tangrad.qint8):
            raise NotImplementedError(
                f"Only QINT8 is supported for Sparse Quantized Linear, got {dtype}"
            )
        super().__init__(in_features, out_features, bias)  # type: ignore[call-arg]
        self.row_block_size, self.col_block_size = row_block_size, col_block_size

    def _save_to_state_dict(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        for name in _SIZES:
            destination[prefix + name] = tangrad.tensor(getattr(self, name))

    def _load_from_state_dict(self: Any, state: Any, prefix: str, *rest: Any) -> None:
        for name in _SIZES:
            setattr(self, name, int(state.pop(prefix + name)))
        super()._load_from_state_dict(state, prefix, *rest)  # type: ignore[misc]

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized layer for a float one, which says the shape of its blocks.

        Raises:
            AssertionError: the module is no linear layer, or says no shape in `sparse_params`.
            RuntimeError: a zero point of the weight is not zero.
        """
        if type(mod) is not nn.Linear:
            raise AssertionError(
                f"{cls.__name__}.from_float only works for Linear, got {type(mod).__name__}"
            )
        shape = getattr(mod, "sparse_params", {}).get("sparse_block_shape")
        if shape is None:
            raise AssertionError(
                "Expecting the Linear to have sparse_params: set module.sparse_params = "
                "{'sparse_block_shape': (1, 4)} before it is prepared"
            )
        made = super().from_float(mod, use_precomputed_fake_quant)
        packed = made._packed_params._packed_params
        if packed.zeros is not None:
            raise RuntimeError("All weight zero points must map to 0: take a symmetric observer")
        made.row_block_size, made.col_block_size = (int(size) for size in shape)
        return made


class Linear(_Blocks, nnq.Linear):
    """A linear layer of quantized tensors with a weight that is sparse in blocks."""

    _FLOAT_MODULE: Any = (nn.Linear,)
    _name = "SparseQuantizedLinear"


class DynamicLinear(_Blocks, nnqd.Linear):
    """A linear layer of numbers with a quantized weight that is sparse in blocks."""

    _name = "SparseQuantizedDynamicLinear"


DynamicLinear.__name__ = DynamicLinear.__qualname__ = "Linear"

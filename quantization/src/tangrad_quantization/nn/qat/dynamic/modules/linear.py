"""A linear layer that is trained for dynamic quantization."""

from __future__ import annotations

from typing import Any

from tangrad_quantization.nn import qat
from tangrad_quantization.qconfig import remembers_nothing


class Linear(qat.Linear):
    """A linear layer with fake quantization of its weight, for inputs quantized in each call.

    Raises:
        ValueError: the configuration's activation observer remembers earlier inputs.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not remembers_nothing(qconfig):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer. This means a MovingAverage observer "
                "with averaging constant equal to 1"
            )

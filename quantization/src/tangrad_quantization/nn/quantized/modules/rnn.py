"""An LSTM of quantized tensors, made of an observed one."""

from __future__ import annotations

from typing import Any

from tangrad_quantization.nn.quantizable.modules import rnn as quantizable


class LSTM(quantizable.LSTM):
    """An LSTM of quantized tensors; arguments as of `nn.LSTM`."""

    _FLOAT_MODULE: Any = quantizable.LSTM

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse: it is made of an observed LSTM.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "nn.quantized.LSTM is made of an observed LSTM, by from_observed: call prepare, run "
            "calibration data through the model, then convert"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Return the quantized LSTM for an observed one.

        Raises:
            AssertionError: it is of another type.
        """
        from tangrad_quantization.quantize import convert

        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        made = convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        return made

"""Recurrent layers and cells that know how their weights will be quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.quantized.dynamic.modules.rnn import gru_step, lstm_step
from tangrad_quantization.nn.quantized.reference.modules.weights import (
    hold_qparams,
    quantized_weight_of,
    rounded_weight_of,
)


def _take_over(made: Any, source: Any) -> Any:
    for name, parameter in source.named_parameters():
        setattr(made, name, nn.Parameter(parameter.detach(), requires_grad=False))
    return made


class _Cell:
    """What the cells share; each takes the arguments of the float class.

    Args:
        weight_qparams_dict: for "weight_ih" and "weight_hh" each, what `qparams_of` returns.
    """

    _names: tuple[str, ...] = ("input_size", "hidden_size", "bias")

    def __init__(
        self: Any, *args: Any, weight_qparams_dict: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        for name in ("weight_ih", "weight_hh"):
            hold_qparams(self, name, (weight_qparams_dict or {}).get(name))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    def get_quantized_weight_ih(self) -> Any:
        """Return the quantized weight of the input."""
        return quantized_weight_of(self, "weight_ih")

    def get_quantized_weight_hh(self) -> Any:
        """Return the quantized weight of the hidden state."""
        return quantized_weight_of(self, "weight_hh")

    def get_weight_ih(self) -> Any:
        """Return the rounded weight of the input."""
        return rounded_weight_of(self, "weight_ih")

    def get_weight_hh(self) -> Any:
        """Return the rounded weight of the hidden state."""
        return rounded_weight_of(self, "weight_hh")

    def _of_input(self: Any, x: Any) -> Any:
        return F.linear(x, self.get_weight_ih(), self.bias_ih)

    def _of_hidden(self: Any, hidden: Any) -> Any:
        return F.linear(hidden, self.get_weight_hh(), self.bias_hh)

    def _state(self: Any, x: Any, hx: Any) -> Any:
        return x.new_zeros(*x.shape[:-1], self.hidden_size) if hx is None else hx

    @classmethod
    def from_float(cls: Any, mod: Any, weight_qparams_dict: dict[str, Any]) -> Any:
        """Return the cell for a float one."""
        given = {name: getattr(mod, name) for name in cls._names}
        return _take_over(cls(**given, weight_qparams_dict=weight_qparams_dict), mod)


class RNNCell(_Cell, nn.RNNCell):
    """A plain recurrent cell with rounded weights."""

    _names = (*_Cell._names, "nonlinearity")

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden state."""
        made = self._of_input(input) + self._of_hidden(self._state(input, hx))
        return made.tanh() if self.nonlinearity == "tanh" else made.relu()


class LSTMCell(_Cell, nn.LSTMCell):
    """An LSTM cell with rounded weights."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden and cell states."""
        hidden, cell = (self._state(input, None if hx is None else hx[n]) for n in (0, 1))
        return lstm_step(self._of_input(input) + self._of_hidden(hidden), cell)


class GRUCell(_Cell, nn.GRUCell):
    """A GRU cell with rounded weights."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden state."""
        hidden = self._state(input, hx)
        return gru_step(self._of_input(input), self._of_hidden(hidden), hidden)


class _Layers:
    """What LSTM and GRU share; each takes the arguments of the float class.

    Args:
        weight_qparams_dict: for the name of each weight, what `qparams_of` returns.
    """

    _names = (
        *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
        "bidirectional",
    )

    def __init__(
        self: Any, *args: Any, weight_qparams_dict: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        for name in self._flat_weights_names:
            if name.startswith("weight"):
                hold_qparams(self, name, (weight_qparams_dict or {}).get(name))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    def _rounded(self, name: str) -> Any:
        return rounded_weight_of(self, name) if name.startswith("weight") else getattr(self, name)

    @property
    def all_weights(self: Any) -> list[list[Any]]:
        """The rounded weights and the biases, a list for each layer and direction."""
        return [[self._rounded(name) for name in names] for names in self._all_weights]

    def get_flat_weights(self: Any) -> list[Any]:
        """Return the rounded weights and the biases in one list."""
        return [self._rounded(name) for name in self._flat_weights_names]

    def get_quantized_weight_bias_dict(self: Any) -> dict[str, Any]:
        """Return quantized weights and float biases by their names."""
        return {
            name: quantized_weight_of(self, name)
            if name.startswith("weight")
            else getattr(self, name)
            for name in self._flat_weights_names
        }

    @classmethod
    def from_float(cls: Any, mod: Any, weight_qparams_dict: dict[str, Any]) -> Any:
        """Return the layers for float ones.

        Raises:
            AssertionError: an LSTM has a projection.
        """
        from tangrad_quantization.nn.quantized.dynamic.modules.rnn import require_no_projection

        require_no_projection(mod)
        given = {name: getattr(mod, name) for name in cls._names}
        return _take_over(cls(**given, weight_qparams_dict=weight_qparams_dict), mod)


class LSTM(_Layers, nn.LSTM):
    """An LSTM with rounded weights."""


class GRU(_Layers, nn.GRU):
    """A GRU with rounded weights."""

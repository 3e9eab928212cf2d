"""Single steps of recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init, recurrence
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """What cells have in common: their parameters.

    Args:
        input_size: number of features of the input.
        hidden_size: number of features of the hidden state.
        bias: whether there are biases.
        num_chunks: number of gates.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Attributes:
        weight_ih: of shape (gates * hidden_size, input_size), drawn uniformly from (-k, k) with
            k = 1 / sqrt(hidden_size), as are all; further `weight_hh`, `bias_ih`, `bias_hh`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        width = num_chunks * hidden_size
        shapes = {"weight_ih": (width, input_size), "weight_hh": (width, hidden_size)}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(tangrad.empty(shape, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            empty = tangrad.empty((width,), device=device, dtype=dtype) if bias else None
            self.register_parameter(name, None if empty is None else Parameter(empty))
        self.reset_parameters()

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, as text."""
        shown = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            shown += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return shown + (f", nonlinearity={nonlinearity}" if nonlinearity != "tanh" else "")

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _run(self, mode: str, input: Any, states: Any, count: int) -> list[Any]:
        """Make a step, of a batch or of a single input.

        Raises:
            ValueError: the number of dimensions does not fit.
        """
        name = type(self).__name__
        given = [] if states is None else list(states)
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for place, state in enumerate(given):
            if state.dim() not in (1, 2):
                what = "hidden" if count == 1 else f"hx[{place}]"
                raise ValueError(
                    f"{name}: Expected {what} to be 1D or 2D, got {state.dim()}D instead"
                )
        single = input.dim() == 1
        x = input.unsqueeze(0) if single else input
        if states is None:
            given = [x.new_zeros((x.size(0), self.hidden_size))] * count
        elif single:
            given = [state.unsqueeze(0) for state in given]
        self._check(x, given)
        entering = F.linear(x, self.weight_ih, self.bias_ih)
        after = recurrence.STEPS[mode](entering, given, self.weight_hh, self.bias_hh)
        return [state.squeeze(0) for state in after] if single else after

    def _check(self, x: Any, states: list[Any]) -> None:
        rows, features = x.shape
        if features != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {features} expected {self.input_size}"
            )
        expected = (rows, self.hidden_size)
        for place, state in enumerate(states):
            if state.shape == expected:
                continue
            if state.size(1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{place} has inconsistent hidden_size: got {state.size(1)}, expected "
                    f"{self.hidden_size}"
                )
            raise RuntimeError(
                f"Input batch size {rows} doesn't match hidden{place} batch size {state.size(0)}"
            )


class RNNCell(RNNCellBase):
    """A step of an Elman network; see `RNN`.

    Args:
        input_size: number of features of the input.
        hidden_size: number of features of the hidden state.
        bias: whether there are biases.
        nonlinearity: "tanh" or "relu".
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Return the state after.

        Args:
            input: of shape (B, input_size) or (input_size).
            hx: the state before; zeros by default.

        Raises:
            RuntimeError: a size does not fit, or the nonlinearity is unknown.
            ValueError: the number of dimensions does not fit.
        """
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        mode = f"RNN_{self.nonlinearity.upper()}"
        return self._run(mode, input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """A step of a long short-term memory; see `LSTM`.

    Args:
        input_size: number of features of the input.
        hidden_size: number of features of the hidden state.
        bias: whether there are biases.
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Return hidden and cell state after.

        Args:
            input: of shape (B, input_size) or (input_size).
            hx: hidden and cell state before; zeros by default.

        Raises:
            RuntimeError: a size does not fit.
            ValueError: the number of dimensions does not fit.
        """
        return tuple(self._run("LSTM", input, hx, 2))


class GRUCell(RNNCellBase):
    """A step of a gated recurrent unit; see `GRU`.

    Args:
        input_size: number of features of the input.
        hidden_size: number of features of the hidden state.
        bias: whether there are biases.
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Return the state after.

        Args:
            input: of shape (B, input_size) or (input_size).
            hx: the state before; zeros by default.

        Raises:
            RuntimeError: a size does not fit.
            ValueError: the number of dimensions does not fit.
        """
        return self._run("GRU", input, None if hx is None else (hx,), 1)[0]

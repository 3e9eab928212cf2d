"""Recurrent layers over whole sequences."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import tangrad
from tangrad import Tensor
from tangrad.nn import init, recurrence
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter
from tangrad.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """What recurrent layers have in common: their parameters, and the run over a sequence.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        input_size: number of features of an element.
        hidden_size: number of features of the hidden state.
        num_layers: number of layers, each on the outputs of the one before.
        bias: whether there are biases.
        batch_first: take and give (B, T, features) in place of (T, B, features).
        dropout: probability with which outputs of all layers but the last are zeroed.
        bidirectional: run over the sequence in both directions.
        proj_size: size to which an LSTM's hidden state is projected; 0 for none.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        ValueError: an argument is out of its range.
        TypeError: a size is no integer.

    Attributes:
        weight_ih_l0: of shape (gates * hidden_size, input_size), drawn uniformly from (-k, k) with
            k = 1 / sqrt(hidden_size), as are all; further `weight_hh_l0`, `bias_ih_l0`,
            `bias_hh_l0` and `weight_hr_l0` (the projection); of layer k with `_lk`, and of the
            other direction with `_reverse` at the end.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_arguments(dropout)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=3,
            )
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        directions = 2 if bidirectional else 1
        width, out = _GATES[mode] * hidden_size, proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            entering = input_size if layer == 0 else out * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih_l{layer}{suffix}": (width, entering),
                    f"weight_hh_l{layer}{suffix}": (width, out),
                }
                if bias:
                    shapes[f"bias_ih_l{layer}{suffix}"] = (width,)
                    shapes[f"bias_hh_l{layer}{suffix}"] = (width,)
                if proj_size:
                    shapes[f"weight_hr_l{layer}{suffix}"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    empty = tangrad.empty(shape, device=device, dtype=dtype)
                    setattr(self, name, Parameter(empty))
                self._all_weights.append(list(shapes))
        self.reset_parameters()

    def _check_arguments(self, dropout: Any) -> None:
        for name in ("bias", "batch_first"):
            flag = getattr(self, name)
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        number = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
        if not number or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, got {dropout!r}"
            )
        for name in ("input_size", "hidden_size", "num_layers"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        given = self.__dict__.get("_given_weights")
        if given is None:
            given = [getattr(self, name, None) for name in self._flat_weights_names]
        return given

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Any]) -> None:
        self.__dict__["_given_weights"] = weights

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if "_given_weights" in self.__dict__ and name in self._flat_weights_names:
            del self.__dict__["_given_weights"]

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self.__dict__.pop("_given_weights", None)
        return super()._apply(fn, recurse)

    def _weights_of_run(self) -> list[list[Any]]:
        """Return the parameters per place, or what `_flat_weights` was set to since.

        Libraries of functional modules set it, so that a step runs on tensors of their own.
        """
        if "_given_weights" not in self.__dict__:
            return self.all_weights
        flat = iter(self.__dict__["_given_weights"])
        return [[next(flat) for _ in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing: the parameters need not lie in one piece."""

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Check the input's number of dimensions, features and its dtype.

        Raises:
            ValueError: the dtype is not the parameters'.
            RuntimeError: the shape does not fit.
        """
        weight = self.weight_ih_l0
        if input.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        dims = 3 if batch_sizes is None else 2
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if batch_sizes is None and input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError(
                f"{self._name()}: expected at least one time step, got input of shape "
                f"{list(input.shape)}"
            )
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """Return the shape of the hidden state."""
        batch = self._batch(input, batch_sizes)
        directions = 2 if self.bidirectional else 1
        return self.num_layers * directions, batch, self.proj_size or self.hidden_size

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """Return the shape of an LSTM's cell state."""
        directions = 2 if self.bidirectional else 1
        batch = self._batch(input, batch_sizes)
        return self.num_layers * directions, batch, self.hidden_size

    def _batch(self, input: Any, batch_sizes: Any) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return int(input.size(0) if self.batch_first else input.size(1))

    def check_hidden_size(
        self, hx: Any, expected_hidden_size: Any, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Check the shape of a state.

        Raises:
            RuntimeError: it is not the expected one.
        """
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.size())))

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, as text."""
        shown = f"{self.input_size}, {self.hidden_size}"
        options = {
            "proj_size": (self.proj_size, 0),
            "num_layers": (self.num_layers, 1),
            "bias": (self.bias, True),
            "batch_first": (self.batch_first, False),
            "dropout": (self.dropout, 0),
            "bidirectional": (self.bidirectional, False),
        }
        return shown + "".join(
            f", {name}={value}" for name, (value, usual) in options.items() if value != usual
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("proj_size", 0)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Run over sequences.

        Args:
            input: of shape (T, B, input_size), (B, T, input_size) with `batch_first`, (T,
                input_size) of one sequence; or a packed sequence.
            hx: the state before, of shape (layers * directions, B, hidden_size), or for an LSTM a
                pair of hidden and cell state; zeros by default.

        Returns:
            The last layer's outputs at all times, and the state after.

        Raises:
            RuntimeError: a shape does not fit.
            ValueError: a dtype or the number of dimensions does not fit.
        """
        packed = isinstance(input, PackedSequence)
        sizes = input.batch_sizes if packed else None
        order = input.sorted_indices if packed else None
        data = input.data if packed else input
        single = not packed and data.dim() == 2
        if not packed and data.dim() not in (2, 3):
            raise ValueError(
                f"{self._name()}: Expected input to be 2D or 3D, got {data.dim()}D instead"
            )
        if single:
            data = data.unsqueeze(0 if self.batch_first else 1)
        states = self._states(data, hx, sizes, order, single)
        self.check_input(data, sizes)
        self._check_states(data, states, sizes)
        inner = data.transpose(0, 1) if self.batch_first and not packed else data
        batch_sizes = None if sizes is None else sizes.tolist()
        output, states = recurrence.run(self, inner, states, batch_sizes, self._weights_of_run())
        if packed:
            result = PackedSequence(output, sizes, order, input.unsorted_indices)
            back = input.unsorted_indices
            states = [state if back is None else state.index_select(1, back) for state in states]
            return result, self._joined(states)
        if self.batch_first:
            output = output.transpose(0, 1)
        if single:
            output = output.squeeze(0 if self.batch_first else 1)
            states = [state.squeeze(1) for state in states]
        return output, self._joined(states)

    def _name(self) -> str:
        return "RNN" if self.mode.startswith("RNN") else self.mode

    def _joined(self, states: list[Any]) -> Any:
        return states[0]

    def _given(self, hx: Any) -> list[Any]:
        return [hx]

    def _states(self, data: Any, hx: Any, sizes: Any, order: Any, single: bool) -> list[Any]:
        """Return the states before, in the order of a packed sequence."""
        if hx is None:
            shapes = [self.get_expected_hidden_size(data, sizes)]
            if self.mode == "LSTM":
                shapes.append(self.get_expected_cell_size(data, sizes))
            return [data.new_zeros(shape) for shape in shapes]
        states = self._given(hx)
        dims = 2 if single else 3
        for state in states:
            if sizes is None and state.dim() != dims:
                kind = "batched" if dims == 3 else "unbatched"
                raise RuntimeError(
                    f"For {kind} {3 if dims == 3 else 2}-D input, hx should also be {dims}-D but "
                    f"got {state.dim()}-D tensor"
                )
        if single:
            states = [state.unsqueeze(1) for state in states]
        return [state if order is None else state.index_select(1, order) for state in states]

    def _check_states(self, data: Any, states: list[Any], sizes: Any) -> None:
        names = ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)
        shapes = (
            self.get_expected_hidden_size(data, sizes),
            self.get_expected_cell_size(data, sizes),
        )
        for name, state, shape in zip(names, states, shapes, strict=False):
            self.check_hidden_size(state, shape, f"Expected {name} size {{}}, got {{}}")


class RNN(RNNBase):
    r"""Elman's recurrent network (1990): \(h_t = \tanh(W x_t + b + U h_{t-1} + c)\).

    Args:
        args: `input_size`, `hidden_size`, `num_layers`, ... as of `RNNBase`.
        nonlinearity: "tanh" or "relu", after the number of layers.
        kwargs: the same, by name.

    Raises:
        ValueError: the nonlinearity is unknown, or a projection is asked for.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)


class LSTM(RNNBase):
    r"""A long short-term memory (Hochreiter, Schmidhuber 1997), with forget gate (Gers 1999).

    \(c_t = \sigma(f) c_{t-1} + \sigma(i) \tanh(g)\), \(h_t = \sigma(o) \tanh(c_t)\), with gates i,
    f, g, o that are affine in \(x_t\) and \(h_{t-1}\); projected (Sak et al. 2014,
    arXiv:1402.1128) with `proj_size`.

    Args:
        args: `input_size`, `hidden_size`, `num_layers`, ... as of `RNNBase`.
        kwargs: the same, by name.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _joined(self, states: list[Any]) -> Any:
        return tuple(states)

    def _given(self, hx: Any) -> list[Any]:
        return list(hx)


class GRU(RNNBase):
    r"""A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078).

    \(h_t = (1 - z) n + z h_{t-1}\), \(n = \tanh(W x_t + b + r (U h_{t-1} + c))\), with gates r and
    z that are sigmoids of affine functions of \(x_t\) and \(h_{t-1}\).

    Args:
        args: `input_size`, `hidden_size`, `num_layers`, ... as of `RNNBase`.
        kwargs: the same, by name.

    Raises:
        ValueError: a projection is asked for.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

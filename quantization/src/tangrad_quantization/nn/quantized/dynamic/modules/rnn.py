"""Recurrent layers and cells with quantized weights, whose inputs are quantized in each call.

Products are of integers; gates are computed in float32.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.utils.rnn import PackedSequence
from tangrad_quantization import functional
from tangrad_quantization.nn.quantized.modules.linear import LinearPackedParams
from tangrad_quantization.nn.quantized.modules.weights import quantized_weight
from tangrad_quantization.qconfig import default_dynamic_qconfig

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class _Weights(nn.Module):
    """The two linear layers of a cell: of the input and of the hidden state."""

    def __init__(self, gates: int, input_size: int, hidden_size: int, dtype: Any) -> None:
        super().__init__()
        self.ih = _empty(gates * hidden_size, input_size, dtype)
        self.hh = _empty(gates * hidden_size, hidden_size, dtype)

    def of_input(self, x: Any) -> Any:
        """Apply the input's layer."""
        return _apply(self.ih, x)

    def of_hidden(self, h: Any) -> Any:
        """Apply the hidden state's layer."""
        return _apply(self.hh, h)


def _empty(rows: int, columns: int, dtype: Any) -> Any:
    made = LinearPackedParams(dtype)
    weight = tangrad.zeros(rows, columns)
    if dtype == tangrad.qint8:
        weight = tangrad.quantize_per_tensor(weight, 1.0, 0, dtype)
    made.set_weight_bias(weight, tangrad.zeros(rows))
    return made


def _apply(held: Any, x: Any) -> Any:
    if held.dtype == tangrad.qint8:
        return functional.linear_dynamic(x, held._packed_params)
    return F.linear(x, *held._weight_bias())


def _fill(held: Any, weight: Any, bias: Any, observer: Any) -> None:
    observer(weight)
    short = held.dtype == tangrad.float16
    held.set_weight_bias(weight.float() if short else quantized_weight(weight, observer), bias)


def require_no_projection(mod: Any) -> None:
    """Refuse an LSTM whose output is projected.

    Raises:
        AssertionError: it is one.
    """
    if getattr(mod, "proj_size", 0):
        raise AssertionError(
            f"{type(mod).__name__}(proj_size={mod.proj_size}) has no quantized form; give it "
            f"qconfig None, which leaves it float, or project by a linear layer behind it"
        )


def _observer_of(mod: Any) -> Any:
    """Return the constructor of a module's weight observer.

    Raises:
        AssertionError: the module has no configuration.
        RuntimeError: the observer's dtype is neither qint8 nor float16.
    """
    if not hasattr(mod, "qconfig"):
        raise AssertionError("Input float module must have qconfig defined")
    found = getattr(mod.qconfig, "weight", None) or default_dynamic_qconfig.weight
    dtype = found().dtype
    if dtype not in (tangrad.qint8, tangrad.float16):
        raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
    return found


def lstm_step(gates: Any, cell: Any) -> tuple[Any, Any]:
    """Return the hidden state and the cell state of an LSTM (Hochreiter, Schmidhuber, 1997)."""
    i, f, g, o = gates.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(of_input: Any, of_hidden: Any, hidden: Any) -> Any:
    """Return the hidden state of a gated recurrent unit (Cho et al., 2014)."""
    reset_x, update_x, new_x = of_input.chunk(3, -1)
    reset_h, update_h, new_h = of_hidden.chunk(3, -1)
    reset, update = (reset_x + reset_h).sigmoid(), (update_x + update_h).sigmoid()
    new = (new_x + reset * new_h).tanh()
    return new + update * (hidden - new)


class RNNBase(nn.Module):
    """What LSTM and GRU share; arguments as of the float modules.

    Args:
        dtype: of the weights, qint8 or float16.
    """

    _version = 2
    _FLOAT_MODULE: Any

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
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout should be a number in range [0, 1], got {dropout}")
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = float(dropout), bidirectional
        self.dtype = tangrad.qint8 if dtype is None else dtype
        self.training = False
        self._all_weight_values = nn.ModuleList(
            _Weights(_GATES[mode], size, hidden_size, self.dtype) for size in self._sizes()
        )

    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _sizes(self) -> list[int]:
        """Return the size of the input of each layer and direction."""
        count = self._directions()
        first, later = self.input_size, self.hidden_size * count
        return [first if n < count else later for n in range(self.num_layers * count)]

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def extra_repr(self) -> str:
        said = f"{self.input_size}, {self.hidden_size}"
        usual = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        for name, value in usual.items():
            if getattr(self, name) != value:
                said += f", {name}={getattr(self, name)}"
        return said

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def check_input(self, input: Any) -> None:
        """Refuse an input of another shape.

        Raises:
            RuntimeError: it has.
        """
        if input.dim() not in (2, 3):
            raise RuntimeError(f"input must have 3 dimensions, got {input.dim()}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.shape[-1]}"
            )

    def _zeros(self, batch: int) -> Any:
        return tangrad.zeros(self.num_layers * self._directions(), batch, self.hidden_size)

    def _layers(self, x: Any, states: list[Any], lengths: Any) -> tuple[Any, list[Any]]:
        """Run all layers over [time, batch, size]; return the outputs and the last states."""
        last, count = [], self._directions()
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(count):
                place = layer * count + direction
                weights = self._all_weight_values[place]
                state = tuple(s[place] for s in states)
                made, state = self._run(x, weights, state, direction == 1, lengths)
                outputs.append(made)
                last.append(state)
            x = tangrad.cat(outputs, -1) if count > 1 else outputs[0]
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, True)
        return x, [tangrad.stack(parts) for parts in zip(*last, strict=True)]

    def _run(
        self, x: Any, weights: Any, state: Any, backward: bool, lengths: Any
    ) -> tuple[Any, Any]:
        of_input = weights.of_input(x)
        steps = range(len(x))
        outputs: list[Any] = [None] * len(x)
        for step in reversed(steps) if backward else steps:
            new = self._step(of_input[step], weights, state)
            if lengths is not None:  # sequences that have ended, or not begun, stay as they are
                alive = (lengths > step)[:, None]
                new = tuple(tangrad.where(alive, n, s) for n, s in zip(new, state, strict=True))
            state = new
            outputs[step] = state[0]
        return tangrad.stack(outputs), state

    def _step(self, of_input: Any, weights: Any, state: Any) -> Any:
        raise NotImplementedError

    def _forward(self, input: Any, states: list[Any] | None) -> tuple[Any, list[Any]]:
        lengths = None
        packed = isinstance(input, PackedSequence)
        if packed:
            source = input
            input, lengths = nn.utils.rnn.pad_packed_sequence(input)
        self.check_input(input)
        alone = input.dim() == 2
        x = input[:, None] if alone else input
        if self.batch_first and not packed and not alone:
            x = x.transpose(0, 1)
        if states is None:
            states = [self._zeros(x.shape[1])] * (2 if self.mode == "LSTM" else 1)
        elif alone:
            states = [state[:, None] for state in states]
        expected = (self.num_layers * self._directions(), x.shape[1], self.hidden_size)
        for state in states:
            if tuple(state.shape) != expected:
                raise RuntimeError(f"Expected hidden size {expected}, got {list(state.shape)}")
        output, last = self._layers(x.contiguous(), states, lengths)
        if packed:
            sorts = source.unsorted_indices is not None
            output = nn.utils.rnn.pack_padded_sequence(output, lengths, enforce_sorted=not sorts)
        elif alone:
            output, last = output[:, 0], [state[:, 0] for state in last]
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, last

    def _names(self) -> list[str]:
        """Return the suffix of the float module's parameters of each layer and direction."""
        ends = ("", "_reverse")[: self._directions()]
        return [f"_l{layer}{end}" for layer in range(self.num_layers) for end in ends]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for a float one; no calibration is needed.

        Raises:
            AssertionError: the module is of another type, or has a projection.
        """
        if type(mod) not in (nn.LSTM, nn.GRU):
            raise AssertionError(
                "nn.quantized.dynamic.RNNBase.from_float only works for nn.LSTM and nn.GRU, got "
                f"{type(mod).__name__}"
            )
        observer = _observer_of(mod)
        require_no_projection(mod)
        kind = LSTM if mod.mode == "LSTM" else GRU
        made = kind(
            mod.input_size,
            mod.hidden_size,
            mod.num_layers,
            mod.bias,
            mod.batch_first,
            mod.dropout,
            mod.bidirectional,
            dtype=observer().dtype,
        )
        for weights, name in zip(made._all_weight_values, made._names(), strict=True):
            for held, side in ((weights.ih, "ih"), (weights.hh, "hh")):
                bias = getattr(mod, f"bias_{side}{name}") if mod.bias else None
                _fill(held, getattr(mod, f"weight_{side}{name}").detach(), bias, observer())
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """Return the quantized layers for reference ones."""
        names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional")
        given = {name: getattr(ref_mod, name) for name in names}
        dtype = ref_mod.weight_ih_l0_dtype
        made = cls(ref_mod.input_size, ref_mod.hidden_size, dtype=dtype, **given)
        made.set_weight_bias(ref_mod.get_quantized_weight_bias_dict())
        return made

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        """Return {"weight": {name: tensor}, "bias": {name: tensor}}."""
        made: dict[str, dict[str, Any]] = {"weight": {}, "bias": {}}
        for weights, name in zip(self._all_weight_values, self._names(), strict=True):
            for held, side in ((weights.ih, "ih"), (weights.hh, "hh")):
                weight, bias = held._weight_bias()
                made["weight"][f"weight_{side}{name}"] = weight
                made["bias"][f"bias_{side}{name}"] = bias
        return made

    def get_weight(self) -> dict[str, Any]:
        """Return the quantized weights by the float module's names."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """Return the biases by the float module's names."""
        return self._weight_bias()["bias"]

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Replace weights and biases, given by the float module's names."""
        for weights, name in zip(self._all_weight_values, self._names(), strict=True):
            for held, side in ((weights.ih, "ih"), (weights.hh, "hh")):
                bias = weight_bias_dict.get(f"bias_{side}{name}")
                held.set_weight_bias(weight_bias_dict[f"weight_{side}{name}"], bias)


class LSTM(RNNBase):
    """An LSTM with quantized weights; arguments as of `nn.LSTM`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _step(self, of_input: Any, weights: Any, state: Any) -> Any:
        return lstm_step(of_input + weights.of_hidden(state[0]), state[1])

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the outputs, and the last hidden and cell states."""
        output, (hidden, cell) = self._forward(input, None if hx is None else list(hx))
        return output, (hidden, cell)


class GRU(RNNBase):
    """A GRU with quantized weights; arguments as of `nn.GRU`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def _step(self, of_input: Any, weights: Any, state: Any) -> Any:
        (hidden,) = state
        return (gru_step(of_input, weights.of_hidden(hidden), hidden),)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the outputs and the last hidden state."""
        output, (hidden,) = self._forward(input, None if hx is None else [hx])
        return output, hidden


class RNNCellBase(nn.Module):
    """What the cells share; arguments as of the float modules.

    Args:
        dtype: of the weights, qint8 or float16.
    """

    _mode: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_dtype = tangrad.qint8 if dtype is None else dtype
        self._weights = _Weights(_GATES[self._mode], input_size, hidden_size, self.weight_dtype)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def _hidden(self, input: Any, hx: Any) -> Any:
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[-1]}, expected "
                f"{self.input_size}"
            )
        if hx is None:
            return tangrad.zeros(*input.shape[:-1], self.hidden_size)
        return hx

    def get_weight(self) -> dict[str, Any]:
        """Return the quantized weights by the float module's names."""
        held = self._weights
        return {"weight_ih": held.ih._weight_bias()[0], "weight_hh": held.hh._weight_bias()[0]}

    def get_bias(self) -> dict[str, Any]:
        """Return the biases by the float module's names."""
        held = self._weights
        return {"bias_ih": held.ih._weight_bias()[1], "bias_hh": held.hh._weight_bias()[1]}

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized cell for a float one; no calibration is needed."""
        kinds = {nn.LSTMCell: LSTMCell, nn.GRUCell: GRUCell, nn.RNNCell: RNNCell}
        if type(mod) not in kinds:
            raise AssertionError(
                "nn.quantized.dynamic.RNNCellBase.from_float only works for nn.LSTMCell, "
                f"nn.GRUCell and nn.RNNCell, got {type(mod).__name__}"
            )
        observer = _observer_of(mod)
        extra = {"nonlinearity": mod.nonlinearity} if isinstance(mod, nn.RNNCell) else {}
        made = kinds[type(mod)](
            mod.input_size, mod.hidden_size, mod.bias, dtype=observer().dtype, **extra
        )
        for held, side in ((made._weights.ih, "ih"), (made._weights.hh, "hh")):
            bias = getattr(mod, f"bias_{side}")
            _fill(held, getattr(mod, f"weight_{side}").detach(), bias, observer())
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """Return the quantized cell for a reference one."""
        extra = {"nonlinearity": ref_mod.nonlinearity} if cls is RNNCell else {}
        dtype = ref_mod.weight_ih_dtype
        made = cls(ref_mod.input_size, ref_mod.hidden_size, ref_mod.bias, dtype=dtype, **extra)
        made._weights.ih.set_weight_bias(ref_mod.get_quantized_weight_ih(), ref_mod.bias_ih)
        made._weights.hh.set_weight_bias(ref_mod.get_quantized_weight_hh(), ref_mod.bias_hh)
        return made


class RNNCell(RNNCellBase):
    """A plain recurrent cell with quantized weights.

    Args:
        nonlinearity: "tanh" or "relu".
    """

    _mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden state."""
        hidden = self._hidden(input, hx)
        made = self._weights.of_input(input) + self._weights.of_hidden(hidden)
        return made.tanh() if self.nonlinearity == "tanh" else made.relu()


class LSTMCell(RNNCellBase):
    """An LSTM cell with quantized weights."""

    _mode = "LSTM"

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden and cell states."""
        hidden = self._hidden(input, None if hx is None else hx[0])
        cell = self._hidden(input, None if hx is None else hx[1])
        gates = self._weights.of_input(input) + self._weights.of_hidden(hidden)
        return lstm_step(gates, cell)


class GRUCell(RNNCellBase):
    """A GRU cell with quantized weights."""

    _mode = "GRU"

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the new hidden state."""
        hidden = self._hidden(input, hx)
        return gru_step(self._weights.of_input(input), self._weights.of_hidden(hidden), hidden)

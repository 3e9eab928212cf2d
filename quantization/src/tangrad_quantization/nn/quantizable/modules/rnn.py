"""LSTMs of linear layers, sums and products, each of which can be observed and quantized."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import functional
from tangrad_quantization.layers.float_functional import FloatFunctional
from tangrad_quantization.layouts import layout

_GATES = ("input", "forget", "cell", "output")


def joined(tensors: Any, dim: int) -> Any:
    """Join tensors; quantized ones take the scale of the first, as PyTorch's `cat` has it."""
    if not layout.is_quantized(tensors[0]):
        return tangrad.cat(tensors, dim)
    scale, zero_point = layout.scale_and_zero(tensors[0], "cat")
    return functional.cat(tensors, dim, scale, zero_point)


def _stacked(tensors: Any) -> Any:
    return joined([x.unsqueeze(0) for x in tensors], 0)


class LSTMCell(nn.Module):
    """An LSTM cell of observable parts.

    Args:
        input_dim: size of the input.
        hidden_dim: size of the states.
        bias: whether the linear layers have one.
        split_gates: a linear layer for each gate, in the place of one for all.

    Attributes:
        initial_hidden_state_qparams, initial_cell_state_qparams: scale and zero point of zeros
            that stand for a quantized state that is not given.
    """

    _FLOAT_MODULE: Any = nn.LSTMCell

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.input_size, self.hidden_size, self.bias = input_dim, hidden_dim, bias
        self.split_gates = split_gates
        if split_gates:
            self.igates: Any = nn.ModuleDict()
            self.hgates: Any = nn.ModuleDict()
            self.gates: Any = nn.ModuleDict()
            for gate in _GATES:
                self.igates[gate] = nn.Linear(input_dim, hidden_dim, bias=bias, **made)
                self.hgates[gate] = nn.Linear(hidden_dim, hidden_dim, bias=bias, **made)
                self.gates[gate] = FloatFunctional()
        else:
            self.igates = nn.Linear(input_dim, 4 * hidden_dim, bias=bias, **made)
            self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=bias, **made)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams: tuple[float, int] = (1.0, 0)
        self.initial_cell_state_qparams: tuple[float, int] = (1.0, 0)
        self.hidden_state_dtype: Any = tangrad.quint8
        self.cell_state_dtype: Any = tangrad.quint8

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    def forward(self, x: Any, hidden: Any = None) -> tuple[Any, Any]:
        """Return the new hidden and cell states."""
        if hidden is None or hidden[0] is None or hidden[1] is None:
            hidden = self.initialize_hidden(x.shape[0], layout.is_quantized(x))
        hx, cx = hidden
        if self.split_gates:
            sums = [
                self.gates[gate].add(self.igates[gate](x), self.hgates[gate](hx)) for gate in _GATES
            ]
        else:
            sums = self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1)
        entering, kept = self.input_gate(sums[0]), self.forget_gate(sums[1])
        new, leaving = self.cell_gate(sums[2]), self.output_gate(sums[3])
        cell = self.fgate_cx_igate_cgate.add(
            self.fgate_cx.mul(kept, cx), self.igate_cgate.mul(entering, new)
        )
        return self.ogate_cy.mul(leaving, tangrad.tanh(cell)), cell

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple[Any, Any]:
        """Return states of zeros."""
        zeros = tangrad.zeros(batch_size, self.hidden_size)
        if not is_quantized:
            return zeros, zeros.clone()
        return (
            tangrad.quantize_per_tensor(
                zeros, *self.initial_hidden_state_qparams, self.hidden_state_dtype
            ),
            tangrad.quantize_per_tensor(
                zeros, *self.initial_cell_state_qparams, self.cell_state_dtype
            ),
        )

    @classmethod
    def from_params(
        cls, wi: Any, wh: Any, bi: Any = None, bh: Any = None, split_gates: bool = False
    ) -> Any:
        """Return a cell with these weights and biases, of all gates each.

        Raises:
            AssertionError: one bias is given without the other.
        """
        if (bi is None) != (bh is None):
            raise AssertionError("bi and bh must both be None or both have values")
        cell = cls(wi.shape[1], wh.shape[1], bias=bi is not None, split_gates=split_gates)
        for layer, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            layers = list(layer.values()) if split_gates else [layer]
            for part, w in zip(layers, weight.chunk(len(layers), 0), strict=True):
                part.weight = nn.Parameter(w.detach())
            for part, b in zip(
                layers, () if bias is None else bias.chunk(len(layers), 0), strict=False
            ):
                part.bias = nn.Parameter(b.detach())
        return cell

    @classmethod
    def from_float(
        cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False
    ) -> Any:
        """Return the cell for a float one that has a configuration.

        Raises:
            AssertionError: it is of another type, or has none.
        """
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        biases = (other.bias_ih, other.bias_hh)
        made = cls.from_params(other.weight_ih, other.weight_hh, *biases, split_gates=split_gates)
        layers = [made, made.igates, made.hgates]
        if split_gates:
            layers += [*made.igates.values(), *made.hgates.values()]
        for layer in layers:
            layer.qconfig = other.qconfig
        return made


class _LSTMSingleLayer(nn.Module):
    """A cell that runs over a sequence."""

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.cell = LSTMCell(input_dim, hidden_dim, bias, device, dtype, split_gates=split_gates)

    def forward(self, x: Any, hidden: Any = None) -> Any:
        """Return the outputs at all times, and the last states."""
        outputs = []
        for step in range(x.shape[0]):
            hidden = self.cell(x[step], hidden)
            outputs.append(hidden[0])
        return _stacked(outputs), hidden

    @classmethod
    def from_params(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a layer with weights and biases as of `LSTMCell.from_params`."""
        cell = LSTMCell.from_params(*args, **kwargs)
        made = cls(cell.input_size, cell.hidden_size, cell.bias, split_gates=cell.split_gates)
        made.cell = cell
        return made


class _LSTMLayer(nn.Module):
    """One layer, in one direction or in both."""

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, bidirectional
        arguments = (input_dim, hidden_dim, bias, device, dtype)
        self.layer_fw = _LSTMSingleLayer(*arguments, split_gates=split_gates)
        if bidirectional:
            self.layer_bw = _LSTMSingleLayer(*arguments, split_gates=split_gates)

    def forward(self, x: Any, hidden: Any = None) -> Any:
        """Return the outputs at all times, and the last states."""
        x = x.transpose(0, 1) if self.batch_first else x
        if not self.bidirectional:
            result, (h, c) = self.layer_fw(x, hidden)
        else:
            sides = (
                [None, None] if hidden is None else [(hidden[0][n], hidden[1][n]) for n in (0, 1)]
            )
            forward, (h_fw, c_fw) = self.layer_fw(x, sides[0])
            backward, (h_bw, c_bw) = self.layer_bw(x.flip(0), sides[1])
            result = joined([forward, backward.flip(0)], forward.dim() - 1)
            h, c = _stacked([h_fw, h_bw]), _stacked([c_fw, c_bw])
        return result.transpose(0, 1) if self.batch_first else result, (h, c)

    @classmethod
    def from_float(cls, other: Any, layer_idx: int = 0, qconfig: Any = None, **kwargs: Any) -> Any:
        """Return the layer of that index of a float LSTM.

        Raises:
            AssertionError: there is no configuration.
        """
        if not hasattr(other, "qconfig") and qconfig is None:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        split_gates = kwargs.get("split_gates", False)
        names = ("input_size", "hidden_size", "bias", "batch_first", "bidirectional")
        given = [kwargs.get(name, getattr(other, name)) for name in names]
        made = cls(*given, split_gates=split_gates)
        made.qconfig = getattr(other, "qconfig", qconfig)
        ends = ("", "_reverse")[: 2 if other.bidirectional else 1]
        for place, end in zip(("layer_fw", "layer_bw"), ends, strict=False):
            parameters = [
                getattr(other, f"{name}_l{layer_idx}{end}", None)
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            single = _LSTMSingleLayer.from_params(*parameters, split_gates=split_gates)
            setattr(made, place, single)
        return made


class LSTM(nn.Module):
    """An LSTM of observable parts; arguments as of `nn.LSTM`.

    Args:
        split_gates: a linear layer for each gate, in the place of one for all.

    Attributes:
        layers: one module for each layer.

    Raises:
        ValueError: the dropout is no number between 0 and 1.
    """

    _FLOAT_MODULE: Any = nn.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, got {dropout}"
            )
        if dropout > 0:
            warnings.warn(
                "dropout option for quantizable LSTM is ignored. If you are training, please, use "
                "nn.LSTM version followed by `prepare` step.",
                stacklevel=2,
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first = bias, batch_first
        self.dropout, self.bidirectional = float(dropout), bidirectional
        self.training = False
        directions = 2 if bidirectional else 1
        sizes = [input_size, *([hidden_size * directions] * (num_layers - 1))]
        self.layers = nn.ModuleList(
            _LSTMLayer(
                size,
                hidden_size,
                bias,
                False,
                bidirectional,
                device,
                dtype,
                split_gates=split_gates,
            )
            for size in sizes
        )

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    def forward(self, x: Any, hidden: Any = None) -> Any:
        """Return the outputs, and the last hidden and cell states."""
        x = x.transpose(0, 1) if self.batch_first else x
        directions = 2 if self.bidirectional else 1
        states = self._states(x, hidden, directions)
        last_h, last_c = [], []
        for layer, state in zip(self.layers, states, strict=True):
            x, (h, c) = layer(x, state)
            last_h.append(h)
            last_c.append(c)
        h, c = (
            made.reshape(-1, made.shape[-2], made.shape[-1])
            for made in (_stacked(last_h), _stacked(last_c))
        )
        return x.transpose(0, 1) if self.batch_first else x, (h, c)

    def _states(self, x: Any, hidden: Any, directions: int) -> list[Any]:
        """Return the hidden and cell states of each layer."""
        shape = (directions, x.shape[1], self.hidden_size)
        if hidden is None:
            zeros = tangrad.zeros(shape, device=x.device)
            zeros = zeros[0] if directions == 1 else zeros
            if layout.is_quantized(x):
                zeros = tangrad.quantize_per_tensor(zeros.contiguous(), 1.0, 0, x.dtype)
            return [(zeros, zeros)] * self.num_layers
        if not isinstance(hidden[0], tangrad.Tensor):
            return list(hidden)
        parts = [state.reshape(self.num_layers, *shape) for state in hidden]
        return [
            tuple(part[n][0] if directions == 1 else part[n] for part in parts)
            for n in range(self.num_layers)
        ]

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """Return the prepared LSTM for a float one.

        Raises:
            AssertionError: it is of another type, or there is no configuration.
        """
        from tangrad_quantization.quantize import prepare, prepare_qat

        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig") and not qconfig:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        names = (
            *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
            "bidirectional",
        )
        made = cls(*(getattr(other, name) for name in names), split_gates=split_gates)
        made.qconfig = getattr(other, "qconfig", qconfig)
        for n in range(other.num_layers):
            size = other.input_size if n == 0 else made.layers[n].layer_fw.cell.input_size
            made.layers[n] = _LSTMLayer.from_float(
                other, n, qconfig, batch_first=False, split_gates=split_gates, input_size=size
            )
        if other.training:
            return prepare_qat(made.train(), inplace=True)
        return prepare(made.eval(), inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Refuse: the quantized LSTM is `nn.quantized.LSTM`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "nn.quantizable.LSTM is what is observed; nn.quantized.LSTM.from_observed converts it"
        )

"""The pointwise parts of recurrent cells: what is left of a step beside its matrix products."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import pointwise


def _check_floating(x: Any) -> None:
    """Have the oracle refuse what the cells of torch refuse."""
    if not x.is_floating_point():
        raise RuntimeError(f"not implemented for {x.dtype}")


def _lstm_oracle(torch: Any, i: Any, f: Any, g: Any, o: Any, c: Any) -> Any:
    _check_floating(c)
    cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _gru_oracle(torch: Any, xr: Any, xz: Any, xn: Any, hr: Any, hz: Any, hn: Any, h: Any) -> Any:
    _check_floating(h)
    update = torch.sigmoid(xz + hz)
    new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return new + update * (h - new)


_lstm_cell = pointwise(
    "_lstm_cell(Tensor i, Tensor f, Tensor g, Tensor o, Tensor c) -> (Tensor hidden, Tensor cell)",
    "sigmoid(o) * tanh(sigmoid(f) * c + sigmoid(i) * tanh(g));"
    " sigmoid(f) * c + sigmoid(i) * tanh(g)",
    results=("promoted", "promoted"),
    dtypes="floating",
    function=False,
    method=False,
    oracle=_lstm_oracle,
    samples=lambda s: [s(*(s.tensor(3, 4) for _ in range(5))), s(*(s.tensor() for _ in range(5)))],
    doc="Compute a step of a long short-term memory (Hochreiter, Schmidhuber, 1997).",
)

_gru_cell = pointwise(
    "_gru_cell(Tensor xr, Tensor xz, Tensor xn, Tensor hr, Tensor hz, Tensor hn, Tensor h)"
    " -> Tensor",
    "tanh(xn + sigmoid(xr + hr) * hn) + sigmoid(xz + hz) * (h - tanh(xn + sigmoid(xr + hr) * hn))",
    dtypes="floating",
    function=False,
    method=False,
    oracle=_gru_oracle,
    samples=lambda s: [s(*(s.tensor(3, 4) for _ in range(7))), s(*(s.tensor() for _ in range(7)))],
    doc="Compute a step of a gated recurrent unit (Cho et al., 2014) from what enters its gates.",
)

"""Complex numbers, special functions and factorizations inside of a file, whose ends are real."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tangrad  # noqa: E402
from tangrad import Tensor, nn  # noqa: E402
from tangrad.export import Dim  # noqa: E402


def run(proto: Any, *inputs: Tensor) -> list[Tensor]:
    evaluator = ReferenceEvaluator(proto)
    given = dict(zip(evaluator.input_names, (x.numpy() for x in inputs), strict=True))
    with np.errstate(all="ignore"):
        return [tangrad.tensor(x) for x in evaluator.run(None, given)]


class Filter(nn.Module):
    """A product in the domain of frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tangrad.randn(5, dtype=tangrad.complex64))

    def forward(self, x: Tensor) -> Any:
        y = tangrad.fft.rfft(x, norm="ortho") * self.weight
        return (
            tangrad.fft.irfft(y, n=8, norm="ortho"),
            y.abs(),
            tangrad.view_as_real(y.conj().resolve_conj()),
        )


@pytest.mark.parametrize("opset", [17, 20])
def test_a_filter_of_frequencies(opset: int) -> None:
    tangrad.manual_seed(0)
    model, x = Filter(), tangrad.randn(2, 8)
    shapes = ({0: Dim("n")},)
    proto = tangrad.onnx.export(model, (x,), opset_version=opset, dynamic_shapes=shapes).model_proto
    onnx.checker.check_model(proto, full_check=True)
    for given in (x, tangrad.randn(3, 8)):
        for found, wanted in zip(run(proto, given), model(given), strict=True):
            tangrad.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)
    assert not any(i.data_type == onnx.TensorProto.COMPLEX64 for i in proto.graph.initializer)


def test_complex_ends_of_a_file_are_refused() -> None:
    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="view_as_real"):
        tangrad.onnx.export(lambda x: tangrad.fft.fft(x), (tangrad.randn(4),))
    x = tangrad.randn(4, dtype=tangrad.complex64)
    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="no inputs of a file"):
        tangrad.onnx.export(lambda x: x.abs(), (x,))
    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="opset_version=17"):
        tangrad.onnx.export(
            lambda x: tangrad.view_as_real(tangrad.fft.fft(x)), (x.abs(),), opset_version=16
        )


def test_what_is_computed_here_is_computed_in_the_file() -> None:
    tangrad.manual_seed(1)

    def function(x: Tensor) -> Any:
        square = x @ x.transpose(-2, -1) + tangrad.eye(4)
        q, r = tangrad.linalg.qr(x)
        return (
            *(tangrad.linalg.inv(square), tangrad.linalg.cholesky(square), q, r),
            *(tangrad.linalg.solve(square, x), tangrad.linalg.matrix_exp(x / 3)),
            *(tangrad.lgamma(x), tangrad.special.i0(x), tangrad.special.zeta(x.abs() + 2, 1.5)),
        )

    x = tangrad.randn(2, 4, 4)
    proto = tangrad.onnx.export(function, (x,), dynamic_shapes=({0: Dim("n")},)).model_proto
    for given in (x, tangrad.randn(3, 4, 4)):
        for found, wanted in zip(run(proto, given), function(given), strict=True):
            tangrad.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("order", [2.0, 3.0, 40.0, float("inf")])
def test_zeta_of_every_start_is_that_of_the_library(order: float) -> None:
    starts = [-0.3, -11.9, -12.5, -100.3, -1e5 - 0.5, -1e-20, -7.0, 0.0, 1e-3, 0.5, 1.0, 2.0, 1e4]
    x = tangrad.tensor(starts, dtype=tangrad.float64)
    proto = tangrad.onnx.export(lambda x: tangrad.special.zeta(order, x), (x,)).model_proto
    wanted = tangrad.special.zeta(order, x)
    tangrad.testing.assert_close(run(proto, x)[0], wanted, rtol=1e-11, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_polygamma_of_negative_numbers_is_that_of_the_library(order: int) -> None:
    x = tangrad.tensor([-0.3, -11.9, -12.5, -15.25, -100.3, -1e3 - 0.6], dtype=tangrad.float64)
    proto = tangrad.onnx.export(lambda x: tangrad.polygamma(order, x), (x,)).model_proto
    wanted = tangrad.polygamma(order, x)
    tangrad.testing.assert_close(run(proto, x)[0], wanted, rtol=1e-9, atol=0)


def test_a_matrix_of_many_columns_is_refused() -> None:
    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="65 columns"):
        tangrad.onnx.export(lambda x: tangrad.linalg.inv(x), (tangrad.eye(65),))

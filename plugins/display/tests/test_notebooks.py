"""Notebooks show all tensors and modules, in little time, and say what is a sample."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import tangrad
from tangrad import nn
from tangrad_display import pictures


def html_of(value) -> str:
    found = value._repr_html_()
    assert isinstance(found, str)
    assert found.count("<div") == found.count("</div>")
    assert found.count("<details") == found.count("</details>")
    return found


def pictures_in(text: str) -> list[np.ndarray]:
    image = pytest.importorskip("PIL.Image")
    found = re.findall(r"data:image/png;base64,([^\"]+)", text)
    return [np.array(image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def test_a_matrix_shows_figures_a_histogram_and_a_heat_map() -> None:
    x = tangrad.tensor([[1.0, -3.0, 0.0], [float("nan"), float("inf"), 5.0]], requires_grad=True)
    text = html_of(x)
    assert "Tensor float32 [2, 3] on cpu requires grad" in text or "on reference" in text
    assert "min -3, max 5, mean 0.75, std 2.861" in text
    assert "16.7% zero, 16.7% NaN, 16.7% inf" in text
    assert "<svg" in text
    assert "requires_grad=True" in text  # its text
    (pixels,) = pictures_in(text)
    assert pixels.shape == (2, 3, 3)
    red, grey = pixels[1, 2], pixels[1, 0]
    assert red[0] > red[2]  # the greatest is red
    assert pixels[0, 1][2] > pixels[0, 1][0]  # the least is blue
    assert (grey == 128).all()


def test_images_are_shown_as_they_are() -> None:
    image = tangrad.zeros(3, 16, 20)
    image[0] = 1.0
    (pixels,) = pictures_in(html_of(image))
    assert pixels.shape == (16, 20, 3)
    assert (pixels == [255, 0, 0]).all()
    grey = tangrad.full((2, 1, 9, 9), 51, dtype=tangrad.uint8)
    first, second = pictures_in(html_of(grey))
    assert first.shape == (9, 9)
    assert (first == 51).all()
    assert (second == 51).all()


def test_a_sample_of_many_elements_is_taken_quickly_and_said() -> None:
    large = tangrad.ones(1).expand(100_000_000)
    html_of(tangrad.ones(70_000))  # what is imported once
    started = time.perf_counter()
    text = html_of(large)
    assert time.perf_counter() - started < 5  # of seconds: it does not look at every element
    assert re.search(r"from [\d,]+ of 100,000,000 elements, evenly spaced", text)
    found = tangrad.display.statistics(large)
    assert found.is_sample
    assert 1000 < found.looked_at <= 2**16


@pytest.mark.parametrize(
    "make",
    [
        lambda: tangrad.zeros(0, 3),
        lambda: tangrad.tensor(3),
        lambda: tangrad.tensor(True),
        lambda: tangrad.tensor([1 + 2j, -3j]).conj(),
        lambda: tangrad.empty(1000, 1000, 1000, device="meta"),
        lambda: tangrad.full((4, 4), float("nan")),
        lambda: tangrad.full((4, 4), float("inf")),
        lambda: tangrad.tensor([[1e308, -1e308]] * 2, dtype=tangrad.float64),
        lambda: tangrad.randn(3, 4).to(tangrad.bfloat16),
        lambda: tangrad.arange(8, dtype=tangrad.uint8).reshape(2, 2, 2).transpose(0, 2),
        lambda: tangrad.zeros(2, 3, 4, 5, 6),
        lambda: tangrad.tensor([2**62, -(2**62)]),
        lambda: nn.Parameter(tangrad.ones(2, 2)),
    ],
)
def test_every_kind_of_tensor_has_a_display(make) -> None:
    text = html_of(make())
    assert text.startswith("<div><b>")
    assert "nan, " not in text.partition("<details")[0]


def test_sparse_and_quantized_tensors_have_a_display() -> None:
    pytest.importorskip("tangrad_sparse")
    text = html_of(tangrad.eye(3).to_sparse())
    assert "[3, 3]" in text
    assert "sparse_coo" in text
    pytest.importorskip("tangrad_quantization")
    whole = tangrad.quantize_per_tensor(tangrad.tensor([1.0, 2.0]), 0.5, 3, tangrad.quint8)
    assert "min 1, max 2" in html_of(whole)


def test_tensors_quantized_by_channel_show_figures_unless_they_are_many(monkeypatch) -> None:
    pytest.importorskip("tangrad_quantization")
    scales, zeros = tangrad.tensor([0.5, 1.0]), tangrad.tensor([0, 0])
    x = tangrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    whole = tangrad.quantize_per_channel(x, scales, zeros, 0, tangrad.quint8)
    assert "min 1, max 4, mean 2.5" in html_of(whole)
    assert tangrad.display.statistics(whole).greatest == 4
    monkeypatch.setattr("tangrad_display.figures.LARGEST_DEQUANTIZED", 3)
    assert "quantized by channel: call dequantize()" in whole._repr_html_()


def test_sparse_tensors_tell_how_many_elements_they_store() -> None:
    pytest.importorskip("tangrad_sparse")
    for sparse in (tangrad.eye(4).to_sparse(), tangrad.eye(4).to_sparse_csr()):
        assert "4 elements stored (25.00%)" in html_of(sparse)
    assert "0 elements stored<" in html_of(tangrad.sparse_coo_tensor(size=(3, 0)))


def test_a_tensor_whose_storage_was_taken_has_a_display() -> None:
    x = tangrad.ones(2, 3)
    x.untyped_storage().resize_(0)
    assert "tensor(..., " in html_of(x)
    assert "min" not in html_of(x)


def test_what_cannot_be_read_is_a_line_of_text(monkeypatch) -> None:
    from tangrad_display import tensors

    def gone(tensor):
        raise RuntimeError("the device <is> gone\nand more")

    monkeypatch.setattr(tensors, "statistics", gone)
    text = tangrad.ones(3)._repr_html_()
    assert "the device &lt;is&gt; gone" in text
    assert "and more" not in text


def test_text_is_escaped() -> None:
    class Odd(nn.Module):
        def extra_repr(self) -> str:
            return "<script>"

    assert "&lt;script&gt;" in html_of(Odd())


def test_modules_are_trees() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ModuleDict({"b": nn.BatchNorm1d(4)}))
    model[0].bias.requires_grad = False
    text = html_of(model)
    assert "<b>Sequential</b> <small>24 parameters, 4 frozen</small>" in text
    assert "0: <b>Linear</b> (in_features=3, out_features=4, bias=True)" in text
    assert "<code>weight</code> [4, 3] float32" in text
    assert "<code>running_mean</code> [4] float32" in text
    assert "not initialized" in html_of(nn.LazyLinear(3))


def test_with_inputs_shapes_and_operations_are_told() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    text = tangrad.display.module(model, tangrad.ones(2, 3))
    assert "[2, 4]" in text
    assert "48 FLOPs" in text
    assert html_of(tangrad.summary(model, tangrad.ones(2, 3), show=False)) == text


def test_plain_text_is_a_setting(monkeypatch) -> None:
    tangrad.display.rich(False)
    try:
        assert tangrad.ones(2)._repr_html_() is None
        assert nn.ReLU()._repr_html_() is None
    finally:
        tangrad.display.rich(True)
    program = "import tangrad; print(tangrad.ones(2)._repr_html_())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TANGRAD_DISPLAY": "plain"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


def test_subclasses_that_override_functions_are_shown_as_they_are() -> None:
    class Logged(tangrad.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    assert "Logged float32 [2]" in html_of(tangrad.ones(2).as_subclass(Logged))


def test_png_files_are_read_by_others() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(7 * 5 * 3, dtype=np.uint8).reshape(7, 5, 3)
    assert (np.array(image.open(io.BytesIO(pictures.png(pixels)))) == pixels).all()


def test_a_summary_shows_dead_units_and_gradients_that_are_zero():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with tangrad.no_grad():
        model[0].bias[:] = -100.0
    x = tangrad.randn(8, 3)
    model(x).sum().backward()
    text = tangrad.display.module(model, x)
    assert "100% dead" in text
    assert "FLOPs in a forward pass" in text
    assert "gradients: zero for 0.weight, 0.bias" in text

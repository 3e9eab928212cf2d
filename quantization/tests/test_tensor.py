"""Quantized tensors: PyTorch's integers, and what can be done with them."""

import copy
import io

import numpy as np
import pytest
import torch
from quantized_pairs import both, data, same

import tangrad

DTYPES = ["quint8", "qint8", "qint32"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantizing_gives_pytorchs_integers(dtype):
    a, b = both(data(40, 33, scale=9))
    a = torch.quantize_per_tensor(a, 0.05, 17, getattr(torch, dtype))
    b = tangrad.quantize_per_tensor(b, 0.05, 17, getattr(tangrad, dtype))
    assert same(a.int_repr(), b.int_repr())
    assert same(a.dequantize(), b.dequantize())
    assert (b.q_scale(), b.q_zero_point(), b.is_quantized) == (0.05, 17, True)
    assert b.qscheme() is tangrad.per_tensor_affine


@pytest.mark.parametrize("float_zero", [False, True])
def test_quantizing_by_channels_gives_pytorchs_integers(float_zero):
    scales = np.random.default_rng(0).uniform(0.01, 0.2, 33)
    zeros = np.arange(33) * (1.5 if float_zero else 3)
    zeros = zeros.astype("float32" if float_zero else "int64")
    scales = scales.astype("float32") if float_zero else scales
    sides = []
    for side, x in zip((torch, tangrad), both(data(8, 33, scale=5)), strict=True):
        s, z = side.from_numpy(scales), side.from_numpy(zeros)
        sides.append(side.quantize_per_channel(x, s, z, 1, side.quint8))
    assert same(sides[0].int_repr(), sides[1].int_repr())
    difference = sides[0].dequantize().numpy() - sides[1].dequantize().numpy()
    assert abs(difference).max() < 1e-5
    assert sides[1].q_per_channel_axis() == 1
    assert np.array_equal(sides[1].q_per_channel_scales().numpy(), scales)


@pytest.mark.parametrize("dtype", ["quint4x2", "quint2x4"])
def test_fewer_bits_than_a_byte_lie_together(dtype):
    a, b = both(data(4, 8))
    ones, zeros = np.ones(4, "float32") * 0.1, np.ones(4, "float32") * 2
    a = torch.quantize_per_channel(
        a, torch.from_numpy(ones), torch.from_numpy(zeros), 0, getattr(torch, dtype)
    )
    b = tangrad.quantize_per_channel(
        b, tangrad.from_numpy(ones), tangrad.from_numpy(zeros), 0, getattr(tangrad, dtype)
    )
    assert b.int_repr().numel() == 32 * (4 if dtype == "quint4x2" else 2) // 8
    assert abs(a.dequantize().numpy() - b.dequantize().numpy()).max() < 1e-6


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_quantizing_by_the_range_chooses_as_pytorch_does(dtype, reduce_range):
    for scale, offset in ((1.0, 0.0), (30.0, -7.0), (1e-6, 0.0), (1.0, 50.0)):
        a, b = both(data(64, scale=scale, offset=offset))
        a = torch.quantize_per_tensor_dynamic(a, getattr(torch, dtype), reduce_range)
        b = tangrad.quantize_per_tensor_dynamic(b, getattr(tangrad, dtype), reduce_range)
        assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point())
        assert same(a.int_repr(), b.int_repr())


def quantized(*shape, scale=0.1, zero_point=5):
    return [
        side.quantize_per_tensor(x, scale, zero_point, side.quint8)
        for side, x in zip((torch, tangrad), both(data(*shape)), strict=True)
    ]


MOVES = [
    lambda x: x[1],
    lambda x: x[:, 1:3],
    lambda x: x.transpose(0, 1),
    lambda x: x.permute(2, 0, 1),
    lambda x: x.reshape(4, -1),
    lambda x: x.flatten(1),
    lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: x.clone(),
    lambda x: x.contiguous(),
    lambda x: x.relu(),
    lambda x: x.clamp(-0.5, 0.7),
]


@pytest.mark.parametrize("move", MOVES)
def test_elements_move_as_in_pytorch(move):
    a, b = (move(x) for x in quantized(4, 5, 6))
    assert same(a.int_repr(), b.int_repr())
    assert (b.q_scale(), b.q_zero_point()) == (a.q_scale(), a.q_zero_point())


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pooling_is_within_one_step_of_pytorchs(name):
    a, b = (
        getattr(side.nn.functional, name)(x, 2, 2)
        for side, x in zip((torch, tangrad), quantized(2, 3, 8, 8), strict=True)
    )
    difference = a.int_repr().numpy().astype(int) - b.int_repr().numpy()
    assert abs(difference).max() <= (0 if name == "max_pool2d" else 1)


@pytest.mark.parametrize("arguments", [(3, 2), (2, 1, 1), ((3, 2), (1, 2), 0, (2, 1)), (3, 2, 1)])
def test_largest_of_windows_are_pytorchs(arguments):
    a, b = (
        side.nn.functional.max_pool2d(x, *arguments)
        for side, x in zip((torch, tangrad), quantized(2, 3, 8, 9), strict=True)
    )
    assert same(a.int_repr(), b.int_repr())


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_functions_by_table_are_within_one_step_of_pytorchs(name):
    a, b = (
        getattr(side, name)(x) for side, x in zip((torch, tangrad), quantized(300), strict=True)
    )
    assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point())
    assert abs(a.int_repr().numpy().astype(int) - b.int_repr().numpy()).max() <= 1


def test_cat_of_one_scale_joins_integers_and_refuses_others():
    _, x = quantized(2, 3)
    assert tangrad.cat([x, x]).int_repr().tolist() == [*x.int_repr().tolist()] * 2
    _, y = quantized(2, 3, scale=0.2)
    with pytest.raises(RuntimeError, match=r"one scale and zero point, got .*0\.1 .*0\.2"):
        tangrad.cat([x, y])


def test_comparisons_are_of_numbers():
    _, x = quantized(2, 3)
    assert tangrad.equal(x, x.clone())
    assert (x == x.dequantize()).all()
    assert not tangrad.equal(x, quantized(2, 3, scale=0.2)[1])


def test_copy_quantizes_by_the_targets_scale():
    _, x = quantized(2, 3)
    x.copy_(tangrad.full((2, 3), 0.31))
    assert x.int_repr().tolist() == [[8, 8, 8]] * 2


def test_copies_pickles_and_files_hold_the_same():
    _, x = quantized(2, 3)
    file = io.BytesIO()
    tangrad.save({"x": x}, file)
    file.seek(0)
    for other in (copy.deepcopy(x), tangrad.load(file)["x"]):
        assert tangrad.equal(other, x)


def test_text_shows_numbers_and_scale():
    text = repr(quantized(2)[1])
    assert text.startswith("tensor([")
    assert "scale=0.1, zero_point=5" in text


WRONG = [
    ((0.0, 0), ValueError, "positive and finite"),
    ((-1.0, 0), ValueError, "positive and finite"),
    ((float("nan"), 0), ValueError, "positive and finite"),
    ((float("inf"), 0), ValueError, "positive and finite"),
    ((0.1, 256), RuntimeError, "0 to 255"),
    ((0.1, -1), RuntimeError, "0 to 255"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), WRONG)
def test_impossible_scales_and_zero_points_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        tangrad.quantize_per_tensor(tangrad.ones(2), *arguments, tangrad.quint8)


def test_impossible_channels_are_refused():
    x, s, z = tangrad.ones(2, 3), tangrad.ones(3), tangrad.zeros(3, dtype=tangrad.int64)
    with pytest.raises(IndexError, match="axis 2"):
        tangrad.quantize_per_channel(x, s, z, 2, tangrad.quint8)
    with pytest.raises(RuntimeError, match="2 channels of axis 0"):
        tangrad.quantize_per_channel(x, s, z, 0, tangrad.quint8)
    with pytest.raises(ValueError, match="channel 1"):
        tangrad.quantize_per_channel(x, tangrad.tensor([1.0, 0.0, 1.0]), z, 1, tangrad.quint8)
    with pytest.raises(RuntimeError, match="0 to 255"):
        tangrad.quantize_per_channel(x, s, z - 1, 1, tangrad.quint8)


def test_what_cannot_be_quantized_is_refused():
    _, x = quantized(2)
    with pytest.raises(RuntimeError, match="already"):
        tangrad.quantize_per_tensor(x, 0.1, 0, tangrad.quint8)
    with pytest.raises(RuntimeError, match="float32"):
        tangrad.quantize_per_tensor(tangrad.ones(2).double(), 0.1, 0, tangrad.quint8)
    with pytest.raises(RuntimeError, match="dtype must be one of"):
        tangrad.quantize_per_tensor(tangrad.ones(2), 0.1, 0, tangrad.uint8)
    with pytest.raises(RuntimeError, match="NaN"):
        tangrad.quantize_per_tensor_dynamic(tangrad.tensor([float("nan")]), tangrad.quint8, False)
    with pytest.raises(RuntimeError, match="dequantize"):
        tangrad.fft.fft(x)

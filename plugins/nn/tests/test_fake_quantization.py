"""Rounding to the values of quantized tensors, beside PyTorch's."""

import pytest

import tangrad

DTYPES = ["float32", "float64", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zero_point", [-3, 0, 7])
def test_values_and_gradients_are_pytorchs(agree, dtype, zero_point):
    def program(t):
        x = (t.arange(101) / 16 - 3).to(getattr(t, dtype)).requires_grad_()
        y = t.fake_quantize_per_tensor_affine(x, 0.17, zero_point, -8, 7)
        (y * t.arange(101).to(y.dtype)).sum().backward()
        return y.double(), x.grad.double()

    agree(program, tolerance=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_have_their_own_scale(agree, dtype):
    def program(t):
        x = (t.arange(60) / 16 - 2).reshape(3, 4, 5).to(getattr(t, dtype)).requires_grad_()
        zeros = t.tensor([0, 3, -8, 7], dtype=t.int32)
        y = t.fake_quantize_per_channel_affine(x, t.tensor([0.05, 0.3, 0.4, 0.7]), zeros, 1, -8, 7)
        y.sum().backward()
        return y.double(), x.grad.double()

    agree(program, tolerance=0)


def test_nan_and_infinities_become_the_outer_values(agree):
    def program(t):
        x = t.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -0.0], requires_grad=True)
        y = t.fake_quantize_per_tensor_affine(x, 0.5, 1, 0, 15)
        y.sum().backward()
        return y, x.grad

    agree(program, tolerance=0)


def test_a_scale_has_no_gradient():
    scale = tangrad.tensor(0.5, requires_grad=True)
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'scale'"):
        tangrad.fake_quantize_per_tensor_affine(tangrad.ones(2), scale, tangrad.tensor(0), -8, 7)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(RuntimeError, match="scale must be positive and finite"):
        tangrad.fake_quantize_per_tensor_affine(tangrad.ones(2), scale, 0, -8, 7)

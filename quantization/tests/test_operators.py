"""`tangrad.ops.quantized` beside PyTorch's: the same integers, numbers, geometry and refusals."""

import numpy as np
import pytest
import torch
from quantized_pairs import data, quiet

import tangrad


class Given:
    """The arguments of a case, made on one side."""

    def __init__(self, side):
        self.side, self.ops = side, side.ops.quantized

    def floats(self, *shape, seed=0):
        return self.side.from_numpy(data(*shape, seed=seed))

    def x(self, *shape, scale=0.05, zero=100, dtype="quint8", seed=0):
        return quiet(
            self.side.quantize_per_tensor,
            self.floats(*shape, seed=seed),
            scale,
            zero,
            getattr(self.side, dtype),
        )

    def w(self, *shape):
        return self.x(*shape, scale=0.02, zero=0, dtype="qint8", seed=1)

    def linear(self, rows=6, columns=16, bias=True, scale=0.02):
        weight = self.x(rows, columns, scale=scale, zero=0, dtype="qint8", seed=1)
        return self.ops.linear_prepack(weight, self.floats(rows, seed=2) if bias else None)

    def small(self):
        """A layer whose sums of two products fit into 16 bits, where FBGEMM saturates by AVX2."""
        return self.linear(scale=0.1)

    def conv(self, places, stride=1, padding=1, dilation=1, groups=2):
        pack = getattr(self.ops, f"conv{places}d_prepack")
        several = ([value] * places for value in (stride, padding, dilation))
        return pack(self.w(6, 2, *[3] * places), self.floats(6, seed=2), *several, groups)

    def transposed(self, places, stride=2):
        pack = getattr(self.ops, f"conv_transpose{places}d_prepack")
        several = ([value] * places for value in (stride, 1, 1, 1))
        return pack(self.w(4, 6, *[3] * places), self.floats(6, seed=2), *several, 1)

    def rows(self, dtype="quint8", count=10, width=16):
        weight = self.floats(count, width, seed=3)
        low, high = weight.amin(1), weight.amax(1)
        most = 255 if dtype == "quint8" else 15
        scales = (high - low) / most
        return self.side.quantize_per_channel(
            weight, scales, -low / scales, 0, getattr(self.side, dtype)
        )

    def cell(self, gates, size=8):
        """The packed weights of a cell, and what it does not read."""
        return (
            self.linear(gates * size, 16),
            self.linear(gates * size, size),
            *[self.floats(1)] * 2,
        )

    def ends(self, weight):
        return self.side.stack([weight.amin(1) - 0.5, weight.amax(1) + 1.0], 1)

    def indices(self):
        return self.side.tensor([3, 1, 4, 1, 5, 9, 2, 6])

    def offsets(self):
        return self.side.tensor([0, 3, 3, 7])


def _of_two(name):
    return lambda g: getattr(g.ops, name)(g.x(4, 6), g.x(4, 6, seed=5, scale=0.03), 0.09, 70)


def _normalized(name, *shape):
    def call(g):
        channels = shape[1]
        mean, var = g.floats(channels, seed=4), g.floats(channels, seed=6).abs() + 0.5
        ends = (g.floats(channels, seed=7), g.floats(channels, seed=8), mean, var, 1e-5, 0.05, 90)
        return getattr(g.ops, name)(g.x(*shape), *ends)

    return call


CASES = {
    **{name: _of_two(name) for name in ("add", "add_relu", "mul", "mul_relu")},
    "add of a scalar": lambda g: g.ops.add(g.x(4, 6), 1.5),
    "add_relu of a scalar": lambda g: g.ops.add_relu(g.x(4, 6), -0.5),
    "add_scalar": lambda g: g.ops.add_scalar(g.x(4, 6), 0.5),
    "add_scalar_relu": lambda g: g.ops.add_scalar_relu(g.x(4, 6), 0.5),
    "mul of a scalar": lambda g: g.ops.mul(g.x(4, 6), -2.0),
    "mul_scalar": lambda g: g.ops.mul_scalar(g.x(4, 6), 0.5),
    "mul_scalar_relu": lambda g: g.ops.mul_scalar_relu(g.x(4, 6), 3.0),
    "add_out": lambda g: g.ops.add_out(g.x(4, 6), g.x(4, 6, seed=1), g.x(4, 6, scale=0.2)),
    "mul_out": lambda g: g.ops.mul_out(g.x(4, 6), g.x(4, 6, seed=1), g.x(4, 6, scale=0.2)),
    "cat": lambda g: g.ops.cat([g.x(2, 3), g.x(2, 3, scale=0.1)], 0, 0.08, 60),
    "cat, scale of the first": lambda g: g.ops.cat(
        [g.x(2, 3), g.x(2, 3, scale=0.1)], 1, None, None
    ),
    "cat_relu": lambda g: g.ops.cat_relu([g.x(2, 3), g.x(2, 3, seed=2)], 0, 0.08, 60),
    "cat_out": lambda g: g.ops.cat_out([g.x(2, 3), g.x(2, 3)], 0, g.x(4, 3, scale=0.1)),
    "matmul": lambda g: g.ops.matmul(g.x(3, 5), g.x(5, 4, seed=1), 0.2, 30),
    "celu": lambda g: g.ops.celu(g.x(4, 6), 0.04, 60, 1.5),
    "clamp": lambda g: g.ops.clamp(g.x(4, 6), -0.5, 0.7),
    "dropout": lambda g: g.ops.dropout(g.x(4, 6), 0.05, 100, 0.5, False),
    "elu": lambda g: g.ops.elu(g.x(4, 6), 0.04, 60, 1.5),
    "hardswish": lambda g: g.ops.hardswish(g.x(4, 6), 0.03, 30),
    "leaky_relu": lambda g: g.ops.leaky_relu(g.x(4, 6), 0.2, False, 0.03, 40),
    "prelu": lambda g: g.ops.prelu(g.x(2, 4, 3), g.x(4, seed=3), 0.03, 40),
    "relu6": lambda g: g.ops.relu6(g.x(4, 6, scale=0.2)),
    "sigmoid": lambda g: g.ops.sigmoid(g.x(4, 6), 1 / 256, 0),
    "softmax": lambda g: g.ops.softmax(g.x(4, 6), 1, 1 / 256, 0),
    "threshold": lambda g: g.ops.threshold(g.x(4, 6), 0.2, -1.0),
    "max_pool1d": lambda g: g.ops.max_pool1d(g.x(2, 3, 8), [3], [2], [1], [1], False),
    "max_pool2d": lambda g: g.ops.max_pool2d(
        g.x(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], [1, 1], False
    ),
    "batch_norm": _normalized("batch_norm", 2, 3, 4, 4),
    "batch_norm1d": _normalized("batch_norm1d", 4, 3, 5),
    "batch_norm1d_relu": _normalized("batch_norm1d_relu", 4, 3, 5),
    "batch_norm2d": _normalized("batch_norm2d", 2, 3, 4, 4),
    "batch_norm2d_relu": _normalized("batch_norm2d_relu", 2, 3, 4, 4),
    "batch_norm3d": _normalized("batch_norm3d", 2, 3, 2, 4, 4),
    "batch_norm3d_relu": _normalized("batch_norm3d_relu", 2, 3, 2, 4, 4),
    "group_norm": lambda g: g.ops.group_norm(
        g.x(2, 4, 5), 2, g.floats(4, seed=1), g.floats(4, seed=2), 1e-5, 0.03, 100
    ),
    "instance_norm": lambda g: g.ops.instance_norm(
        g.x(2, 4, 5), g.floats(4, seed=1), g.floats(4, seed=2), 1e-5, 0.03, 100
    ),
    "layer_norm": lambda g: g.ops.layer_norm(
        g.x(2, 4, 5), [5], g.floats(5, seed=1), g.floats(5, seed=2), 1e-5, 0.03, 100
    ),
    "linear": lambda g: g.ops.linear(g.x(5, 16), g.linear(), 0.2, 80),
    "linear without a bias": lambda g: g.ops.linear(g.x(5, 16), g.linear(bias=False), 0.2, 80),
    "linear_relu": lambda g: g.ops.linear_relu(g.x(5, 16), g.linear(), 0.2, 80),
    "linear_unpack": lambda g: g.ops.linear_unpack(g.linear()),
    "linear_dynamic": lambda g: g.ops.linear_dynamic(g.floats(5, 16), g.small()),
    "linear_dynamic, reduced": lambda g: g.ops.linear_dynamic(g.floats(5, 16), g.linear(), True),
    "linear_relu_dynamic": lambda g: g.ops.linear_relu_dynamic(g.floats(5, 16), g.small()),
    "linear_dynamic_fp16": lambda g: g.ops.linear_dynamic_fp16(
        g.floats(5, 16), g.ops.linear_prepack_fp16(g.floats(6, 16, seed=1), g.floats(6, seed=2))
    ),
    "linear_relu_dynamic_fp16": lambda g: g.ops.linear_relu_dynamic_fp16(
        g.floats(5, 16), g.ops.linear_prepack_fp16(g.floats(6, 16, seed=1), g.floats(6, seed=2))
    ),
    "linear_unpack_fp16": lambda g: g.ops.linear_unpack_fp16(
        g.ops.linear_prepack_fp16(g.floats(6, 16) * 1e5, g.floats(6, seed=2))
    ),
    "conv1d": lambda g: g.ops.conv1d(g.x(2, 4, 9), g.conv(1), 0.2, 90),
    "conv1d_relu": lambda g: g.ops.conv1d_relu(g.x(2, 4, 9), g.conv(1, stride=2), 0.2, 90),
    "conv2d": lambda g: g.ops.conv2d(g.x(2, 4, 7, 7), g.conv(2, stride=2), 0.2, 90),
    "conv2d_relu": lambda g: g.ops.conv2d_relu(g.x(2, 4, 7, 7), g.conv(2, dilation=2), 0.2, 90),
    "conv2d, older form": lambda g: quiet(
        g.ops.conv2d, g.x(2, 4, 7, 7), g.conv(2), [1, 1], [1, 1], [1, 1], 2, 0.2, 90
    ),
    "conv3d": lambda g: g.ops.conv3d(g.x(2, 4, 5, 5, 5), g.conv(3), 0.2, 90),
    "conv3d_relu": lambda g: g.ops.conv3d_relu(g.x(2, 4, 5, 5, 5), g.conv(3), 0.2, 90),
    "conv2d_unpack": lambda g: g.ops.conv2d_unpack(g.conv(2)),
    **{
        f"{stem}_{what}": lambda g, stem=stem, made=made, what=what: getattr(
            g.ops, f"{stem}_{what}"
        )(getattr(g, made)(2, stride=2))
        for stem, made in (("conv2d", "conv"), ("conv_transpose2d", "transposed"))
        for what in ("stride", "padding", "output_padding", "dilation", "groups", "transpose")
    },
    "embedding_byte": lambda g: g.ops.embedding_byte(
        g.ops.embedding_bag_prepack(g.rows()), g.indices()
    ),
    "embedding_4bit": lambda g: g.ops.embedding_4bit(
        g.ops.embedding_bag_prepack(g.rows("quint4x2")), g.indices()
    ),
    "embedding_bag_byte": lambda g: g.ops.embedding_bag_byte(
        g.ops.embedding_bag_prepack(g.rows()), g.indices(), g.offsets()
    ),
    "embedding_bag_4bit": lambda g: g.ops.embedding_bag_4bit(
        g.ops.embedding_bag_prepack(g.rows("quint4x2")),
        g.indices(),
        g.offsets(),
        per_sample_weights=g.floats(8),
    ),
    "embedding_bag_byte_prepack": lambda g: g.ops.embedding_bag_byte_prepack(g.floats(10, 16)),
    "embedding_bag_4bit_prepack": lambda g: g.ops.embedding_bag_4bit_prepack(g.floats(10, 16)),
    "embedding_bag_2bit_prepack": lambda g: g.ops.embedding_bag_2bit_prepack(g.floats(10, 16)),
    **{
        f"embedding_bag_{bits}_unpack": lambda g, bits=bits: getattr(
            g.ops, f"embedding_bag_{bits}_unpack"
        )(getattr(g.ops, f"embedding_bag_{bits}_prepack")(g.floats(10, 16)))
        for bits in ("byte", "4bit", "2bit")
    },
    **{
        f"embedding_bag_{bits}_rowwise_offsets": lambda g, bits=bits: getattr(
            g.ops, f"embedding_bag_{bits}_rowwise_offsets"
        )(
            getattr(g.ops, f"embedding_bag_{bits}_prepack")(g.floats(10, 16)),
            g.indices(),
            g.offsets(),
        )
        for bits in ("byte", "4bit", "2bit")
    },
    **{
        f"embedding_bag_{bits}_prepack_with_rowwise_min_max": lambda g, bits=bits: getattr(
            g.ops, f"embedding_bag_{bits}_prepack_with_rowwise_min_max"
        )(g.floats(10, 16), g.ends(g.floats(10, 16)))
        for bits in ("byte", "4bit", "2bit")
    },
    **{
        f"{name}_out": lambda g, name=name: [
            made := g.x(5, scale=0.7),
            getattr(g.ops, f"{name}_out")(g.x(5), -1.5, made),
        ]
        for name in ("add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu")
    },
    "quantized_lstm_cell_dynamic": lambda g: g.ops.quantized_lstm_cell_dynamic(
        g.floats(5, 16), [g.floats(5, 8, seed=4), g.floats(5, 8, seed=5)], *g.cell(4)
    ),
    **{
        f"quantized_{kind}_cell_dynamic": lambda g, kind=kind: getattr(
            g.ops, f"quantized_{kind}_cell_dynamic"
        )(g.floats(5, 16), g.floats(5, 8, seed=4), *g.cell(3 if kind == "gru" else 1))
        for kind in ("gru", "rnn_tanh", "rnn_relu")
    },
    "linear_dynamic_fp16_unpacked_weight": lambda g: g.ops.linear_dynamic_fp16_unpacked_weight(
        g.floats(5, 16), g.floats(6, 16, seed=1) / 3, g.floats(6, seed=2)
    ),
    **{
        f"linear_with_input_q_dq_qweight_dq{relu}_output_fp32": lambda g, relu=relu: getattr(
            g.ops, f"linear_with_input_q_dq_qweight_dq{relu}_output_fp32"
        )(g.floats(5, 16), 0.03, 100, g.linear())
        for relu in ("", "_relu")
    },
}
#: Where PyTorch computes in float32, and by vectors, one step apart.
ONE_STEP = {
    *("matmul", "celu", "elu", "hardswish", "sigmoid", "softmax", "group_norm", "instance_norm"),
    *("layer_norm", *(name for name in CASES if name.startswith("batch_norm"))),
}


def check(theirs, ours, name):
    if isinstance(theirs, (tuple, list)):
        assert len(theirs) == len(ours)
        for a, b in zip(theirs, ours, strict=True):
            check(a, b, name)
    elif not isinstance(theirs, torch.Tensor):
        assert theirs == ours
    elif theirs.is_quantized:
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.q_scale() == pytest.approx(theirs.q_scale())
        assert ours.q_zero_point() == theirs.q_zero_point()
        apart = abs(theirs.int_repr().numpy().astype(int) - ours.int_repr().numpy()).max()
        assert apart <= (name in ONE_STEP)
    elif theirs.dtype == torch.uint8:
        assert np.array_equal(theirs.numpy(), ours.numpy())
    else:
        # PyTorch keeps scales of rows of 4 bits in float16.
        tolerance = 1e-3 if name.endswith("4bit") else 1e-5
        assert np.allclose(theirs.numpy(), ours.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_results_are_pytorchs(name):
    check(quiet(CASES[name], Given(torch)), quiet(CASES[name], Given(tangrad)), name)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_transposed_convolutions_agree_with_the_module(places):
    # PyTorch's have a kernel for QNNPACK alone, which few of its builds hold.
    g = Given(tangrad)
    nnq = tangrad.ao.nn.quantized
    module = getattr(nnq, f"ConvTranspose{places}d")(4, 6, 3, 2, 1, 1)
    module.set_weight_bias(g.w(4, 6, *[3] * places), g.floats(6, seed=2))
    module.scale, module.zero_point = 0.2, 90
    x = g.x(2, 4, *[5] * places)
    made = getattr(g.ops, f"conv_transpose{places}d")(x, g.transposed(places), 0.2, 90)
    assert np.array_equal(made.int_repr().numpy(), module(x).int_repr().numpy())
    numbers = g.floats(2, 4, *[5] * places)
    dynamic = getattr(g.ops, f"conv_transpose{places}d_dynamic")(numbers, g.transposed(places))
    assert dynamic.shape == made.shape
    weight, bias = getattr(g.ops, f"conv_transpose{places}d_unpack")(g.transposed(places))
    assert tuple(weight.shape) == (4, 6, *[3] * places)
    assert tuple(bias.shape) == (6,)


def test_activations_behind_a_linear_layer_round_once():
    g = Given(tangrad)
    x, packed = g.x(5, 16), g.linear()
    numbers = tangrad.nn.functional.linear(x.dequantize(), packed.weight.dequantize(), packed.bias)
    for made, function in (
        (g.ops.linear_leaky_relu(x, packed, 0.1, 80, 0.2), lambda v: v.where(v > 0, 0.2 * v)),
        (g.ops.linear_tanh(x, packed, 0.01, 120), tangrad.tanh),
    ):
        wanted = tangrad.quantize_per_tensor(
            function(numbers), made.q_scale(), made.q_zero_point(), tangrad.quint8
        )
        assert abs(made.int_repr().int() - wanted.int_repr().int()).max() <= 1


def test_a_convolution_takes_a_sum_along_and_rounds_once():
    g = Given(tangrad)
    x, extra = g.x(2, 4, 7, 7), g.x(2, 6, 7, 7, seed=9)
    for name in ("conv2d_add", "conv2d_add_relu"):
        made = getattr(g.ops, name)(x, extra, g.conv(2), 0.2, 90)
        packed = g.conv(2)
        numbers = tangrad.nn.functional.conv2d(
            x.dequantize(), packed.weight.dequantize(), packed.bias, 1, 1, 1, 2
        )
        total = numbers + extra.dequantize()
        total = total.relu() if name.endswith("_relu") else total
        wanted = tangrad.quantize_per_tensor(total, 0.2, 90, tangrad.quint8)
        assert abs(made.int_repr().int() - wanted.int_repr().int()).max() <= 1


def test_every_op_has_a_default_overload_and_a_description():
    ops = tangrad.ops.quantized
    assert len(ops.__all__) > 120
    for name in ops.__all__:
        function = getattr(ops, name)
        assert function.default is function
        assert function.__doc__
        assert hasattr(torch.ops.quantized, name), name


def test_modules_hold_weights_that_the_ops_take():
    g = Given(tangrad)
    nnq = tangrad.ao.nn.quantized
    layer = nnq.Linear(16, 6)
    layer.set_weight_bias(g.w(6, 16), g.floats(6))
    made = g.ops.linear(g.x(5, 16), layer._packed_params._packed_params, 0.2, 80)
    layer.scale, layer.zero_point = 0.2, 80
    assert np.array_equal(made.int_repr().numpy(), layer(g.x(5, 16)).int_repr().numpy())


@pytest.mark.parametrize("places", [1, 2, 3])
def test_dynamic_convolutions_compute_what_the_quantized_input_stands_for(places):
    # PyTorch's round the result once more, to the scale of the input, which is seldom its own.
    g = Given(tangrad)
    x = g.floats(2, 4, *[5] * places)
    packed = g.conv(places)
    for reduce_range, most in ((False, 255), (True, 127)):
        low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
        scale = (high - low) / most
        seen = tangrad.quantize_per_tensor(x, scale, round(-low / scale), tangrad.quint8)
        wanted = getattr(tangrad.nn.functional, f"conv{places}d")(
            seen.dequantize(), packed.weight.dequantize(), packed.bias, 1, 1, 1, 2
        )
        made = getattr(g.ops, f"conv{places}d_dynamic")(x, packed, reduce_range)
        assert np.allclose(made.numpy(), wanted.numpy(), atol=1e-4)


def test_dynamic_convolutions_pad_by_reflection():
    g = Given(tangrad)
    weight, bias, x = g.w(6, 4, 3), g.floats(6, seed=2), g.floats(2, 4, 9)
    module = tangrad.ao.nn.quantized.dynamic.Conv1d(4, 6, 3, padding=1, padding_mode="reflect")
    module.set_weight_bias(weight, bias)
    wide = tangrad.nn.functional.pad(x, (1, 1), mode="reflect")
    packed = g.ops.conv1d_prepack(weight, bias, [1], [0], [1], 1)
    assert np.array_equal(module(x).numpy(), g.ops.conv1d_dynamic(wide, packed, True).numpy())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g: g.ops.add(g.x(2, 3), g.x(2, 3)), "quantized::add.*scale and the zero_point"),
        (lambda g: g.ops.mul(g.x(2, 3), g.floats(2)), "quantized::mul.*one element.*\\[2\\]"),
        (lambda g: g.ops.add_out(g.x(2, 3), g.x(2, 3), g.x(3)), "\\[2, 3\\], and out \\[3\\]"),
        (lambda g: g.ops.clamp(g.x(2)), "quantized::clamp"),
        (lambda g: g.ops.linear(g.x(5, 16), g.w(6, 16), 0.1, 0), "linear_prepack, got Tensor"),
        (
            lambda g: g.ops.linear(g.x(5, 16), g.conv(2), 0.1, 0),
            "linear_prepack, got Conv2dPackedParamsBase",
        ),
        (lambda g: g.ops.conv2d(g.x(1, 4, 7, 7), g.conv(1), 0.1, 0), "conv2d_prepack"),
        (lambda g: g.ops.conv2d(g.x(1, 4, 7, 7), g.conv(2), 0.1), "output_scale"),
        (lambda g: g.ops.conv1d_prepack(g.w(6, 2, 3, 3), None, [1], [0], [1], 1), "3 dimensions"),
        (lambda g: g.ops.conv2d_prepack(g.w(6, 2, 3, 3), None, [1], [0, 0], [1, 1], 1), "stride"),
        (lambda g: g.ops.batch_norm2d(g.x(2, 3), *[g.floats(3)] * 4, 1e-5, 0.1, 0), "\\[2, 3\\]"),
        (lambda g: g.ops.embedding_byte(g.rows("quint4x2"), g.indices()), "8 bits"),
        (lambda g: g.ops.embedding_bag_byte(g.rows(), g.indices(), mode=2), "mode"),
        (lambda g: g.ops.embedding_byte(g.rows(), g.indices(), True), "pruned"),
        (lambda g: g.ops.embedding_bag_byte_prepack(g.floats(3)), "matrix"),
        (lambda g: g.ops.embedding_bag_byte_unpack(g.floats(3, 9)), "prepack"),
        (lambda g: g.ops.embedding_bag_4bit_prepack(g.floats(3, 4) / 0), "NaN or infinity"),
        (
            lambda g: g.ops.embedding_bag_4bit_prepack_with_rowwise_min_max(
                g.floats(3, 4), g.floats(3)
            ),
            "shape \\[3, 2\\]",
        ),
        (
            lambda g: g.ops.quantized_gru_cell_dynamic(g.floats(5, 16), g.floats(5, 8), *g.cell(4)),
            "w_ih must have 24 rows.*\\[32, 16\\]",
        ),
        (
            lambda g: g.ops.quantized_rnn_tanh_cell_dynamic(
                g.floats(5, 16), g.floats(4, 8), *g.cell(1)
            ),
            "\\[5, 16\\] and \\[4, 8\\]",
        ),
        (
            lambda g: g.ops.quantized_lstm_cell_dynamic(
                g.floats(5, 16), [g.floats(5, 8), g.floats(5, 9)], *g.cell(4)
            ),
            "one shape.*\\[5, 9\\]",
        ),
        (lambda g: g.ops.nothing, "tangrad-quantization has no such op"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises((RuntimeError, TypeError, NotImplementedError, AttributeError), match=says):
        quiet(call, Given(tangrad))

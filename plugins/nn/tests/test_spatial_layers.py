"""Layers over signals, images and volumes: text, state, values and gradients as torch's."""

import math

import pytest

import tangrad
from tangrad import nn

SEQUENCE = (2, 4, 7)
IMAGE = (2, 4, 7, 6)
VOLUME = (2, 4, 3, 5, 4)

# The layer, the shape of its input.
LAYERS = {
    "Conv3d": (lambda n: n.Conv3d(4, 2, 2), VOLUME),
    "Conv3d with all": (lambda n: n.Conv3d(4, 2, (1, 3, 2), (1, 2, 1), 1, 2, 2), VOLUME),
    "Conv3d same": (lambda n: n.Conv3d(4, 2, 2, padding="same"), VOLUME),
    "Conv3d reflect": (lambda n: n.Conv3d(4, 1, 3, padding=1, padding_mode="reflect"), VOLUME),
    "Conv3d unbatched": (lambda n: n.Conv3d(4, 1, 2, bias=False), VOLUME[1:]),
    "ConvTranspose1d": (lambda n: n.ConvTranspose1d(4, 3, 3), SEQUENCE),
    "ConvTranspose1d with all": (
        lambda n: n.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2, False, 2),
        SEQUENCE,
    ),
    "ConvTranspose2d": (lambda n: n.ConvTranspose2d(4, 3, (3, 2), stride=2), IMAGE),
    "ConvTranspose2d dilated": (
        lambda n: n.ConvTranspose2d(4, 2, 2, output_padding=(2, 1), groups=2, dilation=3),
        IMAGE,
    ),
    "ConvTranspose3d": (lambda n: n.ConvTranspose3d(4, 2, 2, 2, 1, 1), VOLUME),
    "MaxPool1d": (lambda n: n.MaxPool1d(3, 2, 1, ceil_mode=True), SEQUENCE),
    "MaxPool3d": (lambda n: n.MaxPool3d((2, 3, 2), 1, (1, 1, 0), 1), VOLUME),
    "AvgPool1d": (lambda n: n.AvgPool1d(3), SEQUENCE),
    "AvgPool1d with all": (lambda n: n.AvgPool1d(3, 2, 1, True, False), SEQUENCE),
    "AvgPool3d": (lambda n: n.AvgPool3d(2, 1, 1, divisor_override=3), VOLUME),
    "AdaptiveAvgPool1d": (lambda n: n.AdaptiveAvgPool1d(3), SEQUENCE),
    "AdaptiveAvgPool2d": (lambda n: n.AdaptiveAvgPool2d((3, None)), IMAGE),
    "AdaptiveAvgPool2d to one": (lambda n: n.AdaptiveAvgPool2d(1), IMAGE[1:]),
    "AdaptiveAvgPool3d": (lambda n: n.AdaptiveAvgPool3d((2, 3, 7)), VOLUME),
    "AdaptiveMaxPool1d": (lambda n: n.AdaptiveMaxPool1d(3), SEQUENCE),
    "AdaptiveMaxPool2d": (lambda n: n.AdaptiveMaxPool2d((None, 4)), IMAGE),
    "AdaptiveMaxPool3d": (lambda n: n.AdaptiveMaxPool3d(2), VOLUME),
    "LPPool1d": (lambda n: n.LPPool1d(2, 3), SEQUENCE),
    "LPPool2d": (lambda n: n.LPPool2d(2, (2, 3), 1, True), IMAGE),
    "LPPool3d": (lambda n: n.LPPool3d(2, 2), VOLUME),
    "Unfold": (lambda n: n.Unfold((2, 3), 2, 1, 2), IMAGE),
    "Fold": (lambda n: n.Fold((3, 4), 2), (2, 8, 6)),
    "Upsample": (lambda n: n.Upsample(scale_factor=2), SEQUENCE),
    "Upsample by each": (lambda n: n.Upsample(scale_factor=(2, 1.5)), IMAGE),
    "Upsample bicubic": (lambda n: n.Upsample((9, 5), mode="bicubic"), IMAGE),
    "Upsample trilinear": (
        lambda n: n.Upsample(scale_factor=1.5, mode="trilinear", align_corners=True),
        VOLUME,
    ),
    "UpsamplingNearest2d": (lambda n: n.UpsamplingNearest2d(scale_factor=2), IMAGE),
    "UpsamplingBilinear2d": (lambda n: n.UpsamplingBilinear2d(9), IMAGE),
    "PixelShuffle": (lambda n: n.PixelShuffle(2), IMAGE),
    "PixelUnshuffle": (lambda n: n.PixelUnshuffle(2), (2, 3, 4, 6)),
    "ChannelShuffle": (lambda n: n.ChannelShuffle(2), IMAGE),
    "ZeroPad1d": (lambda n: n.ZeroPad1d(2), SEQUENCE),
    "ZeroPad2d": (lambda n: n.ZeroPad2d((1, -2, 3, 0)), IMAGE),
    "ZeroPad3d": (lambda n: n.ZeroPad3d(1), VOLUME),
    "ConstantPad1d": (lambda n: n.ConstantPad1d((1, 2), 3.5), SEQUENCE),
    "ConstantPad2d": (lambda n: n.ConstantPad2d(1, -1), IMAGE),
    "ConstantPad3d": (lambda n: n.ConstantPad3d(1, 2), VOLUME),
    "ReflectionPad1d": (lambda n: n.ReflectionPad1d(2), SEQUENCE),
    "ReflectionPad2d": (lambda n: n.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "ReflectionPad3d": (lambda n: n.ReflectionPad3d(1), VOLUME),
    "ReplicationPad1d": (lambda n: n.ReplicationPad1d(9), SEQUENCE),
    "ReplicationPad2d": (lambda n: n.ReplicationPad2d((1, 2, 3, 0)), IMAGE[1:]),
    "ReplicationPad3d": (lambda n: n.ReplicationPad3d(1), VOLUME),
    "CircularPad1d": (lambda n: n.CircularPad1d(2), SEQUENCE),
    "CircularPad2d": (lambda n: n.CircularPad2d((1, 2, 3, 0)), IMAGE),
    "CircularPad3d": (lambda n: n.CircularPad3d(1), VOLUME),
    "BatchNorm3d": (lambda n: n.BatchNorm3d(4), VOLUME),
    "SyncBatchNorm": (lambda n: n.SyncBatchNorm(4, momentum=None), IMAGE),
    "SyncBatchNorm in evaluation": (lambda n: n.SyncBatchNorm(4).eval(), (3, 4)),
    "InstanceNorm1d": (lambda n: n.InstanceNorm1d(4), SEQUENCE),
    "InstanceNorm1d unbatched": (lambda n: n.InstanceNorm1d(4, affine=True), SEQUENCE[1:]),
    "InstanceNorm2d with all": (lambda n: n.InstanceNorm2d(4, 1e-3, 0.3, True, True), IMAGE),
    "InstanceNorm2d without bias": (lambda n: n.InstanceNorm2d(4, affine=True, bias=False), IMAGE),
    "InstanceNorm2d in evaluation": (
        lambda n: n.InstanceNorm2d(4, track_running_stats=True).eval(),
        IMAGE,
    ),
    "InstanceNorm3d": (lambda n: n.InstanceNorm3d(4, affine=True), VOLUME),
    "GroupNorm": (lambda n: n.GroupNorm(2, 4, eps=1e-3), IMAGE),
    "GroupNorm without bias": (lambda n: n.GroupNorm(4, 4, bias=False), SEQUENCE),
    "GroupNorm plain": (lambda n: n.GroupNorm(1, 4, affine=False), (3, 4)),
    "LocalResponseNorm": (lambda n: n.LocalResponseNorm(3, 0.5, 0.6, 2.0), IMAGE),
    "LocalResponseNorm of sequences": (lambda n: n.LocalResponseNorm(2), SEQUENCE),
    "LazyConv1d": (lambda n: n.LazyConv1d(3, 3, padding=1), SEQUENCE),
    "LazyConv2d": (lambda n: n.LazyConv2d(4, 3, groups=2, bias=False), IMAGE),
    "LazyConv3d": (lambda n: n.LazyConv3d(3, 2), VOLUME[1:]),
    "LazyConvTranspose1d": (lambda n: n.LazyConvTranspose1d(2, 3, 2, 1, 1), SEQUENCE),
    "LazyConvTranspose2d": (lambda n: n.LazyConvTranspose2d(2, 3, groups=2), IMAGE),
    "LazyConvTranspose3d": (lambda n: n.LazyConvTranspose3d(2, 2, bias=False), VOLUME),
    "LazyLinear": (lambda n: n.LazyLinear(3), (2, 5, 4)),
    "LazyLinear without bias": (lambda n: n.LazyLinear(3, bias=False), (4,)),
    "LazyBatchNorm1d": (lambda n: n.LazyBatchNorm1d(momentum=None), SEQUENCE),
    "LazyBatchNorm2d": (lambda n: n.LazyBatchNorm2d(affine=False), IMAGE),
    "LazyBatchNorm3d": (lambda n: n.LazyBatchNorm3d(track_running_stats=False), VOLUME),
    "LazyInstanceNorm1d": (lambda n: n.LazyInstanceNorm1d(), SEQUENCE),
    "LazyInstanceNorm2d": (lambda n: n.LazyInstanceNorm2d(track_running_stats=False), IMAGE),
    "LazyInstanceNorm3d": (lambda n: n.LazyInstanceNorm3d(bias=False), VOLUME),
}


def tensor(t, shape, start=1):
    """Return numbers between -2 and 2 that repeat nowhere near."""
    size = 1
    for n in shape:
        size *= n
    return t.tensor([((i + start) * 7919 % 4001) / 1000 - 2 for i in range(size)]).reshape(shape)


def fill(t, module):
    """Give all floating parameters and buffers the same numbers in both frameworks."""
    with t.no_grad():
        for start, value in enumerate(module.state_dict(keep_vars=True).values()):
            if value.is_floating_point():
                value.copy_(tensor(t, tuple(value.shape), start + 1).abs() + 0.1)


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_prints_stores_computes_and_differentiates_as_in_pytorch(agree, name):
    make, shape = LAYERS[name]

    def program(t):
        layer = make(t.nn)
        before = [repr(layer), list(layer.state_dict())]
        x = tensor(t, shape).requires_grad_()
        if name.startswith("Lazy"):
            layer(x.detach())
            layer.train(layer.training)
        fill(t, layer)
        out = layer(x * 1)
        (out * tensor(t, tuple(out.shape), 5)).sum().backward()
        state = {key: value.shape for key, value in layer.state_dict().items()}
        values = [list(layer.buffers()), [p.grad for p in layer.parameters()]]
        return [before, repr(layer), type(layer).__name__, state, out, x.grad, values]

    agree(program, tolerance=5e-4)


POOLED = {
    1: (SEQUENCE, lambda n: n.MaxPool1d(2, 3, return_indices=True), lambda n: n.MaxUnpool1d(2, 3)),
    2: (IMAGE, lambda n: n.MaxPool2d(2, return_indices=True), lambda n: n.MaxUnpool2d(2)),
    3: (VOLUME, lambda n: n.MaxPool3d(2, return_indices=True), lambda n: n.MaxUnpool3d(2)),
}


@pytest.mark.parametrize("rank", POOLED)
def test_max_pooling_is_undone_as_in_pytorch(agree, rank):
    shape, pool, unpool = POOLED[rank]

    def program(t):
        values, indices = pool(t.nn)(tensor(t, shape))
        values = values.requires_grad_()
        layer = unpool(t.nn)
        out = layer(values, indices, output_size=shape)
        (out * tensor(t, shape, 3)).sum().backward()
        return [repr(layer), indices, layer(values.detach(), indices), out, values.grad]

    agree(program)


FRACTIONAL = {
    "2d": (IMAGE, 2, lambda n, r: n.FractionalMaxPool2d(2, (3, 4), None, True, r)),
    "2d by ratio": (IMAGE, 2, lambda n, r: n.FractionalMaxPool2d(2, None, 0.6, True, r)),
    "3d": (VOLUME, 3, lambda n, r: n.FractionalMaxPool3d((1, 2, 2), 2, None, True, r)),
}


@pytest.mark.parametrize("name", FRACTIONAL)
def test_fractional_pooling_computes_as_in_pytorch(agree, name):
    shape, rank, make = FRACTIONAL[name]

    def program(t):
        layer = make(t.nn, (tensor(t, (2, 4, rank), 9) + 2) / 4.01)
        x = tensor(t, shape).requires_grad_()
        out, indices = layer(x)
        (out * tensor(t, tuple(out.shape), 5)).sum().backward()
        return [repr(layer), list(layer.state_dict()), out, indices, x.grad]

    agree(program)


def test_a_transposed_convolution_of_a_wanted_size(agree):
    def program(t):
        layer = t.nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)
        fill(t, layer)
        x = tensor(t, IMAGE)
        full = layer(x, output_size=(2, 2, 14, 11))
        return [full, layer(x, output_size=[13, 12]), layer(x[0], output_size=[13, 12])]

    agree(program)


def nothing(t, layer, shape):
    return layer(t.ones(shape))


BAD = {
    "transposed padding mode": lambda t: t.nn.ConvTranspose2d(2, 2, 1, padding_mode="circular"),
    "transposed size": lambda t: t.nn.ConvTranspose1d(1, 1, 2)(t.ones(1, 1, 3), output_size=[9]),
    "transposed sizes": lambda t: t.nn.ConvTranspose1d(1, 1, 2)(
        t.ones(1, 1, 3), output_size=[1, 2, 3, 4]
    ),
    "fractional without a size": lambda t: t.nn.FractionalMaxPool2d(2),
    "fractional with two": lambda t: t.nn.FractionalMaxPool2d(2, 2, 0.5),
    "fractional ratio": lambda t: t.nn.FractionalMaxPool3d(2, output_ratio=1.5),
    "groups of channels": lambda t: t.nn.GroupNorm(2, 3),
    "batch norm of four": lambda t: nothing(t, t.nn.BatchNorm3d(2), (1, 2, 3, 3)),
    "synchronized of one": lambda t: nothing(t, t.nn.SyncBatchNorm(2), (2,)),
    "synchronized of nothing": lambda t: nothing(t, t.nn.SyncBatchNorm(2), (2, 0)),
    "instance of four": lambda t: nothing(t, t.nn.InstanceNorm1d(2), (1, 2, 3, 3)),
    "instance of others": lambda t: nothing(t, t.nn.InstanceNorm1d(2, affine=True), (1, 3, 3)),
    "circular": lambda t: nothing(t, t.nn.CircularPad1d(1), (3,)),
    "cross map": lambda t: nothing(t, t.nn.CrossMapLRN2d(1), (1, 2, 3)),
    "lazy dimensions": lambda t: nothing(t, t.nn.LazyConv2d(2, 1), (1, 2)),
    "lazy groups": lambda t: nothing(t, t.nn.LazyConv2d(2, 1, groups=2), (1, 3, 2, 2)),
    "lazy shape": lambda t: t.nn.LazyLinear(2).weight.shape,
    "lazy sum": lambda t: t.nn.LazyLinear(2).weight.sum(),
    "lazy product": lambda t: t.nn.LazyLinear(2).weight * 2,
    "lazy sharing": lambda t: t.nn.LazyLinear(2).share_memory(),
    "lazy into made": lambda t: t.nn.Linear(2, 2).load_state_dict(t.nn.LazyLinear(2).state_dict()),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_as_in_pytorch(agree, name):
    agree(lambda t: BAD[name](t), message=False)


def test_instance_norm_of_other_channels_warns():
    with pytest.warns(UserWarning, match="does not match num_features"):
        assert nn.InstanceNorm1d(2)(tangrad.ones(1, 3, 4)).shape == (1, 3, 4)


def test_batch_normalizations_are_made_synchronized(agree):
    def program(t):
        net = t.nn.Sequential(t.nn.Conv1d(4, 4, 1), t.nn.Sequential(t.nn.BatchNorm1d(4)))
        fill(t, net)
        weight = net[1][0].weight
        made = t.nn.SyncBatchNorm.convert_sync_batchnorm(net)
        assert made[1][0].weight is weight
        return [repr(made), list(made.state_dict()), made(tensor(t, SEQUENCE))]

    agree(program)


def test_normalization_across_maps_computes_as_in_pytorch(agree):
    def program(t):
        odd, even = t.nn.CrossMapLRN2d(5, 0.5), t.nn.CrossMapLRN2d(4, 0.5, 0.6, 2)
        return [repr(odd), odd(tensor(t, (2, 3, 4, 5))), even(tensor(t, (2, 2, 4, 5)))]

    agree(program)


def test_normalization_across_an_odd_number_of_maps_is_local_response_normalization():
    # PyTorch's own is not, from the fourth channel on, and its gradient is not the derivative.
    results = []
    for layer in (nn.CrossMapLRN2d(5, 0.5), nn.LocalResponseNorm(5, 0.5)):
        x = tensor(tangrad, (2, 8, 3, 3)).requires_grad_()
        out = layer(x)
        (out * tensor(tangrad, tuple(out.shape), 5)).sum().backward()
        results.append((out.detach(), x.grad))
    for ours, theirs in zip(*results, strict=True):
        assert tangrad.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_what_has_no_values_is_resampled_without_a_list_of_places(mode: str) -> None:
    # At a microsecond for each place this would take hours.
    x = tangrad.empty(2, 3, 2**33, device="meta", requires_grad=True)
    y = tangrad.nn.functional.interpolate(x, scale_factor=2, mode=mode)
    assert y.shape == (2, 3, 2**34)
    y.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(1, 1), (1, 2, 1)])
def test_positions_in_a_single_element_have_a_gradient_of_zero(agree, mode, size):
    def program(t):
        x = t.arange(float(math.prod(size))).reshape(1, 1, *size)
        grid = t.linspace(-2, 2, 4 * len(size)).reshape(1, 4, *[1] * (len(size) - 1), len(size))
        grid.requires_grad_()
        y = t.nn.functional.grid_sample(
            x, grid, mode=mode, padding_mode="reflection", align_corners=True
        )
        y.sum().backward()
        return y.detach(), grid.grad

    agree(program)


@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        ((1, 2, 4), "linear"),
        ((1, 2, 4, 4), "bilinear"),
        ((1, 2, 4, 4), "bicubic"),
        ((1, 2, 4, 4, 4), "trilinear"),
        ((1, 2, 4, 4), "nearest"),
    ],
)
def test_resampling_goes_backward_as_often_as_is_asked(agree, shape, mode):
    def program(t):
        x = t.arange(float(math.prod(shape))).reshape(shape).requires_grad_()
        y = t.nn.functional.interpolate(x, scale_factor=2, mode=mode)
        y.backward(t.ones_like(y))
        y.backward(t.ones_like(y))
        return x.grad

    agree(program)


def test_what_else_is_saved_is_freed_by_backward():
    x = tangrad.ones(1, 2, 4, requires_grad=True)
    y = tangrad.nn.functional.interpolate(x * x, scale_factor=2, mode="linear").sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()

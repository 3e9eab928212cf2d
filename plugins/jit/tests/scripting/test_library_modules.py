"""Modules of `nn` in archives: PyTorch loads what is written here, and gives the same."""

import functools
import io

import pytest
import torch

import tangrad
from tangrad import nn

PAIR = ((3, 4), (3, 4))
CASES = [
    *((name, {}, PAIR) for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")),
    *((name, {"reduction": "sum"}, PAIR) for name in ("L1Loss", "SmoothL1Loss", "SoftMarginLoss")),
    ("SmoothL1Loss", {"beta": 0.0}, PAIR),
    ("KLDivLoss", {"reduction": "batchmean"}, PAIR),
    ("KLDivLoss", {"reduction": "none", "log_target": True}, PAIR),
    ("BCELoss", {}, PAIR),
    ("BCEWithLogitsLoss", {"reduction": "none"}, PAIR),
    ("PoissonNLLLoss", {}, PAIR),
    ("MultiLabelSoftMarginLoss", {}, PAIR),
    ("MarginRankingLoss", {"margin": 0.5}, ((3,), (3,), (3,))),
    ("CosineEmbeddingLoss", {}, ((3, 4), (3, 4), (3,))),
    ("HingeEmbeddingLoss", {}, PAIR),
    ("TripletMarginLoss", {"swap": True}, ((3, 4), (3, 4), (3, 4))),
    ("ConvTranspose1d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2}, ((1, 2, 5),)),
    ("ConvTranspose2d", {"in_channels": 2, "out_channels": 2, "kernel_size": 2}, ((1, 2, 4, 4),)),
    ("ConstantPad1d", {"padding": 2, "value": 1.5}, ((1, 2, 4),)),
    ("ConstantPad2d", {"padding": (1, 0, 2, 1), "value": 3.0}, ((1, 2, 4, 4),)),
    ("ZeroPad2d", {"padding": 1}, ((1, 2, 4, 4),)),
    ("ReflectionPad2d", {"padding": 1}, ((1, 2, 4, 4),)),
    ("ReplicationPad1d", {"padding": 2}, ((1, 2, 4),)),
    ("LPPool1d", {"norm_type": 2, "kernel_size": 2}, ((1, 2, 6),)),
    ("LPPool2d", {"norm_type": 2, "kernel_size": (2, 1), "stride": 2}, ((1, 2, 6, 6),)),
    ("InstanceNorm2d", {"num_features": 2, "affine": True}, ((1, 2, 4, 4),)),
    ("AvgPool1d", {"kernel_size": 2}, ((1, 2, 6),)),
    ("AvgPool3d", {"kernel_size": 2}, ((1, 2, 4, 4, 4),)),
    *(
        (name, {}, ((3, 4),))
        for name in (
            *("RReLU", "CELU", "SELU", "Mish", "GLU", "LogSigmoid", "Softsign", "Tanhshrink"),
            *("Hardshrink", "Softshrink"),
        )
    ),
    ("Threshold", {"threshold": 0.3, "value": 2.0}, ((3, 4),)),
    *((f"AdaptiveAvgPool{d}d", {"output_size": 2}, ((1, 2, *[5] * d),)) for d in (1, 2, 3)),
    *((f"AdaptiveMaxPool{d}d", {"output_size": 2}, ((1, 2, *[5] * d),)) for d in (1, 2, 3)),
    ("PixelShuffle", {"upscale_factor": 2}, ((1, 4, 2, 2),)),
    ("PixelUnshuffle", {"downscale_factor": 2}, ((1, 1, 4, 4),)),
    ("ChannelShuffle", {"groups": 2}, ((1, 4, 2, 2),)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options", "shapes"), CASES)
def test_a_module_of_the_library_is_loaded_by_pytorch(name, options, shapes):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(**options).eval()
    mine = getattr(tangrad.nn, name)(**options).eval()
    mine.load_state_dict({k: tangrad.tensor(v.tolist()) for k, v in theirs.state_dict().items()})
    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(mine), file)
    given = [torch.rand(shape) for shape in shapes]
    wanted = theirs(*given)
    for side in (torch, tangrad):
        file.seek(0)
        loaded = side.jit.load(file)
        found = loaded(*(side.tensor(tensor.tolist()) for tensor in given))
        assert torch.allclose(torch.tensor(found.tolist()), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bias": False}, {"vdim": 6}])
@pytest.mark.parametrize("is_masked", [False, True])
def test_attention_is_loaded_by_pytorch(options, is_masked):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(4, 2, **options).eval()
    mine = tangrad.nn.MultiheadAttention(4, 2, **options).eval()
    mine.load_state_dict({k: tangrad.tensor(v.tolist()) for k, v in theirs.state_dict().items()})
    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(mine), file)
    x = torch.rand(3, 3, 4)
    given = [x, x, torch.rand(3, 3, options.get("vdim", 4))]
    further = {"average_attn_weights": not is_masked}
    if is_masked:
        further["key_padding_mask"] = torch.tensor([[False, False, True]] * 3)
        further["attn_mask"] = torch.eye(3)
    wanted = theirs(*given, **further)
    for side in (torch, tangrad):
        file.seek(0)
        loaded = side.jit.load(file)
        args = [side.tensor(tensor.tolist()) for tensor in given]
        named = {
            key: side.tensor(value.tolist()) if isinstance(value, torch.Tensor) else value
            for key, value in further.items()
        }
        for found, expected in zip(loaded(*args, **named), wanted, strict=True):
            close = torch.allclose(torch.tensor(found.tolist()), expected, rtol=1e-4, atol=1e-6)
            assert close


class Packed(nn.Module):
    def __init__(self, cls):
        super().__init__()
        self.inner = cls(3, 2)

    def forward(self, x: nn.utils.rnn.PackedSequence):
        made, _ = self.inner(x)
        return made


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_take_packed_sequences(cls):
    module = Packed(cls)
    packed = nn.utils.rnn.pack_sequence([tangrad.ones(4, 3), tangrad.ones(2, 3)])
    scripted = tangrad.jit.script(module)
    found = scripted(packed)
    assert isinstance(found, nn.utils.rnn.PackedSequence)
    assert found.data.tolist() == module(packed).data.tolist()
    with pytest.raises(RuntimeError, match="packed sequences|no form in archives"):
        scripted.save_to_buffer()


outside = nn.Linear(2, 3)


def calls_outside(x):
    return outside(x) + 1


def test_modules_of_python_are_called_as_they_are():
    scripted = tangrad.jit.script(calls_outside)
    assert scripted(tangrad.ones(2)).tolist() == calls_outside(tangrad.ones(2)).tolist()
    assert "python_value" in str(scripted.graph)


class Doubles:
    def __call__(self, x):
        return x * 2


doubles = Doubles()


def calls_an_object(x):
    return doubles(x) + 1


def test_objects_of_python_are_called_as_they_are():
    assert tangrad.jit.script(calls_an_object)(tangrad.ones(1)).tolist() == [3.0]


@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("triplet_margin_loss", [(3, 4)] * 3, {"margin": 2.0, "reduction": "sum"}),
        ("relu", [(3,)], {"inplace": False}),
        ("softmax", [(3, 4)], {"dim": 1}),
        ("linear", [(2, 3), (4, 3)], {}),
    ],
)
def test_functions_of_the_library_are_scripted(name, sizes, options):
    function = getattr(nn.functional, name)
    given = [tangrad.rand(*size) for size in sizes]
    scripted = tangrad.jit.script(function)
    assert scripted(*given, **options).tolist() == function(*given, **options).tolist()
    assert scripted.name == name
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor'"):
        scripted(*["a" for _ in given])


class Folders(tangrad.nn.Module):
    """Modules within plain modules, as fx makes them where a path has no class of its own."""

    def __init__(self):
        super().__init__()
        self.outer = tangrad.nn.Module()
        self.outer.first = tangrad.nn.Linear(2, 2)
        self.outer.inner = tangrad.nn.Module()
        self.outer.inner.second = tangrad.nn.Linear(2, 3)

    def forward(self, x):
        return self.outer.inner.second(self.outer.first(x))


def test_plain_modules_with_other_children_are_other_types():
    model, x = Folders(), tangrad.ones(2)
    expected = model(x)
    assert tangrad.jit.script(model)(x).equal(expected)
    assert tangrad.jit.script(tangrad.fx.symbolic_trace(model))(x).equal(expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", [torch, tangrad])
def test_partial_functions_are_called_by_python(library):
    function = functools.partial(library.pow, exponent=2)
    other = functools.partial(lambda x, by: x + by, by=3)

    def calls(x):
        return function(x) + other(x).sum()

    scripted = library.jit.script(calls)
    x = library.tensor([1.0, 2.0])
    assert scripted(x).tolist() == calls(x).tolist() == [10.0, 13.0]

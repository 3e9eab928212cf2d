"""Traces of the library's modules: programs of the language, which PyTorch and we read."""

import io
import zipfile

import pytest
import torch

import tangrad
from tangrad import jit, nn

IMAGE = (1, 2, 8, 8)
MODULES = [
    ("Linear", (4, 3), (2, 4)),
    ("Conv1d", (2, 3, 3), (1, 2, 8)),
    ("Conv2d", (2, 3, 3), IMAGE),
    ("Conv3d", (2, 3, 3), (1, 2, 5, 5, 5)),
    ("ConvTranspose2d", (2, 3, 3), IMAGE),
    ("BatchNorm1d", (4,), (3, 4)),
    ("BatchNorm2d", (2,), IMAGE),
    ("LayerNorm", (4,), (2, 4)),
    ("GroupNorm", (2, 4), (2, 4, 3)),
    ("InstanceNorm2d", (2,), IMAGE),
    ("RMSNorm", (4,), (2, 4)),
    ("MaxPool1d", (2,), (1, 2, 8)),
    ("MaxPool2d", (2,), IMAGE),
    ("AvgPool2d", (2,), IMAGE),
    ("AdaptiveAvgPool2d", (2,), IMAGE),
    ("AdaptiveMaxPool2d", (2,), IMAGE),
    ("LPPool2d", (2, 2), IMAGE),
    *((name, (), (3, 4)) for name in "ReLU GELU SiLU ELU CELU SELU Hardtanh Hardswish".split()),
    *((name, (), (3, 4)) for name in "LeakyReLU PReLU Softplus Softshrink Tanhshrink GLU".split()),
    *((name, (), (3, 4)) for name in "Mish ReLU6 LogSigmoid Softsign Hardshrink Dropout".split()),
    *((name, (-1,), (3, 4)) for name in "Softmax LogSoftmax Softmin".split()),
    ("Threshold", (0.1, 1.0), (3,)),
    ("Flatten", (), (2, 3, 4)),
    ("Unflatten", (1, (2, 2)), (3, 4)),
    ("PixelShuffle", (2,), (1, 4, 3, 3)),
    ("Upsample", (None, 2), IMAGE),
    ("UpsamplingBilinear2d", (None, 2), IMAGE),
    ("ReflectionPad2d", (1,), IMAGE),
    ("ConstantPad2d", (1, 2.0), IMAGE),
    ("Fold", ((4, 4), 2), (1, 8, 9)),
    ("Unfold", (2,), IMAGE),
    ("ChannelShuffle", (2,), (1, 4, 2, 2)),
    ("TransformerEncoderLayer", (8, 2, 16), (3, 2, 8)),
]
WITHIN = [("LSTM", (4, 5), (3, 2, 4)), ("GRU", (4, 5), (3, 2, 4)), ("LSTMCell", (4, 5), (2, 4))]


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x * 1)


def listed(result):
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in listed(part)]
    return [result.detach().tolist()]


def close(one, other):
    return torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "args", "shape", "within"),
    [(*m, within) for m in MODULES for within in (False, True)] + [(*m, True) for m in WITHIN],
)
def test_the_trace_of_a_module_is_read_by_pytorch_and_us(name, args, shape, within):
    module = getattr(nn, name)(*args).eval()
    module = Around(module) if within else module
    x = tangrad.randn(shape)
    traced, wanted = jit.trace(module, x, check_trace=False), listed(module(x))
    file = io.BytesIO()
    traced.save(file)
    with zipfile.ZipFile(file) as archive:
        assert "format" not in archive.namelist()
    found = [listed(traced(x))]
    for side, given in ((tangrad, x), (torch, torch.tensor(x.tolist()))):
        file.seek(0)
        found.append(listed(side.jit.load(file)(given)))
    for one in found:
        assert len(one) == len(wanted)
        assert all(map(close, one, wanted))


def test_what_pytorch_has_no_form_for_is_saved_in_ours():
    for module, shape in ((Around(nn.RNN(4, 5)), (3, 2, 4)), (nn.LSTM(4, 5), (3, 2, 4))):
        x = tangrad.randn(shape)
        traced = jit.trace(module, x, check_trace=False)
        file = io.BytesIO()
        traced.save(file)
        file.seek(0)
        assert listed(jit.load(file)(x)) == listed(module(x))


def test_what_nobody_uses_is_left_out_unless_it_does_more():
    def program(x, held):
        x.sin().cos()
        tangrad.add(x, 1, out=held)
        nn.functional.relu(held, inplace=True)
        nn.functional.dropout(x, 0.5)
        x.bernoulli()
        y = held[0]
        return y + tangrad.rand(3)

    x, held = tangrad.randn(2, 3).clamp(0, 1), tangrad.zeros(2, 3)
    traced = jit.trace(program, (x, held), check_trace=False)
    assert "sin" not in traced.code
    file = io.BytesIO()
    traced.save(file)
    file.seek(0)
    results = []
    for run in (program, traced, jit.load(file)):
        tangrad.manual_seed(3)
        held = tangrad.zeros(2, 3)
        results.append((run(x, held).tolist(), held.tolist()))
    assert results[0] == results[2]
    assert results[0][1] == results[1][1]


RECURRENT = ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"]


def other(value):
    """Return tensors of PyTorch for ours."""
    if isinstance(value, tuple):
        return tuple(map(other, value))
    return torch.tensor(value.tolist())


def flat(value):
    """Return the tensors in tuples."""
    return [one for part in value for one in flat(part)] if isinstance(value, tuple) else [value]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_state", [False, True], ids=["alone", "with its state"])
@pytest.mark.parametrize("name", [*RECURRENT, "MultiheadAttention"])
def test_a_module_that_is_one_op_is_traced_by_itself(name, with_state):
    tangrad.manual_seed(0)
    cell, attention = name.endswith("Cell"), name == "MultiheadAttention"
    options = {} if cell else {"num_heads": 2} if attention else {"num_layers": 2}
    model = getattr(tangrad.nn, name)(4, 4, **options) if not attention else None
    model = (model or tangrad.nn.MultiheadAttention(4, 2)).eval()
    x = tangrad.rand(2, 4) if cell else tangrad.rand(2, 5, 4)
    state = tangrad.rand(2, 4) if cell else tangrad.rand(2, 5, 4)
    args = (x, x, x) if attention else (x,)
    if with_state and not attention:
        args = (x, (state, state) if name.startswith("LSTM") else state)
    traced = tangrad.jit.trace(model, args)
    file = io.BytesIO()
    traced.save(file)
    wanted = flat(model(*args))
    for one in (traced, tangrad.jit.load(io.BytesIO(file.getvalue()))):
        assert all(map(tangrad.allclose, flat(one(*args)), wanted))
    theirs = torch.jit.load(io.BytesIO(file.getvalue()))
    for found, value in zip(flat(theirs(*other(args))), wanted, strict=True):
        assert torch.allclose(found, other(value), atol=1e-6)
    assert "is None" not in traced.code


class Block(tangrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = tangrad.nn.Linear(3, 3), tangrad.nn.BatchNorm1d(3)

    def forward(self, x):
        y = self.norm(self.linear(x))
        return tangrad.relu(y), y


class Blocks(tangrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.steps = tangrad.nn.Sequential(tangrad.nn.Linear(3, 3), tangrad.nn.Tanh())
        self.steps.append(tangrad.nn.Identity())
        self.rnn, self.tied = tangrad.nn.LSTM(3, 3), tangrad.nn.Linear(3, 3)
        self.tied.weight = self.block.linear.weight

    def forward(self, x):
        a, y = self.block(x)
        b = self.steps(a) + self.steps(y) * self.block.linear.weight.sum()
        return self.tied(self.rnn(b[None])[0]) + x.shape[0]


@pytest.mark.filterwarnings("ignore")
def test_modules_inside_have_methods_of_their_own():
    tangrad.manual_seed(0)
    model, x = Blocks().eval(), tangrad.rand(2, 3)
    traced = tangrad.jit.trace(model, x)
    assert "(self.block).forward(x)" in traced.code
    assert "(self.steps).forward1(" in traced.code
    assert traced.graph.findNode("aten::tanh") is None
    assert traced.inlined_graph.findNode("aten::tanh") is not None
    file = io.BytesIO()
    traced.save(file)
    more = tangrad.rand(5, 3)
    for one in (traced, tangrad.jit.load(io.BytesIO(file.getvalue()))):
        assert tangrad.allclose(one(more), model(more))
        assert tangrad.allclose(one.steps(more), model.steps(more))
        assert all(map(tangrad.allclose, one.block(more), model.block(more)))
        assert tangrad.allclose(one.block.linear(more), model.block.linear(more))
    theirs = torch.jit.load(io.BytesIO(file.getvalue()))
    assert torch.allclose(theirs(other(more)), other(model(more)), atol=1e-6)
    assert torch.allclose(theirs.steps(other(more)), other(model.steps(more)), atol=1e-6)
    assert torch.allclose(theirs.block(other(more))[1], other(model.block(more)[1]), atol=1e-6)


def test_a_method_returns_what_is_read_of_its_results():
    class First(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return self.block(x)[0] + 1

    traced = tangrad.jit.trace(First().eval(), tangrad.rand(2, 3))
    assert "TupleUnpack" not in str(traced.graph)
    assert "Tuple" not in traced.block.code


class Aside(tangrad.nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = [held]

    def forward(self, x):
        x.add_(1)
        return self.held[0](x)


def test_a_module_that_calls_one_outside_of_it_is_written_out():
    class Pair(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tangrad.nn.Linear(2, 2)
            self.aside = Aside(self.inner)

        def forward(self, x):
            return self.aside(x * 2) + self.inner(x)

    model, x = Pair().eval(), tangrad.rand(2, 2)
    traced = tangrad.jit.trace(model, x)
    again = tangrad.jit.load(io.BytesIO(traced.save_to_buffer()))
    more = tangrad.rand(3, 2)
    assert tangrad.allclose(traced(more), model(more))
    assert tangrad.allclose(again(more), model(more))

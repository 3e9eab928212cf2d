"""Scripts of quantized models, and their archives, which PyTorch and this package exchange."""

import io
import zipfile

import pytest
import torch
from quantized_pairs import both, data, models, quiet, same

import tangrad
from tangrad.serialization import SerializationError


def network(nn, q):
    """Return a float model with every kind of layer that archives have a form for."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.first, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()
            self.second = nn.Conv2d(8, 8, 3, 2, 1, groups=4, bias=False)
            self.swish, self.leaky = nn.Hardswish(), nn.LeakyReLU(0.2)
            self.elu, self.sigmoid = nn.ELU(0.5), nn.Sigmoid()
            self.sums = nn.quantized.FloatFunctional()
            self.joined, self.products = (nn.quantized.FloatFunctional() for _ in range(2))
            self.relus = nn.quantized.FloatFunctional()
            self.short, self.drop = nn.ReLU6(), nn.Dropout(0.5)
            self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)

        def forward(self, x):
            x = self.relu(self.first(self.quant(x)))
            x = nn.functional.max_pool2d(x, 2, stride=1)
            y = self.second(x)
            a = self.sums.add(self.swish(y), self.leaky(y))
            b = self.products.mul(self.sigmoid(y), self.elu(y))
            x = self.joined.cat([self.relus.add_relu(a, b), self.short(b)], dim=1)
            x = self.drop(self.pool(x)).flatten(1)
            return self.dequant(self.last(x))

    return Net().eval()


def converted(side, model, x, backend="fbgemm"):
    q = side.ao.quantization
    q.fuse_modules(model, [["first", "relu"]], inplace=True)
    model.qconfig = q.get_default_qconfig(backend)
    q.prepare(model, inplace=True)
    model(x)
    return q.convert(model, inplace=True)


def saved(side, scripted):
    file = io.BytesIO()
    side.jit.save(scripted, file)
    return io.BytesIO(file.getvalue())


@pytest.fixture(scope="module", params=["fbgemm", "qnnpack"], ids=["per channel", "per tensor"])
def pair(request):
    """Return the converted models of both sides, and what they are called with."""
    wanted, ours = models(network)
    xs = both(data(2, 3, 8, 8))
    made = [
        quiet(converted, side, model, x, request.param)
        for side, model, x in zip((torch, tangrad), (wanted, ours), xs, strict=True)
    ]
    return (*made, *xs)


def test_pytorch_loads_scripts_of_quantized_models(pair):
    _, ours, their_x, x = pair
    scripted = tangrad.jit.script(ours)
    expected = ours(x)
    assert same(scripted(x), expected)
    file = saved(tangrad, scripted)
    loaded = quiet(torch.jit.load, file)
    assert same(quiet(loaded, their_x), expected)
    file.seek(0)
    again = tangrad.jit.load(file)
    assert same(again(x), expected)
    assert same(quiet(quiet(torch.jit.load, saved(tangrad, again)), their_x), expected)


def test_quantized_archives_of_pytorch_are_loaded(pair):
    wanted, _, their_x, x = pair
    expected = quiet(wanted, their_x)
    loaded = tangrad.jit.load(quiet(saved, torch, quiet(torch.jit.script, wanted)))
    assert same(loaded(x), expected)
    assert same(quiet(quiet(torch.jit.load, saved(tangrad, loaded)), their_x), expected)


def test_float_models_with_functionals_are_scripted():
    wanted, ours = models(network)
    their_x, x = both(data(2, 3, 8, 8))
    file = saved(tangrad, tangrad.jit.script(ours))
    found = quiet(torch.jit.load, file)(their_x)
    assert torch.allclose(found, wanted(their_x), atol=1e-5)
    file.seek(0)
    assert tangrad.allclose(tangrad.jit.load(file)(x), ours(x), atol=1e-6)


def test_graphs_record_ops_of_quantized_models(pair):
    _, ours, _, x = pair
    traced = tangrad.fx.symbolic_trace(ours)
    assert same(traced(x), ours(x))
    called = {str(node.target) for node in traced.graph.nodes if node.op == "call_function"}
    assert any("add_relu" in name for name in called), called


def test_what_a_functional_lacks_is_refused():
    class Net(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.sums = tangrad.nn.quantized.FloatFunctional()

        def forward(self, x):
            return self.sums(x)

    with pytest.raises(RuntimeError, match="forward"):
        tangrad.jit.script(Net())(tangrad.ones(2))

    class Extra(Net):
        def forward(self, x):
            return self.sums.add(x)

    with pytest.raises(RuntimeError, match=r"FloatFunctional\.add: Argument y not provided"):
        tangrad.jit.script(Extra())


def test_damaged_weights_in_archives_are_refused(pair):
    file = saved(tangrad, tangrad.jit.script(pair[1]))
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in members if name.endswith("data.pkl"))
    for old, new in ((b"X\x01\x00\x00\x002", b"X\x01\x00\x00\x009"), (b"_affine", b"_nothing")):
        assert old in members[name]
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for member, content in members.items():
                changed = content.replace(old, new) if member == name else content
                archive.writestr(member, changed)
        made.seek(0)
        with pytest.raises(SerializationError):
            tangrad.jit.load(made)


def test_integers_become_a_tensor_quantized_by_channels():
    integers, scales, zeros = tangrad.tensor([[1, -2], [3, 4]]).char(), [0.5, 0.25], [0, 1]
    make = tangrad._make_per_channel_quantized_tensor
    found = make(integers, tangrad.tensor(scales), tangrad.tensor(zeros), 0)
    assert found.dequantize().tolist() == [[0.5, -1.0], [0.5, 0.75]]
    assert found.q_per_channel_axis() == 0
    with pytest.raises(RuntimeError, match="do not fit shape"):
        make(integers, tangrad.ones(3), tangrad.zeros(3).long(), 0)
    with pytest.raises(RuntimeError, match="has no dimension 2"):
        make(integers, tangrad.ones(2), tangrad.zeros(2).long(), 2)
    with pytest.raises(RuntimeError, match="give uint8, int8 or int32"):
        make(integers.long(), tangrad.ones(2), tangrad.zeros(2).long(), 0)

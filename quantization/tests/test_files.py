"""Files: PyTorch's both ways, and safetensors with what integers stand for in the header."""

import io

import numpy as np
import pytest
import torch
from quantized_pairs import data, models, ours, quiet, theirs

import tangrad
from tangrad.quantization import safetensors
from tangrad.serialization import SerializationError

SCALES, BROKEN = torch.rand(4) + 0.01, torch.rand(4)
ZEROS = torch.tensor([0, 3, -7, 5])
MAKERS = {
    "per tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
    "signed": lambda x: torch.quantize_per_tensor(x, 0.1, -3, torch.qint8),
    "int32": lambda x: torch.quantize_per_tensor(x, 0.001, 0, torch.qint32),
    "a view": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).t()[1:, 1:],
    "per channel": lambda x: torch.quantize_per_channel(x, SCALES, ZEROS, 0, torch.qint8),
    "broken zero points": lambda x: torch.quantize_per_channel(x, SCALES, BROKEN, 0, torch.quint8),
    "4 bits": lambda x: torch.quantize_per_channel(x, SCALES, BROKEN, 0, torch.quint4x2),
}


def through(value, save, load, **options):
    stream = io.BytesIO()
    save(value, stream, **options)
    stream.seek(0)
    return load(stream)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("name", MAKERS)
def test_tensors_go_to_pytorch_and_back(name, zipped):
    expected = quiet(MAKERS[name], torch.from_numpy(data(4, 7)))
    form = {"_use_new_zipfile_serialization": zipped}
    found = quiet(lambda: through(expected, torch.save, tangrad.load, **form))
    assert str(found.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
    assert np.array_equal(found.dequantize().numpy(), expected.dequantize().numpy())
    again = quiet(through, found, tangrad.save, torch.load)
    assert again.dtype == expected.dtype
    assert again.qscheme() == expected.qscheme()
    assert torch.equal(again.dequantize(), expected.dequantize())


def static(nn, q):
    return nn.Sequential(q.QuantStub(), nn.Conv2d(1, 4, 3), nn.ReLU(), q.DeQuantStub())


def test_states_of_models_go_to_pytorch_and_back():
    pair = []
    for side, q, model in zip((torch, tangrad), (theirs, ours), models(static), strict=True):
        model.eval().qconfig = q.default_per_channel_qconfig
        made = quiet(q.prepare, model)
        made(side.from_numpy(data(2, 1, 6, 6, seed=len(pair))))  # other data: other scales
        pair.append(quiet(q.convert, made))
    x = data(2, 1, 6, 6, seed=5)
    expected, own = pair[0](torch.from_numpy(x)).numpy(), pair[1](tangrad.from_numpy(x)).numpy()
    assert not np.array_equal(expected, own)
    state = pair[1].state_dict()
    kept = quiet(through, state, tangrad.save, lambda f: f.getvalue())
    pair[1].load_state_dict(quiet(through, pair[0].state_dict(), torch.save, tangrad.load))
    assert np.array_equal(pair[1](tangrad.from_numpy(x)).numpy(), expected)
    pair[0].load_state_dict(quiet(torch.load, io.BytesIO(kept)))
    assert np.array_equal(pair[0](torch.from_numpy(x)).numpy(), own)


def test_a_file_that_claims_more_than_its_storage_is_refused():
    content = bytearray(
        quiet(
            through,
            tangrad.quantize_per_tensor(tangrad.zeros(16), 1.0, 0, tangrad.quint8),
            tangrad.save,
            lambda f: f.getvalue(),
        )
    )
    at = content.index(b"K\x10\x85")  # the size (16,)
    content[at + 1] = 200
    with pytest.raises(SerializationError):
        tangrad.load(io.BytesIO(bytes(content)))


def quantized_models():
    wide = tangrad.nn.Sequential(tangrad.nn.Linear(32, 8), tangrad.nn.ReLU())
    yield ours.quantize_dynamic(wide), tangrad.from_numpy(data(3, 32))
    bags = tangrad.nn.Sequential(tangrad.nn.EmbeddingBag(9, 8))
    for dtype in (tangrad.quint8, tangrad.quint4x2):
        made = ours.quantize_dynamic(bags, {tangrad.nn.EmbeddingBag}, dtype=dtype)
        yield made, tangrad.tensor([[1, 2], [0, 8]])
    lstm = tangrad.nn.Sequential(tangrad.nn.LSTM(8, 4))
    yield ours.quantize_dynamic(lstm), tangrad.from_numpy(data(3, 2, 8))


def output(model, x):
    made = model(x)
    return made[0] if isinstance(made, tuple) else made


@pytest.mark.parametrize("index", range(4))
def test_safetensors_hold_quantized_models(index, tmp_path):
    model, x = list(quantized_models())[index]
    fresh, _ = list(quantized_models())[index]
    expected = output(model, x)
    path = tmp_path / "model.safetensors"
    safetensors.save_file(model.state_dict(), path, {"author": "a test"})
    fresh.load_state_dict(safetensors.load_file(path))
    assert tangrad.equal(output(fresh, x), expected)
    assert all(
        not t.is_quantized for t in tangrad.serialization.safetensors.load_file(path).values()
    )


def test_plain_safetensors_are_read_as_they_are(tmp_path):
    path = tmp_path / "plain.safetensors"
    tangrad.serialization.safetensors.save_file({"a": tangrad.arange(3)}, path)
    assert safetensors.load_file(path)["a"].tolist() == [0, 1, 2]


def rewritten(path, change):
    """Change the text of a file's header, at the same length."""
    content = path.read_bytes()
    changed = change(content)
    assert len(changed) == len(content)
    assert changed != content
    path.write_bytes(changed)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"quint8", b"quint9"),
        (b"0.125", b"-1.25"),
        (b"[2, 3]", b"[3, 3]"),
        (b"quantized\\", b"quantizeX\\"),
    ],
    ids=["dtype", "scale", "shape", "kind"],
)
def test_damaged_headers_are_refused(before, after, tmp_path):
    path = tmp_path / "damaged.safetensors"
    x = tangrad.quantize_per_tensor(tangrad.ones(2, 3), 0.125, 5, tangrad.quint8)
    safetensors.save_file({"x": x}, path)
    rewritten(path, lambda content: content.replace(before, after, 1))
    with pytest.raises(SerializationError, match="damaged"):
        safetensors.load_file(path)


def test_what_json_and_tensors_cannot_say_is_refused(tmp_path):
    with pytest.raises(SerializationError, match="'hook' is object"):
        safetensors.save_file({"hook": object()}, tmp_path / "x.safetensors")

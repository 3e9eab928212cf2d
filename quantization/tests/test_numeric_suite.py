"""The numeric suite beside PyTorch's: the same places, and there the same numbers."""

import importlib
import warnings

import numpy as np
import pytest
import torch
from quantized_pairs import both, data, models, ours, quiet, theirs

import tangrad

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.ns._numeric_suite as their_suite

import tangrad.ao.ns._numeric_suite as our_suite


def network(nn, q):
    inner = nn.Sequential(nn.Linear(36, 8), nn.ReLU())
    return nn.Sequential(
        q.QuantStub(), nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 36), inner,
        q.DeQuantStub(),
    )  # fmt: skip


@pytest.fixture
def pairs():
    """Return (suite, float model, quantized model, batch) of each side, by the same data."""
    made = []
    batches = both(data(4, 2, 6, 6))
    for suite, q, model, x in zip(
        (their_suite, our_suite), (theirs, ours), models(network), batches, strict=True
    ):
        model = q.fuse_modules(model.eval(), [["1", "2"], ["5.0", "5.1"]])
        model.qconfig = quiet(q.get_default_qconfig, "fbgemm")
        prepared = quiet(q.prepare, model)
        prepared(x)
        made.append((suite, model, quiet(q.convert, prepared), x))
    return made


def numbers(value):
    value = value[0] if isinstance(value, list) else value
    value = value.detach()
    return (value.dequantize() if value.is_quantized else value).numpy()


def assert_alike(expected, found, room):
    assert list(found) == list(expected)
    for key, pair in expected.items():
        assert set(found[key]) == set(pair)
        for kind, value in pair.items():
            assert np.allclose(numbers(value), numbers(found[key][kind]), atol=room), (key, kind)


def test_weights_are_compared_at_the_same_places(pairs):
    expected, found = (s.compare_weights(f.state_dict(), q.state_dict()) for s, f, q, _ in pairs)
    assert_alike(expected, found, 1e-6)
    assert found["1.weight"]["quantized"].is_quantized


def test_outputs_are_compared_at_the_same_places(pairs):
    expected, found = (quiet(s.compare_model_outputs, f, q, x) for s, f, q, x in pairs)
    assert list(found) == ["0.stats", "1.stats", "4.stats"]
    assert_alike(expected, found, 1e-5)


# A batch of one: of larger ones PyTorch keeps the first example, which it takes for a tuple's part.
def test_float_modules_get_the_inputs_of_quantized_ones(pairs):
    expected, found = (
        s.compare_model_stub(f, q, {type(f[1]), type(f[4]), type(f[5][0])}, x[:1])
        for s, f, q, x in pairs
    )
    assert set(found) == {"1.stats", "4.stats", "5.0.stats"}
    assert_alike(expected, found, 1e-5)


def test_functional_modules_have_shadows():
    results = []
    kinds = ((torch, their_suite), (tangrad, our_suite))
    for (root, suite), x in zip(kinds, both(data(1, 4)), strict=True):
        nnq = importlib.import_module(f"{root.__name__}.ao.nn.quantized")
        quantized = nnq.QFunctional()
        quantized.scale, quantized.zero_point = 0.1, 10
        shadow = suite.Shadow(quantized, nnq.FloatFunctional(), suite.ShadowLogger)
        x = quiet(root.quantize_per_tensor, x, 0.05, 30, root.quint8)
        for made in (
            shadow.add(x, x), shadow.mul(x, x), shadow.add_relu(x, x), shadow.cat([x, x], 1),
            shadow.add_scalar(x, 0.5), shadow.mul_scalar(x, 2.0),
        ):  # fmt: skip
            assert made.is_quantized
        results.append(shadow.logger.stats)
    assert len(results[1]["float"]) == 6
    for kind, room in (("float", 1e-6), ("quantized", 0.1001)):  # one step, where a half is rounded
        for a, b in zip(results[0][kind], results[1][kind], strict=True):
            assert np.allclose(numbers(a), numbers(b), atol=room)


def test_every_public_name_exists():
    names = {
        name
        for name, value in vars(their_suite).items()
        if getattr(value, "__module__", "") == their_suite.__name__ and not name.startswith("_")
    }
    assert names - set(vars(our_suite)) == set()

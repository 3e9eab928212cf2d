"""Tensors quantized by groups: what they hold, how near they are, what is done with them."""

import copy
import io
import pickle

import pytest

import tangrad
from tangrad import plugin
from tangrad.nn import functional as F
from tangrad.quantization import quantize_per_group, safetensors
from tangrad.serialization import SerializationError

FORMS = [
    # dtype, group, symmetric, half of the largest step
    (tangrad.qint8, 32, True, 0.004),
    (tangrad.qint8, None, False, 0.004),
    (tangrad.quint4x2, 32, True, 0.067),
    (tangrad.quint4x2, 64, False, 0.067),
    (tangrad.float8_e4m3fn, None, True, 0.04),
    (tangrad.float8_e5m2, 16, True, 0.08),
]


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0].name} by {form[1]}, {form[2]}")
def pair(request):
    """Return numbers within [-1, 1] and their quantized form."""
    dtype, size, symmetric, _ = request.param
    tangrad.manual_seed(0)
    x = tangrad.rand(6, 64) * 2 - 1
    return x, quantize_per_group(x, size, dtype, symmetric), request.param


def same(a, b):
    return a.layout is b.layout and a.dtype is b.dtype and tangrad.equal(a, b)


def test_numbers_are_near_and_integers_in_range(pair):
    x, q, (dtype, size, symmetric, step) = pair
    assert (q.dtype, q.shape, q.is_quantized) == (dtype, x.shape, True)
    assert q.layout is tangrad.quantized_per_group
    assert q.q_group_size() == (size or 64)
    assert q.q_per_group_scales().shape == (6, 64 // (size or 64))
    assert (q.q_per_group_zero_points() is None) == symmetric
    assert (q.dequantize() - x).abs().max() <= step
    shown = q.int_repr()
    assert shown.shape == x.shape
    low, high = {"qint8": (-128, 127), "quint4x2": (0, 15)}.get(dtype.name, (-1e5, 1e5))
    assert low <= shown.float().min()
    assert shown.float().max() <= high


def test_linear_multiplies_by_the_numbers(pair):
    _, q, _ = pair
    rows, bias = tangrad.randn(2, 3, 64), tangrad.randn(6)
    found = F.linear(rows, q, bias)
    assert tangrad.allclose(found, F.linear(rows, q.dequantize(), bias), atol=1e-4)


def test_copies_pickles_and_files_are_equal(pair, tmp_path):
    x, q, _ = pair
    file = io.BytesIO()
    tangrad.save({"w": q}, file)
    file.seek(0)
    path = tmp_path / "weight.safetensors"
    safetensors.save_file({"w": q}, path)
    copies = [
        q.clone(),
        copy.deepcopy(q),
        pickle.loads(pickle.dumps(q)),
        tangrad.load(file, weights_only=True)["w"],
        safetensors.load_file(path)["w"],
        q.to("reference").to("cpu"),
    ]
    for made in copies:
        assert same(made, q)
    assert not tangrad.equal(q, quantize_per_group(x * 2, None, tangrad.qint8))
    assert "group_size=" in repr(q)
    assert (q == q).all()


def test_what_needs_another_scale_is_refused(pair):
    _, q, _ = pair
    with pytest.raises(NotImplementedError, match=r"quantized_per_group .*\d\); call deq"):
        q.t()
    with pytest.raises((NotImplementedError, RuntimeError), match="dequantize|quantize"):
        q + q
    with pytest.raises(RuntimeError, match="does not convert to tangrad.float16: call dequantize"):
        q.to(tangrad.float16)


def test_bad_input_is_refused():
    x = tangrad.ones(2, 48)
    with pytest.raises(ValueError, match="group_size 32 does not suit a matrix with 48 inputs"):
        quantize_per_group(x, 32, tangrad.qint8)
    with pytest.raises(ValueError, match="group_size 24 .* be a multiple of 32"):
        quantize_per_group(x, 24, tangrad.quint4x2)
    with pytest.raises(ValueError, match="group_size 0"):
        quantize_per_group(x, 0, tangrad.qint8)
    with pytest.raises(TypeError, match="dtype must be one of .* not tangrad.qint32"):
        quantize_per_group(x, 16, tangrad.qint32)
    with pytest.raises(RuntimeError, match=r"float32, got tangrad.int64\[2, 48\]"):
        quantize_per_group(x.long(), 16, tangrad.qint8)
    with pytest.raises(RuntimeError, match="expected a matrix"):
        quantize_per_group(x[0], 16, tangrad.qint8)
    with pytest.raises(RuntimeError, match="quantized already"):
        quantize_per_group(quantize_per_group(x, 16, tangrad.qint8), 16, tangrad.qint8)
    x[1, 3] = float("nan")
    with pytest.raises(RuntimeError, match="holds NaN or infinity"):
        quantize_per_group(x, 16, tangrad.qint8)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scales": tangrad.tensor([[1.0, -1.0]])}, "that of row 0, group 1 is -1.0"),
        ({"scales": tangrad.ones(2, 2)}, "are not those of shape"),
        ({"zero_points": tangrad.ones(3)}, "zero_points must be empty or have the shape"),
        ({"values": tangrad.zeros(1, 32, dtype=tangrad.int8)}, "are not those of shape"),
    ],
)
def test_components_that_do_not_fit_are_refused(change, told):
    q = quantize_per_group(tangrad.ones(1, 64), 32, tangrad.qint8)
    with pytest.raises(ValueError, match=told):
        plugin.layout_tensor(
            q.layout,
            {**plugin.components(q), **change},
            (1, 64),
            metadata={"group_size": 32},
            dtype=q.dtype,
        )


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "weight.safetensors"
    q = quantize_per_group(tangrad.ones(2, 64), 32, tangrad.quint4x2)
    safetensors.save_file({"w": q}, path)
    content = path.read_bytes()
    for before, after in ((b'size\\": 32', b'size\\": 16'), (b"[2, 64]", b"[2, 32]")):
        assert before in content
        path.write_bytes(content.replace(before, after, 1))
        with pytest.raises(SerializationError, match="damaged"):
            safetensors.load_file(path)

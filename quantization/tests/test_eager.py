"""The eager workflow beside torch.ao: same weights, same calibration, same integers."""

import importlib
import io

import numpy as np
import pytest
import torch
from quantized_pairs import both, data, models, ours, quiet, same, theirs

import tangrad


def calibrated(make, shape, fuse=None, backend="fbgemm"):
    """Return converted models of both sides, and a batch."""
    a, b = models(make)
    a.eval(), b.eval()
    if fuse:
        a, b = theirs.fuse_modules(a, fuse), ours.fuse_modules(b, fuse)
    a.qconfig, b.qconfig = (quiet(s.get_default_qconfig, backend) for s in (theirs, ours))
    a, b = quiet(theirs.prepare, a), quiet(ours.prepare, b)
    for seed in range(3):
        batch = both(data(*shape, seed=seed))
        a(batch[0]), b(batch[1])
    return quiet(theirs.convert, a), quiet(ours.convert, b), batch


def sequence(*layers):
    return lambda nn, q: nn.Sequential(q.QuantStub(), *layers_of(nn, layers), q.DeQuantStub())


def layers_of(nn, layers):
    return [make(nn) for make in layers]


MODELS = {
    "linear": (
        sequence(lambda nn: nn.Linear(64, 33), lambda nn: nn.ReLU(), lambda nn: nn.Linear(33, 7)),
        (16, 64),
        [["1", "2"]],
    ),
    "conv2d": (
        sequence(
            lambda nn: nn.Conv2d(3, 16, 3, padding=1),
            lambda nn: nn.BatchNorm2d(16),
            lambda nn: nn.ReLU(),
            lambda nn: nn.MaxPool2d(2),
            lambda nn: nn.Conv2d(16, 16, 3, stride=2, groups=16),
            lambda nn: nn.Conv2d(16, 24, 3, groups=4),
            lambda nn: nn.Flatten(),
            lambda nn: nn.Linear(24, 5),
        ),
        (4, 3, 14, 14),
        [["1", "2", "3"]],
    ),
    "conv1d": (
        sequence(lambda nn: nn.Conv1d(3, 16, 3, padding=1), lambda nn: nn.Conv1d(16, 8, 1)),
        (4, 3, 14),
        None,
    ),
    "conv3d": (sequence(lambda nn: nn.Conv3d(3, 16, 3, padding=1)), (2, 3, 5, 5, 5), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_static_models_give_pytorchs_integers(name):
    make, shape, fuse = MODELS[name]
    a, b, (x, y) = calibrated(make, shape, fuse)
    for their_layer, our_layer in zip(a, b, strict=True):
        x, y = their_layer(x), our_layer(y)
        if not x.is_quantized:
            continue
        # Calibration data of inner layers differ in the last bits of float32.
        assert x.q_scale() == pytest.approx(y.q_scale(), rel=1e-6)
        assert x.q_zero_point() == y.q_zero_point()
        assert np.array_equal(x.int_repr().numpy(), y.int_repr().numpy())


def test_activations_and_normalizations_are_within_one_step():
    def make(nn, q):
        layers = [nn.LeakyReLU(0.1), nn.Hardswish(), nn.ELU(), nn.ReLU6()]
        return nn.Sequential(q.QuantStub(), *layers, nn.LayerNorm(8), nn.GroupNorm(2, 6))

    a, b, (x, y) = calibrated(make, (3, 6, 8))
    for their_layer, our_layer in zip(a, b, strict=True):
        x, y = their_layer(x), our_layer(y)
        difference = x.int_repr().numpy().astype(int) - y.int_repr().numpy()
        assert abs(difference).max() <= 1
        # From here on both compute on the same integers.
        y = tangrad.quantize_per_tensor(
            tangrad.from_numpy(x.dequantize().numpy()),
            x.q_scale(),
            x.q_zero_point(),
            tangrad.quint8,
        )


def functionals(nn, stub, functional):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stub = stub()
            self.sum, self.product = functional(), functional()
            self.joined, self.clipped = functional(), functional()

        def forward(self, x):
            x = self.stub(x)
            y = self.sum.add(x, x)
            z = self.product.mul(y, x)
            w = self.joined.cat([y, z], 1)
            return y, z, w, self.clipped.add_relu(w, w)

    return Model().eval()


def test_functional_modules_are_within_one_step():
    results = []
    kinds = ((torch, theirs, torch.ao.nn.quantized), (tangrad, ours, tangrad.ao.nn.quantized))
    for (root, side, nnq), batch in zip(kinds, both(data(4, 6)), strict=True):
        model = functionals(root.nn, side.QuantStub, nnq.FloatFunctional)
        model.qconfig = quiet(side.get_default_qconfig, "fbgemm")
        model = quiet(side.prepare, model)
        model(batch)
        results.append(quiet(side.convert, model)(batch))
    for x, y in zip(*results, strict=True):
        assert x.q_scale() == pytest.approx(y.q_scale(), rel=1e-6)
        difference = x.int_repr().numpy().astype(int) - y.int_repr().numpy()
        assert abs(difference).max() <= 1


def test_dynamic_linear_equals():
    a, b = models(lambda nn, q: nn.Sequential(nn.Linear(64, 33), nn.ReLU(), nn.Linear(33, 7)))
    x, y = both(data(9, 64))
    expected = quiet(theirs.quantize_dynamic, a)(x).numpy()
    assert np.allclose(expected, ours.quantize_dynamic(b)(y).numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_dynamic_recurrent_layers_agree(kind, bidirectional):
    def make(nn, q):
        layer = getattr(nn, kind)
        return layer(12, 20, num_layers=2, bidirectional=bidirectional, batch_first=True)

    a, b = models(make)
    a = quiet(theirs.quantize_dynamic, torch.nn.Sequential(a))
    b = ours.quantize_dynamic(tangrad.nn.Sequential(b))
    x, y = both(data(3, 6, 12))
    (expected, _), (found, _) = a(x), b(y)
    # Sums of two float32 numbers may round differently before the next step quantizes.
    assert np.abs(expected.detach().numpy() - found.numpy()).max() < 0.01


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_dynamic_cells_agree(kind):
    a, b = models(lambda nn, q: nn.Sequential(getattr(nn, kind)(12, 20)))
    a, b = quiet(theirs.quantize_dynamic, a), ours.quantize_dynamic(b)
    x, y = both(data(3, 12))
    expected, found = a(x), b(y)
    if kind == "LSTMCell":
        expected, found = expected[0], found[0]
    assert np.allclose(expected.detach().numpy(), found.numpy(), atol=1e-5)


def dynamic(how, model, x):
    """Quantize a model dynamically by a workflow."""
    import tangrad.ao.quantization.quantize_fx as fx

    if how == "eager":
        return ours.quantize_dynamic(model)
    mapping = ours.QConfigMapping().set_global(ours.default_dynamic_qconfig)
    return fx.convert_fx(fx.prepare_fx(model, mapping, (x,)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("how", ["eager", "graph"])
def test_dynamic_recurrent_layers_need_no_bias(kind, how):
    """PyTorch refuses them (AssertionError, and KeyError by graphs)."""
    tangrad.manual_seed(0)
    model = tangrad.nn.Sequential(getattr(tangrad.nn, kind)(12, 20, bias=False))
    x = tangrad.randn(4, 3, 12)
    expected = model(x)[0]
    done = dynamic(how, model, x)
    found = done(x)[0]
    assert not tangrad.equal(found, expected)
    assert (found - expected).abs().max() < 0.03
    done.load_state_dict(done.state_dict())
    assert tangrad.equal(done(x)[0], found)


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_projection_is_refused_by_its_path(how):
    model = tangrad.nn.Sequential(tangrad.nn.LSTM(12, 20, proj_size=4))
    told = r"'0': LSTM\(proj_size=4\) has no quantized form; give"
    with pytest.raises(AssertionError, match=told):
        dynamic(how, model, tangrad.randn(4, 3, 12))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_leave_padding_out(mode):
    bag = tangrad.nn.EmbeddingBag(11, 8, mode=mode, padding_idx=3)
    with tangrad.no_grad():
        bag.weight[3] = 5.0
    x = tangrad.tensor([[1, 3, 5], [3, 3, 2]])
    expected = bag(x)
    done = ours.quantize_dynamic(tangrad.nn.Sequential(bag), dtype=tangrad.quint8)
    assert type(done[0]).__name__ == "EmbeddingBag"
    assert done[0].weight().is_quantized
    assert tangrad.allclose(done(x), expected, atol=0.05)


@pytest.mark.parametrize("dtype", ["quint8", "quint4x2"])
def test_embeddings_agree(dtype):
    a, b = models(lambda nn, q: nn.Sequential(nn.EmbeddingBag(11, 8, mode="sum")))
    a = quiet(theirs.quantize_dynamic, a, dtype=getattr(torch, dtype))
    b = ours.quantize_dynamic(b, dtype=getattr(tangrad, dtype))
    x, y = both(np.array([1, 5, 5, 0, 10, 3]))
    o, p = both(np.array([0, 2, 5]))
    # PyTorch keeps the scales of 4 bits in half precision.
    room = 1e-5 if dtype == "quint8" else 2e-3
    assert np.allclose(a[0](x, o).numpy(), b[0](y, p).numpy(), atol=room)


def test_half_precision_dynamic_linear_agrees():
    a, b = models(lambda nn, q: nn.Sequential(nn.Linear(16, 8)))
    a = quiet(theirs.quantize_dynamic, a, dtype=torch.float16)
    b = ours.quantize_dynamic(b, dtype=tangrad.float16)
    x, y = both(data(3, 16))
    assert np.allclose(a(x).detach().numpy(), b(y).numpy(), atol=1e-5)


def trained(side, nn, model, batches):
    """Return a model trained for a few steps with fake quantization, by plain descent."""
    model.train()
    model = side.fuse_modules_qat(model, [["1", "2", "3"]])
    model.qconfig = quiet(side.get_default_qat_qconfig, "fbgemm")
    model = quiet(side.prepare_qat, model)
    losses = []
    for batch in batches:
        loss = (model(batch) ** 2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                p.data -= 0.1 * p.grad
        losses.append(loss.item())
    return model, losses


def test_training_with_fake_quantization_follows_pytorch():
    def make(nn, q):
        return nn.Sequential(
            q.QuantStub(),
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 36, 3),
            q.DeQuantStub(),
        )

    a, b = models(make)
    pairs = [both(data(4, 2, 8, 8, seed=n)) for n in range(4)]
    a, their_losses = trained(theirs, torch.nn, a, [p[0] for p in pairs])
    b, our_losses = trained(ours, tangrad.nn, b, [p[1] for p in pairs])
    assert our_losses == pytest.approx(their_losses, rel=1e-3)
    a, b = (quiet(s.convert, m.eval()) for s, m in ((theirs, a), (ours, b)))
    assert type(b[1]).__name__ == "ConvReLU2d"
    difference = a(pairs[0][0]).numpy() - b(pairs[0][1]).numpy()
    assert abs(difference).max() < 4 * a[5].scale


def test_states_of_quantized_models_load_into_new_ones():
    make, shape, fuse = MODELS["conv2d"]
    _, b, (_, y) = calibrated(make, shape, fuse)
    _, other, _ = calibrated(make, shape, fuse)
    file = io.BytesIO()
    tangrad.save(b.state_dict(), file)
    file.seek(0)
    for layer in other:
        if hasattr(layer, "set_weight_bias"):
            layer.scale = 77.0
    other.load_state_dict(tangrad.load(file))
    assert tangrad.equal(b(y), other(y))


# --- bad input


def observed():
    model = tangrad.nn.Sequential(ours.QuantStub(), tangrad.nn.Linear(4, 2), ours.DeQuantStub())
    model.qconfig = quiet(ours.get_default_qconfig)
    return quiet(ours.prepare, model.eval())


def test_converting_what_saw_nothing_names_the_module():
    with pytest.warns(UserWarning, match="observer at .[01]. saw nothing"):
        ours.convert(observed())


def test_converting_or_preparing_twice_is_refused():
    model = observed()
    model(tangrad.randn(3, 4))
    done = ours.convert(model)
    for again in (ours.convert, ours.prepare):
        with pytest.raises(RuntimeError, match="quantized already"):
            again(done)


def test_calibration_data_that_are_not_finite_name_the_module():
    with pytest.raises(ValueError, match="'0'.*NaN"):
        observed()(tangrad.full((1, 4), float("nan")))


def test_weights_that_are_not_finite_name_the_parameter():
    graphs = importlib.import_module("tangrad.ao.quantization.quantize_fx")
    plain = tangrad.nn.Sequential(tangrad.nn.Sequential(tangrad.nn.Linear(4, 2))).eval()
    plain[0][0].weight.data[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"'0\.0\.weight' holds NaN"):
        ours.quantize_dynamic(plain)
    mapping = ours.get_default_qconfig_mapping("onednn")
    made = graphs.prepare_fx(plain, mapping, (tangrad.ones(1, 4),))
    made.activation_post_process_0(tangrad.ones(1, 4))
    made.activation_post_process_1(tangrad.ones(1, 4))
    with pytest.raises(ValueError, match=r"'0\.0\.weight' holds NaN"):
        graphs.convert_fx(made)


def test_modules_without_a_quantized_form_are_named():
    with pytest.raises(AssertionError, match=r"Transformer'> does not have a corresponding"):
        ours.get_static_quant_module_class(tangrad.nn.Transformer)
    with pytest.raises(AssertionError, match="Conv2d'> does not have a corresponding"):
        ours.get_dynamic_quant_module_class(tangrad.nn.Conv2d)


def test_states_of_float_models_do_not_load_into_quantized_ones_nor_the_other_way():
    model = observed()
    model(tangrad.randn(3, 4))
    done = ours.convert(model)
    plain = tangrad.nn.Sequential(ours.QuantStub(), tangrad.nn.Linear(4, 2), ours.DeQuantStub())
    with pytest.raises(RuntimeError, match="float model|missing"):
        done.load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key|Unexpected key"):
        plain.load_state_dict(done.state_dict())


def test_numbers_given_to_a_quantized_layer_say_what_to_do():
    model = observed()
    model(tangrad.randn(3, 4))
    layer = ours.convert(model)[1]
    with pytest.raises(RuntimeError, match="put a QuantStub before the module"):
        layer(tangrad.randn(3, 4))
    wrong = tangrad.quantize_per_tensor(tangrad.randn(3, 5), 0.1, 0, tangrad.quint8)
    with pytest.raises(RuntimeError, match=r"last dimension must be 4.*\[3, 5\]"):
        layer(wrong)


def test_quantizing_scripted_models_is_refused():
    with pytest.raises(NotImplementedError, match="use quantize_dynamic"):
        ours.quantize_dynamic_jit(None)


def test_reference_modules_stand_between_the_stubs():
    def make(nn, q):
        return nn.Sequential(q.QuantStub(), nn.Linear(8, 4), q.DeQuantStub())

    outputs = []
    for side, q, model in zip((torch, tangrad), (theirs, ours), models(make), strict=True):
        model.eval().qconfig = q.default_per_channel_qconfig
        made = quiet(q.prepare, model)
        made(side.from_numpy(data(5, 8)))
        done = quiet(q.convert, made, is_reference=True)
        outputs.append((done[1].get_weight(), done[1].get_quantized_weight().int_repr()))
    for expected, found in zip(*outputs, strict=True):
        assert same(expected, found)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_layers_with_sparse_weights_compute_as_dense_ones(kind):
    mappings = getattr(ours, f"get_default_{kind}_sparse_quant_module_mappings")()
    linear = tangrad.nn.Linear(8, 4)
    linear.qconfig = ours.default_qconfig if kind == "static" else ours.default_dynamic_qconfig
    model = tangrad.nn.Sequential(ours.QuantStub(), linear, ours.DeQuantStub()).eval()
    if kind == "static":
        model.qconfig = ours.default_qconfig
        model = quiet(ours.prepare, model)
        model(tangrad.from_numpy(data(5, 8)))
    observed = model[1]
    with pytest.raises(AssertionError, match="sparse_params"):
        mappings[tangrad.nn.Linear].from_float(observed)
    observed.sparse_params = {"sparse_block_shape": (1, 4)}
    made = mappings[tangrad.nn.Linear].from_float(observed)
    assert (made.row_block_size, made.col_block_size) == (1, 4)
    usual = getattr(ours, f"get_default_{kind}_quant_module_mappings")()[tangrad.nn.Linear]
    dense = usual.from_float(observed)
    x = tangrad.from_numpy(data(5, 8, seed=1))
    if kind == "static":
        x = tangrad.quantize_per_tensor(x, 0.05, 60, tangrad.quint8)
    assert tangrad.equal(made(x), dense(x))
    twin = type(made)(8, 4, 2, 2)
    twin.load_state_dict(made.state_dict())
    assert tangrad.equal(twin(x), made(x))
    assert twin.row_block_size == 1


@pytest.mark.parametrize("chain", [["conv", "bn"], ["conv", "bn", "relu"], ["conv", "relu"]])
@pytest.mark.parametrize("train", [False, True])
def test_hooks_of_a_fused_chain_run_once_as_they_were_registered(chain, train):
    class Chain(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = tangrad.nn.Conv2d(2, 2, 1)
            self.bn, self.relu = tangrad.nn.BatchNorm2d(2), tangrad.nn.ReLU()

        def forward(self, x):
            for name in chain:
                x = getattr(self, name)(x)
            return x

    seen = []
    model = Chain().train(train)
    first, last = model.conv, getattr(model, chain[-1])
    first.register_forward_pre_hook(lambda module, args: seen.append("before"))
    first.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append("named"), with_kwargs=True
    )
    last.register_forward_hook(
        lambda module, args, kwargs, result: seen.append("after"), with_kwargs=True
    )
    fuse = ours.fuse_modules_qat if train else ours.fuse_modules
    fused = fuse(model, [chain])
    fused(tangrad.ones(1, 2, 2, 2))
    assert seen == ["before", "named", "after"]


def test_a_failed_fusion_leaves_hooks_where_they_are():
    model = tangrad.nn.Sequential(tangrad.nn.Conv2d(2, 2, 1), tangrad.nn.BatchNorm2d(2)).eval()
    seen = []
    handle = model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
    model[1].train()
    with pytest.raises(AssertionError, match="same mode"):
        ours.fuse_modules(model, [["0", "1"]], inplace=True)
    model(tangrad.ones(1, 2, 2, 2))
    handle.remove()
    model(tangrad.ones(1, 2, 2, 2))
    assert seen == ["before"]


def test_the_engine_that_is_set_is_read_back():
    quantized = tangrad.backends.quantized
    assert {"fbgemm", "qnnpack"} <= set(quantized.supported_engines)
    before = quantized.engine
    quantized.engine = "qnnpack"
    assert quantized.engine == "qnnpack"
    quantized.engine = before
    with pytest.raises(RuntimeError, match="not a valid value for quantized engine"):
        quantized.engine = "fastest"
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        quantized.supported_engines = []


def test_integers_are_taken_as_a_quantized_tensor():
    q = tangrad._make_per_tensor_quantized_tensor(
        tangrad.tensor([0, 3], dtype=tangrad.int8), 0.5, 1
    )
    assert q.dtype == tangrad.qint8
    assert q.dequantize().tolist() == [-0.5, 1.0]
    with pytest.raises(RuntimeError, match="give uint8, int8 or int32"):
        tangrad._make_per_tensor_quantized_tensor(tangrad.ones(2), 0.5, 1)

"""Layers and losses, with torch's weights: text, state, values and gradients as torch's."""

import pytest

import tangrad
from tangrad import nn

SEQUENCE = (2, 4, 7)
IMAGE = (2, 4, 7, 6)

# The layer, the shape of its input.
LAYERS = {
    "Linear": (lambda n: n.Linear(4, 3), (2, 5, 4)),
    "Linear without bias": (lambda n: n.Linear(4, 3, bias=False), (4,)),
    "Identity": (lambda n: n.Identity(3, x=1), (2,)),
    "ReLU": (lambda n: n.ReLU(), (3, 4)),
    "ReLU in place": (lambda n: n.ReLU(inplace=True), (3, 4)),
    "ReLU6": (lambda n: n.ReLU6(), (3, 4)),
    "Hardtanh": (lambda n: n.Hardtanh(-0.5, 0.5), (3, 4)),
    "GELU": (lambda n: n.GELU(), (3, 4)),
    "GELU by tanh": (lambda n: n.GELU("tanh"), (3, 4)),
    "Tanh": (lambda n: n.Tanh(), (3, 4)),
    "Sigmoid": (lambda n: n.Sigmoid(), (3, 4)),
    "SiLU": (lambda n: n.SiLU(), (3, 4)),
    "SiLU in place": (lambda n: n.SiLU(inplace=True), (3, 4)),
    "LeakyReLU": (lambda n: n.LeakyReLU(0.2), (3, 4)),
    "ELU": (lambda n: n.ELU(0.7), (3, 4)),
    "Softmax": (lambda n: n.Softmax(1), (3, 4)),
    "Softmin": (lambda n: n.Softmin(dim=0), (3, 4)),
    "LogSoftmax": (lambda n: n.LogSoftmax(-1), (3, 4)),
    "CELU": (lambda n: n.CELU(0.7), (3, 4)),
    "CELU in place": (lambda n: n.CELU(inplace=True), (3, 4)),
    "SELU": (lambda n: n.SELU(), (3, 4)),
    "SELU in place": (lambda n: n.SELU(True), (3, 4)),
    "Mish": (lambda n: n.Mish(), (3, 4)),
    "Mish in place": (lambda n: n.Mish(True), (3, 4)),
    "Hardsigmoid": (lambda n: n.Hardsigmoid(), (3, 4)),
    "Hardswish": (lambda n: n.Hardswish(), (3, 4)),
    "LogSigmoid": (lambda n: n.LogSigmoid(), (3, 4)),
    "Softplus": (lambda n: n.Softplus(2.0, 3.0), (3, 4)),
    "Softshrink": (lambda n: n.Softshrink(0.7), (3, 4)),
    "Hardshrink": (lambda n: n.Hardshrink(0.7), (3, 4)),
    "Tanhshrink": (lambda n: n.Tanhshrink(), (3, 4)),
    "Softsign": (lambda n: n.Softsign(), (3, 4)),
    "Threshold": (lambda n: n.Threshold(0.1, 9.0), (3, 4)),
    "Threshold in place": (lambda n: n.Threshold(0.1, 9.0, True), (3, 4)),
    "RReLU in evaluation": (lambda n: n.RReLU().eval(), (3, 4)),
    "RReLU of one slope": (lambda n: n.RReLU(0.25, 0.25, inplace=True), (3, 4)),
    "GLU": (lambda n: n.GLU(), (3, 4)),
    "GLU of the first": (lambda n: n.GLU(0), (6, 4)),
    "PReLU": (lambda n: n.PReLU(), (3, 4)),
    "PReLU by channel": (lambda n: n.PReLU(4, 0.1), IMAGE),
    "Softmax2d": (lambda n: n.Softmax2d(), IMAGE),
    "Softmax2d unbatched": (lambda n: n.Softmax2d(), IMAGE[1:]),
    "Flatten": (lambda n: n.Flatten(), (2, 3, 4)),
    "Flatten some": (lambda n: n.Flatten(0, 1), (2, 3, 4)),
    "Unflatten": (lambda n: n.Unflatten(1, (2, -1)), (2, 6)),
    "Dropout": (lambda n: n.Dropout(0.3).eval(), (2, 3)),
    "Dropout of nothing": (lambda n: n.Dropout(0.0), (2, 3)),
    "Dropout1d": (lambda n: n.Dropout1d(0.3).eval(), SEQUENCE),
    "Dropout2d": (lambda n: n.Dropout2d(0.3, True).eval(), IMAGE),
    "Dropout3d": (lambda n: n.Dropout3d(0.3).eval(), (2, 3, 1, 2, 2)),
    "AlphaDropout": (lambda n: n.AlphaDropout(0.3).eval(), (2, 3)),
    "AlphaDropout of all": (lambda n: n.AlphaDropout(1.0), (2, 3)),
    "FeatureAlphaDropout": (lambda n: n.FeatureAlphaDropout(0.3).eval(), (2, 3)),
    "RMSNorm": (lambda n: n.RMSNorm(4), (2, 3, 4)),
    "RMSNorm of two": (lambda n: n.RMSNorm((3, 4), eps=1e-3), (2, 3, 4)),
    "RMSNorm plain": (lambda n: n.RMSNorm(4, elementwise_affine=False), (2, 4)),
    "LayerNorm": (lambda n: n.LayerNorm(4), (2, 3, 4)),
    "LayerNorm of two": (lambda n: n.LayerNorm((3, 4), eps=1e-3, bias=False), (2, 3, 4)),
    "LayerNorm plain": (lambda n: n.LayerNorm(4, elementwise_affine=False), (2, 4)),
    "BatchNorm1d": (lambda n: n.BatchNorm1d(4), SEQUENCE),
    "BatchNorm1d of two": (lambda n: n.BatchNorm1d(4, momentum=None), (5, 4)),
    "BatchNorm1d in evaluation": (lambda n: n.BatchNorm1d(4, bias=False).eval(), SEQUENCE),
    "BatchNorm2d": (lambda n: n.BatchNorm2d(4, eps=1e-3, momentum=0.3), IMAGE),
    "BatchNorm2d plain": (lambda n: n.BatchNorm2d(4, affine=False), IMAGE),
    "BatchNorm2d untracked": (lambda n: n.BatchNorm2d(4, track_running_stats=False).eval(), IMAGE),
    "Conv1d": (lambda n: n.Conv1d(4, 6, 3), SEQUENCE),
    "Conv1d with all": (lambda n: n.Conv1d(4, 6, 3, 2, 1, 2, 2, False), SEQUENCE),
    "Conv1d same": (lambda n: n.Conv1d(4, 6, 4, padding="same"), SEQUENCE),
    "Conv1d circular": (lambda n: n.Conv1d(4, 2, 3, padding=1, padding_mode="circular"), SEQUENCE),
    "Conv2d": (lambda n: n.Conv2d(4, 3, 3), IMAGE),
    "Conv2d unbatched": (lambda n: n.Conv2d(4, 3, 3), IMAGE[1:]),
    "Conv2d with all": (lambda n: n.Conv2d(4, 2, (3, 2), (2, 1), (1, 2), (1, 2), 2), IMAGE),
    "Conv2d same": (lambda n: n.Conv2d(4, 2, (2, 3), padding="same", dilation=2), IMAGE),
    "Conv2d valid": (lambda n: n.Conv2d(4, 2, 2, padding="valid"), IMAGE),
    "Conv2d reflect": (lambda n: n.Conv2d(4, 2, 3, padding=2, padding_mode="reflect"), IMAGE),
    "Conv2d replicate": (
        lambda n: n.Conv2d(4, 2, 3, padding="same", padding_mode="replicate"),
        IMAGE,
    ),
    "MaxPool2d": (lambda n: n.MaxPool2d(2), IMAGE),
    "MaxPool2d with all": (lambda n: n.MaxPool2d((3, 2), (2, 1), 1, 1, False, True), IMAGE),
    "AvgPool2d": (lambda n: n.AvgPool2d(2), IMAGE),
    "AvgPool2d with all": (lambda n: n.AvgPool2d(3, (2, 3), 1, True, False), IMAGE),
    "AvgPool2d over a number": (lambda n: n.AvgPool2d(2, divisor_override=3), IMAGE[1:]),
}


def numbers(shape, start=1):
    """Return a nested list of numbers between -2 and 2 that repeat nowhere near."""
    size = 1
    for n in shape:
        size *= n
    return [((i + start) * 7919 % 4001) / 1000 - 2 for i in range(size)]


def tensor(t, shape, start=1):
    return t.tensor(numbers(shape, start)).reshape(shape)


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
        fill(t, layer)
        x = tensor(t, shape).requires_grad_()
        out = layer(x * 1)
        (out * tensor(t, tuple(out.shape), 5)).sum().backward()
        state = {key: value.shape for key, value in layer.state_dict().items()}
        values = [list(layer.buffers()), [p.grad for p in layer.parameters()]]
        return [repr(layer), state, out, x.grad, values]

    agree(program, tolerance=2e-4)


def test_bilinear_computes_as_in_pytorch(agree):
    def program(t):
        layer = t.nn.Bilinear(3, 2, 4)
        fill(t, layer)
        return [repr(layer), layer(tensor(t, (2, 5, 3)), tensor(t, (2, 5, 2)))]

    agree(program)


DISTANCES = {
    "PairwiseDistance": lambda n: n.PairwiseDistance(),
    "PairwiseDistance with all": lambda n: n.PairwiseDistance(3.0, 0.1, keepdim=True),
    "CosineSimilarity": lambda n: n.CosineSimilarity(),
    "CosineSimilarity with all": lambda n: n.CosineSimilarity(dim=0, eps=0.5),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_a_distance_computes_and_differentiates_as_in_pytorch(agree, name):
    def program(t):
        layer = DISTANCES[name](t.nn)
        x, y = tensor(t, (4, 3)).requires_grad_(), tensor(t, (4, 3), 7).requires_grad_()
        out = layer(x, y)
        (out * out).sum().backward()
        return [repr(layer), out, x.grad, y.grad]

    agree(program)


EMBEDDINGS = {
    "plain": lambda n: n.Embedding(5, 3),
    "padded": lambda n: n.Embedding(5, 3, padding_idx=-2),
    "short": lambda n: n.Embedding(5, 3, max_norm=1.0, norm_type=1.0),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embedding_looks_up_as_in_pytorch(agree, name):
    def program(t):
        layer = EMBEDDINGS[name](t.nn)
        fill(t, layer)
        out = layer(t.tensor([[0, 3], [3, 1]]))
        (out * out).sum().backward()
        return [repr(layer), layer.padding_idx, out, layer.weight, layer.weight.grad]

    agree(program)


def test_a_row_is_not_longer_than_its_largest_norm():
    with tangrad.random.fork_rng():
        for seed in range(20):
            tangrad.manual_seed(seed)
            for largest in (1.0, 3.0):
                layer = nn.Embedding(40, 5, max_norm=largest)
                layer.weight.data *= 5
                assert (layer(tangrad.arange(40)).norm(dim=1) <= largest).float().mean() > 0.99


def test_embedding_from_a_table():
    table = tangrad.ones(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer(tangrad.tensor([1])).tolist() == [[1.0, 1.0]]
    assert nn.Embedding(3, 2, padding_idx=1).weight[1].tolist() == [0.0, 0.0]


BAGS = {
    "mean": (lambda n: n.EmbeddingBag(5, 3), False),
    "sum": (lambda n: n.EmbeddingBag(5, 3, mode="sum", padding_idx=-2), True),
    "max": (lambda n: n.EmbeddingBag(5, 3, mode="max"), False),
    "short": (lambda n: n.EmbeddingBag(5, 3, max_norm=1.0, norm_type=1.0), False),
    "ends": (lambda n: n.EmbeddingBag(5, 3, mode="sum", include_last_offset=True), True),
}


@pytest.mark.parametrize("name", BAGS)
def test_embedding_bag_reduces_as_in_pytorch(agree, name):
    make, weighted = BAGS[name]

    def program(t):
        layer = make(t.nn)
        fill(t, layer)
        index, offsets = t.tensor([0, 3, 3, 1, 0]), t.tensor([0, 2, 2, 5])
        factors = tensor(t, (5,)).requires_grad_() if weighted else None
        results = [layer(index, offsets, factors)]
        if not layer.include_last_offset:
            results.append(layer(t.tensor([[0, 1], [3, 3]])))
        sum((out * out).sum() for out in results).backward()
        gradients = [layer.weight.grad, factors.grad if weighted else None]
        return [repr(layer), list(layer.state_dict()), results, layer.weight, gradients]

    agree(program)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ends", [[0, 3, 3], [0, 2, 4]])
def test_with_padding_the_last_bag_takes_all_that_is_left(agree, mode, ends):
    def program(t):
        layer = t.nn.EmbeddingBag(9, 3, mode=mode, padding_idx=7, include_last_offset=True)
        fill(t, layer)
        return layer(t.tensor([0, 7, 2, 3]), t.tensor(ends))

    agree(program)


def test_embedding_bag_from_a_table():
    layer = nn.EmbeddingBag.from_pretrained(tangrad.ones(3, 2), mode="sum")
    assert not layer.weight.requires_grad
    assert layer(tangrad.tensor([[1, 2]])).tolist() == [[2.0, 2.0]]
    assert nn.EmbeddingBag(3, 2, padding_idx=1).weight[1].tolist() == [0.0, 0.0]


def test_frequent_rows_learn_less(agree):
    def program(t):
        table = tensor(t, (4, 2)).requires_grad_()
        index = t.tensor([0, 3, 3, 1, 3])
        out = t.nn.functional.embedding(index, table, padding_idx=1, scale_grad_by_freq=True)
        (out * out).sum().backward()
        return [out, table.grad]

    agree(program)


def test_frequent_rows_of_bags_learn_less():
    layer = nn.EmbeddingBag(4, 1, scale_grad_by_freq=True, mode="sum")
    layer(tangrad.tensor([[3, 1], [3, 3]])).sum().backward()
    assert layer.weight.grad.tolist() == [[0.0], [1.0], [0.0], [1.0]]


def test_adaptive_softmax_computes_as_in_pytorch(agree):
    def program(t):
        layer = t.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, head_bias=True)
        fill(t, layer)
        x = tensor(t, (6, 8)).requires_grad_()
        out = layer(x, t.tensor([0, 11, 4, 2, 7, 3]))
        out.loss.backward()
        single = layer(x[0], t.tensor(5))
        state = {key: value.shape for key, value in layer.state_dict().items()}
        gradients = [x.grad, [p.grad for p in layer.parameters()]]
        return [repr(layer), state, out, single, layer.log_prob(x), layer.predict(x), gradients]

    agree(program)


LOSSES = {
    "CrossEntropyLoss": (lambda t, n: n.CrossEntropyLoss(), "classes"),
    "CrossEntropyLoss with all": (
        lambda t, n: n.CrossEntropyLoss(
            t.tensor([1.0, 2.0, 3.0]), ignore_index=1, reduction="mean", label_smoothing=0.1
        ),
        "classes",
    ),
    "CrossEntropyLoss of probabilities": (lambda t, n: n.CrossEntropyLoss(), "numbers"),
    "NLLLoss": (lambda t, n: n.NLLLoss(t.tensor([1.0, 2.0, 3.0]), reduction="sum"), "classes"),
    "MSELoss": (lambda t, n: n.MSELoss(), "numbers"),
    "MSELoss of each": (lambda t, n: n.MSELoss(reduction="none"), "numbers"),
    "L1Loss": (lambda t, n: n.L1Loss(reduction="sum"), "numbers"),
    "BCEWithLogitsLoss": (lambda t, n: n.BCEWithLogitsLoss(), "numbers"),
    "BCEWithLogitsLoss weighted": (
        lambda t, n: n.BCEWithLogitsLoss(
            t.tensor([1.0, 2.0, 3.0]), pos_weight=t.tensor([3.0, 1.0, 2.0])
        ),
        "numbers",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_computes_and_differentiates_as_in_pytorch(agree, name):
    make, kind = LOSSES[name]

    def program(t):
        loss = make(t, t.nn)
        x = tensor(t, (4, 3)).requires_grad_()
        target = t.tensor([2, 0, 1, 0]) if kind == "classes" else tensor(t, (4, 3), 3).abs() / 4
        out = loss(x, target)
        out.sum().backward()
        return [repr(loss), list(loss.state_dict()), out, x.grad]

    agree(program)


def test_old_arguments_of_losses_warn():
    with pytest.warns(UserWarning, match="use reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(UserWarning, match="use reduction='none'"):
        assert nn.L1Loss(reduce=False).reduction == "none"


BAD_LAYERS = {
    "dropout": lambda t: t.nn.Dropout(1.5),
    "groups": lambda t: t.nn.Conv2d(3, 4, 1, groups=2),
    "output groups": lambda t: t.nn.Conv2d(4, 3, 1, groups=2),
    "no groups": lambda t: t.nn.Conv2d(4, 4, 1, groups=0),
    "strided same": lambda t: t.nn.Conv2d(4, 4, 3, stride=2, padding="same"),
    "padding": lambda t: t.nn.Conv2d(4, 4, 3, padding="half"),
    "padding mode": lambda t: t.nn.Conv2d(4, 4, 3, padding_mode="mirror"),
    "hardtanh": lambda t: t.nn.Hardtanh(1.0, -1.0),
    "padding index": lambda t: t.nn.Embedding(3, 2, padding_idx=3),
    "embedding shape": lambda t: t.nn.Embedding(3, 2, _weight=t.ones(2, 2)),
    "unflatten": lambda t: t.nn.Unflatten(1, 3),
    "unflatten sizes": lambda t: t.nn.Unflatten(1, (2, 1.5)),
    "batch norm of two": lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 3)),
    "batch norm of four": lambda t: t.nn.BatchNorm1d(3)(t.ones(2, 3, 4, 4)),
    "batch norm of one value": lambda t: t.nn.BatchNorm1d(3)(t.ones(1, 3)),
    "bilinear": lambda t: t.nn.Bilinear(0, 2, 3),
    "adaptive softmax without cutoffs": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 5, []),
    "adaptive softmax cutoffs": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [3, 2]),
    "adaptive softmax target": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(
        t.ones(1, 4), t.tensor([5])
    ),
    "bag padding": lambda t: t.nn.EmbeddingBag(3, 2, padding_idx=3),
    "bag shape": lambda t: t.nn.EmbeddingBag(3, 2, _weight=t.ones(2, 2)),
    "dropout 1d": lambda t: t.nn.Dropout1d(1.5),
    "channels": lambda t: t.nn.Softmax2d()(t.ones(2, 2)),
    "halves": lambda t: t.nn.GLU()(t.ones(3)),
    "slopes": lambda t: t.nn.PReLU(2)(t.ones(3, 3)),
    "triplet": lambda t: t.nn.TripletMarginLoss(margin=0.0),
    "triplet with a distance": lambda t: t.nn.TripletMarginWithDistanceLoss(margin=-1.0),
    "exponent": lambda t: t.nn.MultiMarginLoss(p=3),
    "class weights": lambda t: t.nn.MultiMarginLoss(weight=t.ones(2, 2)),
    "smoothing": lambda t: t.nn.LinearCrossEntropyLoss(3, 2, label_smoothing=2.0),
    "weights of classes": lambda t: t.nn.LinearCrossEntropyLoss(3, 2, weight=t.ones(3)),
    "reduction": lambda t: t.nn.MSELoss(reduction="avg")(t.ones(2), t.ones(2)),
}


@pytest.mark.parametrize("case", BAD_LAYERS)
def test_bad_arguments_raise_as_in_pytorch(agree, case):
    agree(lambda t: BAD_LAYERS[case](t), message=False)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (1, 0, 2, 3), (3, 2, 1, 0)])
@pytest.mark.parametrize("step", [1, 2])
def test_dropout_keeps_the_order_of_dimensions_in_memory(agree, order, step):
    def program(t):
        x = t.ones(4, 3, 5, 6).permute(order)[::step]
        return list(t.nn.functional.dropout(x, 0.25).stride())

    agree(program)
    dropped = tangrad.nn.functional.dropout(x := tangrad.ones(40, 50).t()[::2], 0.25)
    assert set(dropped.flatten().tolist()) == {0, tangrad.tensor(4 / 3).item()}
    assert dropped.shape == x.shape


def test_linear_draws_from_the_documented_range():
    layer = nn.Linear(100, 200)
    for values in (layer.weight.detach(), layer.bias.detach()):
        assert float(values.abs().max()) <= 0.1
        assert float(values.abs().max()) > 0.09
        assert abs(float(values.mean())) < 0.02


def test_linear_without_inputs_is_its_bias():
    with pytest.warns(UserWarning, match="zero-element"):
        layer = nn.Linear(0, 2)
    assert layer(tangrad.ones(3, 0)).tolist() == [[0.0, 0.0]] * 3

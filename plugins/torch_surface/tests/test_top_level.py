"""Layers and losses as the top level has them: `torch.layer_norm`, `torch.kl_div`, ..."""

import math

import pytest

import tangrad


def bags(t, table, mode, sparse=False, weights=None, last=False, padding=None):
    """Reduce rows of a table in three bags, the second empty, or in two."""
    index, offsets = t.tensor([2, 0, 1, 1, 2]), t.tensor([0, 2, 5] if last else [0, 2, 2])
    return t.embedding_bag(table, index, offsets, False, mode, sparse, weights, last, padding)


CALLS = {
    "dropout off": lambda t, x: t.dropout(x, 0.5, False),
    "dropout of all": lambda t, x: t.feature_dropout(x, 1.0, True),
    "layer_norm": lambda t, x: t.layer_norm(x, [4], x[0], x[1], 1e-5, True),
    "group_norm": lambda t, x: t.group_norm(x.reshape(1, 4, 3), 2),
    "group_norm of one value": lambda t, x: t.group_norm(x.reshape(1, 12, 1), 12),
    "rms_norm": lambda t, x: t.rms_norm(x, (4,), x[0]),
    "batch_norm": lambda t, x: t.batch_norm(
        x, None, x[1], x[0], x[2].abs(), False, 0.1, 1e-5, False
    ),
    "batch_norm in training": lambda t, x: t.batch_norm(
        x, None, None, None, None, True, 0.1, 1e-5, False
    ),
    "instance_norm": lambda t, x: t.instance_norm(
        x.reshape(1, 3, 4), None, None, None, None, True, 0.1, 1e-5, False
    ),
    "norm_except_dim": lambda t, x: (t.norm_except_dim(x, 2, 1), t.norm_except_dim(x, 3, -1)),
    "_weight_norm": lambda t, x: t._weight_norm(x, x[:, :1], 0),
    "embedding": lambda t, x: t.embedding(x, t.tensor([2, 0]), 1),
    "embedding_bag": lambda t, x: [bags(t, x, 0)[0], bags(t, x, 1)[:3], bags(t, x, 2)],
    "embedding_bag with a row of padding": lambda t, x: [
        bags(t, x, 0, False, t.arange(5.0), True, 1)[0],
        bags(t, x, 1, False, None, True, -2)[:3],
        bags(t, x, 2, False, None, False, 1),
    ],
    "native_dropout": lambda t, x: [
        t.native_dropout(x, 0.5, False),
        t.native_dropout(x, 0.0, True),
        t.native_dropout(x, 1.0, None),
    ],
    "numbers of rows, compressed": lambda t, x: [
        t._convert_indices_from_coo_to_csr(t.tensor([0, 0, 2, 3]), 5),
        t._convert_indices_from_coo_to_csr(t.tensor([1, 1]), 3, out_int32=True),
    ],
    "numbers of rows, one by one": lambda t, x: [
        t._convert_indices_from_csr_to_coo(t.tensor([0, 2, 2, 3]), t.tensor([1, 2, 0])),
        t._convert_indices_from_csr_to_coo(
            t.tensor([0, 1]), t.tensor([1]), out_int32=True, transpose=True
        ),
    ],
    "a shape": lambda t, x: [t._shape_as_tensor(x), t._shape_as_tensor(x.sum())],
    "softmax by its inner names": lambda t, x: [
        t._softmax(x, 1, False),
        t._log_softmax(x, 1, False),
        t._softmax_backward_data(x, x.softmax(1), 1, x.dtype),
        t._log_softmax_backward_data(x, x.log_softmax(1), 1, x.dtype),
    ],
    "groups of matrices": lambda t, x: t._grouped_mm(
        t.ones(8, 8), t.ones(2, 8, 8), t.tensor([3, 8], dtype=t.int32)
    ),
    "what holds": lambda t, x: t._assert_async(x.sum()),
    "what does not": lambda t, x: t._assert_async(x.sum() * 0, "not so"),
    "a layout's older name": lambda t, x: t.legacy_contiguous_format == t.contiguous_format,
    "bytes of an element": lambda t, x: t._utils._element_size(t.float16),
    "max_pool1d": lambda t, x: t.max_pool1d(x, 2),
    "max_pool1d_with_indices": lambda t, x: t.max_pool1d_with_indices(x, [2], [1]),
    "max_pool2d": lambda t, x: t.max_pool2d(x[None], 2, padding=1),
    "max_pool3d": lambda t, x: t.max_pool3d(x[None, None, None], (1, 2, 2)),
    "adaptive_max_pool1d": lambda t, x: t.adaptive_max_pool1d(x, 2),
    "affine_grid_generator": lambda t, x: t.affine_grid_generator(
        x[:2, :3].reshape(1, 2, 3), (1, 1, 2, 2), False
    ),
    "convolution": lambda t, x: t.convolution(
        x[None, None], x[None, None, :2, :2], None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1
    ),
    "convolution back": lambda t, x: t.convolution(
        x[None, None], x[None, None, :2, :2], None, (2, 2), (0, 0), (1, 1), True, (1, 1), 1
    ),
    "kl_div": lambda t, x: [t.kl_div(x, x.softmax(0), r) for r in (0, 2)],
    "binary_cross_entropy_with_logits": lambda t, x: t.binary_cross_entropy_with_logits(
        x, x.sigmoid(), None, None, 1
    ),
    "cosine_embedding_loss": lambda t, x: t.cosine_embedding_loss(x, x + 1, t.ones(3), 0.1, 2),
    "hinge_embedding_loss": lambda t, x: t.hinge_embedding_loss(x, t.ones(3, 4), reduction=1),
    "margin_ranking_loss": lambda t, x: t.margin_ranking_loss(x, -x, t.ones(3, 4)),
    "margin_ranking_loss of what broadcasts": lambda t, x: t.margin_ranking_loss(
        x, x[0] * 2, -t.ones(()), 0.5, 1
    ),
    "triplet_margin_loss": lambda t, x: t.triplet_margin_loss(x, x + 1, x * 2),
    "poisson_nll_loss": lambda t, x: t.poisson_nll_loss(x, x.abs(), True, False, 1e-8, 1),
    "ctc_loss": lambda t, x: t.ctc_loss(
        x[:, None].log_softmax(2), t.tensor([[1, 2]]), [3], [2], 0, 2
    ),
    "lstm": lambda t, x: t.lstm(
        x[:, None], [x[None, :1, :2], x[None, :1, 2:]],
        [x.repeat(3, 1)[:8], x.T.repeat(2, 1)[:8, :2]],
        False, 1, 0.0, False, False, False,
    ),
    "gru": lambda t, x: t.gru(
        x[None], x[None, :1, :2], [x.repeat(2, 1), x.repeat(2, 1)[:, :2]],
        False, 1, 0.0, False, False, True,
    ),
    "rnn_tanh_cell": lambda t, x: t.rnn_tanh_cell(x, x[:, :2], x[:2], x[:2, :2]),
    "lstm_cell": lambda t, x: t.lstm_cell(
        x, [x[:, :2], x[:, 2:]], x.repeat(3, 1)[:8], x.T.repeat(2, 1)[:, :2]
    ),
    "gru_cell": lambda t, x: t.gru_cell(x, x[:, :2], x.repeat(2, 1), x.repeat(2, 1)[:, :2]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_function_does_what_pytorchs_does(agree, name):
    agree(lambda t: CALLS[name](t, (t.arange(12.0) * 0.7).sin().reshape(3, 4)), message=False)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_norms_of_before_linalg(agree):
    def norms(t):
        x = (t.arange(12.0) * 0.7).sin().reshape(3, 4)
        frobenius = t.frobenius_norm(x, [1]), t.frobenius_norm(x, [0, 1], True)
        frobenius += t.frobenius_norm(x, 0), t.frobenius_norm(x, []), t.frobenius_norm(x, dim=1)
        return *frobenius, t.nuclear_norm(x), t.nuclear_norm(x, True), t.nuclear_norm(x, (0, 1))

    agree(norms)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dims", [(), (None,), ((0, 1, 2),), (5,)])
def test_a_frobenius_norm_is_over_one_or_two_dimensions_or_all(agree, dims):
    agree(lambda t: t.frobenius_norm(t.ones(2, 2, 2), *dims), message=False)


def test_feature_dropout_drops_channels():
    import tangrad

    dropped = tangrad.feature_dropout(tangrad.ones(20, 30, 5), 0.5, True)
    by_channel = dropped.reshape(-1, 5)
    assert bool((by_channel == by_channel[:, :1]).all())
    assert sorted(set(dropped.flatten().tolist())) == [0.0, 2.0]


def test_native_dropout_tells_what_it_kept():
    x = tangrad.ones(100, requires_grad=True)
    dropped, kept = tangrad.native_dropout(x, 0.75, True)
    assert kept.dtype == tangrad.bool
    assert 0 < int(kept.sum()) < 100
    assert tangrad.equal(dropped, kept * 4.0)
    assert tangrad.equal(tangrad.autograd.grad(dropped.sum(), x)[0], kept * 4.0)


def test_bags_of_an_unknown_mode_are_refused():
    with pytest.raises(ValueError, match="one of sum, mean or max, got '3'"):
        bags(tangrad, tangrad.ones(3, 2), 3)


def test_dropout_in_place_writes_into_its_input():
    import tangrad

    x = tangrad.ones(100)
    assert tangrad.dropout_(x, 0.5, True) is x
    assert sorted(set(x.tolist())) == [0.0, 2.0]


@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3), (1, 3), (3,), (0, 3), (4, 2, 1)])
@pytest.mark.parametrize("running", ["both", "mean", "none"])
def test_statistics_of_batches_are_updated(agree, shape, running):
    def program(t):
        x = t.arange(60.0)[: math.prod(shape)].reshape(shape).cos()
        mean = t.zeros(shape[-1] if len(shape) == 1 else shape[1])
        var = None if running == "mean" else t.ones_like(mean)
        mean = None if running == "none" else mean
        found = t.batch_norm_update_stats(x, mean, None if running == "none" else var, 0.1)
        return str(found), str(mean), str(var)

    agree(program, message=False)


def test_statistics_of_another_number_of_channels_are_refused():
    x = tangrad.ones(4, 2)
    with pytest.raises(RuntimeError, match="running_mean should contain 2 elements, not"):
        tangrad.batch_norm_update_stats(x, tangrad.ones(3), tangrad.ones(2), 0.1)

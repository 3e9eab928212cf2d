"""Loss modules: text, state, values and gradients as torch's."""

import pytest

import tangrad
from tangrad import func, nn
from tangrad.nn import functional as F


def tensor(t, shape, start=1):
    """Return numbers between -2 and 2 that repeat nowhere near."""
    size = 1
    for n in shape:
        size *= n
    return t.tensor([((i + start) * 7919 % 4001) / 1000 - 2 for i in range(size)]).reshape(shape)


def signs(t):
    return t.tensor([1.0, -1.0, -1.0, 1.0])


def scores(t):
    return tensor(t, (4, 3))


def like(t):
    return tensor(t, (4, 3), 7)


def probabilities(t):
    return tensor(t, (4, 3), 3).abs() / 4 + 0.1


def weights(t):
    return t.tensor([1.0, 2.0, 0.5])


CLASSES = [2, 0, 1, 0]

# The module, its arguments after the input.
LOSSES = {
    "BCELoss": (lambda t: t.nn.BCELoss(), lambda t: [probabilities(t)]),
    "BCELoss with all": (
        lambda t: t.nn.BCELoss(weights(t), reduction="sum"),
        lambda t: [probabilities(t)],
    ),
    "KLDivLoss": (lambda t: t.nn.KLDivLoss(reduction="batchmean"), lambda t: [probabilities(t)]),
    "KLDivLoss of logarithms": (
        lambda t: t.nn.KLDivLoss(reduction="sum", log_target=True),
        lambda t: [like(t)],
    ),
    "PoissonNLLLoss": (lambda t: t.nn.PoissonNLLLoss(), lambda t: [like(t).abs()]),
    "PoissonNLLLoss with all": (
        lambda t: t.nn.PoissonNLLLoss(full=True, eps=0.1, reduction="none"),
        lambda t: [like(t).abs()],
    ),
    "GaussianNLLLoss": (lambda t: t.nn.GaussianNLLLoss(), lambda t: [like(t), like(t).abs()]),
    "GaussianNLLLoss with all": (
        lambda t: t.nn.GaussianNLLLoss(full=True, eps=0.5, reduction="sum"),
        lambda t: [like(t), tensor(t, (4, 1)).abs()],
    ),
    "SmoothL1Loss": (lambda t: t.nn.SmoothL1Loss(beta=0.5), lambda t: [like(t)]),
    "SmoothL1Loss without a bend": (lambda t: t.nn.SmoothL1Loss(beta=0.0), lambda t: [like(t)]),
    "HuberLoss": (lambda t: t.nn.HuberLoss(delta=0.5), lambda t: [like(t)]),
    "HuberLoss of each": (lambda t: t.nn.HuberLoss("none"), lambda t: [like(t)]),
    "HingeEmbeddingLoss": (
        lambda t: t.nn.HingeEmbeddingLoss(0.5),
        lambda t: [signs(t).reshape(4, 1)],
    ),
    "MarginRankingLoss": (
        lambda t: t.nn.MarginRankingLoss(0.5, reduction="sum"),
        lambda t: [like(t), signs(t).reshape(4, 1)],
    ),
    "CosineEmbeddingLoss": (
        lambda t: t.nn.CosineEmbeddingLoss(0.25),
        lambda t: [like(t), signs(t)],
    ),
    "SoftMarginLoss": (
        lambda t: t.nn.SoftMarginLoss(reduction="none"),
        lambda t: [signs(t).reshape(4, 1).expand(4, 3)],
    ),
    "MultiLabelMarginLoss": (
        lambda t: t.nn.MultiLabelMarginLoss(),
        lambda t: [t.tensor([[0, 2, -1], [1, -1, 0], [-1, 0, 1], [2, 1, 0]])],
    ),
    "MultiLabelSoftMarginLoss": (
        lambda t: t.nn.MultiLabelSoftMarginLoss(weights(t)),
        lambda t: [(like(t) > 0).float()],
    ),
    "MultiMarginLoss": (lambda t: t.nn.MultiMarginLoss(), lambda t: [t.tensor(CLASSES)]),
    "MultiMarginLoss with all": (
        lambda t: t.nn.MultiMarginLoss(2, 0.5, weights(t), reduction="none"),
        lambda t: [t.tensor(CLASSES)],
    ),
    "TripletMarginLoss": (
        lambda t: t.nn.TripletMarginLoss(),
        lambda t: [like(t), tensor(t, (4, 3), 11)],
    ),
    "TripletMarginLoss with all": (
        lambda t: t.nn.TripletMarginLoss(2.0, p=1.0, eps=0.1, swap=True, reduction="none"),
        lambda t: [like(t), tensor(t, (4, 3), 11)],
    ),
    "TripletMarginWithDistanceLoss": (
        lambda t: t.nn.TripletMarginWithDistanceLoss(margin=2.0),
        lambda t: [like(t), tensor(t, (4, 3), 11)],
    ),
    "TripletMarginWithDistanceLoss with all": (
        lambda t: t.nn.TripletMarginWithDistanceLoss(
            distance_function=lambda x, y: (x - y).abs().sum(-1), swap=True, reduction="sum"
        ),
        lambda t: [like(t), tensor(t, (4, 3), 11)],
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_computes_and_differentiates_as_in_pytorch(agree, name):
    make, others = LOSSES[name]

    def program(t):
        loss = make(t)
        x = (probabilities(t) if "BCE" in name else scores(t)).requires_grad_()
        arguments = [a.requires_grad_(a.is_floating_point()) for a in others(t)]
        if name.startswith(("BCE", "SoftMargin")):  # torch has no derivative by their targets
            arguments[0].requires_grad_(False)
        out = loss(x, *arguments)
        (out * 2).sum().backward()
        return [repr(loss), list(loss.state_dict()), out, x.grad, [a.grad for a in arguments]]

    agree(program)


def test_a_saturated_sigmoid_gets_the_gradient_of_cross_entropy_as_in_pytorch(agree):
    def program(t):
        scores = t.tensor([200.0, -200.0, 88.0, -88.0, 200.0, -200.0], requires_grad=True)
        events = t.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
        probabilities = scores.sigmoid()
        loss = t.nn.functional.binary_cross_entropy(probabilities, events)
        return [loss, *t.autograd.grad(loss, [probabilities, scores])]

    agree(program)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("together", [False, True])
def test_ctc_loss_computes_and_differentiates_as_in_pytorch(agree, reduction, together):
    def program(t):
        loss = t.nn.CTCLoss(blank=1, reduction=reduction, zero_infinity=True)
        x = tensor(t, (6, 3, 4)).requires_grad_()
        targets = t.tensor([[0, 0, 2], [3, 2, 0], [2, 0, 0]])
        if together:
            targets = t.tensor([0, 0, 2, 3])
        counts = t.tensor([3, 1, 0]) if together else t.tensor([3, 1, 2])
        out = loss(x.log_softmax(2), targets, t.tensor([6, 4, 1]), counts)
        (out * tensor(t, tuple(out.shape))).sum().backward()
        return [repr(loss), out, x.grad]

    agree(program)


def test_a_target_too_long_for_its_input_costs_everything():
    logs = tangrad.zeros(2, 1, 3).log_softmax(2)
    arguments = logs, tangrad.tensor([[1, 1]]), [2], [2]
    assert F.ctc_loss(*arguments).item() == tangrad.inf
    assert F.ctc_loss(*arguments, zero_infinity=True).item() == 0


def test_ctc_loss_has_second_derivatives():
    def loss(x):
        return F.ctc_loss(x.log_softmax(2), tangrad.tensor([[1, 2, 2]]), [6], [3])

    x = tensor(tangrad, (6, 1, 3)).double().requires_grad_()
    assert tangrad.autograd.gradgradcheck(loss, (x,))


def test_ctc_loss_names_what_does_not_fit():
    logs = tangrad.zeros(3, 1, 2)
    with pytest.raises(RuntimeError, match="int32 or int64"):
        F.ctc_loss(logs, tangrad.ones(1, 1), [3], [1])
    with pytest.raises(RuntimeError, match="must not be negative"):
        F.ctc_loss(logs, tangrad.tensor([[1]]), [3], [-1])
    with pytest.raises(RuntimeError, match="concatenated targets to be of size 2"):
        F.ctc_loss(logs, tangrad.tensor([1]), [3], [2])


LINEAR = {
    "plain": {},
    "with a bias": {"bias": True, "reduction": "sum", "ignore_index": 0},
    "weighted": {"weight": [1.0, 2.0, 0.5], "reduction": "none"},
    "smoothed": {"label_smoothing": 0.1},
}


@pytest.mark.parametrize(
    ("name", "rows"),
    # Chunks of rows do not smooth.
    [(name, rows) for name in LINEAR for rows in (None, 3) if not rows or name != "smoothed"],
)
def test_linear_cross_entropy_is_that_of_pytorch(agree, name, rows):
    def program(t):
        options = dict(LINEAR[name])
        if "weight" in options:
            options["weight"] = t.tensor(options["weight"])
        if rows:
            options["options"] = t.nn.LinearCrossEntropyOptions(batch_chunk_size=rows)
        loss = t.nn.LinearCrossEntropyLoss(5, 3, **options)
        with t.no_grad():
            for i, p in enumerate(loss.parameters()):
                p.copy_(tensor(t, tuple(p.shape), i))
        x = tensor(t, (7, 5)).requires_grad_()
        out = loss(x, t.tensor([2, 0, 1, 0, 2, 1, 1]))
        (out * tensor(t, tuple(out.shape))).sum().backward()
        text = repr(loss) if rows is None else ""
        return [text, list(loss.state_dict()), out, x.grad, [p.grad for p in loss.parameters()]]

    agree(program)


@pytest.mark.parametrize(
    ("method", "rows"),
    [("auto", 4), ("aspect_ratio", 8), ("aspect_ratio:4", 2), ("aspect_ratio:64", 1)],
)
def test_the_method_decides_how_many_rows_a_chunk_has(monkeypatch, method, rows):
    from tangrad.nn import linear_cross_entropy as module

    seen = []
    computed = module._row_losses
    monkeypatch.setattr(
        module, "_row_losses", lambda *args: seen.append(len(args[0])) or computed(*args)
    )
    options = nn.LinearCrossEntropyOptions(chunking_method=method)
    F.linear_cross_entropy(
        tangrad.ones(32, 4), tangrad.ones(16, 4), tangrad.zeros(32).long(), options=options
    )
    assert seen == [rows] * (32 // rows)


@pytest.mark.parametrize("arguments", [(0,), (1,), (0, 1, 2)])
def test_chunks_of_rows_can_be_mapped(arguments):
    targets = tangrad.tensor([[2, 0, 1, 0, 2], [1, 1, 0, 2, 0]])
    x, w, b = (tensor(tangrad, shape) for shape in ((2, 5, 4), (3, 4), (3,)))

    def losses_and_slopes(options):
        def loss(x, w, b, targets):
            return F.linear_cross_entropy(x, w, targets, linear_bias=b, options=options)

        mapped = tangrad.vmap(func.grad_and_value(loss, arguments), (0, None, None, 0))
        slopes, losses = mapped(x, w, b, targets)
        return [losses, *slopes]

    chunks = losses_and_slopes(nn.LinearCrossEntropyOptions(batch_chunk_size=2))
    for found, wanted in zip(chunks, losses_and_slopes(None), strict=True):
        tangrad.testing.assert_close(found, wanted)


def test_options_of_chunks_are_checked():
    for wrong in (
        {"acc_policy": "exact"},
        {"chunking_method": "square"},
        {"chunking_method": "aspect_ratio:0"},
        {"batch_chunk_size": 0},
        {"acc_dtype": tangrad.int64},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            nn.LinearCrossEntropyOptions(**wrong)
    both = nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio")
    with pytest.raises(ValueError, match="pass only one"):
        F.linear_cross_entropy(
            tangrad.ones(8, 4), tangrad.ones(16, 4), tangrad.zeros(8).long(), options=both
        )


def test_chunks_that_cannot_be_are_left_with_a_warning():
    x, w, targets = tangrad.ones(4, 3), tangrad.ones(2, 3), tangrad.zeros(4).long()
    options = nn.LinearCrossEntropyOptions()
    with pytest.warns(UserWarning, match="options ignored"):
        whole = F.linear_cross_entropy(x, w, targets, label_smoothing=0.1, options=options)
    assert whole.item() == F.linear_cross_entropy(x, w, targets, label_smoothing=0.1).item()


def test_an_old_name_of_nll_loss_warns():
    with pytest.warns(FutureWarning, match="NLLLoss2d has been deprecated"):
        assert isinstance(nn.NLLLoss2d(), nn.NLLLoss)


def test_margins_of_no_rows_sum_to_zero():
    rows, classes = tangrad.zeros(0, 4), tangrad.zeros(0, dtype=tangrad.int64)
    assert F.multi_margin_loss(rows, classes, reduction="sum") == 0
    assert F.multi_margin_loss(rows, classes).isnan()


@pytest.mark.parametrize(
    "name", ["margin_ranking_loss", "hinge_embedding_loss", "soft_margin_loss", "mse_loss"]
)
@pytest.mark.parametrize("flags", [(None, False), (False, None), (True, True), (False, False)])
def test_old_flags_mean_a_reduction_as_in_pytorch(agree, name, flags):
    def program(t):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = [scores(t), like(t)] if "ranking" in name else [scores(t)]
            target = signs(t).reshape(4, 1).expand(4, 3)
            return getattr(t.nn.functional, name)(
                *given, target, size_average=flags[0], reduce=flags[1]
            )

    agree(program)


WRONG = {
    "no dimensions": lambda t, f: f.nll_loss(t.tensor(1.0), t.tensor(0)),
    "no dimensions of scores": lambda t, f: f.cross_entropy(t.tensor(1.0), t.tensor([0])),
    "batch": lambda t, f: f.nll_loss(scores(t), t.tensor([0, 1])),
    "batch of images": lambda t, f: f.nll_loss(t.ones(2, 3, 4), t.zeros(3, 4).long()),
    "places of images": lambda t, f: f.nll_loss(t.ones(2, 3, 4), t.zeros(2, 3).long()),
    "several targets": lambda t, f: f.nll_loss(scores(t), t.zeros(4, 2).long()),
    "targets of one": lambda t, f: f.nll_loss(t.ones(3), t.tensor([0, 1])),
    "integers": lambda t, f: f.nll_loss(scores(t).long(), t.tensor(CLASSES)),
    "integer scores": lambda t, f: f.cross_entropy(scores(t).long(), t.tensor(CLASSES)),
    "small targets": lambda t, f: f.nll_loss(scores(t), t.tensor(CLASSES, dtype=t.int32)),
    "target out of range": lambda t, f: f.cross_entropy(scores(t), t.tensor([0, 1, 2, 3])),
    "weights": lambda t, f: f.cross_entropy(scores(t), t.tensor(CLASSES), t.ones(2)),
    "weights of probabilities": lambda t, f: f.cross_entropy(scores(t), like(t), t.ones(2)),
    "dtype of weights": lambda t, f: f.nll_loss(scores(t), t.tensor(CLASSES), weights(t).double()),
    "integer probabilities": lambda t, f: f.cross_entropy(scores(t), like(t).long()),
    "ignored probabilities": lambda t, f: f.cross_entropy(scores(t), like(t), ignore_index=1),
    "not a probability": lambda t, f: f.binary_cross_entropy(scores(t), probabilities(t)),
    "target not a probability": lambda t, f: f.binary_cross_entropy(probabilities(t), like(t)),
    "dtypes": lambda t, f: f.binary_cross_entropy(probabilities(t), probabilities(t).double()),
    "integer events": lambda t, f: f.binary_cross_entropy_with_logits(
        scores(t), t.zeros(4, 3).long()
    ),
    "mse of integers": lambda t, f: f.mse_loss(t.tensor([1]), t.tensor([2])),
    "huber of integers": lambda t, f: f.huber_loss(t.tensor([1]), t.tensor([2])),
    "weighted mse": lambda t, f: f.mse_loss(scores(t), like(t), weight=weights(t)),
    "variance of integers": lambda t, f: f.gaussian_nll_loss(
        scores(t), like(t), t.ones(4, 3).long()
    ),
    "broadcast": lambda t, f: f.soft_margin_loss(t.ones(3), t.ones(2, 3)),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(agree, case):
    agree(lambda t: WRONG[case](t, t.nn.functional), message=False)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
@pytest.mark.parametrize("dtypes", ["float32 float64", "float64 float16", "float32 int64"])
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_regression_losses_promote_as_in_pytorch(agree, name, dtypes):
    first, second = dtypes.split()

    def program(t):
        loss = getattr(t.nn.functional, name)
        x, y = scores(t).to(getattr(t, first)), like(t).to(getattr(t, second))
        results = [loss(x, y, reduction="none"), loss(x, y), loss(x, y[0, 0])]
        return [results, [str(r.dtype) for r in results]]

    agree(program, tolerance=1e-3)


def test_kl_div_tells_what_its_mean_is():
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(tangrad.zeros(2, 3), tangrad.ones(2, 3))


def test_probabilities_are_not_looked_at_under_vmap():
    x, y = probabilities(tangrad), probabilities(tangrad)
    losses = tangrad.func.vmap(F.binary_cross_entropy)(x, y)
    assert losses.mean().item() == pytest.approx(F.binary_cross_entropy(x, y).item())


def test_the_delta_of_a_huber_loss_is_a_number(agree):
    agree(lambda t: t.nn.HuberLoss(delta=1j), message=False)


@pytest.mark.parametrize(
    ("name", "beta"), [("float16", 1.0), ("bfloat16", 1.0), ("bfloat16", 0.3), ("float32", 0.3)]
)
def test_a_smooth_loss_is_rounded_where_pytorch_rounds(agree, name, beta):
    def program(t):
        x = ((t.arange(200) * 37 % 101).to(getattr(t, name)) / 7).reshape(2, 100)
        return t.nn.functional.smooth_l1_loss(x[0], x[1], reduction="none", beta=beta).double()

    agree(program, tolerance=0)


def test_a_huber_loss_of_halves_is_rounded_once(agree):
    def program(t):
        x = ((t.arange(200) * 37 % 101).to(t.float16) / 7).reshape(2, 100)
        loss = t.nn.functional.huber_loss(x[0], x[1], reduction="none", delta=2.7)
        return loss.float()

    agree(program, tolerance=2**-11)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 3, 2)], ids=str)
@pytest.mark.parametrize(
    "given",
    [{}, {"weight": weights}, {"label_smoothing": 0.1}, {"reduction": "sum"}],
    ids=["mean", "weighted", "smoothed", "sum"],
)
def test_targets_that_are_all_ignored_owe_nothing(agree, given, shape, dtype):
    def program(t):
        options = dict(given)
        if "weight" in options:
            options["weight"] = weights(t).to(getattr(t, dtype))
        found = []
        for target in (-100, 1):
            x = tensor(t, shape).to(getattr(t, dtype)).requires_grad_()
            targets = t.full((*shape[:1], *shape[2:]) if len(shape) > 1 else (), target)
            t.nn.functional.cross_entropy(x, targets, **options).backward()
            found.append(x.grad.float())
        return found

    agree(program, tolerance=2e-2 if dtype == "bfloat16" else 1e-6)


def test_samples_of_ignored_targets_have_gradients_of_zero():
    def loss(weight, x, target):
        return F.cross_entropy((x @ weight).unsqueeze(0), target.unsqueeze(0))

    given = tensor(tangrad, (3, 3)), tensor(tangrad, (2, 3), 5), tangrad.tensor([-100, 1])
    found = tangrad.func.vmap(tangrad.func.grad(loss), (None, 0, 0))(*given)
    assert tangrad.equal(found[0], tangrad.zeros(3, 3))
    assert found[1].isfinite().all()


@pytest.mark.parametrize("p", [1, 2])
def test_a_margin_that_is_just_kept_owes_nothing(agree, p):
    def program(t):
        found = []
        for special in (1.0, float("nan"), float("inf")):
            x = t.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, special]], requires_grad=True)
            y = t.tensor([[1.0, 0.0, 2.0], [0.0, 2.0, special]], requires_grad=True)
            first = t.nn.functional.multi_margin_loss(x, t.tensor([0, 1]), p=p)
            second = t.nn.functional.multilabel_margin_loss(y, t.tensor([[0, 2, -1], [1, -1, 0]]))
            (first + second).backward()
            found += [first, second, x.grad, y.grad]
        return found

    agree(program)


@pytest.mark.parametrize("name", ["none", "mean", "sum"])
def test_reductions_have_pytorchs_numbers(name):
    torch = pytest.importorskip("torch")
    assert tangrad.nn._reduction.get_enum(name) == torch.nn._reduction.get_enum(name)


def test_a_reduction_of_another_name_has_no_number():
    with pytest.raises(ValueError, match="average is not a valid value"):
        tangrad.nn._reduction.get_enum("average")

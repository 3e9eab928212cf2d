"""What nn.functional adds to the ops."""

import pytest

import tangrad
from tangrad.nn import functional as F

CALLS = {
    "relu": lambda t, f, x: f.relu(x),
    "threshold": lambda t, f, x: f.threshold(x, 0.5, 9.0),
    "hardtanh": lambda t, f, x: f.hardtanh(x, -0.5, 0.25),
    "hardtanh of integers": lambda t, f, x: f.hardtanh((x * 4).long(), -1.5, 2.5),
    "bad hardtanh of bytes": lambda t, f, x: f.hardtanh(x.to(t.uint8)),
    "bad hardtanh of bools": lambda t, f, x: f.hardtanh(x > 0),
    "relu6": lambda t, f, x: f.relu6(x * 9),
    "relu6 of integers": lambda t, f, x: f.relu6((x * 9).long()),
    "leaky_relu": lambda t, f, x: f.leaky_relu(x, 0.3),
    "elu": lambda t, f, x: f.elu(x, 2.0),
    "selu": lambda t, f, x: f.selu(x),
    "celu": lambda t, f, x: f.celu(x, 0.5),
    "silu": lambda t, f, x: f.silu(x),
    "mish": lambda t, f, x: f.mish(x),
    "hardsigmoid": lambda t, f, x: f.hardsigmoid(x * 4),
    "hardswish": lambda t, f, x: f.hardswish(x * 4),
    "gelu": lambda t, f, x: f.gelu(x, approximate="tanh"),
    "softmax": lambda t, f, x: f.softmax(x, 1),
    "softmax in float64": lambda t, f, x: f.softmax(x, dim=0, dtype=t.float64),
    "softmin": lambda t, f, x: f.softmin(x, 1),
    "log_softmax": lambda t, f, x: f.log_softmax(x, dim=-1),
    "normalize": lambda t, f, x: f.normalize(x),
    "normalize by another norm": lambda t, f, x: f.normalize(x, p=1.0, dim=0),
    "normalize zeros": lambda t, f, x: f.normalize(x * 0),
    "one_hot": lambda t, f, x: f.one_hot(t.tensor([0, 2, 1])),
    "pad": lambda t, f, x: f.pad(x, (1, -1, 0, 2), value=3.0),
    "linear": lambda t, f, x: f.linear(x, x),
    "unknown": lambda t, f, x: f.no_such_function(x),
    "bad bounds": lambda t, f, x: f.hardtanh(x, 1.0, -1.0),
    "bad probability": lambda t, f, x: f.dropout(x, 2.0),
}

IN_PLACE = ("relu relu6 hardtanh leaky_relu elu selu celu silu mish hardsigmoid hardswish").split()


def values(t):
    return t.tensor([[-1.5, -0.2, 0.0], [0.3, 1.0, 2.5]])


@pytest.mark.parametrize("name", CALLS)
def test_functions_compute_as_in_pytorch(agree, name):
    agree(lambda t: CALLS[name](t, t.nn.functional, values(t)), message="bad" not in name)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms_write_into_the_input(agree, name):
    def program(t):
        x = values(t)
        assert getattr(t.nn.functional, name)(x, inplace=True) is x
        return x

    agree(program)


def test_softmax_without_a_dimension_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert F.softmax(tangrad.zeros(1, 4)).tolist() == [[0.25] * 4]


def test_a_missing_function_is_an_attribute_error():
    assert not hasattr(F, "no_such_function")


def test_dropout_scales_what_it_keeps():
    x = F.dropout(tangrad.ones(10_000), 0.25)
    kept = (x != 0).sum().item()
    assert 7_200 < kept < 7_800
    assert float(x.max()) == pytest.approx(1 / 0.75)
    assert F.dropout(tangrad.ones(3), training=False).tolist() == [1.0, 1.0, 1.0]


def gradients(function, *tensors):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    (out * tangrad.arange(out.numel()).reshape(out.shape)).sum().backward()
    return [out.tolist(), [x.grad.tolist() for x in leaves]]


def numbers(*shape):
    count = tangrad.Size(shape).numel()
    return ((tangrad.arange(count) * 7919 % 401).float() / 100 - 2).reshape(shape)


def test_groups_of_rows_are_multiplied_by_their_matrices():
    ends = tangrad.tensor([1, 1, 5], dtype=tangrad.int32)

    def one_by_one(a, b):
        return tangrad.cat([a[:1] @ b[0], a[1:5] @ b[2], tangrad.zeros(1, 4)])

    operands = numbers(6, 3), numbers(3, 3, 4)
    found = gradients(lambda a, b: F.grouped_mm(a, b, offs=ends), *operands)
    assert found == gradients(one_by_one, *operands)


def test_groups_of_columns_make_a_product_each():
    ends = tangrad.tensor([2, 6], dtype=tangrad.int32)

    def one_by_one(a, b):
        return tangrad.stack([a[:, :2] @ b[:2], a[:, 2:] @ b[2:]])

    operands = numbers(3, 6), numbers(6, 4)
    found = gradients(lambda a, b: F.grouped_mm(a, b, offs=ends), *operands)
    assert found == gradients(one_by_one, *operands)


def test_groups_must_lie_in_the_matrix():
    for ends in ([2, 1], [2, 7]):
        with pytest.raises(RuntimeError, match="must not decrease nor exceed the size 6"):
            F.grouped_mm(
                numbers(6, 3), numbers(2, 3, 4), offs=tangrad.tensor(ends, dtype=tangrad.int32)
            )


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("recipe", ["TensorWise", "RowWise"])
@pytest.mark.parametrize("biased", [False, True])
def test_scaled_products_of_small_floats(agree, dtype, recipe, biased):
    def program(t):
        F = t.nn.functional
        a = t.linspace(-3, 4, 48).reshape(3, 16).to(getattr(t, dtype))
        b = t.linspace(-1, 2, 64).reshape(4, 16).to(getattr(t, dtype)).mT
        rows = recipe == "RowWise"
        return F.scaled_mm(
            a,
            b,
            t.linspace(0.5, 2, 3).reshape(3, 1) if rows else t.tensor([2.0]),
            getattr(F.ScalingType, recipe),
            t.linspace(0.5, 2, 4).reshape(1, 4) if rows else t.tensor(0.5),
            getattr(F.ScalingType, recipe),
            bias=t.linspace(0, 1, 4) if biased else None,
            output_dtype=t.float32,
        )

    agree(program, tolerance=1e-5)


def test_scaled_products_refuse_what_does_not_fit():
    small, one = numbers(2, 3).to(tangrad.float8_e4m3fn), tangrad.ones(())
    whole, rows = F.ScalingType.TensorWise, F.ScalingType.RowWise
    with pytest.raises(ValueError, match=r"invalid scaling.*use matmul"):
        F.scaled_mm(numbers(2, 3), numbers(3, 2), one, whole, one, whole)
    with pytest.raises(ValueError, match=r"cannot be multiplied \(2x3 and 2x3\)"):
        F.scaled_mm(small, small, one, whole, one, whole)
    with pytest.raises(ValueError, match=r"scale_a must be of shape \[2, 1\]"):
        F.scaled_mm(small, small.mT, one, rows, one, rows)
    with pytest.raises(ValueError, match="Bias must be size 2"):
        F.scaled_mm(small, small.mT, one, whole, one, whole, bias=tangrad.ones(3))
    with pytest.raises(NotImplementedError, match="NO_SWIZZLE"):
        F.scaled_mm(small, small.mT, one, whole, one, whole, F.SwizzleType.SWIZZLE_32_4_4)
    with pytest.raises(NotImplementedError, match="4-bit floats"):
        F.scaled_mm(small, small.mT, [one, one], [whole, rows], one, whole)
    with pytest.raises(TypeError, match="'scale_b' must be Tensor, not float"):
        F.scaled_mm(small, small.mT, one, whole, 1.0, whole)
    with pytest.raises(TypeError, match="'bias' must be Tensor, not int"):
        F.scaled_mm(small, small.mT, one, whole, one, whole, bias=1)
    with pytest.raises(TypeError, match="'mat_a' must be Tensor, not int"):
        F.scaled_grouped_mm(0, small, one, whole, one, whole)
    with pytest.raises(NotImplementedError, match="use grouped_mm"):
        F.scaled_grouped_mm(small, small, one, whole, one, whole)


def test_alpha_dropout_keeps_mean_and_variance():
    tangrad.manual_seed(0)
    x = tangrad.randn(100, 200)
    for drop in (F.alpha_dropout, F.feature_alpha_dropout):
        y = drop(x, 0.3, training=True)
        assert abs(y.mean().item()) < 0.03
        assert y.var().item() == pytest.approx(1, abs=0.05)


def test_channels_are_dropped_whole():
    tangrad.manual_seed(0)
    x = F.dropout2d(tangrad.ones(50, 20, 2, 3), 0.25)
    sums = x.sum((2, 3)).unique()
    assert sums.tolist() == pytest.approx([0.0, 8.0])
    assert F.dropout1d(tangrad.ones(5, 4), 0.5, inplace=True).shape == (5, 4)


def test_a_three_dimensional_dropout2d_warns():
    with pytest.warns(UserWarning, match=r"interpreted as \(N, C, L\)"):
        F.dropout2d(tangrad.ones(2, 3, 4))
    with pytest.warns(UserWarning, match="4 or 5 dimensions"):
        F.dropout3d(tangrad.ones(2, 3))


def test_slopes_are_drawn_from_their_range():
    tangrad.manual_seed(0)
    x = -tangrad.ones(1000)
    slopes = -F.rrelu(x, 0.2, 0.4, training=True)
    assert 0.2 <= slopes.min().item() < 0.21
    assert 0.39 < slopes.max().item() <= 0.4
    assert F.rrelu_(x, 0.2, 0.4) is x
    assert x.unique().tolist() == pytest.approx([-0.3])


def test_slopes_in_place_have_derivatives(agree):
    def program(t):
        x = t.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        y = t.nn.functional.rrelu_(x.clone(), 0.125, 0.375)
        (y * t.tensor([1.0, 2.0, 3.0])).sum().backward()
        return y.detach().tolist(), x.grad.tolist()

    agree(program)


def test_gumbel_softmax_draws_by_the_logits():
    tangrad.manual_seed(0)
    logits = tangrad.tensor([0.1, 0.2, 0.7]).log().expand(20_000, 3).clone().requires_grad_()
    drawn = F.gumbel_softmax(logits, tau=0.5, hard=True)
    assert drawn.sum(1).unique().tolist() == [1.0]
    assert drawn.mean(0).tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.02)
    drawn[:, 0].sum().backward()
    assert logits.grad.abs().sum().item() > 0
    with pytest.warns(UserWarning, match="eps"):
        F.gumbel_softmax(logits, eps=1e-9)


def test_empty_samples_of_a_grid_have_a_gradient_of_either_argument(agree):
    def program(t):
        x, grid = t.ones(2, 3, 4, 4), t.zeros(2, 0, 3, 2, requires_grad=True)
        t.nn.functional.grid_sample(x, grid, align_corners=False).sum().backward()
        return grid.grad

    agree(program)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}])
def test_gradients_of_convolutions_as_functions(agree, spatial, options):
    def program(t):
        t.manual_seed(0)
        groups = options.get("groups", 1)
        x_size, w_size = (2, 4, *(7,) * spatial), (6, 4 // groups, *(3,) * spatial)
        x = (t.arange(2.0 * 4 * 7**spatial) % 13 - 6).reshape(x_size)
        w = (t.arange(6.0 * w_size[1] * 3**spatial) % 7 - 3).reshape(w_size)
        result = getattr(t.nn.functional, f"conv{spatial}d")(x, w, **options)
        g = (t.arange(float(result.numel())) % 5 - 2).reshape(result.shape)
        # Fetched by names, since the module is loaded on first use.
        of_input = getattr(t.nn.grad, f"conv{spatial}d_input")
        of_weight = getattr(t.nn.grad, f"conv{spatial}d_weight")
        return of_input(x_size, w, g, **options), of_weight(x, w_size, g, **options)

    agree(program)


@pytest.mark.parametrize(
    "kwargs",
    [
        None,
        {"device": "cpu"},
        {"factory_kwargs": {"device": "cpu"}},
        {"bias": True},
        {"factory_kwargs": {"bias": True}},
        {"device": "cpu", "factory_kwargs": {"device": "cpu"}},
    ],
    ids=str,
)
def test_arguments_of_factories_are_picked(agree, kwargs):
    agree(lambda t: t.tensor(0) if t.nn.factory_kwargs(kwargs) == {} else t.tensor(1))


@pytest.mark.parametrize("options", [{"padding_idx": 0}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("places", ["of each", "of all"])
def test_what_an_embedding_s_gradient_is_told_holds_within_vmap(options, places):
    tables = tangrad.ones(2, 5, 3, requires_grad=True)
    index = tangrad.tensor([[1, 2, 0, 2], [3, 0, 4, 0]])

    def rows(table, index):
        return F.embedding(index, table, **options)

    if places == "of all":
        found = tangrad.func.vmap(lambda table: rows(table, index[0]))(tables)
        alone = [rows(table, index[0]) for table in tables]
    else:
        found = tangrad.func.vmap(rows)(tables, index)
        alone = [rows(table, of_one) for table, of_one in zip(tables, index, strict=True)]
    expected = tangrad.autograd.grad(tangrad.stack(alone).sum(), tables)[0]
    assert tangrad.autograd.grad(found.sum(), tables)[0].equal(expected)


def test_the_tangent_of_a_padding_row_is_kept():
    table, index = tangrad.zeros(3, 2), tangrad.tensor([0, 1])
    _, tangent = tangrad.func.jvp(
        lambda table: F.embedding(index, table, padding_idx=0), (table,), (table + 1,)
    )
    assert tangent.tolist() == [[1, 1], [1, 1]]

"""Calls at the edge of what a function takes: rounding, refusals, random engines."""

import itertools
import operator

import numpy as np
import pytest

import tangrad

QUOTIENTS = ([2.999, 8.97, 1000.0, -1000.0], [1.001, 1.0, 3.0, 3.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_quotient_of_halves_is_a_half_before_it_is_truncated(agree, dtype):
    def program(t):
        a, b = (t.tensor(values, dtype=getattr(t, dtype)) for values in QUOTIENTS)
        written = a.clone().div_(b, rounding_mode="trunc")
        return [
            x.float()
            for x in (written, t.div(a, b, rounding_mode="trunc"), a.div(3, rounding_mode="trunc"))
        ]

    agree(program, tolerance=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_counted_where_rounded_steps_put_them(agree, dtype):
    def program(t):
        x = t.linspace(-9, 9, 91, dtype=t.float32).to(getattr(t, dtype))
        return t.histc(x, 100, -10, 10).float(), t.histc(x, 37).float()

    agree(program, tolerance=0)


@pytest.mark.parametrize("name", ["div_", "add_", "mul_", "pow_", "remainder_", "floor_divide_"])
@pytest.mark.parametrize("given", [{}, {"rounding_mode": "floor"}])
def test_a_number_is_not_written_in_place(name, given):
    # With a rounding mode this ended the process: a bool was taken for a tensor.
    with pytest.raises(TypeError, match=r"must be Tensor, not bool|rounding_mode"):
        getattr(tangrad.Tensor, name)(True, tangrad.ones(2, 3), **given)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tangrad.linalg.pinv(x, rtol="a"),
        lambda x: tangrad.linalg.pinv(x, atol="a"),
        lambda x: tangrad.linalg.matrix_rank(x, rtol="a"),
        lambda x: tangrad.linalg.matrix_rank(x, "a"),
    ],
)
def test_a_tolerance_is_a_number(call):
    with pytest.raises(TypeError, match=r"tol must be a number or a Tensor, not 'a'"):
        call(tangrad.ones(2, 2))


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "celu"])
def test_a_negative_slope_in_place_has_no_way_back(agree, name):
    def run(t, slope, inplace):
        x = t.tensor([-1.0, 2.0], requires_grad=True)
        getattr(t.nn.functional, name)(x * 1, slope, inplace=inplace).sum().backward()
        return x.grad

    agree(lambda t: (run(t, 0.2, True), run(t, -0.2, False)))
    with pytest.raises(RuntimeError, match="negative slope"):
        run(tangrad, -0.2, True)


@pytest.mark.usefixtures("mt19937")
def test_numbers_drawn_by_probabilities_have_a_gradient_of_zero():
    p = tangrad.full((3,), 0.5, requires_grad=True)
    drawn = tangrad.bernoulli(p, generator=tangrad.Generator().manual_seed(0))
    drawn.sum().backward()
    assert p.grad.tolist() == [0, 0, 0]


def test_zeta_of_an_infinite_exponent_is_its_first_term(agree):
    agree(lambda t: t.special.zeta(t.tensor([t.inf, t.inf]), t.tensor([1.0, 0.5])))
    assert tangrad.special.zeta(tangrad.tensor(tangrad.inf), 2.0) == 0


def test_zeta_far_below_zero_is_finite_where_torch_sums_as_many_terms(agree):
    x = [-0.1, -1e-30, -3.25, -2999.99, -2500.25]
    for s in (2.0, 3.0, 5.0, 60.0):
        agree(lambda t, s=s: t.special.zeta(s, t.tensor(x, dtype=t.float64)), tolerance=1e-14)
    agree(lambda t: t.special.polygamma(4, t.tensor(x, dtype=t.float64)), tolerance=1e-14)
    # Of half a number the terms cancel but for the last ones.
    half = tangrad.tensor([-3.5, 4.5], dtype=tangrad.float64)
    assert tangrad.special.zeta(5.0, half).diff() == 0


@pytest.mark.parametrize("right", [tangrad.Tensor, tangrad.nn.Parameter, np.ndarray])
def test_a_class_is_no_operand_though_its_instances_are(right):
    x = tangrad.ones(2)
    for operate in (operator.add, operator.matmul, operator.lt, operator.iadd):
        for pair in ((x, right), (right, x)):
            with pytest.raises(TypeError):
                operate(*pair)
    with pytest.raises(TypeError, match="gradient|unsupported operand"):
        tangrad.gradient(tangrad.ones(3, 3), spacing=right)
    with pytest.raises(TypeError, match="mul"):
        tangrad.mul(x, np.float32)
    assert x != right


@pytest.mark.parametrize("kind", [tangrad.Tensor, tangrad.nn.Parameter, np.ndarray, np.float32])
def test_a_class_is_no_data_nor_index(kind):
    x = tangrad.ones(2)
    for make in (tangrad.tensor, tangrad.as_tensor, lambda k: tangrad.tensor([k])):
        with pytest.raises(RuntimeError, match="Could not infer dtype of"):
            make(kind)
    with pytest.raises(IndexError, match="valid indices"):
        x[kind]
    with pytest.raises(TypeError, match="can't assign a"):
        x[0] = kind


def test_a_tensor_of_another_library_becomes_one_of_ours():
    torch = pytest.importorskip("torch")
    theirs = torch.tensor([1.0, 2.0])
    copied, shared = tangrad.tensor(theirs), tangrad.as_tensor(theirs)
    theirs[0] = 3
    assert type(copied) is type(shared) is tangrad.Tensor
    assert copied.tolist() == [1, 2]
    assert shared.tolist() == [3, 2]
    assert tangrad.as_tensor(theirs, dtype=tangrad.int64).tolist() == [3, 2]


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"])
def test_sizes_that_do_not_fit_are_told_in_the_name_of_the_loss(name):
    loss = getattr(tangrad.nn.functional, name)
    with pytest.raises(RuntimeError, match=rf"{name}: .*\[2, 3\] and target \[4\]"):
        loss(tangrad.ones(2, 3), tangrad.ones(4))


@pytest.mark.parametrize("rows", ["int64", "int32", "int16", "uint8"])
@pytest.mark.parametrize("offsets", ["int64", "int32", "int16", "bool", "float32"])
def test_bags_take_two_integer_types_that_meet_in_one_for_indices(agree, rows, offsets):
    def run(t):
        index = t.tensor([0, 1, 1], dtype=getattr(t, rows))
        starts = t.tensor([0, 1], dtype=getattr(t, offsets))
        table = t.arange(6.0).reshape(3, 2)
        return t.nn.functional.embedding_bag(index, table, starts)

    agree(run, message=False)


def test_a_grid_of_positions_keeps_nothing_that_backward_frees(agree):
    def run(t, size, align):
        theta = t.ones(2, len(size) - 2, len(size) - 1, requires_grad=True)
        total = t.nn.functional.affine_grid(theta, size, align_corners=align).square().sum(-1)
        grid = t.nn.functional.affine_grid(theta, size, align_corners=align).sum()
        grid.backward()
        grid.backward()
        (g,) = t.autograd.grad(total.sum(), theta, create_graph=True)
        return theta.grad, t.autograd.grad(g.square().sum(), theta)

    agree(lambda t: (run(t, (2, 1, 2, 3), False), run(t, (2, 1, 2, 3, 4), True)))


def test_triangles_take_no_memory_for_what_lies_outside():
    assert tangrad.tril_indices(2, 2**40, 1).tolist() == [[0, 0, 1, 1, 1], [0, 1, 0, 1, 2]]
    assert tangrad.triu_indices(2**40, 3, 1).tolist() == [[0, 0, 1], [1, 2, 2]]
    assert tangrad.tril_indices(5, 2**40, -7).shape == (2, 0)


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_places_of_a_triangle_have_a_shape_without_data(agree, name):
    for arguments in itertools.product((0, 1, 3), (0, 2, 5), (-4, -1, 0, 1, 3, 9)):
        agree(lambda t, a=arguments: tuple(getattr(t, name)(*a, device="meta").shape))
        agree(lambda t, a=arguments: getattr(t, name)(*a, dtype=t.int32))
    agree(lambda t: getattr(t, name)(2, 2, dtype=t.float32), message=False)


def test_a_histogram_of_a_range_that_overflows_counts_all():
    for dtype, most in ((tangrad.float16, 6e4), (tangrad.float32, 3e38), (tangrad.float64, 1e308)):
        x = tangrad.tensor([-most, 0, 0, most], dtype=dtype)
        assert tangrad.histc(x, 3).tolist() == [1, 2, 1]
        assert tangrad.histc(x.abs(), 100, 0, most)[-1] == 2


def test_matrices_of_two_dtypes_are_not_subtracted_to_factor_them():
    with pytest.raises(RuntimeError, match="svd_lowrank: .*float32 and .*float64"):
        tangrad.svd_lowrank(tangrad.ones(2, 2), M=tangrad.ones(2, 2, dtype=tangrad.float64))


@pytest.mark.parametrize("number", [3, 2.5, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_a_number_is_copied_as_a_tensor_would_be(agree, number, dtype):
    agree(lambda t: t.zeros(2, 3, dtype=getattr(t, dtype)).copy_(number).float())

    def gradient(t):
        x = t.ones(2, requires_grad=True)
        (x * 2).copy_(number).sum().backward()
        return x.grad

    agree(gradient)


def test_each_element_is_drawn_with_its_own_probability(agree):
    sure = [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    for dtype in ("float32", "int64", "bool"):
        agree(
            lambda t, d=dtype: (
                t.zeros(2, 3, dtype=getattr(t, d)).bernoulli_(t.tensor(sure)).float(),
                t.zeros(2, 3, dtype=getattr(t, d)).bernoulli_(p=t.tensor(sure[0])).float(),
            )
        )
    half = tangrad.zeros(10_000).bernoulli_(tangrad.full((10_000,), 0.25))
    assert abs(half.mean().item() - 0.25) < 0.03


def test_a_message_names_the_op_that_was_called():
    two, three = tangrad.ones(2), tangrad.ones(3)
    with pytest.raises(RuntimeError, match=r"\(ldexp of"):
        tangrad.ldexp(two, three)
    for name in ("var", "std_mean", "max", "median", "unsqueeze", "unbind"):
        with pytest.raises(IndexError, match=f"^{name}: Dimension out of range"):
            getattr(tangrad, name)(two, 3)
    with pytest.raises(
        RuntimeError, match="^var: repeated dim in `dim`: dim 0 appears multiple times"
    ):
        two.var((0, 0))


def test_results_without_names_in_pytorch_are_plain_tuples():
    x = tangrad.ones(3, 3)
    results = [
        tangrad.var_mean(x),
        tangrad.std_mean(x, 0),
        tangrad.svd_lowrank(x),
        tangrad.pca_lowrank(x, 2),
        tangrad.native_layer_norm(x, (3,), None, None, 1e-5),
    ]
    assert all(type(result) is tuple for result in results)


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_huber_loss_of_bfloat16_has_the_last_bits_of_pytorch(agree, width):
    values = np.linspace(-3, 3, 400)

    def program(t):
        x = t.tensor(values).to(t.bfloat16)
        y = t.tensor(values[::-1].copy() / 3).to(t.bfloat16)
        return t.nn.functional.huber_loss(x, y, reduction="none", delta=width).float()

    agree(program, tolerance=0)


def test_index_add_takes_no_vector_for_a_number(agree):
    for shape, source in (((), (3,)), ((), (1,)), ((1,), ()), ((3,), ())):

        def program(t, shape=shape, source=source):
            index = t.zeros(source or (1,), dtype=t.int64)
            return t.zeros(shape).index_add_(0, index, t.ones(source))

        agree(program, message=False)


def test_vectors_of_nothing_are_joined_along_any_dimension(agree):
    agree(lambda t: [t.cat([t.empty(0)] * n, dim) for n in (1, 2) for dim in (0, 1, 5, -2)])
    agree(lambda t: t.cat([t.empty(0), t.ones(2, 3)], 2), message=False)
    agree(lambda t: t.stack([t.empty(0)], 2), message=False)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float64", "float16", "int64"])
def test_a_modulus_is_written_into_what_it_is_cast_to(agree, dtype):
    def program(t):
        written = t.empty(2, dtype=getattr(t, dtype))
        return t.abs(t.tensor([3 + 4j, -2j]), out=written).to(t.complex64)

    agree(program, message=False)


@pytest.mark.parametrize("width", [0.3, 0.7, 1.3, 3.7])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_losses_of_halves_are_rounded_in_every_step(agree, name, dtype, width):
    def program(t):
        x = (t.arange(4000) * 0.0037 - 7).sin().mul(3).to(getattr(t, dtype))
        y = (t.arange(4000) * 0.0053 + 2).cos().mul(2).to(getattr(t, dtype))
        loss = getattr(t.nn.functional, name)
        return loss(x, y, reduction="none", **{WIDTHS[name]: width}).float()

    agree(program, tolerance=0)


WIDTHS = {"huber_loss": "delta", "smooth_l1_loss": "beta"}


@pytest.mark.usefixtures("mt19937")
@pytest.mark.parametrize(
    "given",
    [
        ((), {}),
        ((5,), {}),
        ((), {"to": 2}),
        ((5, 9), {}),
        ((5, None), {}),
        ((-5, None), {}),
        ((), {"from": 3, "to": 7}),
        ((None,), {}),
        ((None, 3), {}),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "bfloat16"])
def test_random_integers_range_from_a_start_to_an_end(agree, given, dtype):
    def program(t):
        t.manual_seed(0)
        return t.zeros(9, dtype=getattr(t, dtype)).random_(*given[0], **given[1]).double()

    agree(program, tolerance=0, message=False)


@pytest.mark.parametrize("alpha", [2.0, 2.5, -1.5, 0.25, True, 3])
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "float32"])
def test_index_add_cuts_a_fraction_of_alpha_off_for_integers(dtype, alpha):
    torch = pytest.importorskip("torch")

    def added(t, **options):
        kind = getattr(t, dtype)
        x, source = (t.tensor(v, **options).to(kind) for v in ([[1, 0], [0, 1]], [[3, 0], [2, 1]]))
        index = t.tensor([1, 1], **options)
        plain = x.index_add(0, index, source, alpha=alpha).tolist()
        several = (t.vmap if t is torch else tangrad.vmap)(
            lambda a, b: a.index_add(0, index, b, alpha=alpha)
        )(x, source)
        return plain, several.tolist()

    wanted = added(torch)
    assert added(tangrad, device="reference") == wanted


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_no_dimension_is_all_of_them(agree, name):
    agree(lambda t: getattr(t.arange(6.0).reshape(2, 3), name)(dim=None, keepdim=True))


@pytest.mark.parametrize("name", ["linspace", "logspace", "arange"])
def test_numbers_are_not_written_into_one_place(name):
    steps = () if name == "arange" else (3,)
    with pytest.raises(RuntimeError, match="single memory location"):
        getattr(tangrad, name)(0.0, 3.0, *steps, out=tangrad.zeros(1).expand(3))


@pytest.mark.parametrize("mixed", ["end", "weight"])
def test_lerp_is_between_tensors_of_one_dtype(mixed):
    given = {name: tangrad.ones(2) for name in ("end", "weight")}
    given[mixed] = given[mixed].double()
    with pytest.raises(RuntimeError, match=f"for `{mixed}` but got dtype"):
        tangrad.lerp(tangrad.ones(2), *given.values())
    number = tangrad.tensor(0.5, dtype=tangrad.float64)
    assert tangrad.lerp(tangrad.zeros(2), tangrad.ones(2), number).tolist() == [0.5, 0.5]


def test_places_are_written_as_int64():
    for lib in (tangrad, __import__("torch")):
        with pytest.raises(RuntimeError, match="scalar type Long"):
            lib.nonzero(lib.ones(2), out=lib.empty(0))


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.diff(t.ones(2, 3), dim=0, prepend=t.ones(3)),
        lambda t: t.diff(t.ones(2, 3), dim=-1, append=t.ones(3, 1)),
        lambda t: t.gradient(t.ones(2, 2), spacing=(t.ones(2),)),
    ],
)
def test_what_does_not_fit_is_refused_in_words_that_programs_know(call):
    for lib in (tangrad, __import__("torch")):
        with pytest.raises(RuntimeError, match="prepend or append to|expected spacing to be"):
            call(lib)


def test_old_forms_are_told_of_each_time_where_warnings_are_wanted():
    for lib in (tangrad, __import__("torch")):
        before = lib.is_warn_always_enabled()
        lib.set_warn_always(True)
        try:
            for _ in range(2):
                with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
                    lib.addcmul(lib.ones(2), 2, lib.ones(2), lib.ones(2))
        finally:
            lib.set_warn_always(before)


@pytest.mark.parametrize(
    ("dtype", "kind", "text"),
    [
        ("int64", TypeError, "only integer tensors of a single element can be converted"),
        ("float32", ValueError, "only one element tensors can be converted to Python scalars"),
    ],
)
def test_tensors_of_several_elements_are_no_numbers_of_another(dtype, kind, text):
    torch = pytest.importorskip("torch")
    for library in (torch, tangrad):
        x = library.ones(2, dtype=getattr(library, dtype))
        with pytest.raises(kind, match=text):
            library.tensor([x, x])

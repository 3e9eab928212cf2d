"""Dropouts in fused groups: eager's numbers to the bit, forward and backward, at all sizes."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn

pytest.importorskip("tangrad_cpu", reason="groups are of compiled kernels")

from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() is None, reason="no kernels for this processor")

SHAPES = [(5,), (3, 4), (7, 33), (2, 3, 5), (64, 130), (300, 1001)]


def compiled(function, **options):
    return tangrad.compile(function, fullgraph=True, options={"measure": False}, **options)


def seeded(function, *args):
    tangrad.manual_seed(7)
    return function(*args)


def residual(x, y, p):
    return nn.functional.dropout(x.tanh() * 2 + y, p) + x


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 0.123])
def test_a_dropout_among_pointwise_ops_has_eager_s_bits(dtype, p):
    for shape in SHAPES:
        x, y = tangrad.randn(*shape).to(dtype), tangrad.randn(*shape).to(dtype)
        fast = compiled(lambda x, y: residual(x, y, p))
        for _ in range(3):
            assert tangrad.equal(seeded(fast, x, y), seeded(residual, x, y, p)), shape


def test_it_is_one_kernel_whose_draw_makes_nothing_else_wait():
    fast, x = compiled(lambda x: residual(x, x, 0.1)), tangrad.randn(6, 7)
    fast(x)
    told = str(tangrad.compile.explain(fast, x))
    assert "1 dropouts are pointwise" in told
    assert "tanh mul add_plain dropout_mask_scale add_plain" in told


def test_a_share_that_eager_scales_by_another_number_stays_a_dropout():
    fast, x = compiled(lambda x: residual(x, x, 0.9)), tangrad.randn(6, 7)
    fast(x)
    assert "are pointwise" not in str(tangrad.compile.explain(fast, x))


def test_the_generator_goes_on_as_in_eager_and_large_seeds_keep_their_bits():
    def two(x):
        return nn.functional.dropout(x * 2, 0.5) + nn.functional.dropout(x * 3, 0.5) * 2

    fast, x = compiled(two), tangrad.randn(9, 11)
    for seed in (0, 2**53 + 1, 2**63 + 12345, -3):
        tangrad.manual_seed(seed)
        found = [fast(x) for _ in range(3)]
        tangrad.manual_seed(seed)
        assert all(tangrad.equal(a, two(x)) for a in found)


def test_training_with_dropout_is_eager_s():
    def trained(wrap):
        tangrad.manual_seed(3)
        model = nn.Sequential(
            nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 16), nn.GELU(),
            nn.Dropout(0.1), nn.Linear(16, 3),
        )  # fmt: skip
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
        x, y = tangrad.randn(10, 6), tangrad.arange(10) % 3

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        return [run().item() for _ in range(5)], [p.detach().clone() for p in model.parameters()]

    losses, weights = trained(compiled)
    wanted, others = trained(lambda step: step)
    assert losses == wanted
    assert all(tangrad.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_one_graph_serves_other_sizes():
    fast = compiled(lambda x: residual(x, x, 0.1), dynamic=True)
    for rows in (4, 6, 5, 9, 31, 64):
        x = tangrad.randn(rows, 7)
        assert tangrad.equal(seeded(fast, x), seeded(residual, x, x, 0.1))


def test_transposed_operands_are_dropped_in_their_order():
    fast, x = compiled(lambda x: residual(x.t(), x.t(), 0.5)), tangrad.randn(6, 7)
    for _ in range(3):
        assert tangrad.equal(seeded(fast, x), seeded(lambda x: residual(x.t(), x.t(), 0.5), x))


def test_where_the_engine_is_another_the_function_itself_runs():
    def program(x):
        return nn.functional.dropout(x + 1, 0.5) * 2

    x, strict, plain = tangrad.ones(4, 4), compiled(program), tangrad.compile(program)
    strict(x), plain(x)
    tangrad.random.set_engine("mt19937")
    try:
        assert tangrad.equal(seeded(plain, x), seeded(program, x))
        with pytest.raises(RuntimeError, match="mt19937 cannot be drawn by a graph"):
            strict(x)
    finally:
        tangrad.random.set_engine("philox")
    assert tangrad.equal(seeded(plain, x), seeded(program, x))
    assert tangrad.equal(seeded(strict, x), seeded(program, x))


def test_complex_numbers_are_dropped_as_in_eager():
    def f(x):
        return tangrad.nn.functional.dropout(x * 2, 0.5) + 1

    x = tangrad.randn(40, dtype=tangrad.complex64)
    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    for _ in range(3):
        tangrad.manual_seed(3)
        found = fast(x)
    tangrad.manual_seed(3)
    assert tangrad.equal(found, f(x))

"""The counts are PyTorch's, in forward and backward and by module."""

from importlib import import_module

import pytest

import tangrad
from tangrad.utils.flop_counter import FlopCounterMode


def leaf(t, *shape):
    return t.full(shape, 0.5, requires_grad=True)


CALLS = {
    "linear": lambda t: t.nn.functional.linear(leaf(t, 5, 2, 3), leaf(t, 4, 3), leaf(t, 4)),
    "matmul": lambda t: leaf(t, 5, 2, 3) @ leaf(t, 5, 3, 4),
    "addmm": lambda t: t.addmm(leaf(t, 4), leaf(t, 2, 3), leaf(t, 3, 4)),
    "conv2d": lambda t: t.nn.functional.conv2d(
        leaf(t, 2, 4, 8, 8), leaf(t, 6, 4, 3, 3), leaf(t, 6), padding=1, stride=2
    ),
    "conv_transpose2d": lambda t: t.nn.functional.conv_transpose2d(
        leaf(t, 2, 4, 8, 8), leaf(t, 4, 6, 3, 3)
    ),
    "none": lambda t: leaf(t, 3).exp(),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_totals(agree, call, backward):
    def program(t):
        mode = import_module(f"{t.__name__}.utils.flop_counter").FlopCounterMode(display=False)
        with mode:
            result = CALLS[call](t)
            if backward:
                result.sum().backward()
        return mode.get_total_flops()

    agree(program)


def test_modules(agree):
    def program(t):
        mode = import_module(f"{t.__name__}.utils.flop_counter").FlopCounterMode(display=False)
        nn = t.nn
        model = nn.Sequential(
            nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 5)), nn.Linear(5, 2)
        )
        with mode:
            model(t.ones(2, 3)).sum().backward()
        # The modules are kept in sets, whose order is not the same in every process.
        return sorted(
            (name, sum(counts.values())) for name, counts in mode.get_flop_counts().items()
        )

    agree(program)


def test_a_formula_of_ones_own_and_the_table(capsys):
    with FlopCounterMode(custom_mapping={"exp2": lambda shape, out_shape: 10 * shape[0]}) as mode:
        tangrad.exp2(tangrad.ones(3))
    assert mode.get_total_flops() == 30
    assert "exp2" in capsys.readouterr().out
    tangrad.exp2(tangrad.ones(3))
    assert mode.get_total_flops() == 30


def test_attention_counts_its_products_which_torch_leaves_out_on_the_host():
    query, key = leaf(tangrad, 2, 4, 6, 8), leaf(tangrad, 2, 4, 5, 8)
    product = 2 * 2 * 4 * 6 * 5 * 8
    with FlopCounterMode(display=False) as mode:
        result = tangrad.nn.functional.scaled_dot_product_attention(query, key, key)
        assert mode.get_total_flops() == 2 * product
        result.sum().backward()
    assert mode.get_total_flops() == (2 + 5) * product

"""Tensors that scripts print or put into texts look as in PyTorch's scripts."""

import math

import pytest
import torch

import tangrad


def cases(side):
    """Return tensors of all the forms that there are."""
    t = side.tensor
    return [
        *(t(1), t(1.5), t(True), t(0.1), t(1e-10), t(1e16), t(math.nan), t(-0.0), t(123456.789)),
        *(t([]), t([0.5, 0.9526, 1e-5]), t([1, 20, -300]), t([1.0, 2.0]), t([1e10, 1.0])),
        *(t([[1.5, 2.0], [3.0, 4.0]]), t([True, False]), t([math.nan, 1.0]), t([1.5, math.inf])),
        *(t([100000.0, 1.5]), t([1e-8, 1e8]), t([[123456.5, 2e6], [3.5e6, 1e6]]), t([1 + 2j])),
        *(side.zeros(0, 3), side.zeros(2, 0, 3), side.arange(40).reshape(1, 40)),
        *(side.ones(3, 30) * 1.25, side.arange(24.0).reshape(2, 3, 2, 2) * 1000.5),
        *(side.ones(2, dtype=side.bfloat16), side.ones(2, requires_grad=True)),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", range(len(cases(tangrad))))
def test_a_tensor_is_printed_as_in_pytorch(k, capfd):
    def shows(x):
        print(x, 1)
        return f"{x} {[x]}"

    texts = []
    for side in (torch, tangrad):
        given = side.jit.script(shows)(cases(side)[k])
        texts.append((given, capfd.readouterr().out))
    assert texts[0] == texts[1]

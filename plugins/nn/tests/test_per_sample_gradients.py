"""Gradients of each sample, beside those of batches of one and beside PyTorch's."""

from __future__ import annotations

import importlib

import pytest

import tangrad
from tangrad import nn
from tangrad.nn.utils._per_sample_grad import call_for_per_sample_grads


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_they_are_pytorchs(agree, reduction):
    def program(t):
        call = importlib.import_module(f"{t.__name__}.nn.utils._per_sample_grad")
        net = t.nn.Sequential(
            t.nn.Conv2d(2, 3, 3, padding=1), t.nn.GroupNorm(3, 3), t.nn.ReLU(), t.nn.Flatten(),
            t.nn.Linear(48, 2),
        )  # fmt: skip
        for parameter in net.parameters():
            count = t.arange(parameter.numel(), dtype=t.float32)
            parameter.data = count.sin().reshape(parameter.shape)
        x = t.arange(96.0).cos().reshape(3, 2, 4, 4).requires_grad_()
        given = call.call_for_per_sample_grads(net, loss_reduction=reduction)
        y = given(x)
        getattr(y.pow(2), reduction)().backward()
        assert all(p.grad is None for p in net.parameters())
        return [y, x.grad, *[p.grad_sample for p in net.parameters()]]

    agree(program, tolerance=1e-4)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, padding_idx=0)
        self.norm = nn.LayerNorm(4)
        self.fixed = nn.Linear(4, 2).requires_grad_(False)

    def forward(self, index, *, factor):
        return {"scores": self.fixed(self.norm(self.table(index))).sum(1) * factor}


def test_they_are_those_of_batches_of_one():
    tangrad.manual_seed(0)
    model, index = Words(), tangrad.tensor([[1, 2, 0], [3, 3, 4]])
    call_for_per_sample_grads(model, batch_size=2)(index, factor=2.0)["scores"].sum().backward()
    for k, name in [(k, name) for k in range(2) for name, _ in model.named_parameters()]:
        parameter = model.get_parameter(name)
        if not parameter.requires_grad:
            assert not hasattr(parameter, "grad_sample")
            continue
        model.zero_grad()
        model(index[k : k + 1], factor=2.0)["scores"].sum().backward()
        tangrad.testing.assert_close(parameter.grad_sample[k], parameter.grad)


def test_wrong_calls_are_refused():
    layer = nn.Linear(2, 2)
    for options, words in [
        ({"loss_reduction": "max"}, "to be sum or mean, got max"),
        ({"batch_size": 0}, "must be positive, got 0"),
        ({"batch_size": 2.0}, "None or an integer, got float"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call_for_per_sample_grads(layer, **options)
    with pytest.raises(RuntimeError, match=r"must be nn\.Module, got int"):
        call_for_per_sample_grads(3)
    with pytest.raises(RuntimeError, match="unable to find a tensor"):
        call_for_per_sample_grads(layer)()
    with pytest.raises(RuntimeError, match="batch size 2 and one with batch size 3"):
        call_for_per_sample_grads(layer)(tangrad.ones(2, 2), tangrad.ones(3, 2))
    call_for_per_sample_grads(layer)(tangrad.ones(2, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="weight has a grad_sample of an earlier call"):
        call_for_per_sample_grads(layer)

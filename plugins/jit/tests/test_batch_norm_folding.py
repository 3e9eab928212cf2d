"""Batch norm with constant statistics goes into the layer before it, if that may have one."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_graphs import names, recorded

import tangrad
from tangrad import nn
from tangrad.plugin import find_op
from tangrad_jit.graph import verify
from tangrad_jit.passes.batch_norm_folding import fold_batch_norm
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.run.interpreter import interpret


def trained(norm: Any) -> Any:
    """Return a norm whose statistics and parameters are no zeros and ones."""
    with tangrad.no_grad():
        norm.running_mean.copy_(tangrad.randn(norm.running_mean.shape))
        norm.running_var.copy_(tangrad.rand(norm.running_var.shape) + 0.5)
        if norm.affine:
            norm.weight.copy_(tangrad.randn(norm.weight.shape))
            norm.bias.copy_(tangrad.randn(norm.bias.shape))
    return norm


class Added(nn.Module):
    """A convolution, something added in a shape, and a norm."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3, bias=False)
        self.norm = trained(nn.BatchNorm2d(5))
        self.weight = nn.Parameter(tangrad.randn(shape).reshape(-1))
        self.shape = shape

    def forward(self, x: Any) -> Any:
        return self.norm(self.layer(x) + self.weight.view(self.shape))


class Shown(nn.Module):
    """A norm whose source has another user."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Conv2d(3, 5, 3), trained(nn.BatchNorm2d(5))

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return self.norm(y) + y


IMAGE = (2, 3, 7, 7)
FOLDED: dict[str, tuple[Any, tuple[int, ...]]] = {
    f"{name}{' with bias' * bias}": (lambda make=make, bias=bias: make(bias), shape)
    for bias in (False, True)
    for name, make, shape in (
        ("conv1d", lambda b: nn.Sequential(nn.Conv1d(3, 5, 3, bias=b), nn.BatchNorm1d(5)),
         (2, 3, 7)),
        ("conv2d", lambda b: nn.Sequential(nn.Conv2d(3, 5, 3, bias=b), nn.BatchNorm2d(5)), IMAGE),
        ("groups", lambda b: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3, bias=b), nn.BatchNorm2d(6)),
         IMAGE),
        ("conv3d", lambda b: nn.Sequential(nn.Conv3d(3, 5, 2, bias=b), nn.BatchNorm3d(5)),
         (2, 3, 4, 4, 4)),
        ("linear", lambda b: nn.Sequential(nn.Linear(3, 5, bias=b), nn.BatchNorm1d(5)), (4, 3)),
        ("plain", lambda b: nn.Sequential(nn.Conv2d(3, 5, 3, bias=b),
                                          nn.BatchNorm2d(5, affine=False)), IMAGE),
    )
}  # fmt: skip
FOLDED["added to channels"] = (lambda: Added(5, 1, 1), IMAGE)
FOLDED["added to all"] = (lambda: Added(1, 1, 1, 1), IMAGE)
KEPT: dict[str, tuple[Any, tuple[int, ...]]] = {
    "added along the width": (lambda: Added(1, 1, 1, 5), IMAGE),
    "added along the height": (lambda: Added(5, 1), IMAGE),
    "another user": (Shown, IMAGE),
    "rows of rows": (lambda: nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(4)), (2, 4, 3)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 5, 3), nn.BatchNorm2d(5)), IMAGE),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, track_running_stats=False)),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", [*FOLDED, *KEPT])
def test_a_frozen_network_computes_what_it_did(name: str) -> None:
    tangrad.manual_seed(0)
    make, shape = {**FOLDED, **KEPT}[name]
    net = make().eval()
    for module in net.modules():
        if getattr(module, "running_mean", None) is not None:
            trained(module)
    x = tangrad.randn(shape)
    frozen = tangrad.jit.freeze(tangrad.jit.trace(net, x))
    names = {node.name for node in frozen.methods["forward"].graph.nodes}
    assert ("_batch_norm" in names) == (name in KEPT)
    # The sum is rounded elsewhere.
    assert tangrad.allclose(frozen(x), net(x), rtol=1e-5, atol=1e-5)


def test_a_convolution_that_adds_its_bias_itself_takes_the_norm() -> None:
    """On devices that have kernels of it, it is one op."""
    tangrad.manual_seed(0)
    biased = find_op("convolution_biased")
    norm = trained(nn.BatchNorm2d(5)).eval()
    weight, bias, x = tangrad.randn(5, 3, 3, 3), tangrad.randn(5), tangrad.randn(IMAGE)

    def f(x: Any) -> Any:
        return norm(biased(x, weight, bias, [1, 1], [0, 0], [1, 1], 1))

    with tangrad.no_grad():
        graph, wanted = recorded(f, x), f(x)
    assert fold_batch_norm(graph) == 1
    remove_dead_code(graph)
    verify(graph)
    assert names(graph) == ["convolution_biased"]
    extra = [entry.tensor for entry in graph.inputs[1:]]
    assert tangrad.allclose(interpret(graph, [x, *extra])[0], wanted, rtol=1e-5, atol=1e-5)

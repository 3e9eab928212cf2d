"""`functorch`, PyTorch's older package: stateless modules as functions."""

from __future__ import annotations

from typing import Any

import functorch as theirs
import pytest
import torch

import tangrad
from tangrad.compat import functorch as ours

pytestmark = [
    pytest.mark.filterwarnings("ignore:We.ve integrated functorch:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`functorch.* is deprecated:FutureWarning"),
]
BOTH = [(tangrad, ours), (torch, theirs)]


def network(framework: Any, norm: bool = False) -> Any:
    """Make a small network with given weights."""
    nn = framework.nn
    net = nn.Sequential(nn.Linear(2, 3), *([nn.BatchNorm1d(3)] if norm else []), nn.Linear(3, 1))
    with framework.no_grad():
        for k, parameter in enumerate(net.parameters()):
            parameter.copy_(framework.arange(parameter.numel()).reshape(parameter.shape) * 0.1 + k)
    return net


def test_a_module_becomes_a_function_of_its_parameters() -> None:
    found = []
    for framework, package in BOTH:
        function, params = package.make_functional(network(framework))
        x = framework.ones(4, 2)
        gradients = package.grad(lambda p, f=function, x=x: f(p, x).sum())(params)
        found.append([g.tolist() for g in gradients])
    assert found[0] == found[1]


def test_buffers_are_arguments_too_and_are_written() -> None:
    found = []
    for framework, package in BOTH:
        function, params, buffers = package.make_functional_with_buffers(network(framework, True))
        function(params, buffers, framework.arange(8.0).reshape(4, 2))
        found.append([n for b in buffers for n in b.flatten().tolist()])
    assert found[0] == pytest.approx(found[1])


def test_an_ensemble_is_one_call() -> None:
    found = []
    for framework, package in BOTH:
        models = [network(framework, True).eval() for _ in range(3)]
        function, params, buffers = package.combine_state_for_ensemble(models)
        x = framework.ones(4, 2)
        out = package.vmap(function, in_dims=(0, 0, None))(params, buffers, x)
        found.append(out.detach().flatten().tolist())
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("package", [ours, theirs], ids=["tangrad", "torch"])
def test_what_does_not_fit_is_refused(package: Any) -> None:
    framework = tangrad if package is ours else torch
    with pytest.raises(RuntimeError, match="has buffers"):
        package.make_functional(network(framework, True))
    with pytest.raises(RuntimeError, match="at least one model"):
        package.combine_state_for_ensemble([])
    with pytest.raises(RuntimeError, match="same class"):
        package.combine_state_for_ensemble([network(framework), framework.nn.Linear(2, 1)])


@pytest.mark.parametrize(("dim", "chunks"), [(0, 1), (0, 2), (1, 3), (0, 9)])
def test_a_batch_is_computed_in_chunks(dim: int, chunks: int) -> None:
    from functorch.experimental import chunk_vmap as expected

    from tangrad.compat.functorch.experimental import chunk_vmap

    found = []
    for framework, chunked in ((tangrad, chunk_vmap), (torch, expected)):
        x, seen = framework.arange(20.0).reshape(5, 4), []
        function = chunked(lambda v, s=seen: (s.append(1), v.exp().sum())[1], dim, chunks=chunks)
        found.append((function(x).tolist(), len(seen)))
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][1] == found[1][1]


def test_chunks_are_at_least_one() -> None:
    from tangrad.compat.functorch.experimental import chunk_vmap

    with pytest.raises(ValueError, match="at least 1"):
        chunk_vmap(tangrad.sin, chunks=0)


@pytest.mark.parametrize("name", ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "vmap"])
def test_names_of_func_tell_where_they_are(name: str) -> None:
    place = "vmap" if name == "vmap" else f"func.{name}"
    for package, framework in ((ours, tangrad), (theirs, torch)):
        with pytest.warns(FutureWarning, match=f"Please use `torch.{place}`"):
            getattr(package, name)(framework.sin)


def test_parameters_with_several_names_are_given_once() -> None:
    found = []
    for framework, package in BOTH:
        net = network(framework)
        net.append(framework.nn.Linear(1, 1))
        net[2].weight = framework.nn.Parameter(framework.full((1, 1), 2.0))
        net.append(framework.nn.Linear(1, 1))
        net[3].weight, net[3].bias = net[2].weight, net[2].bias
        net[2].register_buffer("first", framework.ones(1))
        net.register_buffer("second", net[2].first)
        with framework.no_grad():
            net[2].bias.fill_(1.0)
        function, params, buffers = package.make_functional_with_buffers(net)
        found.append((len(params), len(buffers), function(params, buffers, framework.ones(1, 2))))
    assert found[0][:2] == found[1][:2] == (6, 1)
    assert found[0][2].item() == pytest.approx(found[1][2].item())

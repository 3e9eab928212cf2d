"""Optimizers that update all parameters with one op, and the ops on lists behind them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import tangrad

SHAPES = [(3, 4), (5,), (), (2, 1, 3)]
STEPS = 20


def trajectory(library: Any, kind: str, options: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the parameters after each of some steps on a fixed function, and the optimizer."""
    random = np.random.default_rng(3)
    params = [
        library.tensor(random.standard_normal(shape).tolist(), dtype=library.float64)
        for shape in SHAPES
    ]
    for param in params:
        param.requires_grad_()
    optimizer = getattr(library.optim, kind)(params, lr=0.05, **options)
    seen = []
    for step in range(STEPS):
        optimizer.zero_grad()
        # The last parameter has no gradient at first, and the second now and then.
        for i, param in enumerate(params):
            if (i != 3 or step > 4) and (i != 1 or step % 3):
                param.grad = param.detach() * 2 - 0.6
        optimizer.step()
        seen.append([np.array(p.detach().tolist()) for p in params])
    return seen, optimizer


def options_of(kind: str) -> list[dict[str, Any]]:
    flags: dict[str, list[Any]] = {"maximize": [False, True], "weight_decay": [0.0, 0.1]}
    if kind == "SGD":
        flags |= {"momentum": [0.0, 0.9], "dampening": [0.0, 0.3], "nesterov": [False, True]}
    else:
        flags |= {"amsgrad": [False, True]}
    found = [dict(zip(flags, values, strict=True)) for values in itertools.product(*flags.values())]
    return [o for o in found if not o.get("nesterov") or (o["momentum"] and not o["dampening"])]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}, {"foreach": False}])
def test_trajectories_are_those_of_torch(kind: str, how: dict[str, Any]) -> None:
    for options in options_of(kind):
        ours, _ = trajectory(tangrad, kind, {**options, **how})
        theirs, _ = trajectory(torch, kind, options)
        for a, b in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
            assert np.allclose(a, b, rtol=1e-11, atol=1e-13), (kind, options, how)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_ways_of_updating_give_the_same_bits(kind: str) -> None:
    for options in options_of(kind):
        sides = [
            trajectory(tangrad, kind, {**options, **how})[0] for how in ({}, {"foreach": False})
        ]
        for a, b in zip(itertools.chain(*sides[0]), itertools.chain(*sides[1]), strict=True):
            assert (a == b).all(), (kind, options)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_state_has_the_form_of_torchs(kind: str) -> None:
    options: dict[str, Any] = {"momentum": 0.9} if kind == "SGD" else {"amsgrad": True}
    _, ours = trajectory(tangrad, kind, options)
    _, theirs = trajectory(torch, kind, options)
    a, b = ours.state_dict()["state"], theirs.state_dict()["state"]
    assert a.keys() == b.keys()
    for position in a:
        assert list(a[position]) == list(b[position])
        for name, value in a[position].items():
            assert tuple(value.shape) == tuple(b[position][name].shape)
            assert str(value.dtype).rpartition(".")[2] == str(b[position][name].dtype)[6:]
            assert np.allclose(value.tolist(), b[position][name].tolist(), rtol=1e-11)


def test_writing_a_list_raises_the_version_of_every_tensor() -> None:
    x, y = tangrad.ones(2), tangrad.ones(3)
    before = x._version, y._version
    returned = tangrad._foreach_add_([x, y], 1)
    assert returned[0] is x
    assert returned[1] is y
    assert x._version > before[0]
    assert y._version > before[1]


def test_a_saved_tensor_that_a_list_overwrites_is_noticed() -> None:
    x = tangrad.ones(2, requires_grad=True)
    kept = tangrad.ones(2)
    y = (x * kept).sum()
    tangrad._foreach_mul_([kept], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_lists_that_require_grad_are_refused_unless_under_no_grad() -> None:
    leaf = tangrad.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        tangrad._foreach_zero_([leaf])
    with pytest.raises(RuntimeError, match="no derivative"):
        tangrad._foreach_add_([tangrad.ones(2)], [leaf])
    with tangrad.no_grad():
        tangrad._foreach_zero_([leaf])
    assert not bool(leaf.any())


def test_norms_are_recorded() -> None:
    x = tangrad.tensor([3.0, 4.0], requires_grad=True)
    y = tangrad.tensor([1.0], requires_grad=True)
    sum(tangrad._foreach_norm([x, y])).backward()
    assert np.allclose(x.grad.tolist(), [0.6, 0.8])
    assert np.allclose(y.grad.tolist(), [1.0])


def test_lists_are_checked() -> None:
    x = tangrad.ones(2)
    with pytest.raises(TypeError, match="expected Tensor as element 1"):
        tangrad._foreach_zero_([x, 3])
    how = {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1e-8}
    how |= {"amsgrad": False, "maximize": False}
    with pytest.raises(RuntimeError, match="as many tensors in 'exp_avgs'"):
        tangrad._fused_adam_([x], [x], [], [x], [], [tangrad.tensor(1.0)], **how)
    with pytest.raises(RuntimeError, match="one shape"):
        tangrad._fused_adam_(
            [x], [tangrad.ones(3)], [x.clone()], [x.clone()], [], [tangrad.tensor(1.0)], **how
        )
    with pytest.raises(RuntimeError, match="state_steps"):
        tangrad._fused_adam_([x], [x.clone()], [x.clone()], [x.clone()], [], [], **how)


def test_scaled_gradients_are_divided_and_written() -> None:
    x, g = tangrad.ones(3), tangrad.full((3,), 8.0)
    how = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.5, "dampening": 0.0, "nesterov": False}
    how |= {"maximize": False, "is_first_step": False, "grad_scale": tangrad.tensor(4.0)}
    tangrad._fused_sgd_([x], [g], [], **how)
    assert g.tolist() == [2.0] * 3
    assert x.tolist() == [0.0] * 3
    tangrad._fused_sgd_([x], [g], [], **how, found_inf=tangrad.tensor(1.0))
    assert g.tolist() == [2.0] * 3
    assert x.tolist() == [0.0] * 3


def test_vmap_takes_lists_one_tensor_after_the_other() -> None:
    def scaled(x: Any) -> Any:
        y = x * 1.0
        tangrad._foreach_mul_([y], 3.0)
        return y

    assert tangrad.func.vmap(scaled)(tangrad.ones(2, 3)).tolist() == [[3.0] * 3] * 2


def test_clipping_is_that_of_torch() -> None:
    sides = []
    for library in (tangrad, torch):
        params = [library.ones(shape) for shape in SHAPES]
        for i, param in enumerate(params[:3]):
            param.grad = library.full(SHAPES[i], float(i + 1))
        total = library.nn.utils.clip_grad_norm_(params, 1.5)
        sides.append([total.tolist(), *[p.grad.tolist() for p in params[:3]]])
    for a, b in zip(*sides, strict=True):
        assert np.allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("key", ["step", "exp_avg", "exp_avg_sq"])
def test_state_on_another_device_is_refused(name, key):
    parameter = tangrad.nn.Parameter(tangrad.ones(3))
    parameter.grad = tangrad.ones(3)
    optimizer = getattr(tangrad.optim, name)([parameter])
    optimizer.step()
    before = parameter.tolist()
    state = optimizer.state[parameter]
    state[key] = state[key].to("meta")
    with pytest.raises((RuntimeError, NotImplementedError), match="device|meta"):
        optimizer.step()
    assert parameter.tolist() == before


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "SGD"])
def test_steps_are_counted_on_the_host_whatever_the_default_device(name):
    found = []
    for device in ("cpu", "meta", "reference"):
        parameter = tangrad.nn.Parameter(tangrad.ones(3, device="cpu"))
        with tangrad.device(device):
            optimizer = getattr(tangrad.optim, name)([parameter], lr=0.1)
            for _ in range(2):
                parameter.grad = tangrad.ones(3, device="cpu")
                optimizer.step()
        found.append(parameter.tolist())
    assert found[0] == found[1] == found[2]

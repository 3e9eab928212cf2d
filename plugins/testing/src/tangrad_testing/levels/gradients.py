"""Level 3: first and second derivatives on the device against those on the reference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import tangrad
from tangrad_testing.calls import (
    REFUSALS,
    describe,
    detached,
    is_differentiable_dtype,
    normal_like,
    rebuild,
    tangrad_arguments,
    tangrad_tensor_on,
    tensors_in,
)
from tangrad_testing.cases import Case, may_have_derivative
from tangrad_testing.closeness import dtype_name
from tangrad_testing.levels import differences
from tangrad_testing.levels.check import (
    Check,
    Device,
    NotApplicable,
    collected,
    expect,
    expect_close,
)
from tangrad_testing.levels.kernels import everyday, of_third_parties, own_kernels

check, PLAIN = collected(3)

PREFERRED = ("float32", "float64")
SLACK = {1: 20.0, 2: 200.0}


def checks(device: Device) -> Iterator[Check]:
    """Yield a check for each op with a kernel, and for what everybody differentiates."""
    if device.driver.meta:
        return
    chosen = {op: floating(dtypes) for op, dtypes in own_kernels(device).items()}
    for op in device.ops or everyday(device):
        chosen.setdefault(op, "float32")
    for op, dtype in chosen.items():
        if dtype is not None:
            says = f"first and second derivatives of {op} are those on the reference"
            yield Check(3, f"{op}-derivatives", says, partial(check_op, op=op, dtype=dtype))
    for op in device.ops or of_third_parties():
        says = f"the derivatives of {op} are the slopes of what it computes"
        yield Check(3, f"{op}-slopes", says, partial(differences.check_op, op=op))
    if not device.ops:
        yield from PLAIN


def floating(dtypes: list[str]) -> str | None:
    """Return the dtype in which to differentiate."""
    return next((dtype for dtype in PREFERRED if dtype in dtypes), None)


def check_op(device: Device, op: str, dtype: str) -> None:
    """Compare both orders for every sample that can be differentiated."""
    case = Case(op, dtype, device.name)
    if case.definition.samples is None or not may_have_derivative(case):
        raise NotApplicable("it has no samples, writes its arguments or draws")
    if device.name == "reference":
        raise NotApplicable("the reference is what devices are compared with")
    compared = 0
    for sample in case.samples():
        try:
            expected = derivatives(case, sample, "reference")
        except REFUSALS:
            continue
        actual = derivatives(case, sample, device.name)
        expect(f"orders of derivatives of {op}{describe(sample)}", len(actual), len(expected))
        for order, (ours, theirs) in enumerate(zip(actual, expected, strict=True), start=1):
            what = f"{op}{describe(sample)}, derivatives of order {order}"
            expect_close(what, ours, theirs, SLACK[order])
            compared += 1
    if not compared:
        raise NotApplicable("it has no derivative")


def derivatives(case: Case, sample: Any, device: str) -> list[list[Any]]:
    """Return the gradients, and the gradients of their weighted sum, as far as there are any."""
    arguments = tangrad_arguments(sample, device, case.definition)
    given = tensors_in(arguments)
    moved = [detached(t) if is_differentiable_dtype(t) else t for t in given]
    args, kwargs = rebuild(arguments, iter(moved))
    outputs = [t for t in tensors_in(case.call(*args, **kwargs)) if t.requires_grad]
    leaves = [t for t in moved if t.requires_grad]
    if not outputs or not leaves:
        return []
    cotangents = [drawn(t, i, device).requires_grad_() for i, t in enumerate(outputs)]
    first = grad(outputs, leaves, cotangents, create_graph=True)
    found = [first]
    smooth = [(i, g) for i, g in enumerate(first) if g.requires_grad]
    if smooth:
        weights = [drawn(g, 100 + i, device) for i, g in smooth]
        found.append(grad([g for _, g in smooth], [*leaves, *cotangents], weights))
    return [[t.detach() for t in order] for order in found]


def grad(outputs: list[Any], leaves: list[Any], weights: list[Any], **options: Any) -> list[Any]:
    """Return gradients, zeros where there is none."""
    found = tangrad.autograd.grad(outputs, leaves, weights, allow_unused=True, **options)
    return [tangrad.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]


def drawn(like: Any, seed: int, device: str) -> Any:
    """Return a tensor of the shape and dtype of another with numbers of its own."""
    return tangrad_tensor_on(device)(normal_like(like, seed), dtype_name(like))


@check
def a_network_is_trained(device: Device) -> None:
    """A small network has the losses here that it has on the reference."""
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")
    losses = {name: trained(name) for name in (device.name, "reference")}
    for step, (ours, theirs) in enumerate(
        zip(losses[device.name], losses["reference"], strict=True)
    ):
        expect(f"loss after {step} steps", abs(ours - theirs) <= 1e-4 * abs(theirs), True)


def trained(device: str) -> list[float]:
    """Return the losses of some steps of training."""
    from tangrad import nn

    tangrad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 3)).to(device)
    x = tangrad.randn(17, 5, generator=tangrad.Generator().manual_seed(1)).to(device)
    labels = (tangrad.arange(17) % 3).to(device)
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

"""Level 2: tensors that are not contiguous, as results, as operands and as targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import tangrad
from tangrad_testing.calls import REFUSALS, describe, tangrad_tensor_on, tensors_in
from tangrad_testing.cases import Case, has_values, may_have_derivative
from tangrad_testing.levels import extremes
from tangrad_testing.levels.check import (
    Check,
    Device,
    NotApplicable,
    collected,
    expect,
    expect_close,
)
from tangrad_testing.levels.kernels import everyday, own_kernels

check, PLAIN = collected(2)

SHAPE = (5, 13, 7)
DTYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
# What a dtype cannot count to starts anew.
PERIODS = {"bool": 2, "int8": 127, "uint8": 251, "int16": 30011, "float16": 2039}
# The same on an array and on a tensor.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.swapaxes(0, 2),
    "every second row": lambda x: x[::2],
    "every third column from 1": lambda x: x[:, :, 1::3],
    "a row": lambda x: x[3],
    "one column": lambda x: x[:, 2:3],
    "an inner block": lambda x: x[1:4, 2:9, 3:5],
    "an element": lambda x: x[4, 12, 6],
    "none": lambda x: x[2:2],
    "a transposed inner block": lambda x: x[1:4, 5:].swapaxes(1, 2),
}


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of views, then one for each op with a kernel, on strided operands."""
    if device.driver.meta:
        return
    if not device.ops:
        yield from PLAIN
    for op, dtypes in of_ops(device).items():
        says = f"{op} takes operands with any strides, writes in place and to out="
        yield Check(2, f"{op}-strided", says, partial(check_strided, op=op, dtypes=dtypes))
    yield from extremes.checks(device)


def of_ops(device: Device) -> dict[str, list[str]]:
    """Return {op: dtypes} to be run on views."""
    found = dict(own_kernels(device))
    for op in device.ops or everyday(device):
        found.setdefault(op, ["float32"])
    return found


def numbered(dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Return an array whose elements differ as far as the dtype goes."""
    count = int(np.prod(shape))
    values = np.arange(count) % {
        "bool": 2,
        "int8": 127,
        "uint8": 251,
        "int16": 30011,
        "float16": 2039,
    }.get(dtype, count)
    return values.reshape(shape).astype(dtype)


@check
def tensors_come_back(device: Device) -> None:
    """Tensors of every dtype go to the device and come back with their bits."""
    for dtype in DTYPES:
        for size in (0, 1, 63, 64, 65, 4097, 65537):
            array = numbered(dtype, (size,))
            expect(f"{size} {dtype}", device.tensor(array).cpu().numpy(), array)


@check
def views_are_read(device: Device) -> None:
    """Views of every kind come to the host with the elements that NumPy has."""
    array = numbered()
    x = device.tensor(array)
    for name, view in VIEWS.items():
        expect(name, view(x).cpu().numpy(), view(array))
        expect(f"{name}, contiguous", view(x).contiguous().cpu().numpy(), view(array))
        expect(f"{name}, cloned", view(x).clone().cpu().numpy(), view(array))
    wide = x[0, :, :1].expand(4, 13, 7).contiguous()
    expect("expanded", wide.cpu().numpy(), np.broadcast_to(array[0, :, :1], (4, 13, 7)))
    expect("flipped", x.flip(0, 2).cpu().numpy(), array[::-1, :, ::-1])
    expect("a diagonal", x[0].diagonal().cpu().numpy(), np.diagonal(array[0]))


@check
def views_are_written(device: Device) -> None:
    """Writes into views of every kind change those elements of the base, and no others."""
    for name, view in VIEWS.items():
        array, x = numbered(), device.tensor(numbered())
        view(x).fill_(-1.0)
        view_of = view(array)
        if name == "an element":
            array[4, 12, 6] = -1.0
        else:
            view_of[...] = -1.0
        expect(f"{name} filled", x.cpu().numpy(), array)
        if name == "an element":
            continue
        given = numbered("float32", view_of.shape) * 2
        for where in (tangrad.from_numpy(given), device.tensor(given)):
            y, expected = device.tensor(numbered()), numbered()
            view(y).copy_(where)
            view(expected)[...] = given
            expect(f"{name} copied to from {where.device.type}", y.cpu().numpy(), expected)


@check
def views_share_memory(device: Device) -> None:
    """A view sees writes to its base, its base sees writes to it, and versions count them."""
    x = device.tensor(numbered())
    view, before = x[1:3].transpose(0, 1), x._version
    x.mul_(2.0)
    expect("a view after its base was doubled", view.cpu().numpy(),
           (numbered()[1:3] * 2).swapaxes(0, 1))  # fmt: skip
    view.add_(1.0)
    expected = numbered() * 2
    expected[1:3] += 1
    expect("a base after a write to its view", x.cpu().numpy(), expected)
    expect("versions of base and view", (x._version > before, view._version), (True, x._version))


@check
def strided_copies(device: Device) -> None:
    """copy_ between views of different strides on the device moves every element to its place."""
    for shape in ((3, 4), (65, 63), (1, 4097), (4097, 1), (257, 129)):
        array = numbered("float32", shape)
        x = device.tensor(array)
        target = tangrad.zeros(shape[::-1], device=device.name)
        target.copy_(x.t())
        expect(f"{shape} transposed", target.cpu().numpy(), array.T)
        padded = tangrad.zeros(shape[0], shape[1] + 3, device=device.name)
        padded[:, 2:-1].copy_(x)
        expected = np.zeros((shape[0], shape[1] + 3), np.float32)
        expected[:, 2:-1] = array
        expect(f"{shape} into an inner block", padded.cpu().numpy(), expected)


@check
def casts(device: Device) -> None:
    """Casts on the device give what the reference gives, contiguous or not."""
    for source in DTYPES:
        host = tangrad.from_numpy(numbered(source, (7, 9)))
        x = host.to(device.name)
        for target in DTYPES:
            dtype = getattr(tangrad, target)
            if source.startswith("complex") and not target.startswith("complex"):
                continue
            case = f"{source} to {target}"
            expect_close(case, [x.to(dtype)], [host.to("reference").to(dtype)])
            expect_close(
                f"{case}, transposed", [x.t().to(dtype)], [host.to("reference").t().to(dtype)]
            )


@check
def indexing(device: Device) -> None:
    """Reading and writing by integers, slices, masks and index tensors agree with NumPy."""
    array = numbered()
    x = device.tensor(array)
    rows, mask = np.array([4, 0, 2, 2]), numbered() % 3 == 0
    on = device.tensor
    expect("x[rows]", x[on(rows)].cpu().numpy(), array[rows])
    expect("x[:, cols]", x[:, on(rows)].cpu().numpy(), array[:, rows])
    expect("x[mask]", x[on(mask)].cpu().numpy(), array[mask])
    expect("x[None, ..., 2]", x[None, ..., 2].cpu().numpy(), array[None, ..., 2])
    expect("x[1, 2, 3].item()", x[1, 2, 3].item(), float(array[1, 2, 3]))
    x[on(np.array([1, 3]))] = 5.0
    array[[1, 3]] = 5
    x[on(mask)] = -2.0
    array[mask] = -2
    x[0, 1:9:2] = on(np.arange(7, dtype=np.float32))
    array[0, 1:9:2] = np.arange(7)
    expect("after writes by rows, mask and slice", x.cpu().numpy(), array)


@check
def storages_move(device: Device) -> None:
    """Resizing keeps the elements that stay; a storage is shared by all its tensors."""
    x = device.tensor(numbered("float32", (100,))).clone()
    y = x[10:20]
    x.untyped_storage().resize_(800)
    expect("elements after the storage grew", x.cpu().numpy(), numbered("float32", (100,)))
    expect("a view after the storage grew", y.cpu().tolist(), list(map(float, range(10, 20))))
    z = device.tensor(numbered("float32", (6,))).clone().resize_(2, 2)
    expect("resize_ to fewer", z.cpu().tolist(), [[0.0, 1.0], [2.0, 3.0]])


def check_strided(device: Device, op: str, dtypes: list[str]) -> None:
    """Run an op on strided copies of its samples' tensors, then in place and to out=."""
    if device.name == "reference":
        raise NotApplicable("the reference is what devices are compared with")
    ran = 0
    for dtype in dtypes:
        case = Case(op, dtype, device.name)
        if dtype not in (*DTYPES, "bfloat16") or case.definition.samples is None:
            continue
        if not has_values(case):
            continue
        for sample in case.samples():
            ran += strided(case, sample)
    if not ran:
        raise NotApplicable("it takes no tensors with values of their own, or has no samples")


def strided(case: Case, sample: Any) -> int:
    """Compare one call on operands with gaps and offsets; return how many forms ran."""
    from tangrad_testing.calls import creates
    from tangrad_testing.levels.spread import arguments_on

    theirs = arguments_on(tangrad_tensor_on("reference"), sample)
    if not tensors_in(theirs) or creates(case.definition):
        return 0
    try:
        expected = case.call(*theirs[0], **theirs[1])
    except REFUSALS:
        return 0
    args, kwargs = arguments_on(tangrad_tensor_on(case.device), sample)
    what = f"{case.op}{describe(sample)} of strided tensors"
    actual = case.call(*args, **kwargs)
    expect_close(what, tensors_in(actual), tensors_in(expected), 8)
    writes_nothing = may_have_derivative(case)
    if writes_nothing and is_public(case) and case.call.takes_out and case.call.kind != "view":
        written_to_out(what, case, (args, kwargs), tensors_in(expected))
    if writes_nothing and case.definition.inplace and isinstance(args[0], tangrad.Tensor):
        written_in_place(what, case, (args, kwargs), tensors_in(expected))
    return 1


def is_public(case: Case) -> bool:
    """Tell whether callers reach the op, and its out=, by a name."""
    return bool(case.definition.function) and not case.op.startswith("_")


def written_to_out(what: str, case: Case, arguments: Any, expected: list[Any]) -> None:
    """Compare what an op writes into tensors with gaps."""
    wide = [tangrad.zeros((*e.shape, 2), dtype=e.dtype, device=case.device) for e in expected]
    outs = tuple(w[..., 1] for w in wide)
    case.call(*arguments[0], **arguments[1], out=outs if len(outs) > 1 else outs[0])
    expect_close(f"{what}, out= with gaps", outs, expected, 8)
    for w in wide:
        expect(f"{what}, the gaps of out=", bool((w[..., 0].cpu() == 0).all()), True)


def written_in_place(what: str, case: Case, arguments: Any, expected: list[Any]) -> None:
    """Compare what the in-place form leaves in its first argument."""
    args, kwargs = arguments
    e = expected[0]
    fits = tuple(e.shape) == tuple(args[0].shape) and e.dtype == args[0].dtype
    if len(expected) != 1 or not fits:
        return
    inplace = getattr(tangrad.Tensor, f"{case.op}_", None)
    if inplace is None:
        return
    target = args[0].clone()
    inplace(target, *args[1:], **kwargs)
    expect_close(f"{what}, in place", [target], [e], 8)

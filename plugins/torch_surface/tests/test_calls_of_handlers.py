"""What `__torch_dispatch__` is called with, beside what PyTorch's is called with."""

from __future__ import annotations

import importlib

import pytest
import torch

import tangrad


def mode_of(library, seen):
    dispatch = importlib.import_module(f"{library.__name__}.utils._python_dispatch")

    def shown(value):
        if isinstance(value, library.Tensor):
            return "tensor"
        if isinstance(value, (list, tuple)):
            return type(value)(shown(item) for item in value)
        return str(value).replace("tangrad.", "torch.")

    class Noting(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = str(func.overloadpacket.__name__)
            named = {k: shown(v) for k, v in (kwargs or {}).items()}
            seen.append((name, shown(tuple(args)), named))
            return func(*args, **(kwargs or {}))

    return Noting()


CALLS = {
    "narrow": lambda t, x: x.narrow(0, 1, 2),
    "slice of a later dimension": lambda t, x: x[:, 1:3],
    "to a dtype": lambda t, x: x.to(t.float64),
    "double": lambda t, x: x.double(),
    "add": lambda t, x: x + 1,
    "add scaled": lambda t, x: x.add(x, alpha=2),
    "add in place": lambda t, x: x.clone().add_(1),
    "sub": lambda t, x: x - x,
    "sum": lambda t, x: x.sum(0),
    "sum kept": lambda t, x: x.sum(0, keepdim=True),
    "max": lambda t, x: x.max(),
    "max of a dimension": lambda t, x: x.max(1),
    "view": lambda t, x: x.view(4, 3),
    "split": lambda t, x: x.split(2),
    "clamp": lambda t, x: x.clamp(0, 1),
    "clamp from below": lambda t, x: x.clamp(1),
    "permute": lambda t, x: x.permute(1, 0).expand(2, 4, 3),
    "where": lambda t, x: t.where(x > 1, x, x),
    "scatter": lambda t, x: x.scatter(1, x.argmax(1, True), 1.0),
    "item": lambda t, x: x.sum().item() + 1,
    "float": lambda t, x: float(x[0, 0]),
    "bool": lambda t, x: [1 for row in range(2) if x[row, 0] > 1],
    "index": lambda t, x: range(5)[x[0, 1].long()],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_handlers_get_the_public_op_and_its_arguments_by_place(call):
    seen = {}
    for library in (torch, tangrad):
        x = library.arange(12.0).reshape(3, 4)
        with mode_of(library, seen.setdefault(library, [])):
            call(library, x)
    assert seen[tangrad] == seen[torch]


@pytest.mark.parametrize("library", [torch, tangrad])
def test_handlers_that_ask_for_an_op_by_its_name_are_asked_for_every_form_of_it(library):
    names = "add sub max view split clamp where"
    packets = {getattr(library.ops.aten, name) for name in names.split()}
    seen = []
    dispatch = importlib.import_module(f"{library.__name__}.utils._python_dispatch")

    class Looking(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket in packets)
            return func(*args, **(kwargs or {}))

    x = library.arange(12.0).reshape(3, 4)
    condition = x > 1
    with Looking():
        x.add(1), x.add(x, alpha=2), x - 1, x.max(), x.max(0), x.view(4, 3), x.split(2)
        x.clamp(1), x.clamp(0, 1), library.where(condition, x, x)
    assert seen == [True] * 10


def test_handlers_can_call_what_only_a_later_form_takes():
    x = tangrad.tensor([-2.0, 0.5, 3.0])
    with mode_of(tangrad, []):
        assert x.clamp(max=1).tolist() == [-2.0, 0.5, 1.0]
        assert x.clamp(min=1).tolist() == [1.0, 1.0, 3.0]
        assert tangrad.max(x, tangrad.zeros(3)).tolist() == [0.0, 0.5, 3.0]


WRITES_TOLD = {
    "clamp_min_": lambda t, x: x.clamp_min_(0),
    "clamp_min": lambda t, x: t.clamp_min(x, 0, out=t.empty(2, 2)),
    "pow_": lambda t, x: x.pow_(2),
}


@pytest.mark.parametrize("name", WRITES_TOLD)
def test_handlers_see_writes_of_every_form(name):
    seen = []
    x = tangrad.tensor([[1.0, -2.0], [3.0, -4.0]])
    with mode_of(tangrad, seen):
        result = WRITES_TOLD[name](tangrad, x.clone())
    assert result.equal(WRITES_TOLD[name](tangrad, x.clone()))
    assert name in [told for told, *_ in seen]


def test_handlers_see_writes_of_forms_that_no_public_name_has():
    x = tangrad.tensor([[1.0, -2.0], [3.0, -4.0]])
    with mode_of(tangrad, []):
        assert x.masked_fill_(x < 0, 1.0).clamp_(max=2).tolist() == [[1, 1], [2, 1]]


TOLD_APART = {
    "out": (lambda t, x: t.add(x, x, out=t.empty(3, 4)), lambda a: a.add.out),
    "out of a form": (lambda t, x: t.clamp(x, 0, 1, out=t.empty(3, 4)), lambda a: a.clamp.out),
    "sort": (lambda t, x: x.sort(), lambda a: a.sort.default),
    "stable sort": (lambda t, x: x.sort(stable=True), lambda a: a.sort.stable),
    "stable places": (lambda t, x: x.argsort(stable=True), lambda a: a.sort.stable),
    "squeeze": (lambda t, x: x.squeeze(), lambda a: a.squeeze.default),
    "squeeze a dimension": (lambda t, x: x.squeeze(0), lambda a: a.squeeze.dim),
    "squeeze dimensions": (lambda t, x: x.squeeze((0, 1)), lambda a: a.squeeze.dims),
    "copy": (lambda t, x: x.to(t.float64), lambda a: a._to_copy.default),
    "index": (lambda t, x: x[t.tensor([0, 2])], lambda a: a.index.Tensor),
    "write at an index": (
        lambda t, x: x.clone().__setitem__(t.tensor([0, 2]), x[:2]),
        lambda a: a.index_put_.default,
    ),
}


@pytest.mark.parametrize("name", TOLD_APART)
@pytest.mark.parametrize("library", [torch, tangrad])
def test_overloads_whose_arguments_differ_are_objects_of_their_own(library, name):
    call, overload = TOLD_APART[name]
    x, seen = library.arange(12.0).reshape(3, 4), []
    dispatch = importlib.import_module(f"{library.__name__}.utils._python_dispatch")

    class Noting(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    call(library, x)
    with Noting():
        call(library, x)
    wanted = overload(library.ops.aten)
    packet = wanted.overloadpacket
    assert {id(func) for func in seen if func.overloadpacket is packet} == {id(wanted)}


MASKS = {
    "rows": lambda t, x: x[x[:, 0] > 2],
    "columns": lambda t, x: x[:, t.tensor([True, False, True, False])],
    "elements": lambda t, x: x[x > 2],
    "a mask and places": lambda t, x: x[x[:, 0] > 2, t.tensor([1, 0])],
    "a number at rows": lambda t, x: x.clone().__setitem__(x[:, 0] > 2, 1.0),
    "numbers at columns": lambda t, x: x.clone().__setitem__(
        (slice(None), t.tensor([True, False, True, False])), x[:, :2]
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_handlers_get_masks_as_they_are_written(name):
    seen, found = {}, {}
    for library in (torch, tangrad):
        x = library.arange(12.0).reshape(3, 4)
        noted = seen.setdefault(library, [])
        with mode_of(library, noted):
            result = MASKS[name](library, x)
        found[library] = None if result is None else result.tolist()
        kinds = [
            (name, [None if i == "None" else i for i in args[1]])
            for name, args, _ in noted
            if name in ("index", "index_put_")
        ]
        seen[library] = kinds
    assert seen[tangrad] == seen[torch]
    assert len(seen[tangrad]) == 1
    assert found[tangrad] == found[torch]


def test_gradients_pass_what_handlers_see_of_masks():
    x = tangrad.arange(12.0).reshape(3, 4).requires_grad_()
    with mode_of(tangrad, []):
        x[x > 2].sum().backward()
    assert x.grad.tolist() == (x > 2).double().tolist()


def test_a_mode_answers_item_in_the_place_of_memory():
    from tangrad.utils._python_dispatch import TorchDispatchMode

    class Answering(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func == tangrad.ops.aten._local_scalar_dense.default:
                return 7
            return func(*args, **(kwargs or {}))

    x = tangrad.tensor(3)
    with Answering():
        assert (x.item(), int(x), range(9)[x]) == (7, 7, 7)
    assert x.item() == 3

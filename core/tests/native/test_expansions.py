"""Composites whose calls are kept give what their Python gives, in every call, for any values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tangrad
from tangrad import _C
from tangrad.dispatch.expansion import keep_no_calls
from tangrad.ops.definition import registry
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.samples import Sampler, materialise

DTYPES = ("float32", "int64")
ERRORS = (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError)


def keepers():
    return {
        name: op
        for name, op in sorted(registry.load_all().items())
        if op.functional is None and op.definition.keeps_calls
    }


def arguments(sample, round_, needs_grad):
    """Return the arguments of a sample, of which round after round some elements change."""
    rng = np.random.default_rng(round_)

    def tensor_of(values, dtype):
        values = np.array(values.view(np.float32) if dtype == "bfloat16" else values)
        if values.dtype.kind == "f" and values.size and round_:
            values = rng.permuted(values.reshape(-1)).reshape(values.shape)
        made = tangrad.tensor(values, dtype=getattr(tangrad, dtype))
        return made.requires_grad_(needs_grad and made.is_floating_point())

    return materialise(sample, tensor_of, lambda name: getattr(tangrad, name))


def outcome(call, sample, round_, needs_grad):
    args, kwargs = arguments(sample, round_, needs_grad)
    tangrad.manual_seed(3)
    try:
        result = call(*args, **kwargs)
    except ERRORS as error:
        return repr((type(error), str(error)))
    parts = result if isinstance(result, (tuple, list)) else [result]
    found = [type(result).__name__]
    for part in parts:
        found += [tuple(part.shape), part.stride(), part.dtype, part.tolist()]
        found.append(None if part.grad_fn is None else part.grad_fn.name())
        if part.requires_grad:
            leaves = [x for x in (*args, *kwargs.values()) if isinstance(x, tangrad.Tensor)]
            leaves = [x for x in leaves if x.requires_grad]
            grads = tangrad.autograd.grad(
                part, leaves, tangrad.ones_like(part), retain_graph=True, allow_unused=True
            )
            found += [None if g is None else g.tolist() for g in grads]
    return repr(found)


def by_definition(op):
    def call(*args, **options):
        bound, _ = _C.bind_arguments(op, args, options)
        found = op.definition.function_body(*bound)
        return op.return_type(*found) if op.return_type and type(found) is tuple else found

    return call


@pytest.mark.parametrize("name", keepers())
def test_a_composite_says_in_each_call_what_its_python_says(name):
    op = keepers()[name]
    for dtype in DTYPES:
        for sample in op.definition.samples(Sampler(dtype)):
            for needs_grad in (False, True):
                for round_ in range(4):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        wanted = outcome(by_definition(op), sample, round_, needs_grad)
                        found = outcome(op, sample, round_, needs_grad)
                    assert found == wanted, (dtype, sample, round_)


def made(schema, body, **said):
    return composite(schema, keeps_calls=True, function=False, method=False, **said)(body)


def test_the_python_of_a_form_is_run_twice_and_then_no_more():
    runs = []

    def body(self, factor):
        runs.append(tuple(self.shape))
        return (self * factor).relu() + self

    double = made("kept_double(Tensor self, float factor) -> Tensor", body)
    for k in range(6):
        x = tangrad.tensor([1.0 * k, -2.0])
        assert double(x, 2.0).tolist() == [3.0 * k, -2.0]
    assert runs == [(2,)] * 2
    assert double(tangrad.ones(2), 3.0).tolist() == [4.0, 4.0]
    assert double(tangrad.ones(3), 2.0).tolist() == [3.0] * 3
    assert runs == [(2,)] * 3 + [(3,)]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("reads", lambda a, b: a * 2 if (a > 1).any().item() else a + b),
        ("writes", lambda a, b: a.clone().mul_(b)),
        ("makes", lambda a, b: a + tangrad.ones(2) * b),
        ("counts", lambda a, b: a[a > 1].sum() + b),
        ("draws", lambda a, b: tangrad.rand(2) * 0 + a + b),
    ],
)
def test_calls_that_may_differ_are_not_kept(name, body):
    runs = []

    def counted(self, other):
        runs.append(0)
        return body(self, other)

    asked = made(f"kept_{name}(Tensor self, Tensor other) -> Tensor", counted)
    for k in range(6):
        x, y = tangrad.tensor([1.0 * k, 0.5]), tangrad.tensor([2.0, 1.0])
        assert asked(x, y).tolist() == body(x, y).tolist()
    assert len(runs) == 6


def test_a_tensor_that_is_given_twice_tells_nothing_of_two():
    subtract = made("kept_difference(Tensor self, Tensor other) -> Tensor", lambda a, b: a - 2 * b)
    x, y = tangrad.tensor([1.0, 2.0]), tangrad.tensor([4.0, 8.0])
    for _ in range(4):
        assert subtract(x, x).tolist() == [-1.0, -2.0]
    for _ in range(4):
        assert subtract(x, y).tolist() == [-7.0, -14.0]
        assert subtract(x, x).tolist() == [-1.0, -2.0]


def test_gradients_are_asked_for_anew():
    def body(self):
        return self.detach() * 2 if not self.requires_grad else self * 3

    tripled = made("kept_tripled(Tensor self) -> Tensor", body)
    plain, leaf = tangrad.ones(2), tangrad.ones(2, requires_grad=True)
    for _ in range(4):
        assert tripled(plain).tolist() == [2.0, 2.0]
        assert tripled(leaf).requires_grad
        with tangrad.no_grad():
            assert not tripled(leaf).requires_grad


def test_a_composite_without_gradients_stays_so():
    def body(self):
        with tangrad.no_grad():
            return self * 2

    double = made("kept_quietly(Tensor self) -> Tensor", body)
    for _ in range(4):
        assert not double(tangrad.ones(2, requires_grad=True)).requires_grad


def test_every_call_that_deserves_a_warning_has_one():
    def body(self):
        keep_no_calls()
        warnings.warn("again", stacklevel=2)
        return self * 2

    double = made("kept_warning(Tensor self) -> Tensor", body)
    for _ in range(4):
        with pytest.warns(UserWarning, match="again"):
            double(tangrad.ones(2))


def test_what_stands_between_sees_all_calls():
    summed = made("kept_sum(Tensor self) -> Tensor", lambda self: (self * self).sum())
    x = tangrad.arange(6.0).reshape(2, 3)
    for row in x:
        for _ in range(3):
            summed(row)
    assert tangrad.func.vmap(summed)(x).tolist() == [5.0, 50.0]
    assert tangrad.func.grad(summed)(x[1]).tolist() == [6.0, 8.0, 10.0]
    seen = []

    class Watch:
        def enter(self, op):
            seen.append(op.name)

        def leave(self, op, token):
            pass

    from tangrad.dispatch.intercept import pop_observer, push_observer

    watch = Watch()
    push_observer(watch)
    try:
        summed(x[0])
    finally:
        pop_observer(watch)
    assert seen[-2:] == ["mul", "sum"]


def test_more_forms_than_are_kept_are_right_all_the_same():
    double = made("kept_many(Tensor self) -> Tensor", lambda self: self * 2 + 1)
    for _ in range(3):
        for n in range(300):
            assert tuple(double(tangrad.ones(n)).shape) == (n,)

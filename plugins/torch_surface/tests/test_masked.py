"""torch.masked: what a mask shows is reduced, what it hides changes nothing."""

from __future__ import annotations

import pytest
import torch

import tangrad

REDUCTIONS = ("sum", "prod", "amax", "amin", "mean", "norm", "var", "std", "logsumexp")
ALONG_ONE = ("argmax", "argmin", "median", "cumsum", "cumprod", "softmax", "log_softmax", "softmin")


def both(name, *args, **kwargs):
    """Call a function of both libraries on the same values."""
    ours = [tangrad.from_numpy(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args]
    given = {
        key: tangrad.from_numpy(value.numpy()) if isinstance(value, torch.Tensor) else value
        for key, value in kwargs.items()
    }
    expected = getattr(torch.masked, name)(*args, **kwargs)
    return getattr(tangrad.masked, name)(*ours, **given), expected


def assert_same(found, expected):
    actual = torch.from_numpy(found.numpy())
    torch.testing.assert_close(actual, expected, equal_nan=True)


def case(shape=(3, 4), dtype=torch.float64):
    torch.manual_seed(0)
    values = torch.randint(-5, 6, shape).to(dtype)
    mask = torch.rand(shape) < 0.5
    mask[0] = False
    return values, mask


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_reduction_sees_what_the_mask_shows(name, dim, masked):
    values, mask = case()
    args = (values, 3.0) if name == "norm" else (values,)
    shown = mask if masked else None
    assert_same(*both(name, *args, dim=dim, keepdim=dim == 0, mask=shown))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "var"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_what_no_dimensions_are_is_what_they_are_in_torch(name, keepdim):
    values, mask = case()
    assert_same(*both(name, values, dim=[], keepdim=keepdim, mask=mask if name == "sum" else None))


@pytest.mark.parametrize("name", ALONG_ONE)
@pytest.mark.parametrize("masked", [False, True])
def test_function_along_one_dimension(name, masked):
    values, mask = case()
    assert_same(*both(name, values, 1, mask=mask if masked else None))


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "argmin", "cumsum", "var"])
def test_integers_have_the_dtypes_of_torch(name):
    values, mask = case(dtype=torch.int32)
    assert_same(*both(name, values, 1, mask=mask))


def test_normalize_and_logaddexp():
    values, mask = case()
    assert_same(*both("normalize", values, 2.0, 1, mask=mask))
    assert_same(*both("logaddexp", values, values + 1, input_mask=mask, other_mask=~mask))


def test_mask_is_broadcast():
    values, mask = case()
    assert_same(*both("sum", values, 0, mask=mask[1]))


def test_gradient_passes_where_the_mask_shows():
    x = tangrad.ones(2, 2, requires_grad=True)
    tangrad.masked.sum(x, mask=tangrad.tensor([True, False])).backward()
    assert x.grad.tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda m, x: m.sum(x, (0, 0)), RuntimeError, "appears multiple times"),
        (lambda m, x: m.sum(x, 2), IndexError, "out of range"),
        (lambda m, x: m.sum(x[0], mask=x.bool()), IndexError, "dimensionality higher"),
        (lambda m, x: m.mean(x.int()), ValueError, "floating point or complex"),
        (lambda m, x: m.median(x.int(), mask=x.bool() & False), ValueError, "fully masked out"),
        (lambda m, x: m.amax(x.to(x.dtype.to_complex()), mask=x.bool()), TypeError, "."),
        (lambda m, x: m.amax(x.bool(), mask=x.bool()), NotImplementedError, "."),
    ],
)
def test_wrong_call_is_refused_as_by_torch(call, kind, text):
    for library in (torch, tangrad):
        with pytest.raises(kind, match=text):
            call(library.masked, library.ones(2, 2))

"""A dtype that a plugin registers: eighths in one byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad import plugin


def decode(raw: Any) -> Any:
    """Return the float32 values of stored bytes."""
    return raw.astype(np.int8).astype(np.float32) / 8


def encode(values: Any) -> Any:
    """Return the bytes of values, rounded to eighths."""
    return np.clip(np.round(np.asarray(values) * 8), -128, 127).astype(np.int8).view(np.uint8)


@pytest.fixture(scope="module")
def eighths() -> Any:
    try:
        return tangrad.eighths
    except AttributeError:
        return plugin.register_dtype(
            "eighths", 1, "foreign", "B", codec=(decode, encode), compute="float32"
        )


def made(values: list[float], dtype: Any) -> Any:
    return tangrad.tensor(values).to(dtype)


def test_two_tensors_are_added(eighths: Any) -> None:
    total = made([0.5, 1.125], eighths) + made([0.25, 2.0], eighths)
    assert total.dtype is eighths
    assert total.to(tangrad.float32).tolist() == [0.75, 3.125]


def test_values_round_to_what_the_type_holds(eighths: Any) -> None:
    assert made([0.3, 100.0], eighths).to(tangrad.float32).tolist() == [0.25, 15.875]


def test_views_copies_and_casts_work(eighths: Any) -> None:
    x = made([0.5, 1.0, 1.5, 2.0], eighths).view(2, 2).t()
    assert x.contiguous().to(tangrad.float64).tolist() == [[0.5, 1.5], [1.0, 2.0]]
    assert (x.element_size(), x.nbytes) == (1, 4)


def test_the_type_is_reached_by_name(eighths: Any) -> None:
    assert tangrad.eighths is eighths
    assert repr(eighths) == "tangrad.eighths"


def test_a_taken_name_is_refused(eighths: Any) -> None:
    with pytest.raises(ValueError, match="already registered"):
        plugin.register_dtype(
            "eighths", 2, "foreign", "H", codec=(decode, encode), compute="float32"
        )


def test_a_gradient_passes_through_casts_and_products(eighths: Any) -> None:
    x = made([0.5, 1.0], eighths).requires_grad_()
    (x * x).to(tangrad.float32).sum().backward()
    assert x.grad.dtype is eighths
    assert x.grad.tolist() == [1.0, 2.0]


def test_elements_are_assigned_and_tensors_made_on_devices(eighths: Any) -> None:
    x = made([0.5, 1.0], eighths)
    x[0] = 7.0
    assert x.tolist() == [7.0, 1.0]
    assert tangrad.zeros(2, dtype=eighths, device="reference").tolist() == [0.0, 0.0]
    assert tangrad.empty(2, dtype=eighths, device="meta").dtype is eighths


def test_its_limits_are_those_of_its_codes_unless_it_tells_them(eighths: Any) -> None:
    limits = tangrad.finfo(eighths)
    assert (limits.min, limits.max, limits.eps, limits.tiny) == (-16.0, 15.875, 0.125, 0.125)
    name = "eighths_with_limits"
    told = getattr(tangrad, name, None) or plugin.register_dtype(
        name, 1, "foreign", "B", codec=(decode, encode), compute="float32", finfo={"max": 15.0}
    )
    assert (tangrad.finfo(told).max, tangrad.finfo(told).eps) == (15.0, 0.125)
    with pytest.raises(ValueError, match="finfo is a dict"):
        plugin.register_dtype("x", 1, "foreign", "B", codec=(1, 1), compute="float32", finfo=3)


def test_it_cannot_be_the_default(eighths: Any) -> None:
    with pytest.raises(TypeError, match="cannot be the default dtype.*float32"):
        tangrad.set_default_dtype(eighths)


WRONG = {
    "taken by a function": ({"name": "ones"}, "'tangrad.ones' is something else already"),
    "taken by a layout": ({"name": "strided"}, "'tangrad.strided' is something else already"),
    "two words": ({"name": "two words"}, "an identifier without a leading underscore"),
    "a keyword": ({"name": "lambda"}, "an identifier without a leading underscore"),
    "an alias that is taken": ({"aliases": ("float",)}, "'tangrad.float' is something else"),
    "a kind": ({"kind": "real"}, "kind must be one of bool, uint"),
    "half a codec": ({"codec": decode}, "codec is .decode, encode., two functions"),
    "no functions": ({"codec": (1, 2)}, "codec is .decode, encode., two functions"),
    "a short result": (
        {"codec": (lambda raw: decode(raw)[:1], encode)},
        r"made float32, shape \(1",
    ),
    "a text": (
        {"codec": (decode, lambda numbers: "text")},
        "encode is to give raw integers",
    ),
    "numbers for bits": ({"codec": (decode, np.float32)}, "encode is to give raw integers"),
    "an error": ({"codec": (lambda raw: raw.nonesuch, encode)}, "decode raised AttributeError"),
    "a size": ({"itemsize": 3}, "has 1, 2, 4 or 8 bytes, got 3"),
    "a size without a codec": (
        {"itemsize": -1, "kind": "uint", "codec": None, "compute": None},
        "has 1, 2, 4, 8 or 16 bytes, got -1",
    ),
    "a letter of another size": ({"format": "Q"}, "format is 'b' or 'B' for 1 bytes, got 'Q'"),
    "no letter": ({"format": "Q!!"}, "format is 'b' or 'B' for 1 bytes"),
    "computed twice": ({"compute": "float8_e5m2"}, "is computed in another itself"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_before_anything_is_known_of_it(case: str) -> None:
    assert tangrad.float8_e5m2.itemsize == 1
    changed, message = WRONG[case]
    right = {"itemsize": 1, "kind": "foreign", "format": "B", "compute": "float32"}
    given = {**right, "name": "cannot_be", "codec": (decode, encode), **changed}
    before = [getattr(tangrad, name) for name in ("ones", "strided", "float")]
    with pytest.raises(ValueError, match=message):
        plugin.register_dtype(**given)
    assert not hasattr(tangrad, "cannot_be")
    assert [getattr(tangrad, name) for name in ("ones", "strided", "float")] == before


@pytest.mark.parametrize("promotes", [{"nonesuch": "cannot_be"}, {"cannot_be": "nonesuch"}])
def test_it_promotes_with_what_is_known(promotes: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="no dtype named 'nonesuch' is registered"):
        plugin.register_dtype(
            "cannot_be",
            1,
            "foreign",
            "B",
            codec=(decode, encode),
            compute="float32",
            promotes=promotes,
        )
    assert not hasattr(tangrad, "cannot_be")

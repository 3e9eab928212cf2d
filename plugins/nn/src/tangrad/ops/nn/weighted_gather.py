"""Define sums of a few gathered elements with weights: what sampling between elements is made of.

The sum is linear in the elements and in the weights; its adjoint by the elements is an op of its
own, whose adjoint is the sum again.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import op


def _taps(places: Any, channels: int) -> list[tuple[Any, Any]]:
    """Return for each tap where it is somewhere (N, 1, P), and its places (N, channels, P)."""
    found = []
    for k in range(places.shape[1]):
        place = places.select(1, k).unsqueeze(1)
        found.append((place >= 0, place.clamp(min=0).expand(-1, channels, -1)))
    return found


def _sum(flat: Any, places: Any, weights: Any) -> Any:
    result = flat.new_zeros((*flat.shape[:2], places.shape[2]))
    for k, (somewhere, place) in enumerate(_taps(places, flat.shape[1])):
        part = flat.gather(2, place) * weights.select(1, k).unsqueeze(1)
        result = result + tangrad.where(somewhere, part, 0)
    return result


def _adjoint(values: Any, places: Any, weights: Any, size: int) -> Any:
    result = values.new_zeros((*values.shape[:2], size))
    for k, (somewhere, place) in enumerate(_taps(places, values.shape[1])):
        part = tangrad.where(somewhere, values * weights.select(1, k).unsqueeze(1), 0)
        result = result.scatter_add(2, place, part)
    return result


def _by_weights(g: Any, flat: Any, places: Any) -> Any:
    """Pull back to the weights: products of the gathered elements, summed over the channels."""
    parts = []
    for somewhere, place in _taps(places, flat.shape[1]):
        parts.append(tangrad.where(somewhere, g * flat.gather(2, place), 0).sum(1))
    return tangrad.stack(parts, 1)


def _check(name: str, first: Any, places: Any, weights: Any) -> None:
    if len(first.shape) != 3 or len(places.shape) != 3 or first.shape[0] != places.shape[0]:
        raise RuntimeError(
            f"{name}: expected elements (N, C, S) and places (N, K, P), got "
            f"{list(first.shape)} and {list(places.shape)}"
        )
    if tuple(weights.shape) != tuple(places.shape) or weights.dtype != first.dtype:
        raise RuntimeError(
            f"{name}: weights must be of shape {list(places.shape)} and {first.dtype}, got "
            f"{list(weights.shape)} and {weights.dtype}"
        )
    if places.dtype.name != "int64":
        raise RuntimeError(f"{name}: places must be int64, got {places.dtype}")


weighted_gather = op(
    "_weighted_gather(Tensor flat, Tensor places, Tensor weights) -> Tensor",
    check=lambda flat, places, weights: _check("_weighted_gather", flat, places, weights),
    shape=lambda flat, places: (*flat.shape[:2], places.shape[2]),
    dtype=lambda flat: flat.dtype,
    decompose=_sum,
    vjp={
        "flat": lambda g, flat_meta, places, weights: _weighted_scatter(
            g, places, weights, flat_meta.shape[2]
        ),
        "weights": lambda g, flat, places: _by_weights(g, flat, places),
    },
    linear=("flat", "weights"),
    function=False,
    method=False,
    doc="""Sum gathered elements: weights[n, k, p] flat[n, c, places[n, k, p]] over k.

    Args:
        flat: elements (N, C, S).
        places: (N, K, P), int64 below S; a negative place has no element.
        weights: (N, K, P), of the elements' dtype.
    """,
)

_weighted_scatter = op(
    "_weighted_scatter(Tensor values, Tensor places, Tensor weights, int size) -> Tensor",
    check=lambda values, places, weights: _check("_weighted_scatter", values, places, weights),
    shape=lambda values, size: (*values.shape[:2], size),
    dtype=lambda values: values.dtype,
    decompose=_adjoint,
    vjp={
        "values": lambda g, places, weights: weighted_gather(g, places, weights),
        "weights": lambda g, values, places: _by_weights(values, g, places),
    },
    linear=("values", "weights"),
    function=False,
    method=False,
    doc="""Add values[n, c, p] weights[n, k, p] to each place: the adjoint of `_weighted_gather`.

    Args:
        size: S, elements of the result (N, C, S).
    """,
)

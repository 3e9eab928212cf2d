"""Define padding by a constant, a mirror image, the border or the other end."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.convolution import in_format_of
from tangrad.plugin import (
    Ints,
    Scalar,
    Tensor,
    check_pad,
    composite,
    find_op,
    index_vector,
    op,
    pad_pairs,
    require_fit,
)

constant_pad_nd = find_op("constant_pad_nd")
_cat = find_op("cat")


def _check_amounts(size: int, before: int, after: int, mode: str) -> None:
    if mode == "reflect" and (before >= size or after >= size):
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, "
            f"but got: padding ({before}, {after}) for a dimension of size {size}"
        )
    # Negative amounts cut off first; what remains is repeated.
    kept = size + min(0, before) + min(0, after)
    if mode == "circular" and (before > kept or after > kept):
        raise RuntimeError(
            f"Padding value causes wrapping around more than once: ({before}, {after}) for a "
            f"dimension of size {size}"
        )


def _reflected(size: int, before: int, after: int) -> list[int]:
    return [abs(size - 1 - abs(size - 1 - i)) for i in range(-before, size + after)]


def _replicated(size: int, before: int, after: int) -> list[int]:
    return [min(max(i, 0), size - 1) for i in range(-before, size + after)]


def _wrapped(size: int, before: int, after: int) -> list[int]:
    start, kept = max(0, -before), size + min(0, before) + min(0, after)
    return [start + i % kept for i in range(-max(0, before), kept + max(0, after))]


_PLACES = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}


def _mirrored(x: Any, dim: int, start: int, length: int) -> Any:
    part = x.narrow(dim, start, length)
    return part if length == 1 else part.flip(dim)


def _surrounded(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    """Join a tensor and what lies before and after it: whole runs, where places are one by one."""
    size = x.shape[dim]
    first, last = 0, size - 1
    parts = [x]
    if before:
        if mode == "reflect":
            parts.insert(0, _mirrored(x, dim, 1, before))
        elif mode == "replicate":
            parts.insert(0, x.narrow(dim, first, 1).expand(_with_size(x, dim, before)))
        else:
            parts.insert(0, x.narrow(dim, size - before, before))
    if after:
        if mode == "reflect":
            parts.append(_mirrored(x, dim, last - after, after))
        elif mode == "replicate":
            parts.append(x.narrow(dim, last, 1).expand(_with_size(x, dim, after)))
        else:
            parts.append(x.narrow(dim, first, after))
    return _cat(parts, dim)


def _with_size(x: Any, dim: int, size: int) -> list[int]:
    shape = list(x.shape)
    shape[dim] = size
    return shape


def _padded(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    size = x.shape[dim]
    if min(before, after) >= 0 and max(before, after) < size:
        return _surrounded(x, dim, before, after, mode)
    # What cuts off, wraps around whole or is too much goes place by place.
    return x.index_select(dim, index_vector(_PLACES[mode](size, before, after), x.device))


def _check_places(input: Any, pad: Ints, mode: str, value: Any) -> None:
    check_pad(input, pad)
    if mode not in _PLACES:
        raise NotImplementedError(
            f"Unrecognised padding mode {mode!r}, expected one of "
            f"{', '.join(('constant', *_PLACES))}"
        )
    if value:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument, got {value}')
    padded = len(pad) // 2
    if not 1 <= padded <= 3 or input.ndim not in (padded + 1, padded + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {input.ndim}D input tensor in mode "
            f"{mode!r}: 2 numbers pad 2D or 3D, 4 numbers 3D or 4D, 6 numbers 4D or 5D inputs"
        )
    if mode != "circular" and 0 in tuple(input.shape)[1 if input.ndim == padded + 2 else 0 :]:
        raise RuntimeError(
            f"pad: Expected {padded + 1}D or {padded + 2}D (batch mode) tensor with possibly 0 "
            f"batch size and other non-zero dimensions for input, but got: {list(input.shape)}"
        )


def _padded_dims(self: Any, pad: Ints, mode: str) -> Any:
    result = self
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        if before or after:
            result = _padded(result, len(self.shape) - i, before, after, mode)
    return result


def _padded_shape(self: Any, pad: Ints) -> list[int]:
    shape = list(self.shape)
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        shape[-i] = max(0, shape[-i] + before + after)
    return shape


def _unpadded(g: Any, self_meta: Any, pad: Ints, mode: str) -> Any:
    """Add what lies before and after to where it came from: the adjoint, the last step first."""
    pairs = list(enumerate(pad_pairs(pad), 1))
    for i, (before, after) in reversed(pairs):
        dim, size = len(self_meta.shape) - i, self_meta.shape[-i]
        if not before and not after:
            continue
        places = _PLACES[mode](size, before, after)
        if min(before, after) < 0:
            shape = _with_size(g, dim, size)
            g = g.new_zeros(shape).index_add(dim, index_vector(places, g.device), g)
            continue
        found = g.narrow(dim, before, size)
        for start, count in ((0, before), (before + size, after)):
            if count:
                there = index_vector(places[start : start + count], g.device)
                found = found.index_add(dim, there, g.narrow(dim, start, count))
        g = found
    return g


_pad_by_places = op(
    "_pad_by_places(Tensor self, int[] pad, str mode) -> Tensor",
    shape=_padded_shape,
    decompose=_padded_dims,
    vjp={"self": _unpadded},
    linear=("self",),
    function=False,
    method=False,
    doc="""Surround a tensor by elements of its own.

    Args:
        pad: as for `pad`, which checks it. mode: "reflect", "replicate" or "circular".
    """,
)


def _with_channels_last(input: Any, pad: Ints, mode: str) -> Any:
    """Pad images or volumes whose channels lie side by side as such; None: they do not."""
    if input.ndim < 4 or len(pad) != 2 * (input.ndim - 2) or input.is_contiguous():
        return None
    turned = input.movedim(1, -1)
    if not turned.is_contiguous():
        return None
    return _pad_by_places(turned, (0, 0, *pad), mode).movedim(-1, 1)


@composite(
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), (1, 2)),
        s(s.tensor(2, 3), (1, 2), "constant", 2),
        s(s.tensor(), ()),
        s(s.tensor(1, 2, 4), (2, 1), "reflect"),
        s(s.tensor(2, 4, 3, strided=True), (1, 0, 2, -1), "reflect"),
        s(s.tensor(0, 2, 3), (2, 1), "reflect"),
        s(s.tensor(1, 2, 3), (2, 1), "replicate"),
        s(s.tensor(1, 2, 2, 3), (-1, 1, 1, 0, 2, 2), "replicate"),
        s(s.tensor(1, 1, 3, 2), (1, 1, 2, 0), "circular"),
        s(s.tensor(1, 4), (1, -1), "circular"),
    ],
    oracle="nn.functional.pad",
    errors=lambda s: [
        (s(s.tensor(1, 1, 3), (3, 0), "reflect"), RuntimeError, "Padding size should be less"),
        (s(s.tensor(1, 1, 3), (4, 0), "circular"), RuntimeError, "wrapping around"),
        (s(s.tensor(1, 3), (1, 1), "mirror"), NotImplementedError, "mirror"),
        (s(s.tensor(1, 3), (1, 1), "reflect", 1), RuntimeError, "value argument"),
        (s(s.tensor(3), (1, 1), "replicate"), NotImplementedError, "not supported for 1D"),
        (s(s.tensor(1, 0, 3), (1, 1), "replicate"), RuntimeError, "non-zero dimensions"),
        (s(s.tensor(1, 3), (1,)), RuntimeError, "divisible by 2"),
    ],
)
def pad(input: Tensor, pad: Ints, mode: str = "constant", value: Scalar | None = None) -> Tensor:
    """Surround a tensor by a constant, its mirror image, its border or its other end.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on; negative
            amounts cut off.
        mode: "constant"; "reflect" (without repeating the border), "replicate" or "circular", for
            the last one to three dimensions of an input with one or two more.
        value: what "constant" fills in (0).
    """
    if mode == "constant":
        value = 0 if value is None else value
        if isinstance(value, int) and value < 0:
            # As PyTorch, which takes a float here: no unsigned dtype has a place for it.
            require_fit(float(value), input.dtype, "pad")
        return in_format_of(constant_pad_nd(input, pad, value), input)
    _check_places(input, pad, mode, value)
    if not any(pad):
        return input.clone()
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        _check_amounts(input.shape[-i], before, after, mode)
    result = _with_channels_last(input, pad, mode)
    if result is None:
        result = _pad_by_places(input, pad, mode)
    return result if mode == "circular" else in_format_of(result, input)

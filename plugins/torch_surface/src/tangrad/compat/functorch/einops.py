"""What `functorch.einops` holds: `rearrange`, dimensions moved, split and merged by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tangrad

__all__ = ["rearrange"]

_ELLIPSIS = "..."
_TOKEN = re.compile(r"\.\.\.|[()]|\w+|\S")
# A name, or those of the dimensions that one of a tensor consists of.
Group = str | tuple[str, ...]


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Move, split and merge dimensions as an expression of einops' says.

    Args:
        tensor: a tensor, or a sequence of tensors of one shape, which are stacked.
        pattern: names of its dimensions, `->`, and names of those of the result. Names in
            parentheses make up one dimension, `...` stands for any number, `1` for none.
        axes_lengths: sizes by name, where parentheses on the left leave more than one unknown.

    Returns:
        A view where strides allow, else a copy.

    Raises:
        ValueError: the pattern cannot be read, names differ between its sides, or sizes do not
            agree with the tensor.
    """
    if not isinstance(tensor, tangrad.Tensor):
        tensor = tangrad.stack(tensor)
    left, right = _read(pattern)
    unknown = sorted(axes_lengths.keys() - _names(left))
    if unknown:
        raise ValueError(f"rearrange: axes_lengths has {unknown}, but {pattern!r} does not")
    rest = tensor.ndim - len(left) + (_ELLIPSIS in left)
    if rest < 0 or (rest and _ELLIPSIS not in left):
        raise ValueError(
            f"rearrange: {pattern!r} begins with {len(left)} dimensions, but the tensor has "
            f"{tensor.ndim}, {list(tensor.shape)}"
        )
    parts, merged = (_spelled_out(side, rest) for side in (left, right))
    sizes: dict[str, Any] = {}
    for group, size in zip(parts, tensor.shape, strict=True):
        sizes.update(_sizes(group, size, axes_lengths, pattern))
    order = list(sizes)
    found = tensor.reshape([*sizes.values()])
    found = found.permute([order.index(name) for group in merged for name in group])
    return found.reshape([math.prod(sizes[name] for name in group) for group in merged])


@lru_cache(256)
def _read(pattern: str) -> tuple[list[Group], list[Group]]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: expected one '->' in the pattern, got {pattern!r}")
    left, right = (_groups(side, pattern) for side in sides)
    if alone := _names(left) ^ _names(right):
        raise ValueError(f"rearrange: {sorted(alone)} stand on one side of {pattern!r} only")
    if any(isinstance(group, tuple) and _ELLIPSIS in group for group in left):
        raise ValueError(f"rearrange: '...' is within parentheses on the left side of {pattern!r}")
    return left, right


def _names(side: Sequence[Group]) -> set[str]:
    return {name for group in side for name in ((group,) if isinstance(group, str) else group)}


def _groups(side: str, pattern: str) -> list[Group]:
    found: list[Group] = []
    names: set[str] = set()
    inside: list[str] | None = None
    for token in _TOKEN.findall(side):
        if token in "()":
            if (token == "(") is (inside is not None):
                break
            found += [] if inside is None else [tuple(inside)]
            inside = [] if inside is None else None
        elif token == "1":
            found += [()] if inside is None else []
        else:
            _check_name(token, names, pattern)
            names.add(token)
            (found if inside is None else inside).append(token)
    else:
        if inside is None:
            return found
    raise ValueError(f"rearrange: parentheses of {pattern!r} do not match, or are nested")


def _check_name(token: str, names: set[str], pattern: str) -> None:
    plain = token.isidentifier() and token[0] != "_" and token[-1] != "_"
    if token != _ELLIPSIS and not plain:
        raise ValueError(
            f"rearrange: {token!r} in {pattern!r} is no name of a dimension; names are "
            "identifiers without underscores at their ends, '...' and '1'"
        )
    if token in names:
        raise ValueError(f"rearrange: {token!r} stands twice on one side of {pattern!r}")


def _spelled_out(side: Sequence[Group], rest: int) -> list[tuple[str, ...]]:
    """Put a name for each of the `rest` dimensions of an ellipsis in its place."""
    spelled = [f"{_ELLIPSIS}{k}" for k in range(rest)]
    found: list[tuple[str, ...]] = []
    for group in side:
        names = [group] if isinstance(group, str) else [*group]
        if _ELLIPSIS in names:
            at = names.index(_ELLIPSIS)
            names[at : at + 1] = spelled
        found += [tuple(names)] if isinstance(group, tuple) else [(name,) for name in names]
    return found


def _sizes(
    group: tuple[str, ...], size: Any, given: dict[str, int], pattern: str
) -> dict[str, Any]:
    """Return the size of each name that a dimension of `size` consists of."""
    known = math.prod(given[name] for name in group if name in given)
    open_names = [name for name in group if name not in given]
    fits = size % known == 0 if open_names and known else size == known
    if len(open_names) > 1 or not fits:
        raise ValueError(
            f"rearrange: a dimension of size {size} is not made up of {list(group)} in {pattern!r} "
            f"with {given}; give all but one of their sizes"
        )
    return {name: given[name] if name in given else size // known for name in group}

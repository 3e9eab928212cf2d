"""The structure of arguments and results, as data that can be written to a file."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import tangrad

__all__ = ["Arguments", "Structure"]


class Structure:
    """Nested tuples, lists and dicts of tensors and of constants.

    Attributes:
        data: what says so: ["tensor", k], ["constant", value], ["tuple", [...]], ["list", [...]] or
            ["dict", [[key, ...], ...]]; only lists, texts and numbers.
    """

    def __init__(self, data: Any) -> None:
        self.data = _checked(data)

    @staticmethod
    def of(item: Any, place: Any) -> Structure:
        """Return the structure of an item.

        Args:
            item: what it is of.
            place: asked for each tensor: its number.

        Raises:
            TypeError: an object in it is neither.
        """
        return Structure(_describe(item, place))

    def flatten(self, item: Any) -> list[Any]:
        """Return the tensors of an item of this structure, in order.

        Raises:
            RuntimeError: it is of another.
        """
        found: list[Any] = []
        _match(self.data, item, found, "the arguments")
        return found

    def places(self) -> list[int]:
        """Return the numbers of the tensors, in order."""
        return list(_places(self.data))

    def rebuild(self, tensors: list[Any]) -> Any:
        """Return the item for tensors by number."""
        return _build(self.data, tensors)


class Arguments(Structure):
    """The structure of a call's (arguments, arguments by name).

    Attributes:
        names: of the parameters that may be given by place, in order.
    """

    def __init__(self, data: Any, names: Sequence[str] = ()) -> None:
        super().__init__(data)
        self.names = tuple(map(str, names))

    @staticmethod
    def of_call(call: Any, given: tuple[Any, dict[str, Any]], place: Any) -> Arguments:
        """Return the structure of the arguments of a call; see `Structure.of`."""
        return Arguments(_describe(given, place), _names_of(call))

    def flatten(self, item: Any) -> list[Any]:
        """Return the tensors of a call's arguments, whether they are given by place or by name.

        Raises:
            RuntimeError: they are of another structure.
        """
        args, kwargs = self._as_in_example(*item)
        keys = [key for key, _ in self.data[1][1][1]]
        if list(kwargs) != keys:
            raise RuntimeError(f"the arguments[1]: expected a dict with the keys {keys}")
        return super().flatten((args, kwargs))

    def _as_in_example(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        (_, placed), (_, named) = self.data[1]
        keys = [key for key, _ in named]
        count = len(placed)
        if len(args) == count and list(kwargs) == keys:
            return args, kwargs
        found = {**dict(zip(self.names, args, strict=False)), **kwargs}
        wanted = [*self.names[:count], *keys]
        if len(found) != len(args) + len(kwargs) or sorted(found) != sorted(wanted):
            return args, kwargs
        return tuple(found[name] for name in wanted[:count]), {key: found[key] for key in keys}


def _names_of(call: Any) -> list[str]:
    """Return the names of the parameters that a function, or a module's forward, takes by place."""
    try:
        signature = inspect.signature(getattr(call, "forward", call))
    except (TypeError, ValueError):  # of a function in C
        return []
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind in placed]


def _describe(item: Any, place: Any) -> Any:
    if isinstance(item, tangrad.Tensor):
        return ["tensor", place(item)]
    if isinstance(item, (tuple, list)):
        kind = "list" if isinstance(item, list) else "tuple"
        return [kind, [_describe(member, place) for member in item]]
    if isinstance(item, dict) and all(isinstance(key, (str, int)) for key in item):
        return ["dict", [[key, _describe(value, place)] for key, value in item.items()]]
    if isinstance(item, (int, float, str, bool, type(None))):
        return ["constant", item]
    raise TypeError(
        f"Only tensors, numbers, texts, and tuples, lists and dicts of them can be traced, not "
        f"{type(item).__name__}"
    )


def _checked(data: Any) -> Any:
    """Return what says a structure, if it does.

    Raises:
        ValueError: it does not.
    """
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError(f"no structure: {data!r:.60}")
    kind, held = data
    if kind in ("tuple", "list") and isinstance(held, list):
        return [kind, [_checked(inner) for inner in held]]
    if kind == "dict" and isinstance(held, list):
        return [kind, [[key, _checked(inner)] for key, inner in held]]
    if kind == "constant" or (kind == "tensor" and isinstance(held, int)):
        return data
    raise ValueError(f"no structure: {data!r:.60}")


def _places(data: Any) -> Iterator[int]:
    kind, held = data
    if kind == "tensor":
        yield held
    elif kind != "constant":
        for inner in held:
            yield from _places(inner[1] if kind == "dict" else inner)


def _match(data: Any, item: Any, found: list[Any], where: str) -> None:
    kind, held = data
    if kind == "tensor":
        if not isinstance(item, tangrad.Tensor):
            raise RuntimeError(f"{where}: expected a tensor, got {type(item).__name__}")
        found.append(item)
    elif kind == "constant":
        if type(item) is not type(held) or item != held:
            raise RuntimeError(f"{where}: traced with {held!r}, called with {item!r}")
    elif kind == "dict":
        # The program has read these; what else there is, and in which order, it cannot tell.
        if not isinstance(item, dict) or any(key not in item for key, _ in held):
            raise RuntimeError(f"{where}: expected a dict with the keys {[k for k, _ in held]}")
        for key, inner in held:
            _match(inner, item[key], found, f"{where}[{key!r}]")
    else:
        if not isinstance(item, (tuple, list)) or len(item) != len(held):
            raise RuntimeError(f"{where}: expected {len(held)} of them, as in the example")
        for k, inner in enumerate(held):
            _match(inner, item[k], found, f"{where}[{k}]")


def _build(data: Any, tensors: list[Any]) -> Any:
    kind, held = data
    if kind == "tensor":
        return tensors[held]
    if kind == "constant":
        return held
    if kind == "dict":
        return {key: _build(inner, tensors) for key, inner in held}
    members = [_build(inner, tensors) for inner in held]
    return members if kind == "list" else tuple(members)

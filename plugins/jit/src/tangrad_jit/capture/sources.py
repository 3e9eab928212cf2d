"""Where a program has its numbers, and putting others in their place while a run is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tangrad_jit._guards import CellGuard, DictGuard, EntryGuard, Guard, ListGuard, is_same
from tangrad_jit.capture.guarded_state import Key

__all__ = [
    "Source",
    "argument_sources",
    "changed_numbers",
    "held_sources",
    "hyperparameters",
    "replaced",
]

_REAL = (int, float)


class Source:
    """A place that holds a number.

    Attributes:
        key: what tells it from all others. name: for people.
    """

    key: Key
    name: str

    def get(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what is there now, for a call with these arguments."""
        raise NotImplementedError


class _Held(Source):
    """An entry of a dict or list."""

    def __init__(self, holder: Any, place: Any, name: str) -> None:
        self.holder, self.place, self.name = holder, place, name
        self.key = (id(holder), place)

    def get(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.holder[self.place]

    def put(self, item: Any) -> None:
        """Put an object there."""
        self.holder[self.place] = item


class _Member(Source):
    """A member of a tuple that is an entry of a dict: an optimizer's betas."""

    def __init__(self, holder: Any, place: Any, index: int, name: str) -> None:
        self.holder, self.place, self.index, self.name = holder, place, index, name
        self.original = holder[place]
        self.key = (id(holder), place, index)

    def get(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.holder[self.place][self.index]

    def put(self, item: Any) -> None:
        """Put a tuple with an object in it there."""
        held = self.holder[self.place]
        made = (*held[: self.index], item, *held[self.index + 1 :])
        # Guards know a tuple by its identity.
        same = len(made) == len(self.original) and all(map(is_same, made, self.original))
        self.holder[self.place] = self.original if same else made


class _Cell(Source):
    """A closure's cell."""

    def __init__(self, cell: Any, name: str) -> None:
        self.cell, self.name, self.key = cell, name, (id(cell), "cell")

    def get(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.cell.cell_contents

    def put(self, item: Any) -> None:
        """Put an object there."""
        self.cell.cell_contents = item


class _Argument(Source):
    """An argument, or a member of tuples among them."""

    def __init__(self, path: tuple[Any, ...], name: str) -> None:
        self.path, self.name, self.key = path, name, ("argument", name)

    def get(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        item: Any = kwargs if isinstance(self.path[0], str) else args
        for place in self.path:
            item = item[place]
        return item


class _Entry(_Argument):
    """A member of a list or dict among the arguments."""

    def __init__(self, holder: Any, path: tuple[Any, ...], name: str) -> None:
        super().__init__(path, name)
        self.holder = holder

    def put(self, item: Any) -> None:
        """Put an object there."""
        self.holder[self.path[-1]] = item


_Place = _Held | _Member | _Cell


def held_sources(guards: Iterable[Guard]) -> dict[Key, _Place]:
    """Return the numbers that a program's dicts, lists and closures hold, by their keys."""
    found: dict[Key, _Place] = {}
    for guard in guards:
        for source in _sources_of(guard):
            found.setdefault(source.key, source)
    return found


def _sources_of(guard: Guard) -> Iterable[_Place]:
    if isinstance(guard, DictGuard):
        for key, value in guard.held.items():
            if type(value) in _REAL:
                yield _Held(guard.held, key, f"{guard.path}[{key!r}]")
            elif type(value) is tuple and value and all(type(v) is float for v in value):
                for k in range(len(value)):
                    yield _Member(guard.held, key, k, f"{guard.path}[{key!r}][{k}]")
    elif isinstance(guard, ListGuard):
        for k, value in enumerate(guard.held):
            if type(value) in _REAL:
                yield _Held(guard.held, k, f"{guard.path}[{k}]")
    elif isinstance(guard, EntryGuard):
        if type(guard.held.get(guard.key)) in _REAL:
            yield _Held(guard.held, guard.key, str(guard.key))
    elif isinstance(guard, CellGuard) and type(guard.cell.cell_contents) in _REAL:
        yield _Cell(guard.cell, guard.path)


def argument_sources(args: Any, kwargs: Any) -> dict[Key, _Argument]:
    """Return the numbers among arguments, also in tuples, lists and dicts, by their keys."""
    found: dict[Key, _Argument] = {}

    def look(item: Any, path: tuple[Any, ...], name: str) -> None:
        if type(item) in _REAL:
            source = _Argument(path, name)
            found[source.key] = source
        elif type(item) is tuple:
            for k, member in enumerate(item):
                look(member, (*path, k), f"{name}[{k}]")
        elif type(item) in (list, dict):
            for k, member in item.items() if type(item) is dict else enumerate(item):
                enter(item, member, (*path, k), f"{name}[{k!r}]")

    def enter(holder: Any, item: Any, path: tuple[Any, ...], name: str) -> None:
        if type(item) in _REAL:
            source = _Entry(holder, path, name)
            found[source.key] = source
        elif type(item) is not tuple:  # one that is held would have to be another for each number
            look(item, path, name)

    for k, item in enumerate(args):
        look(item, (k,), f"args[{k}]")
    for key, item in kwargs.items():
        look(item, (key,), f"kwargs[{key!r}]")
    return found


def replaced(args: Any, kwargs: Any, others: dict[Key, Any]) -> tuple[Any, Any]:
    """Return arguments with others in the place of some numbers, by the keys of their sources."""

    def new(item: Any, name: str) -> Any:
        if type(item) in _REAL:
            return others.get(("argument", name), item)
        if type(item) is tuple:
            return tuple(new(member, f"{name}[{k}]") for k, member in enumerate(item))
        return item

    if not any(isinstance(key, tuple) and key[0] == "argument" for key in others):
        return args, kwargs
    return (
        tuple(new(item, f"args[{k}]") for k, item in enumerate(args)),
        {key: new(item, f"kwargs[{key!r}]") for key, item in kwargs.items()},
    )


def hyperparameters(objects: Iterable[Any]) -> set[Key]:
    """Return the keys of what schedules change of the optimizers among objects."""
    module = sys.modules.get("tangrad.optim.optimizer")
    if module is None:
        return set()  # nobody has made one
    return {
        (id(group), "lr")
        for item in objects
        if isinstance(item, module.Optimizer)
        for group in item.param_groups
    }


def changed_numbers(guards: Iterable[Guard]) -> dict[Key, Source]:
    """Return the places whose numbers have changed, of one type before and now, by their keys."""
    found: dict[Key, Source] = {}
    for guard in guards:
        if not isinstance(guard, (DictGuard, ListGuard, EntryGuard, CellGuard)) or guard.check():
            continue
        for source in _sources_of(guard):
            was = guard.was(getattr(source, "place", None))
            if isinstance(source, _Member):
                fits = type(was) is tuple and source.index < len(was)
                was = was[source.index] if fits else None
            now = source.get((), {})
            if type(was) is type(now) and type(now) in _REAL and was != now:
                found[source.key] = source
    return found

"""Named tuples of ops with several results, as `torch.return_types` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import _C


def structseq(name: str, fields: Sequence[str]) -> type:
    """Return a tuple class whose items are also attributes; it is called with the items."""

    def new(cls: type, *items: Any) -> Any:
        if len(items) == 1 and len(fields) != 1:
            items = tuple(items[0])
        return tuple.__new__(cls, items)

    def show(self: Any) -> str:
        inner = ",\n".join(f"{field}={item!r}" for field, item in zip(fields, self, strict=True))
        return f"{_C.shown('return_types')}.{name}(\n{inner})"

    def reduce(self: Any) -> Any:
        return _rebuild, (name, tuple(fields), tuple(self))

    def item(position: int) -> property:
        return property(lambda self: self[position])

    namespace: dict[str, Any] = {
        "__slots__": (),
        "__module__": "tangrad.return_types",
        "__new__": new,
        "__repr__": show,
        "__reduce__": reduce,
        "_fields": tuple(fields),
        "__match_args__": tuple(fields),
        # What the interpreter's own classes of such tuples have, PyTorch's among them.
        **dict.fromkeys(("n_fields", "n_sequence_fields"), len(fields)),
        "n_unnamed_fields": 0,
        **{field: item(position) for position, field in enumerate(fields)},
    }
    return type(name, (tuple,), namespace)


def _rebuild(name: str, fields: tuple[str, ...], items: tuple[Any, ...]) -> Any:
    return structseq(name, fields)(*items)

"""Lists and dicts that stand as arguments of nodes, whose users would miss a change in place."""

from __future__ import annotations

from typing import Any, NoReturn

from tangrad.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]

_LIST_CHANGES = (
    "__delitem__ __iadd__ __imul__ __setitem__ append clear extend insert pop remove reverse sort"
)
_DICT_CHANGES = "__delitem__ __ior__ __setitem__ clear pop popitem setdefault update"


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. Arguments of a node are not "
        "changed in place; make a copy, change it, and assign it: node.args = changed"
    )


class immutable_list(list[Any]):
    """A list that refuses to be changed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (list(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that refuses to be changed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


for _name in _LIST_CHANGES.split():
    setattr(immutable_list, _name, _refuse)
for _name in _DICT_CHANGES.split():
    setattr(immutable_dict, _name, _refuse)

_pytree.register_pytree_node(
    immutable_list, lambda x: (list(x), None), lambda values, context: immutable_list(values)
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda values, context: immutable_dict(zip(context, values, strict=True)),
)

"""Nested containers as trees: flatten to leaves and a spec, and back."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "LeafSpec",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

PyTree = Any


class NodeDef(NamedTuple):
    """How a class of containers is taken apart and made again."""

    type: Any
    flatten_fn: Callable[[Any], Any]
    unflatten_fn: Callable[[Any, Any], Any]


# By class; the function `namedtuple` stands for all classes that it makes.
SUPPORTED_NODES: dict[Any, NodeDef] = {}


class TreeSpec:
    """The shape of a tree without its leaves.

    Attributes:
        type: class of the container, or None for a leaf.
        context: what is needed beside the children to rebuild it.
        children_specs: specs of its children.
    """

    __slots__ = ("children_specs", "context", "num_leaves", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = 1 if type is None else sum(c.num_leaves for c in children_specs)

    def is_leaf(self) -> bool:
        """Return whether the tree is one leaf."""
        return self.type is None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.type is other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{inner}])"


def LeafSpec() -> TreeSpec:
    """Return the spec of a leaf."""
    return TreeSpec(None, None, [])


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], Any],
    unflatten_fn: Callable[[Any, Any], Any],
    **ignored: Any,
) -> None:
    """Make a class a container.

    Args:
        cls: the class; subclasses are leaves unless registered too.
        flatten_fn: object -> (list of children, context).
        unflatten_fn: (children, context) -> object.

    Raises:
        ValueError: the class is registered already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Any, context: list[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    return list(d.items()), list(d)


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    return namedtuple if kind not in SUPPORTED_NODES and _is_namedtuple(kind) else kind


register_pytree_node(tuple, lambda x: (list(x), None), lambda children, context: tuple(children))
register_pytree_node(
    namedtuple,  # type: ignore[arg-type]
    lambda x: (list(x), type(x)),
    lambda children, kind: kind(*children),
)
register_pytree_node(list, lambda x: (list(x), None), lambda children, context: list(children))
register_pytree_node(
    dict,
    lambda x: (list(x.values()), list(x)),
    lambda children, keys: dict(zip(keys, children, strict=True)),
)
register_pytree_node(
    OrderedDict,
    lambda x: (list(x.values()), list(x)),
    lambda children, keys: OrderedDict(zip(keys, children, strict=True)),
)
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
)
register_pytree_node(
    deque, lambda x: (list(x), x.maxlen), lambda children, maxlen: deque(children, maxlen)
)


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """Return (leaves in order, spec)."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LeafSpec()
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """Rebuild a tree.

    Raises:
        ValueError: the number of leaves is wrong.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec "
            "refers to a "
            f"pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    return _unflatten(iter(leaves), treespec)


def _unflatten(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_unflatten(leaves, child) for child in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return the leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """Return the spec."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Apply a function to each leaf, with the leaves of further trees of the same shape."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others, strict=True)], spec)


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call a function on each leaf and return the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(
    kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Apply a function to the leaves of a class."""
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Return whether a predicate holds for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Return whether a predicate holds for any leaf."""
    return any(map(pred, tree_leaves(tree)))


def broadcast_prefix(prefix: Any, spec: TreeSpec) -> list[Any] | None:
    """Return one value per leaf of `spec`, a leaf of `prefix` standing for a subtree, or None."""
    if _get_node_type(prefix) not in SUPPORTED_NODES:
        return [prefix] * spec.num_leaves
    if spec.type is None:
        return None
    own = tree_structure(prefix, is_leaf=lambda x: x is not prefix)
    if (
        own.type is not spec.type
        or own.context != spec.context
        or len(own.children_specs) != len(spec.children_specs)
    ):
        return None
    values: list[Any] = []
    for child, child_spec in zip(
        tree_leaves(prefix, is_leaf=lambda x: x is not prefix), spec.children_specs, strict=True
    ):
        found = broadcast_prefix(child, child_spec)
        if found is None:
            return None
        values.extend(found)
    return values

"""Nested containers as trees: flatten to leaves and a spec, and back."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tangrad import _C

__all__ = [
    "GetAttrKey",
    "LeafSpec",
    "MappingKey",
    "SequenceKey",
    "TreeSpec",
    "arg_tree_leaves",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "key_get",
    "keystr",
    "map_only",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
]

PyTree = Any
Context = Any
IsLeaf = Callable[[Any], bool] | None


class _Key:
    """One step of the way from a tree to a leaf."""

    __slots__ = ("_value",)
    _field, _text = "", ""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._value == other._value

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._field}={self._value!r})"

    def __str__(self) -> str:
        return self._text.format(self._value)

    def get(self, parent: Any) -> Any:
        """Return the child to which this step leads."""
        return parent[self._value]


class SequenceKey(_Key):
    """The step to an item by its index, `idx`."""

    __slots__ = ()
    _field, _text = "idx", "[{!r}]"
    idx = property(lambda self: self._value)


class MappingKey(_Key):
    """The step to a value by its key, `key`."""

    __slots__ = ()
    _field, _text = "key", "[{!r}]"
    key = property(lambda self: self._value)


class GetAttrKey(_Key):
    """The step to an attribute by its name, `name`."""

    __slots__ = ()
    _field, _text = "name", ".{}"
    name = property(lambda self: self._value)

    def get(self, parent: Any) -> Any:
        """Return the attribute."""
        return getattr(parent, self._value)


KeyPath = tuple[_Key, ...]


class NodeDef(NamedTuple):
    """How a class of containers is taken apart and made again."""

    type: Any
    flatten_fn: Callable[[Any], Any]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], Any] | None = None


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

    @property
    def num_children(self) -> int:
        """How many children the container has."""
        return len(self.children_specs)

    @property
    def num_nodes(self) -> int:
        """How many containers and leaves there are."""
        return 1 + sum(child.num_nodes for child in self.children_specs)

    def children(self) -> list[TreeSpec]:
        """Return the specs of its children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """Return the spec of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Any) -> Any:
        """Return the tree that has these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return what a tree has at the places of this one's leaves.

        Raises:
            ValueError: it is built otherwise.
        """
        if self.type is None:
            return [tree]
        own = tree_structure(tree, is_leaf=lambda x: x is not tree)
        if own.type is not self.type or own.num_children != self.num_children:
            raise ValueError(f"the tree {own} does not begin like {self}")
        children = SUPPORTED_NODES[self.type].flatten_fn(tree)[0]
        found: list[Any] = []
        for child, spec in zip(children, self.children_specs, strict=True):
            found += spec.flatten_up_to(child)
        return found

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
    *,
    flatten_with_keys_fn: Callable[[Any], Any] | None = None,
    **ignored: Any,
) -> None:
    """Make a class a container.

    Args:
        cls: the class; subclasses are leaves unless registered too.
        flatten_fn: object -> (list of children, context).
        unflatten_fn: (children, context) -> object.
        flatten_with_keys_fn: object -> (list of (key, child), context), for functions of paths.

    Raises:
        ValueError: the class is registered already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def register_constant(cls: type) -> None:
    """Make a class a container without children: its objects belong to the shape of a tree."""
    register_pytree_node(
        cls,
        lambda x: ([], _Constant(x)),
        lambda children, context: context.value,
        flatten_with_keys_fn=lambda x: ([], _Constant(x)),
    )


class _Constant(NamedTuple):
    """An object that belongs to the shape of a tree."""

    value: Any


def is_constant_class(cls: type) -> bool:
    """Return whether `register_constant` was given a class."""
    node = SUPPORTED_NODES.get(cls)
    return node is not None and node.flatten_fn.__qualname__.startswith("register_constant.")


def _register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], Any],
    unflatten_fn: Callable[[Any, Any], Any],
    **more: Any,
) -> None:
    """Make a class a container, by the older name; once more is no error."""
    if cls not in SUPPORTED_NODES:
        register_pytree_node(cls, flatten_fn, unflatten_fn, **more)


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    **ignored: Any,
) -> None:
    """Make a class that is made of its fields a container; fields that are None are no children.

    Args:
        cls: a dataclass, or another class that takes its fields by name.
        field_names: the fields; by default those of the dataclass.
        drop_field_names: fields of the dataclass that are left out of `field_names`.

    Raises:
        ValueError: the class is registered already, or the names are not its fields.
    """
    import dataclasses

    fields: set[str] | None = None
    if dataclasses.is_dataclass(cls):
        declared = [field.name for field in dataclasses.fields(cls) if field.init]
        fields = set(declared) - set(drop_field_names or ())
        field_names = declared if field_names is None else field_names
        if drop_field_names is None or field_names is not declared:
            _check_fields(cls, fields, set(field_names))
    elif field_names is None:
        raise ValueError(
            f"field_names must be specified with a list of all fields used to initialize {cls}, "
            "as it is not a dataclass."
        )
    names = list(field_names)

    def flatten(obj: Any) -> tuple[list[Any], list[list[str]]]:
        there = [name for name in names if getattr(obj, name) is not None]
        absent = [name for name in names if name not in there]
        return [getattr(obj, name) for name in there], [there, absent]

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = flatten(obj)
        return list(zip(map(GetAttrKey, context[0]), values, strict=True)), context

    def unflatten(values: Any, context: Any) -> Any:
        there, absent = context
        return cls(**dict(zip(there, values, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)


def _check_fields(cls: type, declared: set[str], given: set[str]) -> None:
    if declared != given:
        raise ValueError(
            "field_names does not include all dataclass fields.\n"
            f"{cls.__name__}: missing in `field_names`: {sorted(declared - given)}, unexpected: "
            f"{sorted(given - declared)}; name what is no child in `drop_field_names`."
        )


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Any, context: list[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _items_with_keys(x: Any) -> tuple[list[tuple[Any, Any]], Any]:
    keyed = [(SequenceKey(i), item) for i, item in enumerate(x)]
    return keyed, SUPPORTED_NODES[type(x)].flatten_fn(x)[1]


def is_namedtuple_class(cls: Any) -> bool:
    """Return whether a class is one that `namedtuple` makes, or a subclass of one."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(obj: Any) -> bool:
    """Return whether an object is of a class that `namedtuple` makes."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Return whether a class, or the class of an object, is one that `namedtuple` makes."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Return whether a class is one of the named results of ops, or of the interpreter's."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, n, None), int) for n in ("n_fields", "n_sequence_fields"))
    )


def is_structseq_instance(obj: Any) -> bool:
    """Return whether an object is of a class as `is_structseq_class` knows."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Return whether a class, or the class of an object, is as `is_structseq_class` knows."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    return namedtuple if kind not in SUPPORTED_NODES and is_namedtuple_class(kind) else kind


register_pytree_node(
    tuple,
    lambda x: (list(x), None),
    lambda children, context: tuple(children),
    flatten_with_keys_fn=_items_with_keys,
)
register_pytree_node(
    _C.Size,
    lambda x: (list(x), None),
    lambda children, context: tuple(children),
    flatten_with_keys_fn=_items_with_keys,
)
register_pytree_node(
    namedtuple,  # type: ignore[arg-type]
    lambda x: (list(x), type(x)),
    lambda children, kind: kind(*children),
    flatten_with_keys_fn=lambda x: (list(zip(map(GetAttrKey, x._fields), x, strict=True)), type(x)),
)
register_pytree_node(
    list,
    lambda x: (list(x), None),
    lambda children, context: list(children),
    flatten_with_keys_fn=_items_with_keys,
)
register_pytree_node(
    dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys
)
register_pytree_node(
    OrderedDict,
    _dict_flatten,
    lambda children, keys: OrderedDict(zip(keys, children, strict=True)),
    flatten_with_keys_fn=_dict_flatten_with_keys,
)
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
    flatten_with_keys_fn=lambda x: (_dict_flatten_with_keys(x)[0], [x.default_factory, list(x)]),
)
register_pytree_node(
    deque,
    lambda x: (list(x), x.maxlen),
    lambda children, maxlen: deque(children, maxlen),
    flatten_with_keys_fn=_items_with_keys,
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
            f"refers to a pytree that holds {treespec.num_leaves} items ({treespec})."
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


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """Return the leaves of the arguments of a call, in order."""
    return tree_leaves((args, kwargs))


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


def map_only(kind: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Return a decorator that lets a function change the values of a class only.

    Args:
        kind: a class, several as a tuple or a union, or a predicate.
    """
    if isinstance(kind, (type, tuple)) or not callable(kind):

        def chosen(x: Any) -> bool:
            return isinstance(x, kind)
    else:
        chosen = kind

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: func(x) if chosen(x) else x

    return decorate


def tree_map_only(
    kind: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Apply a function to the leaves of a class, of several, or that a predicate chooses."""
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    kind: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Call a function on such leaves as `tree_map_only` does, and return the tree itself."""
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether a tree is one leaf."""
    stops = is_leaf is not None and is_leaf(tree)
    return stops or _get_node_type(tree) not in SUPPORTED_NODES


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """Iterate over the leaves in order."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(child, is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether a predicate holds for all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether a predicate holds for any leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    kind: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Return whether a predicate holds for all leaves of a class."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(
    kind: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Return whether a predicate holds for any leaf of a class."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """Return (path, leaf) for each leaf in order; a path is a tuple of keys.

    Raises:
        ValueError: a container was registered without `flatten_with_keys_fn`.
    """
    return list(_with_paths((), tree, is_leaf))


def _with_paths(path: KeyPath, tree: Any, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    kind = _get_node_type(tree)
    flatten_with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if flatten_with_keys is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a "
            "flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in flatten_with_keys(tree)[0]:
        yield from _with_paths((*path, key), child, is_leaf)


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Return ((path, leaf) for each leaf in order, spec)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """Apply `func(path, leaf, ...)` to each leaf, with the leaves of further trees alike."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    groups = zip(found, *others, strict=True)
    return tree_unflatten([func(path, leaf, *rest) for (path, leaf), *rest in groups], spec)


def keystr(kp: Any) -> str:
    """Return a path as text, such as "['a'][0].x"."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Any) -> Any:
    """Return what a path leads to in a tree."""
    for key in kp:
        obj = key.get(obj)
    return obj


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


def _functions_of(kind: Any) -> tuple[Any, Any, Any]:
    node = SUPPORTED_NODES[kind]
    return node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn


# By the names that programs take from PyTorch's file to register containers like these.
_tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys = _functions_of(tuple)
_list_flatten, _list_unflatten, _list_flatten_with_keys = _functions_of(list)
_namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys = _functions_of(
    namedtuple
)
_ordereddict_flatten, _ordereddict_unflatten, _ = _functions_of(OrderedDict)
_defaultdict_flatten, _defaultdict_unflatten, _ = _functions_of(defaultdict)
_deque_flatten, _deque_unflatten, _ = _functions_of(deque)
_broadcast_to_and_flatten = broadcast_prefix

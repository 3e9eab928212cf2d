"""Shapes that vary, told by tensors or found from several examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tangrad import Tensor
from tangrad.nn import Module
from tangrad.utils import _pytree
from tangrad_fx.export.dynamic_shapes import Dim
from tangrad_fx.export.exported_program import ExportedProgram
from tangrad_fx.export.named_arguments import by_name

__all__ = ["AdditionalInputs", "ShapesCollection"]


class ShapesCollection:
    """Shapes of tensors among nested arguments: `shapes[tensor] = (Dim("batch"), None)`.

    `export` takes it as `dynamic_shapes`.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._tensors: dict[int, Tensor] = {}

    def __setitem__(self, t: Tensor, shape: Any) -> None:
        """Say which dimensions of a tensor vary, as `dynamic_shapes` does.

        Raises:
            TypeError: it is no tensor.
            ValueError: other shapes were given for it.
        """
        known = self._shapes.get(self._key(t))
        if known and known != shape:
            raise ValueError(
                f"ShapesCollection: shapes of this tensor of shape {list(t.shape)} were given, "
                f"{known}, and are not {shape}"
            )
        self._shapes[id(t)] = shape

    def __getitem__(self, t: Tensor) -> Any:
        """Return what is said of a tensor: an empty dict to be filled if nothing is."""
        return self._shapes.setdefault(self._key(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def _key(self, t: Tensor) -> int:
        if not isinstance(t, Tensor):
            raise TypeError(f"ShapesCollection: shapes are of tensors, got {type(t).__name__}")
        self._tensors[id(t)] = t  # no other tensor may take over its id
        return id(t)

    def dynamic_shapes(
        self, m: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the shapes as `export` takes them, {argument: shapes}.

        Raises:
            ValueError: a tensor is none of the arguments.
        """
        named = by_name(m, args, dict(kwargs or {}))
        missing = set(self._shapes) - {id(leaf) for leaf in _pytree.tree_leaves(named)}
        if missing:
            lost = ", ".join(str(list(self._tensors[key].shape)) for key in missing)
            raise ValueError(
                f"ShapesCollection: tensors of shapes {lost} are not among the arguments "
                f"{list(named)}; give export the very tensors"
            )
        return _pytree.tree_map(lambda leaf: self._shapes.get(id(leaf)), named)


class AdditionalInputs:
    """Further examples: what differs among them varies.

    `export` takes it as `dynamic_shapes`.
    """

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> None:
        """Add an example.

        Raises:
            TypeError: the arguments are no tuple, or the keywords no dict.
        """
        if not isinstance(args, tuple) or not isinstance(kwargs or {}, Mapping):
            raise TypeError(
                f"AdditionalInputs.add: expected a tuple and a dict, got {type(args).__name__} and "
                f"{type(kwargs).__name__}"
            )
        self._examples.append((args, dict(kwargs or {})))

    def dynamic_shapes(
        self, m: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the shapes as `export` takes them: dimensions that vary alike are one `Dim`.

        Raises:
            ValueError: examples differ in structure, in numbers of dimensions, or in values that
                are no tensors.
        """
        named = by_name(m, args, dict(kwargs or {}))
        leaves, spec = _pytree.tree_flatten(named)
        columns = [[leaf] for leaf in leaves]
        for other_args, other_kwargs in self._examples:
            others, other_spec = _pytree.tree_flatten(by_name(m, other_args, other_kwargs))
            if other_spec != spec:
                raise ValueError(
                    f"AdditionalInputs: an example has the structure {other_spec}, the first one "
                    f"{spec}"
                )
            for column, leaf in zip(columns, others, strict=True):
                column.append(leaf)
        made: dict[tuple[int, ...], Dim] = {}
        return _pytree.tree_unflatten([_varying(column, made) for column in columns], spec)

    def verify(self, ep: ExportedProgram) -> None:
        """Run a program on all examples.

        Raises:
            RuntimeError: it does not take one.
        """
        module: Callable[..., Any] = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def _varying(column: list[Any], made: dict[tuple[int, ...], Dim]) -> Any:
    first = column[0]
    if not all(isinstance(value, Tensor) for value in column):
        if any(isinstance(value, Tensor) or value != first for value in column):
            raise ValueError(
                f"AdditionalInputs: a value that is no tensor is {first!r} in one example and "
                f"another in the next: a program holds for one; take a tensor"
            )
        return None
    if any(t.dim() != first.dim() for t in column):
        shapes = ", ".join(str(list(t.shape)) for t in column)
        raise ValueError(f"AdditionalInputs: a tensor has the shapes {shapes} in the examples")
    found = []
    for sizes in zip(*(t.shape for t in column), strict=True):
        if len(set(sizes)) == 1:
            found.append(None)
        else:
            found.append(made.setdefault(tuple(sizes), Dim(f"s{len(made)}")))
    return tuple(found) if any(found) else None

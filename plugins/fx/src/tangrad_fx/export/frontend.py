"""`export`: run a module on an example and keep it as an `ExportedProgram`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tangrad.nn import Module
from tangrad.utils import _pytree
from tangrad_fx.export import sizes as varying
from tangrad_fx.export.dynamic_shapes import Size, varying_sizes
from tangrad_fx.export.exported_program import ExportedProgram
from tangrad_fx.export.generalizing import RAISED, generalize
from tangrad_fx.export.named_arguments import by_name, shapes_by_name
from tangrad_fx.export.shape_collections import AdditionalInputs, ShapesCollection
from tangrad_fx.export.tracing import Trace, trace

__all__ = ["draft_export", "export"]


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Run a module on example arguments and return its graph, parameters and buffers as a program.

    What the program decides by values that are no tensors, by sizes among them, is kept as it went
    at the example. With `dynamic_shapes` the module is run with other sizes, too, until it is known
    how its integers depend on them.

    Args:
        mod: the module.
        args, kwargs: example arguments, nested values of tensors and others.
        dynamic_shapes: {argument: shapes} or one for each argument: for a tensor, {dimension:
            `Dim`, `Dim.AUTO` or `Dim.DYNAMIC`} or one for each, None for the example's size; or a
            `ShapesCollection`, or `AdditionalInputs`.
        strict, preserve_module_call_signature, prefer_deferred_runtime_asserts_over_guards:
            accepted.

    Raises:
        TypeError: `mod` is no module, `args` no tuple.
        ValueError: `dynamic_shapes` do not fit; the program cannot take other sizes.
        RuntimeError: the program asks for the value of a tensor that it computes.
        NotImplementedError: it enters or leaves autocast; there are more than six sizes that vary.
    """
    if not isinstance(mod, Module):
        raise TypeError(f"export: expected an nn.Module, got {type(mod).__name__}")
    if not isinstance(args, tuple):
        raise TypeError(
            "Expecting `args` to be a tuple of example positional inputs, got "
            f"{type(args).__name__}"
        )
    named = by_name(mod, args, dict(kwargs or {}))
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    if dynamic_shapes is not None:
        dynamic_shapes = shapes_by_name(mod, args, dict(kwargs or {}), dynamic_shapes)
    wanted = varying_sizes(named, dynamic_shapes)
    call = _Call(mod, args, dict(kwargs or {}), named)
    base = call.run({})
    while wanted:
        try:
            generalize(base, call, wanted)
            break
        except varying.DependsOnSizesError as error:
            narrowed = [_narrowed(call, size) for size in wanted]
            if narrowed != wanted:
                wanted = narrowed
                continue
            fixed = [size for size in wanted if not size.required]
            if not fixed:
                names = ", ".join(size.name for size in wanted)
                raise ValueError(f"export: {names} cannot vary: {error}") from None
            wanted = [size for size in wanted if size.required]
    return ExportedProgram(
        mod,
        base.graph,
        base.signature,
        mod.state_dict(keep_vars=True),
        {size.name: size for size in wanted},
        example_inputs=(args, dict(kwargs or {})),
        constants=base.constants,
        argument_names=list(named),
        in_spec=_pytree.tree_structure(tuple(named.values())),
        out_spec=base.out_spec,
    )


draft_export = export


class _Call:
    """A module with its arguments, to be run with other sizes."""

    def __init__(
        self, mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any], named: dict[str, Any]
    ) -> None:
        self.mod = mod
        self.leaves, self.spec = _pytree.tree_flatten((args, kwargs))
        self.names = [
            name if _pytree.tree_is_leaf(value) else f"{name}_{i}"
            for name, value in named.items()
            for i, _ in enumerate(_pytree.tree_leaves(value))
        ]

    def run(self, sizes: dict[tuple[int, int], int]) -> Trace:
        """Trace the module with other sizes.

        Args:
            sizes: {(leaf, dimension): size}.
        """
        leaves = list(self.leaves)
        for (leaf, dim), size in sizes.items():
            leaves[leaf] = varying.resized(leaves[leaf], dim, size)
        args, kwargs = _pytree.tree_unflatten(leaves, self.spec)
        return trace(self.mod, args, kwargs, self.names)


def _narrowed(call: _Call, size: Size) -> Size:
    """Return a hinted size with the greatest that the program takes, if it does not take more."""
    if size.max is not None or size.name != f"s{size.example}":  # a Dim's range is the caller's
        return size

    def runs(by: int) -> bool:
        try:
            call.run({(p.input, p.dim): p.of(size.example + by) for p in size.places})
        except RAISED:
            return False
        return True

    fails = next((2**k for k in range(7) if not runs(2**k)), None)
    if fails is None:
        return size
    taken = fails // 2
    while fails - taken > 1:
        middle = (taken + fails) // 2
        taken, fails = (middle, fails) if runs(middle) else (taken, middle)
    return size._replace(max=size.example + taken)

"""Make, take apart, convert and overwrite tensors of registered layouts; all with derivatives.

Modes that take over functions are offered `layout_tensor` and `component`, so that what traces
programs by them sees where components become tensors, and tensors components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tangrad import _C
from tangrad.autograd.function import Function
from tangrad.dispatch.overrides import offer
from tangrad.dispatch.stack import current


def _layout(which: Any) -> _C.layout:
    found = _C.layout_named(which) if isinstance(which, str) else which
    if not isinstance(found, _C.layout):
        raise TypeError(f"expected a layout or the name of one, got {type(which).__name__}")
    if found.definition is None:
        raise NotImplementedError(
            f"{found} has no definition: the package that brings its tensors is not installed"
        )
    return found


def layout_tensor(
    layout: _C.layout | str,
    components: Mapping[str, Any],
    shape: Sequence[int],
    *,
    metadata: Mapping[str, Any] | None = None,
    dtype: _C.dtype | None = None,
    requires_grad: bool = False,
) -> _C.Tensor:
    """Make a tensor of a registered layout.

    Args:
        layout: the layout or its name.
        components: {name: tensor}, all on one device and all that the layout names. The tensor
            holds them themselves; its gradient flows to those of `elements`.
        shape: of the tensor.
        metadata: {name: plain value}: numbers, strings, dtypes, tuples of them.
        dtype: of the tensor; that of the first of the layout's elements by default.
        requires_grad: make it a leaf that records.

    Raises:
        TypeError, ValueError, RuntimeError: the components are not those of the layout.
    """
    if current().function_modes:
        named = {"metadata": metadata, "dtype": dtype, "requires_grad": requires_grad}
        result = offer(layout_tensor, (layout, dict(components), tuple(shape)), named)
        if result is not NotImplemented:
            taken: _C.Tensor = result
            return taken
    which = _layout(layout)
    definition, given = which.definition, dict(components)
    _check_components(which, given)
    if dtype is None:
        name = (*definition.elements, *definition.components)[0]
        dtype = given[name].dtype
    size = tuple(int(n) for n in shape)
    # Each name of the layout in its order, so that what is printed and saved does not depend on
    # the order in which a caller writes them.
    ordered = {name: given[name] for name in definition.components}
    said = dict(metadata or {})
    definition.check(ordered, said, size)
    grad, recorded = _C.is_grad_enabled(), False
    for c in ordered.values():
        recorded = recorded or (grad and c.requires_grad) or _C.level_of(c) is not None
    if recorded:
        made = _Make.apply(which, size, dtype, said, tuple(ordered), *ordered.values())
    else:
        held = {name: _C.plain_alias(c) for name, c in ordered.items()}
        device = next(iter(held.values())).device
        made = _C.make_of_layout(which, held, said, size, dtype, device)
    return _C.requiring_grad(made) if requires_grad else made


def _check_components(which: _C.layout, given: Mapping[str, Any]) -> None:
    expected = which.definition.components
    if tuple(given) != expected and set(given) != set(expected):
        raise TypeError(
            f"{which}: expected the components {', '.join(expected)}, got {', '.join(given)}"
        )
    for name, c in given.items():
        if not isinstance(c, _C.Tensor):
            raise TypeError(f"{which}: component '{name}' must be a Tensor, not {type(c).__name__}")
        if c.layout is not _C.strided:
            raise TypeError(f"{which}: component '{name}' must be strided, not of {c.layout}")
    places = {str(c.device) for c in given.values()} if len(given) > 1 else ()
    if len(places) > 1:
        raise RuntimeError(f"{which}: the components are on several devices: {sorted(places)}")


def components(t: _C.Tensor) -> dict[str, _C.Tensor]:
    """Return {name: component} of a tensor of another layout: they themselves, without history.

    Raises:
        TypeError: it is a strided tensor.
    """
    held = _contents(t, "components").components
    if current().function_modes:
        return {name: component(t, name).detach() for name in held}
    return {name: _C.plain_alias(c) for name, c in held.items()}


def metadata(t: _C.Tensor) -> dict[str, Any]:
    """Return {name: value} of a tensor of another layout.

    Raises:
        TypeError: it is a strided tensor.
    """
    return dict(_contents(t, "metadata").metadata)


def component(t: _C.Tensor, name: str) -> _C.Tensor:
    """Return one component, with a derivative if it is one of the layout's `elements`.

    Raises:
        TypeError: the tensor is strided, or its layout has no component of the name.
    """
    if current().function_modes:
        result = offer(component, (t, name), {})
        if result is not NotImplemented:
            taken: _C.Tensor = result
            return taken
    definition = _definition(t, "component")
    if name not in definition.components:
        raise TypeError(f"{t.layout} has no component '{name}'; it has {definition.components}")
    if name not in definition.elements or _plain(t):
        return _C.plain_alias(_contents(t, "component").components[name])
    made: _C.Tensor = _Component.apply(t, name)
    return made


def replace_components(
    t: _C.Tensor,
    components: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any] | None = None,
    shape: Sequence[int] | None = None,
    writer: str = "replace_components",
) -> _C.Tensor:
    """Overwrite a tensor of another layout in place: it, and its aliases, hold other components.

    Args:
        t: the tensor. components: as for `layout_tensor`.
        metadata: None keeps it. shape: None keeps it.
        writer: what wrote, for messages.

    Returns:
        The tensor.

    Raises:
        RuntimeError: it is a leaf that requires gradients, and recording is on.
    """
    held = _contents(t, "replace_components")
    given = dict(components)
    _check_components(held.layout, given)
    size = tuple(t.shape) if shape is None else tuple(int(n) for n in shape)
    said = dict(held.metadata if metadata is None else metadata)
    ordered = {name: _C.plain_alias(given[name]) for name in held.layout.definition.components}
    held.layout.definition.check(ordered, said, size)
    written: _C.Tensor = _C.replace_contents(t, ordered, said, size, writer)
    return written


def to_layout(t: _C.Tensor, layout: _C.layout | str, **options: Any) -> _C.Tensor:
    """Convert a tensor to a layout, through its dense form; itself if it is of the layout already.

    Args:
        options: what the layout's `from_dense` takes.
    """
    found = _C.layout_named(layout) if isinstance(layout, str) else layout
    if t.layout is found and not options:
        return t
    if found is _C.strided:
        return dense(t)
    which = _layout(found)
    made: _C.Tensor = _FromDense.apply(dense(t), which.definition, options)
    return made


def dense(t: _C.Tensor) -> _C.Tensor:
    """Return the strided tensor of the same values; the tensor itself if it is strided."""
    if t.layout is _C.strided:
        return t
    if _plain(t):
        previous = _C._set_grad_enabled(False)
        try:
            made: _C.Tensor = t.layout.definition.to_dense(t)
        finally:
            _C._set_grad_enabled(previous)
        return made
    return _ToDense.apply(t)


def _plain(t: _C.Tensor) -> bool:
    """Whether nothing has to be recorded of it, and no level stands between."""
    return _C.contents_of(t) is not None and not (_C.is_grad_enabled() and t.requires_grad)


def _definition(t: Any, name: str) -> Any:
    if not isinstance(t, _C.Tensor) or t.layout.definition is None:
        raise TypeError(
            f"{name}() expects a tensor of another layout, got "
            f"{t.layout if isinstance(t, _C.Tensor) else type(t).__name__}"
        )
    return t.layout.definition


def _contents(t: Any, name: str) -> Any:
    _definition(t, name)
    held = _C.contents_of(t)
    if held is None:
        raise RuntimeError(
            f"{name}() was asked of a tensor inside a transform (vmap, grad, jvp); use ops there"
        )
    return held


class _Make(Function):
    @staticmethod
    def forward(layout: Any, shape: Any, dtype: Any, metadata: Any, names: Any, *held: Any) -> Any:
        components = {name: _C.plain_alias(c) for name, c in zip(names, held, strict=True)}
        return _C.make_of_layout(layout, components, metadata, shape, dtype, held[0].device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.names = inputs[4]
        ctx.save_for_backward(output.detach())

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (made,) = ctx.saved_tensors
        wanted = elements_of(made, g)
        return (None,) * 5 + tuple(wanted.get(name) for name in ctx.names)


def elements_of(t: Any, g: Any) -> dict[str, Any]:
    """Return the gradients of the elements of t, given that of t: dense, or of t's own places."""
    definition, mine = t.layout.definition, _C.contents_of(t).components
    held = _C.contents_of(g)
    if held is not None and g.layout is t.layout:
        others = [name for name in definition.components if name not in definition.elements]
        if all(_same_memory(mine[name], held.components[name]) for name in others):
            return {name: component(g, name) for name in definition.elements}
    return dict(definition.picked(t, dense(g)))


def _same_memory(a: Any, b: Any) -> bool:
    return (
        a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
    )


class _Component(Function):
    @staticmethod
    def forward(t: Any, name: str) -> Any:
        return _C.plain_alias(_C.contents_of(t).components[name])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        t, ctx.name = inputs
        ctx.save_for_backward(t.detach())

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (t,) = ctx.saved_tensors
        held = _C.contents_of(t)
        definition = held.layout.definition
        given = {
            name: g
            if name == ctx.name
            else _C.lookup_op("zeros_like")(c)
            if name in definition.elements
            else c
            for name, c in held.components.items()
        }
        return layout_tensor(held.layout, given, t.shape, metadata=held.metadata), None


class _ToDense(Function):
    @staticmethod
    def forward(t: Any) -> Any:
        return t.layout.definition.to_dense(t)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0].detach())

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (t,) = ctx.saved_tensors
        return t.layout.definition.gradient(t, g)

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return dense(tangent)


class _FromDense(Function):
    @staticmethod
    def forward(x: Any, definition: Any, options: dict[str, Any]) -> Any:
        return definition.from_dense(x, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return dense(g), None, None

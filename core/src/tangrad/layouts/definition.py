"""What is true of a layout: the class that a plugin derives from and registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from tangrad import _C
from tangrad.dispatch.resolution import FallbackWarning


class LayoutWarning(FallbackWarning):
    """An op has no kernel for a layout and runs on the dense form of its tensors."""


class Layout:
    """Say what a layout is; register an instance with `tangrad.plugin.register_layout`.

    Methods get tensors of the layout without history, below recording, unless they say otherwise.

    Attributes:
        components: names of the component tensors, in the order in which they are printed.
        elements: those of them whose elements are elements of the tensor: they have its dtype,
            follow it when it is converted, and carry its gradient.
        missing: what happens to an op without a kernel: "warn" computes it on the dense form and
            warns once, "densify" does so silently, "refuse" raises.
        methods: methods and properties that tensors of this layout have beyond those of every
            tensor: {name: function of the tensor, or property}.
        remarks_below: what is said of the tensor is printed on a line of its own.
        remarks_alone: what is said of the tensor tells its dtype, and what layout it has.
        misfit: what to do if a state dict has such tensors and the module that takes it has none.
        readers: what files of PyTorch name to rebuild such tensors: {"module.name": function}.
    """

    components: ClassVar[tuple[str, ...]] = ()
    elements: ClassVar[tuple[str, ...]] = ()
    missing: ClassVar[Literal["warn", "densify", "refuse"]] = "warn"
    methods: ClassVar[Mapping[str, Any]] = {}
    remarks_below: ClassVar[bool] = False
    remarks_alone: ClassVar[bool] = False
    misfit: ClassVar[str] = ""
    readers: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def check(
        self, components: Mapping[str, Any], metadata: Mapping[str, Any], shape: tuple[int, ...]
    ) -> None:
        """Raise if these are no tensor of the layout; asked whenever one is made."""

    def to_dense(self, t: Any) -> Any:
        """Return the strided tensor of the same values."""
        raise NotImplementedError(f"{type(self).__qualname__} has to define to_dense(self, t)")

    def from_dense(self, dense: Any, **options: Any) -> Any:
        """Return a tensor of the layout with the values of a strided one.

        Raises:
            NotImplementedError: the layout holds no such values, or says no way.
        """
        raise NotImplementedError(
            f"{type(self).__qualname__} says no way to make a tensor of it from a dense one"
        )

    def options(self, t: Any) -> Mapping[str, Any]:
        """Return what `from_dense` is given for values that are copied into `t`."""
        return {}

    def empty(self, size: tuple[int, ...], dtype: Any, device: Any) -> Any:
        """Return a tensor that holds no element: `zeros(size, layout=...)`.

        Raises:
            NotImplementedError: the layout says no way.
        """
        raise NotImplementedError(
            f"{type(self).__qualname__} says no way to make a tensor of a size alone"
        )

    def picked(self, t: Any, dense: Any) -> Mapping[str, Any]:
        """Return what `elements` would be for a dense tensor of t's shape, at the places of t.

        The transpose of `to_dense` in the elements: it makes gradients of components. Made of
        differentiable ops, it gives them derivatives of their own.
        """
        raise NotImplementedError(
            f"{type(self).__qualname__} has to define picked(self, t, dense) for gradients of "
            "components"
        )

    def gradient(self, t: Any, dense: Any) -> Any:
        """Return the gradient of a tensor of the layout, given that of its dense form.

        A strided tensor of its shape, or one of a layout. The default is the one it gets.
        """
        return dense

    def converted(self, t: Any, dtype: Any, device: Any) -> Any:
        """Return a copy with another dtype or device (None: the same)."""
        held = _C.contents_of(t)
        moved = {
            name: _C.lookup_op("_to_copy")(
                c, dtype=dtype if name in self.elements else None, device=device
            )
            for name, c in held.components.items()
        }
        return _C.make_of_layout(
            held.layout,
            moved,
            dict(held.metadata),
            tuple(t.shape),
            t.dtype if dtype is None else dtype,
            t.device if device is None else device,
        )

    def printed(self, t: Any) -> Mapping[str, Any]:
        """Return {name: tensor} of what is printed; the components by default.

        What has no name ("") is printed as a strided tensor is.
        """
        return dict(_C.contents_of(t).components)

    def remarks(self, t: Any) -> list[str]:
        """Return what is printed behind the components: size and metadata."""
        said = [f"{name}={value}" for name, value in _C.contents_of(t).metadata.items()]
        return [f"size={tuple(t.shape)}", *said]

    def strides(self, t: Any) -> tuple[int, ...] | None:
        """Return the strides of a tensor in elements; None: those of a contiguous one.

        Raises:
            RuntimeError: tensors of the layout have none, if the definition says so.
        """
        return None

    def is_contiguous(self, t: Any, memory_format: Any) -> bool | None:
        """Return whether elements lie in memory in the order of a format (None: the usual one).

        None answers as if the tensor were contiguous.
        """
        return None

    def file_form(self, t: Any) -> tuple[str, tuple[Any, ...]] | None:
        """Return ("module.name", arguments) of what rebuilds the tensor in PyTorch's files.

        None leaves it to a form of our own, which PyTorch cannot read.
        """
        return None

    # --- what the core asks; no plugin has to define these

    def tolist(self, t: Any) -> Any:
        """Return the elements as nested lists."""
        from tangrad.layouts.tensors import dense

        return dense(t.detach()).tolist()

    def item(self, t: Any) -> Any:
        """Return the only element."""
        from tangrad.layouts.tensors import dense

        return dense(t.detach()).item()

    def dense(self, t: Any) -> Any:
        """Return the dense form, with history."""
        from tangrad.layouts.tensors import dense

        return dense(t)

    def clone(self, t: Any) -> Any:
        """Return a copy of every component, without history."""
        return self.converted(t, None, None)

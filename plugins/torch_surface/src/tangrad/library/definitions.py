"""Define an op by a function: `custom_op`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad.library import operator
from tangrad.library.schemas import FunctionSchema, Tag, infer_schema, parse, tags_of
from tangrad.plugin import flat_tensors

__all__ = ["CustomOpDef", "custom_op", "triton_op", "wrap_triton"]

_log = logging.getLogger(__name__)

_DEFINED: dict[str, CustomOpDef] = {}


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Tag | Sequence[Tag] | None = None,
) -> Any:
    """Make a function an op of its own, `tangrad.ops.<namespace>.<name>`; also a decorator.

    What the function does is recorded by nobody: `register_autograd` says the derivative,
    `register_fake` the results on tensors without data, `register_vmap` the batch rule (without
    one, vmap calls the op for each sample). A name that is taken is taken over.

    Args:
        name: "namespace::name".
        fn: the function, or None to use this as a decorator.
        mutates_args: names of the arguments that it writes to, or "unknown" for all tensors.
        device_types: device types that it serves; None for every one.
        schema: "(Tensor x, float eps) -> Tensor"; inferred from the annotations by default.
        tags: `Tag.inplace` and `Tag.out` for ops that return what they wrote to.

    Raises:
        ValueError: the annotations give no schema, or it says otherwise than `mutates_args`.
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        namespace, short = operator.split(name)
        given = tags_of(tags)
        text = schema or infer_schema(function, mutates_args=mutates_args, tags=given)
        parsed = parse(name, text)
        written = {a.name for a in parsed.arguments if a.is_write}
        if schema is not None and written != set(mutates_args):
            raise ValueError(
                f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
                f"`schema={schema}`, which says that the op mutates {written}. Please make these "
                "consistent."
            )
        made = CustomOpDef(namespace, short, text, function, given)
        made.register_kernel(device_types)(function)
        return made

    return make if fn is None else make(fn)


class CustomOpDef:
    """An op made by `custom_op`: call it, and register what else is to be said of it."""

    def __init__(
        self,
        namespace: str,
        name: str,
        schema: str,
        fn: Callable[..., Any],
        tags: Tag | Sequence[Tag] | None = None,
    ) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._tags = tags_of(tags)
        self._qualname = f"{namespace}::{name}"
        parsed = parse(self._qualname, schema)
        if Tag.out not in self._tags and any(
            a.kwarg_only and a.is_tensor for a in parsed.arguments
        ):
            raise NotImplementedError(
                "custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. "
                f"Got: {name}{schema}"
            )
        tagged = (Tag.pt2_compliant_tag, *(t for t in self._tags if t is not Tag.pt2_compliant_tag))
        self._opoverload = operator.OpOverload(parsed, tagged)
        self._opoverload.owner = self
        self._opoverload.fake = self._fake
        self._fake_given: Callable[..., Any] | None = None
        self._disabled_kernel: set[str] = set()
        earlier = _DEFINED.get(self._qualname)
        if earlier is not None:
            operator.remove(earlier._opoverload)
        operator.add(self._opoverload)
        _DEFINED[self._qualname] = self
        self.__name__ = name
        self.__doc__ = fn.__doc__

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        return self._opoverload(*args, **kwargs)

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Have calls in a `with` block take the first function instead of a device's kernel.

        Args:
            device_type: device type of the kernel.
            enabled: False to switch it off, True to switch it on again.
        """
        disabled = device_type in self._disabled_kernel
        if device_type not in self._opoverload.kernels:
            _log.warning("%s has no kernel for %s to switch", self._qualname, device_type)
        (self._disabled_kernel.discard if enabled else self._disabled_kernel.add)(device_type)
        try:
            yield
        finally:
            (self._disabled_kernel.add if disabled else self._disabled_kernel.discard)(device_type)

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Have the op computed by a function on these device types (None: all); a decorator.

        Raises:
            ValueError: the op takes neither a tensor nor a `device` that would tell the device.
        """
        schema = self._opoverload._schema
        told = any(a.is_tensor for a in schema.arguments) or any(
            a.base == "Device" and a.name == "device" for a in schema.arguments
        )
        if device_types is not None and not told:
            raise ValueError(
                "Functions without tensor inputs are required to have a `device: torch.device` "
                "argument"
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            types = [device_types] if isinstance(device_types, str) else device_types
            for device in types or (operator.EVERY_DEVICE,):
                self._opoverload.kernels[device] = self._kernel(device, function)
            return function

        return register if fn is None else register(fn)

    def _kernel(self, device: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            chosen = self._init_fn if device in self._disabled_kernel else function
            result = chosen(*args, **kwargs)
            self._check_results(chosen, args, kwargs, result)
            return result

        return run

    def _check_results(
        self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        where = f"{self._name} (with implementation in {function.__module__})"
        if Tag.inplace in self._tags:
            if result is not args[0]:
                raise RuntimeError(
                    f"{where}: An operator tagged with torch.Tag.inplace must return its first "
                    "argument."
                )
        elif Tag.out in self._tags:
            names = [a.name for a in self._opoverload._schema.arguments if a.is_write]
            results = (result,) if len(names) == 1 else result
            if len(results) != len(names) or any(
                r is not kwargs[n] for r, n in zip(results, names, strict=True)
            ):
                raise RuntimeError(
                    f"{where}: An operator tagged with torch.Tag.out must return its mutable "
                    "keyword-only arguments."
                )
        elif not self._opoverload._schema.is_view:
            _check_aliases(where, [*args, *kwargs.values()], result)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Say by a function the results on tensors without data (device "meta"); a decorator."""
        self._fake_given = fn
        return fn

    def _fake(self, *args: Any, **kwargs: Any) -> Any:
        if self._fake_given is not None:
            return self._fake_given(*args, **kwargs)
        schema: FunctionSchema = self._opoverload._schema
        if Tag.inplace in self._tags:
            return args[0]
        if Tag.out in self._tags:
            written = tuple(kwargs[a.name] for a in schema.arguments if a.is_write)
            return written[0] if len(written) == 1 else written
        if schema.is_mutable and not schema.returns:
            return None
        raise RuntimeError(
            f"There was no fake impl registered for {self}. This is necessary for "
            "torch.compile/export/fx tracing to work. Please use "
            f"`{self._init_fn.__name__}.register_fake` to add an fake impl."
        )

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """Say the derivative.

        Args:
            backward: (ctx, *grads) -> one gradient or None per positional argument; for an
                argument or result that is a list of tensors, a list.
            setup_context: (ctx, inputs, output) that saves on ctx what backward needs; of an op
                with keyword-only arguments (ctx, inputs, keyword_only_inputs, output).

        Raises:
            RuntimeError: the op writes to an argument.
        """
        set_autograd(self._opoverload, backward, setup_context)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Say the batch rule: (info, in_dims, *args, **kwargs) -> (output, out_dims)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._opoverload.batching = function
            return function

        return register if func is None else register(func)

    def register_torch_dispatch(
        self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Say what a mode or tensor subclass with `__torch_dispatch__` does for this op."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._opoverload.torch_dispatch[torch_dispatch_class] = function
            return function

        return register if fn is None else register(fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Have floating inputs cast to a dtype inside autocast on a device type.

        Raises:
            ValueError: `device_type` is no string, or `cast_inputs` no dtype.
        """
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not isinstance(cast_inputs, tangrad.dtype):
            raise ValueError(f"Expected `cast_inputs` of type dtype, got: `{type(cast_inputs)}`")
        self._opoverload.autocast[device_type] = cast_inputs


def set_autograd(
    op: operator.OpOverload,
    backward: Callable[..., Any],
    setup_context: Callable[..., Any] | None,
) -> None:
    """Set the derivative of an op.

    Raises:
        RuntimeError: the op writes to an argument.
    """
    if op._schema.is_mutable:
        raise RuntimeError(
            "Cannot register autograd formula for non-functional operator "
            f"{op.owner or op} with schema {op._schema}. Please create a functional operator and "
            "register an autograd formula for that."
        )
    op.backward, op.setup_context = backward, setup_context


def _check_aliases(where: str, inputs: list[Any], result: Any) -> None:
    """Refuse results that share memory with inputs or each other.

    Raises:
        RuntimeError: one does.
    """
    seen = [t.untyped_storage() for t in flat_tensors((inputs,))]
    for t in flat_tensors(([result],)):
        storage = t.untyped_storage()
        if any(storage is s for s in seen):
            raise RuntimeError(
                f"{where}: The output of this custom operator (1) must not also be an input to "
                "this custom operator and (2) may not alias any inputs to this custom operator or "
                "other returns. The most common way to trigger this error is if we have y = "
                "custom_op(x) and y and x are the same Tensor. Please instead return a clone of "
                "the offending output tensor(s) (e.g. return x.clone()) or refactor the custom "
                "operator to not return y."
            )
        seen.append(storage)


def triton_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
) -> Any:
    """Refuse: kernels in Triton's language need a device that runs them.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        f"triton_op: '{name}' would need Triton, which no installed device runs; define it by "
        "tangrad.library.custom_op with a kernel per device type"
    )


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Refuse, as `triton_op` does.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "wrap_triton: no installed device runs Triton's kernels; call the kernel inside of "
        "tangrad.library.custom_op"
    )

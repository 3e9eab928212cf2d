"""A call of a function with a derivative written by hand: its rules, its ctx, its recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.overrides import has_torch_function


class FunctionCtx:
    """What forward hands to backward."""

    _to_save: tuple[Any, ...] = ()
    _for_forward: tuple[Any, ...] | None = None
    _dirty: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _fixed: tuple[int, ...] = ()  # numbers of the results without a derivative
    _connected = False
    _in_jvp = False
    materialize_grads = True
    _materialize_non_diff_grads = True
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for `backward`; they come back as `saved_tensors`.

        Raises:
            TypeError: something else is given; make it an attribute of ctx.
        """
        _check_saved(tensors, "save_for_backward")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors (or None) for `jvp`."""
        _check_saved(tensors, "save_for_forward")
        self._for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Say which inputs forward wrote in place; they must be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no derivative."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Choose whether missing gradients arrive as zeros (the default) or as None."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` saved (in `jvp`: what `save_for_forward` saved)."""
        if self._in_jvp:
            return self._for_forward or ()
        if not self._connected:
            return self._for_forward if self._for_forward is not None else self._to_save
        return self._saved() or ()  # type: ignore[attr-defined]

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        import warnings

        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, 2)
        return self.saved_tensors


def _check_saved(tensors: tuple[Any, ...], name: str) -> None:
    for t in tensors:
        if t is not None and not isinstance(t, _C.Tensor):
            raise TypeError(
                f"{name} can only save variables, but argument {tensors.index(t)} is of type "
                f"{type(t).__name__}"
            )


class _FunctionNode(FunctionCtx, _C.FunctionNode):
    """A node of the graph whose rule is `backward` of a Function class; forward sees it as ctx."""

    _function: Any = None

    def apply(self, *grads: Any) -> Any:
        """Run backward; the engine calls this."""
        if self.materialize_grads:
            omitted = () if self._materialize_non_diff_grads else self._fixed
            grads = tuple(
                self._zeros(i) if g is None and self._is_tensor[i] and i not in omitted else g
                for i, g in enumerate(grads)
            )
        result = _backward_of(self._function)(self, *grads)
        results = (
            result
            if isinstance(result, tuple)
            else tuple(result)
            if isinstance(result, list)
            else (result,)
        )
        for i, (r, is_tensor) in enumerate(zip(results, self._takes_tensor, strict=False)):
            if r is not None and not is_tensor:
                raise RuntimeError(
                    f"function {type(self).__name__} returned a gradient different from None at "
                    f"position {i + 1}, but the corresponding forward input was not a Variable"
                )
        return results


def _backward_of(function: Any) -> Callable[..., Any]:
    if function.backward is not FunctionRules.backward and function.vjp is not FunctionRules.vjp:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
            "should only implement one of them."
        )
    return function.vjp if function.vjp is not FunctionRules.vjp else function.backward


class FunctionMeta(type):
    """Give each Function class the class of its nodes."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(f"{name}Backward", (_FunctionNode,), {"_function": cls})


class FunctionRules(metaclass=FunctionMeta):
    """What a Function class may define; a rule that is not defined says so when it is needed."""

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute: `forward(ctx, *args)`, or `forward(*args)` beside `setup_context`."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, if `forward` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return one gradient (or None) per argument of forward."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Stand for `backward` under another name."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return one tangent (or None) per output, for one tangent (or None) per argument."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Return (output(s), batch dimension(s)) for batched arguments."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )


def has_setup_context(cls: Any) -> bool:
    """Return whether a Function class separates forward from setup_context."""
    return cls.setup_context is not FunctionRules.setup_context


def run_forward(cls: Any, ctx: Any, args: tuple[Any, ...]) -> Any:
    """Run forward in the form that the class has it; whatever backward needs goes into ctx."""
    if not has_setup_context(cls):
        return cls.forward(ctx, *args)
    result = cls.forward(*args)
    cls.setup_context(ctx, args, result)
    return result


def apply_recorded(cls: Any, args: tuple[Any, ...], run: Callable[[Any], Any]) -> Any:
    """Run forward without recording, then connect its results to its arguments.

    Args:
        run: (ctx) -> the results of forward.
    """
    node = cls._backward_cls()
    node.needs_input_grad = tuple(isinstance(a, _C.Tensor) and a.requires_grad for a in args)
    records = _C.is_grad_enabled() and any(node.needs_input_grad)
    if records:
        pairs = zip(args, node.needs_input_grad, strict=True)
        node._take_edges(tuple(a if needed else None for a, needed in pairs))
    mode = _C._set_grad_enabled(False)
    try:
        result = run(node)
    finally:
        _C._set_grad_enabled(mode)
    several = isinstance(result, (tuple, list))
    outputs = list(result) if several else [result]
    if not any(isinstance(o, _C.Tensor) for o in outputs):
        return result
    _check_dirty(cls, node, outputs)
    node._fixed = fixed_among(node, outputs)
    if records:
        outputs = _connected(cls, node, args, outputs)
    else:
        outputs = [_constant(o, args, node._dirty) for o in outputs]
        for o in outputs if mode else ():
            if isinstance(o, _C.Tensor):
                _C.returned_by_function(o)
    return (
        (type(result)(outputs) if not hasattr(result, "_fields") else type(result)(*outputs))
        if several
        else outputs[0]
    )


def fixed_among(ctx: Any, outputs: Any) -> tuple[int, ...]:
    """Return the numbers of the results that were marked as having no derivative."""
    marked = ctx._non_differentiable
    return tuple(k for k, o in enumerate(outputs) if any(o is n for n in marked))


def _check_dirty(cls: Any, node: Any, outputs: list[Any]) -> None:
    for d in node._dirty:
        if not any(d is o for o in outputs):
            raise RuntimeError(
                f"Some elements marked as dirty during the forward method of {cls.__name__} were "
                "not returned as output. The inputs that are modified inplace must all be outputs "
                "of the Function."
            )


def _connected(cls: Any, node: Any, args: tuple[Any, ...], outputs: list[Any]) -> list[Any]:
    originals = list(outputs)
    pairs = []
    for k, o in enumerate(outputs):
        if not isinstance(o, _C.Tensor):
            pairs.append((None, False))
            continue
        dirty = any(o is d for d in node._dirty)
        if dirty:
            _C.check_dirty(o, cls.__name__)
        elif any(o is a for a in args):
            outputs[k] = _view_of_argument(o, False)
        fixed = any(o is n for n in node._non_differentiable)
        pairs.append((outputs[k], not fixed and (o.dtype.is_floating_point or o.dtype.is_complex)))
    node._is_tensor = tuple(isinstance(o, _C.Tensor) for o in outputs)
    node._takes_tensor = tuple(isinstance(a, _C.Tensor) for a in args)
    edges = [_edge(t, args, originals, node._dirty) for t in node._to_save]
    node._connect(args[0], pairs, node._dirty)
    node._save(node._to_save, edges)
    node._to_save, node._connected = (), True
    node._dirty = node._non_differentiable = ()
    return outputs


def _constant(o: Any, args: tuple[Any, ...], dirty: tuple[Any, ...]) -> Any:
    """Return a result that is not recorded: never an argument itself, which may be recorded."""
    if not isinstance(o, _C.Tensor) or not any(o is a for a in args):
        return o
    if o.requires_grad:
        return o.detach()
    if not any(o is d for d in dirty):
        return _view_of_argument(o, True)
    _C.increment_version(o)  # written or not, as where it is recorded
    return o


def _view_of_argument(x: Any, recorded: bool) -> Any:
    """Return a view of an argument: the one that its class makes, where that sees calls."""
    return x.view_as(x) if has_torch_function((x,)) else _C.view_of_whole(x, recorded)


def _edge(t: Any, args: tuple[Any, ...], outputs: list[Any], dirty: tuple[Any, ...]) -> int:
    """Return the number of the input that a tensor is, -2 - k for result k, -1 for neither."""
    if not any(t is d for d in dirty):
        for i, a in enumerate(args):
            if t is a:
                return i
    return next((-2 - k for k, o in enumerate(outputs) if t is o), -1)

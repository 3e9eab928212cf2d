"""grad, vjp and jvp: one level each around a call of the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch import tangents
from tangrad.dispatch.levels import GradLevel, JvpLevel, Level
from tangrad.dispatch.stack import entered
from tangrad.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

Argnums = int | tuple[int, ...]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, _C.Tensor)


def _is_differentiable(t: Any) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


_NO_HOOKS = (
    "torch.func.{grad, vjp, jacrev, hessian} don't support saved tensor hooks, which would get "
    "tensors of a transform that has ended; use them outside, around a backward"
)


class _entered_grad:
    """Context manager: a grad level records; on leaving, its graph is complete."""

    def __init__(self) -> None:
        self.level = GradLevel()
        self.context = entered("levels", self.level)

    def __enter__(self) -> GradLevel:
        self.hooks = _C.disable_saved_tensor_hooks(_NO_HOOKS)
        self.context.__enter__()
        self.mode = _C._set_grad_enabled(True)
        return self.level

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.mode)
        _C.disable_saved_tensor_hooks(self.hooks)
        self.level.closed = True
        self.context.__exit__()


def _wrap_all(level: GradLevel | JvpLevel, tree: Any) -> Any:
    return tree_map(lambda x: level.wrap(x) if _is_tensor(x) else x, tree)


def _require(level: GradLevel, tree: Any, name: str) -> list[Any]:
    """Make the leaves of a tree inputs of the derivative; return them.

    Raises:
        TypeError: a leaf is no tensor.
        RuntimeError: a leaf has an integer or bool dtype.
    """
    leaves = tree_flatten(tree)[0]
    for x in leaves:
        if not _is_tensor(x):
            raise TypeError(
                f"{name}: Expected tensors as inputs, got value of type {type(x).__name__}; pass "
                "what is not to be differentiated outside argnums"
            )
        if not _is_differentiable(x):
            raise RuntimeError(
                f"{name}: only Tensors of floating point and complex dtype can be differentiated, "
                f"got an input of dtype {x.dtype} and shape {list(x.shape)}"
            )
        x.requires_grad = True
    return leaves


def unwrapped(level: Level, tree: Any) -> Any:
    """Replace a level's tensors in a tree by what they stand for."""
    return tree_map(lambda x: level.unwrap(x) if _is_tensor(x) else x, tree)


def _split_aux(result: Any, name: str, form: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        got = (
            f"tuple of length {len(result)}" if isinstance(result, tuple) else type(result).__name__
        )
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: ({form}, aux) if has_aux is True, "
            f"got {got}"
        )
    for x in tree_flatten(result[1])[0]:
        if not _is_tensor(x):
            raise RuntimeError(
                f"{name}: Expected tensors, got unsupported type {type(x).__name__} in aux"
            )
    return result


def _cotangents(
    outputs: list[Any], inputs: list[Any], grads: list[Any], retain: bool, create: bool
) -> list[Any]:
    """Walk a level's graph; zeros where an input does not matter."""
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    if not pairs:
        return [_zeros_below(t) for t in inputs]
    found = _C.engine_run([o for o, _ in pairs], [g for _, g in pairs], retain, create, inputs)
    return [_zeros_below(t) if g is None else g for t, g in zip(inputs, found, strict=True)]


def _zeros_below(t: Any) -> Any:
    return _C.lookup_op("zeros_like")(_C.level_of(t).inner)


# --- vjp -----------------------------------------------------------------------------------------


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Compute a function's value and the function that pulls cotangents back.

    Args:
        func: takes trees of tensors, returns a tree of tensors (has_aux: that and another).
        primals: trees of tensors at which to linearise.
        has_aux: `func` returns (output, aux).

    Returns:
        (output, vjp_fn) or (output, vjp_fn, aux); vjp_fn(cotangents) returns one tree per primal.

    Raises:
        RuntimeError: an output is no tensor, or of an integer dtype.
    """
    return pulled_back(func, primals, {}, tuple(range(len(primals))), has_aux)


def pulled_back(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: tuple[int, ...],
    has_aux: bool,
) -> Any:
    """Return what `vjp` does, for some of the arguments; the function may write to all of them."""
    with _entered_grad() as level:
        inner, named = _wrap_all(level, args), _wrap_all(level, kwargs)
        inputs = _require(level, select(inner, argnums), "vjp(f, *primals)")
        result = func(*inner, **named)
        aux: Any = None
        if has_aux:
            result, aux = _split_aux(result, "vjp(f, *primals)", "output")
        outputs, spec = tree_flatten(result)
        _check_outputs(outputs, "vjp(f, *primals)")
        value, aux = unwrapped(level, result), unwrapped(level, aux)
        roots = [o if level.owns(o) else level.wrap(o) for o in outputs]
    pull = _Pullback(roots, inputs, spec, tree_flatten(select(args, argnums))[1])
    return (value, pull, aux) if has_aux else (value, pull)


tangents.vjp = vjp


def _check_outputs(outputs: list[Any], name: str, any_dtype: bool = False) -> None:
    if not outputs or outputs == [None]:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output")
    for o in outputs:
        if not _is_tensor(o):
            raise RuntimeError(
                f"{name}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(o).__name__}"
            )
        if not any_dtype and not _is_differentiable(o):
            raise RuntimeError(
                f"{name}: All outputs of f must be floating-point or complex Tensors, got Tensor "
                f"with dtype {o.dtype}"
            )


class _Pullback:
    """What vjp returns: cotangents of the outputs to cotangents of the primals."""

    def __init__(
        self, roots: list[Any], inputs: list[Any], spec: TreeSpec, primals_spec: TreeSpec
    ) -> None:
        self.roots, self.inputs, self.spec, self.primals_spec = roots, inputs, spec, primals_spec

    def __call__(
        self, cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        leaves, spec = tree_flatten(cotangents)
        if spec != self.spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {spec}, primal output: {self.spec}"
            )
        for i, (c, o) in enumerate(zip(leaves, self.roots, strict=True)):
            if not _is_tensor(c):
                raise TypeError(f"cotangent {i} must be a Tensor, got {type(c).__name__}")
            if tuple(c.shape) != tuple(o.shape):
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {list(c.shape)} and "
                    f"output[{i}] has a shape of {list(o.shape)}."
                )
        create = _C.is_grad_enabled() if create_graph is None else create_graph
        return tree_unflatten(
            _cotangents(self.roots, self.inputs, leaves, retain_graph, create), self.primals_spec
        )


# --- grad ----------------------------------------------------------------------------------------


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes gradients of a scalar function.

    Args:
        func: returns a tensor with one element (with has_aux: that and a tree of tensors).
        argnums: which positional argument(s) to differentiate for.
        has_aux: `func` returns (output, aux); the result is (gradients, aux).

    Returns:
        A function with the arguments of `func`; a tuple of gradients if argnums is a tuple.
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, rest = both(*args, **kwargs)
        return (found, rest[1]) if has_aux else found

    return _named_like(gradient, func)


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes (gradients, value), or (gradients, (value, aux)).

    Args:
        func, argnums, has_aux: as for `grad`.
    """

    def both(*args: Any, **kwargs: Any) -> Any:
        chosen = checked_argnums(argnums, len(args), "grad")
        with _entered_grad() as level:
            wrapped, kwrapped = _wrap_all(level, args), _wrap_all(level, kwargs)
            wanted = select(wrapped, chosen)
            inputs = _require(level, wanted, "grad(f)")
            output = func(*wrapped, **kwrapped)
            aux: Any = None
            if has_aux:
                output, aux = _split_aux(output, "grad_and_value(f)(*args)", "output")
            _check_scalar(output)
            spec = tree_flatten(wanted)[1]
            value, aux = level.unwrap(output), unwrapped(level, aux)
            root = output if level.owns(output) else level.wrap(output)
        seed = _C.lookup_op("ones_like")(value)
        found = tree_unflatten(
            _cotangents([root], inputs, [seed], False, _C.is_grad_enabled()), spec
        )
        return (found, (value, aux)) if has_aux else (found, value)

    return _named_like(both, func)


def _check_scalar(output: Any) -> None:
    name = "grad_and_value(f)(*args)"
    if not _is_tensor(output):
        raise RuntimeError(
            f"{name}: Expected f(*args) to return a Tensor with a single element, got "
            f"{type(output).__name__}"
        )
    if output.ndim != 0:
        raise RuntimeError(
            f"{name}: Expected f(*args) to return a scalar tensor, got tensor with {output.ndim} "
            "dims. "
            "Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    if not _is_differentiable(output):
        raise RuntimeError(
            f"{name}: Expected f(*args) to return a floating-point scalar, got dtype {output.dtype}"
        )


def checked_argnums(argnums: Argnums, count: int, name: str) -> Argnums:
    """Return argnums counted from the front.

    Raises:
        RuntimeError: not an int or non-empty tuple of distinct ints in range.
    """
    if isinstance(argnums, int) and not isinstance(argnums, bool):
        return _one_argnum(argnums, count)
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"{name}: argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not argnums:
        raise RuntimeError(f"{name}: argnums must be non-empty")
    found = tuple(_one_argnum(a, count) for a in argnums)
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return found


def _one_argnum(argnum: Any, count: int) -> int:
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -count <= argnum < count:
        raise RuntimeError(f"Got argnum={argnum}, but only {count} positional inputs")
    return argnum + count if argnum < 0 else argnum


def select(args: tuple[Any, ...], argnums: Argnums) -> Any:
    """Return the argument, or the tuple of arguments, that argnums names."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[a] for a in argnums)


def _named_like(made: Callable[..., Any], func: Callable[..., Any]) -> Callable[..., Any]:
    from functools import update_wrapper

    return update_wrapper(made, func)


# --- jvp -----------------------------------------------------------------------------------------

_JVP = "jvp(f, primals, tangents)"


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Compute a function's value and its directional derivative.

    Args:
        func: takes trees of tensors, returns a tree of tensors (has_aux: that and another).
        primals: tuple of trees at which to linearise.
        tangents: tuple of trees of the same structure, shapes and dtypes.
        strict: raise where an output does not depend on the inputs.
        has_aux: `func` returns (output, aux).

    Returns:
        (output, tangent) or (output, tangent, aux).

    Raises:
        RuntimeError: structures or shapes differ.
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call "
            f"f(*primals). Got {type(primals).__name__}"
        )
    return pushed_forward(
        func, primals, {}, tuple(range(len(primals))), tangents, strict=strict, has_aux=has_aux
    )


def pushed_forward(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: tuple[int, ...],
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return what `jvp` does, for some of the arguments; the function may write to all of them."""
    name = _JVP
    points, spec = tree_flatten(select(args, argnums))
    directions, tangents_spec = tree_flatten(tangents)
    if spec != tangents_spec:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
            f"structure {spec} and tangents with structure {tangents_spec}"
        )
    _check_directions(points, directions, name)
    level = JvpLevel()
    with entered("levels", level):
        moving = tree_unflatten(
            [level.wrap(p, t) for p, t in zip(points, directions, strict=True)], spec
        )
        inner = [*args]
        for place in range(len(args)):
            inner[place] = (
                moving[argnums.index(place)] if place in argnums else _wrap_all(level, inner[place])
            )
        result = func(*inner, **_wrap_all(level, kwargs))
        aux: Any = None
        if has_aux:
            result, aux = _split_aux(result, name, "output")
        outputs, out_spec = tree_flatten(result)
        _check_outputs(outputs, name, any_dtype=True)
        value, aux = unwrapped(level, result), unwrapped(level, aux)
        with level.below():
            moved = [_tangent_or_zero(level, o, strict) for o in outputs]
    found = value, tree_unflatten(moved, out_spec)
    return (*found, aux) if has_aux else found


def _check_directions(points: list[Any], directions: list[Any], name: str) -> None:
    if not points:
        raise RuntimeError(f"{name}: Expected at least one Tensor in primals")
    for p, t in zip(points, directions, strict=True):
        if not _is_tensor(p) or not _is_tensor(t):
            raise RuntimeError(
                f"{name}: Expected primals and tangents to only contain Tensors, got "
                f"{type(p).__name__} and {type(t).__name__}"
            )
        if tuple(p.shape) != tuple(t.shape):
            raise RuntimeError(
                f"{name}: Expected each tangent to have the shape of its primal, got primal of "
                f"shape {list(p.shape)} and tangent of shape {list(t.shape)}"
            )


def _tangent_or_zero(level: JvpLevel, output: Any, strict: bool) -> Any:
    tangent = _C.level_of(output).tangent if level.owns(output) else None
    if tangent is None:
        if strict:
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                "inputs. "
                "This is not allowed with strict=True."
            )
        return _C.lookup_op("zeros_like")(level.unwrap(output))
    return tangent

"""What code calls whose branches and loops go into a graph.

A condition that is a tensor is not read: both sides of a branch are run, as `tangrad.cond` does,
and a loop becomes `tangrad.while_loop`. Numbers that depend on one are tensors without dimensions.
Everything else is what Python makes of it.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_jit.scripting.program.numbers import rt_div, rt_wrap
from tangrad_jit.scripting.program.values import rt_int

__all__: list[str] = []

_NUMBERS = (bool, int, float)
_PLAIN: dict[str, Callable[[Any], Any]] = {"bool": bool, "int": rt_int, "float": float}


def _truth(value: Any) -> Any:
    """Return a condition as a bool tensor without dimensions."""
    return value.reshape(()).to(tangrad.bool)


def _tensor(value: Any, name: str) -> Any:
    """Return a value as a graph carries it.

    Raises:
        RuntimeError: it is neither a tensor nor a number.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, _NUMBERS):
        kinds = {bool: tangrad.bool, int: tangrad.int64, float: tangrad.float64}
        return tangrad.tensor(value, dtype=kinds[type(value)])
    raise RuntimeError(
        f"{name}: a value that depends on a tensor's is a {type(value).__name__}; a graph carries "
        "tensors and numbers only"
    )


def _unchanged(function: Callable[..., Any], containers: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a function that refuses to change lists and dicts, which no graph carries."""

    def call(*args: Any) -> Any:
        before = [copy.copy(x) for x in containers]
        result = function(*args)
        for was, now in zip(before, containers, strict=True):
            same = len(was) == len(now) and all(map(operator.is_, was, now))
            if same and isinstance(was, dict):
                same = all(was[k] is now[k] for k in was)
            if not same:
                raise RuntimeError(
                    "a list or dict from outside is changed where a tensor's value decides whether "
                    "that happens; a graph carries tensors and numbers only"
                )
        return result

    return call


def rt_branch(
    holds: Any,
    then: Callable[[], Any],
    orelse: Callable[[], Any],
    containers: tuple[Any, ...] = (),
) -> Any:
    """Return what one of two functions returns.

    Args:
        holds: the condition.
        then, orelse: the functions.
        containers: lists and dicts that they may change where the condition is no tensor.

    Raises:
        RuntimeError: the condition is a tensor, and the functions return different kinds.
    """
    if not isinstance(holds, Tensor):
        return then() if holds else orelse()
    sides: list[tuple[list[Any], Any]] = []

    def run(function: Callable[[], Any]) -> Callable[[], Any]:
        def side() -> Any:
            sides.append(_pytree.tree_flatten(_unchanged(function, containers)()))
            return tuple(
                _tensor(x, "if") for x in sides[-1][0] if isinstance(x, (Tensor, *_NUMBERS))
            )

        return side

    results = iter(tangrad.cond(_truth(holds), run(then), run(orelse), ()))
    if len(sides) == 1:  # no tracer was there: one side has run, as in any program
        return _pytree.tree_unflatten(*sides[0])
    (one, spec), (other, other_spec) = sides
    if spec != other_spec:
        raise RuntimeError("if: the sides of a branch on a tensor give values of different kinds")
    found = []
    for a, b in zip(one, other, strict=True):
        carried = next(results) if isinstance(a, (Tensor, *_NUMBERS)) else None
        if not isinstance(a, Tensor) and type(a) is type(b) and a == b:
            found.append(a)
        else:
            _tensor(a, "if")
            found.append(carried)
    return _pytree.tree_unflatten(found, spec)


def rt_while(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    values: tuple[Any, ...],
    containers: tuple[Any, ...] = (),
) -> tuple[Any, ...]:
    """Return the values that a loop ends with.

    Args:
        condition, body: functions of the values.
        values: the first ones.
        containers: as in `rt_branch`.

    Raises:
        RuntimeError: the condition is a tensor, and the values change in kind.
    """
    while not isinstance(holds := condition(*values), Tensor):
        if not holds:
            return values
        values = body(*values)
    leaves, spec = _pytree.tree_flatten(values)

    def rebuilt(carried: Any) -> Any:
        return _pytree.tree_unflatten(list(carried), spec)

    def goes_on(*carried: Any) -> Any:
        return _truth(condition(*rebuilt(carried)))

    def step(*carried: Any) -> Any:
        following, after = _pytree.tree_flatten(
            tuple(_unchanged(body, containers)(*rebuilt(carried)))
        )
        if after != spec:
            raise RuntimeError("while: a loop on a tensor changes the kinds of its values")
        return tuple(_tensor(x, "while") for x in following)

    first = tuple(_tensor(x, "while") for x in leaves)
    found: tuple[Any, ...] = rebuilt(tangrad.while_loop(goes_on, step, first))
    return found


def rt_range(
    bounds: tuple[Any, ...],
    body: Callable[..., Any],
    values: tuple[Any, ...],
    flags: tuple[int, ...] = (),
    containers: tuple[Any, ...] = (),
) -> tuple[Any, ...]:
    """Return the values that a loop over a range ends with.

    Args:
        bounds: of the range.
        body: a round, given the number and the values.
        values: the first ones.
        flags: positions of those that say, when they hold, that no round follows.
        containers: as in `rt_branch`.
    """
    if not any(isinstance(bound, Tensor) for bound in bounds):
        for number in range(*bounds):
            if any(values[k] is True for k in flags):
                break
            values = body(number, *values)
        return values
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if isinstance(step, Tensor):
        raise RuntimeError("range: the step depends on a tensor's value; a graph needs its sign")
    found = rt_while(
        lambda number, *_: number < stop if step > 0 else number > stop,
        lambda number, *held: (number + step, *body(number, *held)),
        (_tensor(start, "range"), *values),
        containers,
    )
    return found[1:]


def rt_and(left: Any, right: Callable[[], Any]) -> Any:
    """Return whether both hold."""
    if not isinstance(left, Tensor):
        return left and right()
    other = right()
    if not isinstance(other, Tensor):
        return left if other else False
    return tangrad.logical_and(_truth(left), _truth(other))


def rt_or(left: Any, right: Callable[[], Any]) -> Any:
    """Return whether one holds."""
    if not isinstance(left, Tensor):
        return left or right()
    other = right()
    if not isinstance(other, Tensor):
        return True if other else left
    return tangrad.logical_or(_truth(left), _truth(other))


def rt_not(value: Any) -> Any:
    """Return the opposite of a condition."""
    return tangrad.logical_not(_truth(value)) if isinstance(value, Tensor) else not value


def rt_number(value: Any, kind: str) -> Any:
    """Return a number of a tensor or of another number; of a tensor it stays one.

    Args:
        value: the number.
        kind: "bool", "int", "float", or "number" for the tensor's own kind.
    """
    if not isinstance(value, Tensor):
        return value if kind == "number" else _PLAIN[kind](value)
    if kind == "number":
        whole = not value.is_floating_point()
        kind = "bool" if value.dtype is tangrad.bool else "int" if whole else "float"
    wide = {"bool": tangrad.bool, "int": tangrad.int64, "float": tangrad.float64}
    return value.reshape(()).to(wide[kind])


def rt_whole(value: Any) -> Any:
    """Return an integer as 64 bits hold it, which a tensor's do."""
    return value if isinstance(value, Tensor) else rt_wrap(value)


def rt_quotient(one: Any, other: Any) -> Any:
    """Return the quotient of two numbers."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return _tensor(one, "/").to(tangrad.float64) / other
    return rt_div(one, other)


def rt_chosen(staged: Callable[..., Any], kind: Any, plain: Callable[..., Any], *args: Any) -> Any:
    """Return what one function makes of tensors, and another one of plain numbers.

    Args:
        staged: of tensors; takes the kind behind the arguments, unless that is None.
        kind: what the tensor becomes.
        plain: of numbers.
        args: their arguments.
    """
    if not any(isinstance(x, Tensor) for x in args):
        return plain(*args)
    return staged(*args) if kind is None else staged(*args, kind)


def rt_floor_quotient(one: Any, other: Any) -> Any:
    """Return the greatest whole number that is no greater than a quotient."""
    return tangrad.floor_divide(_tensor(one, "//"), other)


def rt_remains(one: Any, other: Any) -> Any:
    """Return what is left of a number by another one, with the sign of that."""
    return tangrad.remainder(_tensor(one, "%"), other)


def rt_smaller(one: Any, other: Any) -> Any:
    """Return the smaller one of two numbers."""
    return tangrad.minimum(_tensor(one, "min"), _tensor(other, "min"))


def rt_greater(one: Any, other: Any) -> Any:
    """Return the greater one of two numbers."""
    return tangrad.maximum(_tensor(one, "max"), _tensor(other, "max"))


def rt_op(callee: Any, numbers: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    """Call an op with numbers, which are tensors where they depend on one.

    The result has the dtype that it has with plain numbers, which widen no tensor.

    Args:
        callee: the op, or the name of a method.
        numbers: positions of the arguments that are numbers.
        args, kwargs: what it is given.
    """
    call = getattr(args[0], callee) if isinstance(callee, str) else callee
    result = call(*(args[1:] if isinstance(callee, str) else args), **kwargs)
    if not isinstance(result, Tensor) or not any(isinstance(args[k], Tensor) for k in numbers):
        return result
    tensors = [x for k, x in enumerate(args) if isinstance(x, Tensor) and k not in numbers]
    if not tensors or result.dtype is tangrad.bool:
        return result
    plain = [
        1.0 if args[k].is_floating_point() else 1 for k in numbers if isinstance(args[k], Tensor)
    ]
    wanted = tensors[0].dtype
    for x in tensors[1:]:
        wanted = tangrad.promote_types(wanted, x.dtype)
    for number in plain:
        wanted = tangrad.result_type(tangrad.empty(1, dtype=wanted, device="meta"), number)
    if result.is_floating_point() and not wanted.is_floating_point:
        return result
    return result.to(wanted)


def rt_fails(holds: Any) -> bool:
    """Return whether an assertion fails; of a tensor it is left out of the graph."""
    return not isinstance(holds, Tensor) and not holds

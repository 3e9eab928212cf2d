"""linearize: the linear map that a function is near a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.func.transforms import vjp
from tangrad.utils._pytree import tree_flatten, tree_map


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute a function's value and the function that pushes tangents forward.

    The function is called once. The pullback of `vjp` is linear in the cotangents, and its own
    pullback is the map of the tangents: nothing is computed again that does not depend on them.

    Args:
        func: takes trees of tensors, returns a tree of tensors.
        primals: trees of tensors at which to linearise.

    Returns:
        (output, jvp_fn); jvp_fn(*tangents) returns the tangent of the output, for tangents of the
        structure, shapes, dtypes and devices of the primals.

    Raises:
        RuntimeError: an output is no tensor, or of an integer dtype; tangents do not fit.
    """
    output, pull = vjp(func, *primals)
    # Any cotangent would do: the map is the same everywhere.
    anywhere = tree_map(_C.lookup_op("zeros_like"), output)
    _, push = vjp(pull, anywhere)
    points, spec = tree_flatten(primals)
    expected = [(tuple(p.shape), p.dtype, p.device) for p in points]

    def jvp_fn(*tangents: Any) -> Any:
        directions, tangents_spec = tree_flatten(tangents)
        if tangents_spec != spec:
            raise RuntimeError(
                f"Expected the tangents {tangents_spec} to have the same argspec as the primals "
                f"{spec}"
            )
        for i, (tangent, wanted) in enumerate(zip(directions, expected, strict=True)):
            got = (tuple(tangent.shape), tangent.dtype, tangent.device)
            for what, a, b in zip(("shape", "dtype", "device"), got, wanted, strict=True):
                if a != b:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {a} in flattened pytree doesn't match the "
                        f"{what} {b} of the corresponding primal."
                    )
        return push(tangents)[0]

    return output, jvp_fn

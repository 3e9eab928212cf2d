"""Every op of the core on its samples: compiled, and as it is."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad.plugin import Sampler, all_ops, materialise

# Why an op is no graph: what the compiler answers, and that is right.
REFUSED = (
    "depends on values",
    "looks at the value",
    "looked at the values",
    "returns an object of",
    "gives Python a value",
    "engine mt19937",
    "of layout",
    "lazily conjugated",
    "gives results that are no tensors",
    "returned one of its arguments",
    "cannot be differentiated",
    "has been given other memory",
    "cannot be an argument",
    "gives its tensor another shape",
    "requires grad is written in place",
)


def ops() -> dict[str, Any]:
    """Return the ops that have samples."""
    found = {}
    for name, op in sorted(all_ops().items()):
        definition = op.definition
        if definition.samples is not None and not name.startswith(("empty", "new_empty")):
            found[name] = op
    return found


def tensor_of(values: Any, dtype: str) -> Any:
    """Return a sample's tensor."""
    import numpy as np

    stored = values.view(np.float32) if dtype == "bfloat16" else values
    # What has no dimensions is given one by NumPy.
    laid_out = np.ascontiguousarray(stored).reshape(stored.shape)
    return tangrad.tensor(laid_out, dtype=getattr(tangrad, dtype))


def call_of(sample: Any, grad: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a sample's arguments, made anew."""
    args, kwargs = materialise(sample, tensor_of, lambda name: getattr(tangrad, name))
    if grad:
        args = tuple(
            a.requires_grad_() if isinstance(a, tangrad.Tensor) and a.is_floating_point() else a
            for a in args
        )
    return args, kwargs


def bits(item: Any, laid_out: bool = True) -> Any:
    """Return what two results must have in common.

    Args:
        item: a result.
        laid_out: strides, too; those of gradients follow the gradient that backward is given,
            which a graph wants laid out as the result is.
    """
    if isinstance(item, tangrad.Tensor):
        t = item.detach().resolve_conj().resolve_neg()
        return str(t.dtype), tuple(t.shape), laid_out and tuple(t.stride()), repr(t.tolist())
    if isinstance(item, (tuple, list)):
        return [bits(member) for member in item]
    return repr(item)


def outcome(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool) -> Any:
    """Return what a call gives, what it leaves in its arguments, and its gradients."""
    tangrad.manual_seed(3)
    result = function(*args, **kwargs)
    found = [bits(result)]
    tensors = [a for a in args if isinstance(a, tangrad.Tensor)]
    if grad:
        outs = [r for r in flat(result) if isinstance(r, tangrad.Tensor) and r.requires_grad]
        if outs:
            sum((o * 1.5).sum() for o in outs).backward()
        found.append([bits(t.grad, laid_out=False) for t in tensors])
    found.append([bits(t) for t in tensors])
    return found


def flat(item: Any) -> list[Any]:
    """Return what nested lists and tuples hold."""
    if isinstance(item, (tuple, list)):
        return [leaf for member in item for leaf in flat(member)]
    return [item]


def differences(name: str, op: Any, dtypes: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return how many calls of an op were compared, and where compiled is not eager."""
    compared, found = 0, []
    for dtype in dtypes:
        for sample in op.definition.samples(Sampler(dtype)):
            for grad in (False, True) if dtype == "float32" else (False,):
                told = _difference(op, sample, grad)
                compared += told is not None
                if told:
                    found.append(f"{name} {dtype} {'with gradients ' * grad}{sample}: {told}")
    return compared, found


def called(op: Any) -> Any:
    """Return a function that calls an op; of lists that it writes, it returns the members."""
    if op.name.startswith("_foreach") and op.name.endswith("_"):
        return lambda *args, **kwargs: tuple(op(*args, **kwargs) or ())
    return lambda *args, **kwargs: op(*args, **kwargs)


def _difference(op: Any, sample: Any, grad: bool) -> str | None:
    """Return how a compiled call differs; "" where it does not, None where it cannot be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = outcome(called(op), *call_of(sample, grad), grad)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            return None
        compiled = tangrad.compile(called(op), fullgraph=True, options={"measure": False})
        try:
            outcome(compiled, *call_of(sample, grad), grad)
            found = outcome(compiled, *call_of(sample, grad), grad)
        except RuntimeError as error:
            if any(reason in str(error) for reason in REFUSED):
                return None
            return f"{type(error).__name__}: {str(error)[:200]}"
        if not compiled.compiled.executables:
            return f"not compiled: {compiled.compiled.events}"
    return "" if found == wanted else f"{found} is not {wanted}"[:300]

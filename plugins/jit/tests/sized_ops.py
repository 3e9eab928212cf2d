"""Every op of the core on its samples, with a first dimension of other sizes."""

from __future__ import annotations

import warnings
from typing import Any

from compiled_ops import REFUSED, call_of, called, flat, outcome

import tangrad

# Two that are near each other, where much that is computed of them is one number; then others.
SIZES = (5, 6, 4, 7, 8, 9, 13, 40)


def _longer(t: Any, size: int, rows: int) -> Any:
    if not isinstance(t, tangrad.Tensor):
        return type(t)(_longer(m, size, rows) for m in t) if type(t) in (tuple, list) else t
    if not t.dim() or t.shape[0] != size:
        return t
    with tangrad.no_grad():
        made = t.detach()[tangrad.arange(rows) % size].clone()
    return made.requires_grad_(t.requires_grad)


def _outcome(function: Any, sample: Any, rows: int, grad: bool) -> Any:
    args, kwargs = call_of(sample, grad)
    size = _first(args)
    args = tuple(_longer(a, size, rows) for a in args)
    kwargs = {key: _longer(item, size, rows) for key, item in kwargs.items()}
    return outcome(function, args, kwargs, grad)


def _first(args: Any) -> int:
    sizes = [t.shape[0] for t in flat(list(args)) if isinstance(t, tangrad.Tensor) and t.dim()]
    return next((size for size in sizes if size > 1), 0)


def differences(op: Any, dtype: str = "float32", most: int = 6) -> tuple[int, int, list[str]]:
    """Return how many sizes were served by a recording, how many runs there were, and faults."""
    from tangrad.plugin import Sampler

    by_family = recorded = 0
    found = []
    for k, sample in enumerate(op.definition.samples(Sampler(dtype))):
        if k >= most:
            break
        for grad in (False, True):
            served, runs, told = _compare(op, sample, grad)
            by_family, recorded = by_family + served, recorded + runs
            if told:
                found.append(f"{'with gradients ' * grad}{sample}: {told}"[:400])
    return by_family, recorded, found


def _compare(op: Any, sample: Any, grad: bool) -> tuple[int, int, str]:
    if not _first(call_of(sample, False)[0]):
        return 0, 0, ""
    fast = tangrad.compile(
        called(op),
        fullgraph=True,
        dynamic=True,
        recompile_limit=99,
        options={"measure": False},
    )
    told = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in SIZES:
            try:
                wanted = _outcome(called(op), sample, rows, grad)
            except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
                continue
            try:
                found = _outcome(fast, sample, rows, grad)
            except RuntimeError as error:
                if not any(reason in str(error) for reason in REFUSED):
                    told = told or f"{rows}: {type(error).__name__}: {error}"
                break
            if found != wanted:
                told = told or f"of {rows} rows: {found} is not {wanted}"
    events = fast.compiled.events
    runs = sum(event.startswith(("recorded", "prepared")) for event in events)
    return sum(family.served for family in fast.compiled.families), runs, told

"""Calls of several modules at once, in a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import tangrad

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module with its inputs, all at once, and return the results in their order.

    Args:
        modules: one for each device.
        inputs: the arguments of each; what is no tuple is the only one.
        kwargs_tup: the keyword arguments of each.
        devices: where each works, for messages.

    Raises:
        ValueError: there are not as many inputs as modules.
        Exception: what the first of the modules raised, with a note that tells which.
    """
    named = [{} for _ in modules] if kwargs_tup is None else list(kwargs_tup)
    where = [None for _ in modules] if devices is None else list(devices)
    if not len(modules) == len(inputs) == len(named) == len(where):
        raise ValueError(
            f"parallel_apply: {len(modules)} modules need as many inputs, got {len(inputs)}, "
            f"{len(named)} and {len(where)} devices"
        )
    outcomes: list[Any] = [None] * len(modules)
    gradients = tangrad.is_grad_enabled()
    casts = _casts(where)

    def work(at: int) -> None:
        given = inputs[at] if isinstance(inputs[at], (tuple, list)) else (inputs[at],)
        try:
            # A thread begins with settings of its own.
            with ExitStack() as settings:
                settings.enter_context(tangrad.set_grad_enabled(gradients))
                for kind, dtype in casts.items():
                    settings.enter_context(tangrad.amp.autocast(kind, dtype))
                outcomes[at] = (modules[at](*given, **named[at]), None)
        except Exception as error:
            on = "" if where[at] is None else f" on {where[at]}"
            error.add_note(f"Caught in replica {at}{on}.")
            outcomes[at] = (None, error)

    others = [threading.Thread(target=work, args=(at,)) for at in range(1, len(modules))]
    for thread in others:
        thread.start()
    if modules:
        work(0)
    for thread in others:
        thread.join()
    for _, error in outcomes:
        if error is not None:
            raise error
    return [result for result, _ in outcomes]


def _casts(devices: Sequence[Any]) -> dict[str, Any]:
    """Return the dtype of autocast for each type of device that has it on."""
    kinds = {tangrad.device(device).type for device in devices if device is not None}
    return {
        kind: tangrad.get_autocast_dtype(kind)
        for kind in sorted(kinds)
        if tangrad.is_autocast_enabled(kind)
    }

"""Say where ops that do in one pass what others do in several are worth calling."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Parameter, get_driver, get_intercept

_EXACT = {tangrad.Tensor, Parameter}


def fuses(x: Any, *others: Any) -> bool:
    """Whether a tensor's device has kernels of such ops, and nothing sees the calls.

    What records calls, be it a tracer or a subclass among the operands, is shown the ops that every
    device has.
    """
    # The driver first: what most devices say ends the question.
    if not get_driver(x.device.type).one_pass or get_intercept() is not None:
        return False
    return _EXACT.issuperset(map(type, (x, *others)))


def plain_on_host(x: Any, *others: Any) -> bool:
    """Whether tensors are in the host's memory, and no transform or subclass is to see a call.

    Tracers see it: a recorded program gives the bits that the program gives.
    """
    if not _EXACT.issuperset(map(type, (x, *others))):
        return False
    active = get_intercept()
    return (active is None or not active.levels) and bool(get_driver(x.device.type).host)


def by_device(name: str, x: Any, *args: Any) -> Any:
    """Return what the driver's `composites` make of a call, None where they leave it to the core.

    They do not see what transforms and subclasses are to see.
    """
    active = get_intercept()
    if (active is not None and active.levels) or type(x) not in _EXACT:
        return None
    own = get_driver(x.device.type).composites.get(name)
    return None if own is None else own(x, *args)


def unseen(name: str, x: Any, *others: Any) -> Any:
    """Return the function of the driver's `composites`, None where there is none or a call is seen.

    What records calls is shown the ops that every device has.
    """
    if get_intercept() is not None or not _EXACT.issuperset(map(type, (x, *others))):
        return None
    return get_driver(x.device.type).composites.get(name)

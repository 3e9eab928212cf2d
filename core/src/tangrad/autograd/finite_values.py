"""Look for NaN and infinity, and tell of them: op, line, module, first bad element, operands.

`detect_anomaly(check_finite=True)` has every op looked at in C (`native/anomaly.pxi`), and asks
here only about what it found.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Any

import tangrad
from tangrad import _C
from tangrad.autograd import observed_calls
from tangrad.autograd.observed_calls import is_silent, program_line, silent, tensors_in
from tangrad.dispatch.intercept import pop_observer, push_observer
from tangrad.dispatch.threads import in_all_threads

__all__ = ["NonFiniteError", "all_finite", "describe", "may_be_bad"]


class NonFiniteError(RuntimeError):
    """Raised for a call or a step of training that made a NaN or an infinity; tells where."""


def may_be_bad(t: Any) -> bool:
    """Return whether a tensor has elements that could be NaN or infinite."""
    kind = t.is_floating_point() or t.is_complex()
    return bool(kind) and t.numel() > 0 and not t.is_meta


def all_finite(t: Any) -> bool:
    """Return whether a tensor has neither NaN nor infinity."""
    return not may_be_bad(t) or bool(tangrad.isfinite(t).all())


def describe(t: Any) -> str:
    """Return dtype, shape, range, and the first element that is not finite."""
    told = f"{t.dtype} {list(t.shape)}"
    if not may_be_bad(t):
        return told
    t = t.detach()
    values = t.abs() if t.is_complex() else t.to(tangrad.float64)
    good = tangrad.isfinite(values)
    if good.any():
        low, high = values[good].aminmax()
        told += f" between {low.item():.6g} and {high.item():.6g}"
    if not good.all():
        flat = int((~good).reshape(-1).to(tangrad.uint8).argmax())
        place: list[int] = []
        for size in reversed(t.shape):
            place.insert(0, flat % size)
            flat //= size
        nans = int(values.isnan().sum())
        bad = t[tuple(place)].item() if t.shape else t.item()
        told += (
            f", {nans} NaN and {int((~good).sum()) - nans} infinite, the first at {place}: {bad}"
        )
    return told


def _told(tensors: list[Any]) -> str:
    return "; ".join(map(describe, tensors)) or "none"


def _has_nan(tensors: list[Any]) -> bool:
    return any(may_be_bad(t) and bool(t.isnan().any()) for t in tensors)


def _bad_numbers(args: Any) -> bool:
    """Return whether a number among the arguments is NaN or infinite: then that is meant."""
    if isinstance(args, (list, tuple)):
        return any(map(_bad_numbers, args))
    return isinstance(args, float) and not isfinite(args)


class Watch:
    """Raise where a call gives NaN, or makes an infinity of finite numbers; so in backward."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at the calls of all threads; at those of this one from the first to the last."""
        handles = [hook(self) for hook in observed_calls.of_modules]
        with in_all_threads(_follow):
            _watches.append(self)
            _follow()
            try:
                yield
            finally:
                _watches.remove(self)
                _follow()
                for handle in handles:
                    handle.remove()

    def enter_module(self, module: Any) -> None:
        """Note that a module's forward begins: steps of backward remember the innermost one.

        What they keep is weak, or a graph that a module keeps would keep the module.
        """
        if self not in _here.looks:
            _follow()  # a thread that was there before; or a watch that it has not left yet
        if (look := _here.looks.get(self)) is not None:
            look.enter_module(module)

    def leave_module(self) -> None:
        """Note that it ends."""
        if (look := _here.looks.get(self)) is not None:
            look.leave_module()


class _Here(threading.local):
    def __init__(self) -> None:
        self.looks: dict[Watch, _Look] = {}


_watches: list[Watch] = []  # those that are on, innermost last
_here = _Here()


def _follow() -> None:
    """Let this thread be looked at by the watches that are on, and by no others."""
    looks = _here.looks
    for gone in [watch for watch in looks if watch not in _watches]:
        pop_observer(looks.pop(gone).watch)
    for new in [watch for watch in _watches if watch not in looks]:
        looks[new] = _Look(new)
        push_observer(looks[new].watch)
    _C._set_finite_watch(next((look.watch for look in reversed(looks.values())), None))


class _Look:
    """What a watch has of one thread.

    Args:
        of: the watch; once it is off nothing is looked at, though the thread may not know it yet.
    """

    def __init__(self, of: Watch) -> None:
        self.of = of
        self.watch = _C.FiniteWatch(self)
        self._running: list[Any] = []

    def enter_module(self, module: Any) -> None:
        """Note that a module's forward begins."""
        running, watch = self._running, self.watch
        running.append(watch.module)
        root = watch.module[0] if watch.module is not None else weakref.ref(module)
        watch.module = root, weakref.ref(module)

    def leave_module(self) -> None:
        """Note that it ends, if its beginning was."""
        if self._running:
            self.watch.module = self._running.pop()

    def call(self, op: Any, args: Any, result: Any, had: bool) -> None:
        """Raise if a call gave NaN, or an infinity that did not come in.

        Raises:
            NonFiniteError: it did.
        """
        operands = tensors_in(args)
        if (
            self.of not in _watches
            or is_silent()
            or not operands
            or "empty" in op.name
            or "resize" in op.name
        ):
            return
        with silent():
            bad = [t for t in tensors_in(result) if not all_finite(t)]
            if not bad:
                return
            inputs = [t for t in operands if not any(t is b for b in bad)]
            came_in = had or _bad_numbers(args) or not all(map(all_finite, inputs))
            if came_in and not _has_nan(bad):
                return
            where = f"called at {program_line()}{_in_module(self.watch.module)}"
            raise NonFiniteError(
                f"{op.name}, {where}, gave {_told(bad)}; its operands: {_told(inputs)}"
                + ("; one more was overwritten" if len(inputs) < len(operands) else "")
            )

    def step(self, node: Any, came: list[Any], which: int, gradient: Any) -> None:
        """Raise if a step of backward gave NaN, or an infinity that did not come in.

        Raises:
            NonFiniteError: it did.
        """
        with silent():
            if self.of not in _watches or all_finite(gradient):
                return
            incoming = [g for g in came if g is not None]
            nan = _has_nan([gradient])
            if not nan and not all(map(all_finite, incoming)):
                return
            lines = "".join(node.metadata.get("traceback_", ()))
            raise NonFiniteError(
                f"Function '{node.name()}' returned {'nan' if nan else 'infinite'} values in its "
                f"{which}th output{_in_module(_C._module_of(node))}: {describe(gradient)}; the "
                f"gradients that came in: {_told(incoming)}. The forward call that made it:\n"
                + lines
            )


def _in_module(kept: Any) -> str:
    """Return ", in module PATH (CLASS)" of what `Watch` keeps of a module."""
    root, module = (None, None) if kept is None else (kept[0](), kept[1]())
    if root is None or module is None:
        return ""
    path = next((name for name, member in root.named_modules() if member is module), "")
    return f", in module {path or 'the model'} ({type(module).__name__})"

"""Record a process: sessions, their threads, and what tells phases from the public hooks."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tangrad_profiler import _record
from tangrad_profiler.trace import Trace

# Kinds of ranges, as records have them.
USER, STEP, MODULE, PHASE = 0, 1, 2, 3

os.register_at_fork(after_in_child=_record.forget_after_fork)


class record_function:
    """Give a piece of the program a name in the profile, as a context manager or a decorator.

    Args:
        name: what to call it.
        args: said beside the name, if given.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._token = 0

    def __enter__(self) -> record_function:
        if _record.attached():
            label = self.name if self.args is None else f"{self.name} ({self.args})"
            self._token = _record.begin(label, USER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._token:
            _record.end(self._token)
            self._token = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with this name around each call."""
        from functools import wraps

        @wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


class thread:
    """Context manager: the running profiler records the calling thread, too.

    Without a running profiler nothing happens.
    """

    def __enter__(self) -> thread:
        self._joined = _record.is_recording() and not _record.attached()
        if self._joined:
            _record.attach()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._joined:
            _record.detach()


class Phases:
    """Tell optimizers, and modules if asked, by the hooks that they have for everybody."""

    def __init__(self, modules: bool) -> None:
        self.modules = modules
        self._handles: list[Any] = []
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._open: list[tuple[Any, int]] = []

    def install(self) -> None:
        """Register the hooks."""
        from tangrad.nn.modules import module
        from tangrad.optim import optimizer

        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after),
        ]
        if self.modules:
            self._handles += [
                module.register_module_forward_pre_hook(self._before_forward),
                module.register_module_forward_hook(self._after, always_call=True),
            ]

    def remove(self) -> None:
        """Remove them, and leave what is open."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        while self._open:
            _record.end(self._open.pop()[1])

    def _enter(self, owner: Any, name: str, kind: int) -> None:
        if _record.attached():
            self._open.append((owner, _record.begin(name, kind)))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        kind = type(optimizer).__name__
        self._enter(optimizer, f"Optimizer.step#{kind}.step", PHASE)

    def _before_forward(self, module: Any, args: Any) -> None:
        if not self._open or self._path(module) is None:
            for path, member in module.named_modules():
                self._paths[member] = path
        self._enter(module, f"{self._path(module)}|{type(module).__name__}", MODULE)

    def _path(self, module: Any) -> str | None:
        return self._paths.get(module)

    def _after(self, owner: Any, *rest: Any) -> None:
        # One that raised is left by whoever is left next.
        if any(entered is owner for entered, _ in self._open):
            while True:
                entered, token = self._open.pop()
                _record.end(token)
                if entered is owner:
                    break


class Recording:
    """One recording of the calling thread, from `begin` to `end`.

    Args:
        shapes, memory, stacks, modules: what is recorded besides times.
    """

    def __init__(
        self,
        shapes: bool = False,
        memory: bool = False,
        stacks: bool = False,
        modules: bool = False,
    ) -> None:
        self.options = {"shapes": shapes, "memory": memory, "stacks": stacks, "modules": modules}
        self._phases = Phases(modules)

    def begin(self) -> None:
        """Start.

        Raises:
            RuntimeError: another profiler is running.
        """
        options = self.options
        _record.start(options["shapes"], options["memory"], options["stacks"])
        _record.attach()
        self._phases.install()

    def end(self) -> Trace:
        """Stop, and return what was recorded."""
        self._phases.remove()
        _record.detach()
        _record.stop()
        return Trace.of_records(_record.drain(), _record.tables(), _record.clock(), self.options)


@atexit.register
def _stop_at_exit() -> None:
    _record.stop()

"""Record a process: sessions, their threads, and what tells phases from the public hooks."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.plugin import allocators, pop_observer, push_observer, unwatch_phases, watch_phases
from tangrad_profiler import _record
from tangrad_profiler.kernels import DeviceClock, KernelObserver, clocks
from tangrad_profiler.machine import this_machine
from tangrad_profiler.trace import ARGUMENT, Trace

# Kinds of ranges, as records have them.
USER, STEP, MODULE, PHASE = 0, 1, 2, 3
# Purposes of memory, as marks have them; blocks without a mark are told by where they were made.
PARAMETER, GRADIENT, OPTIMIZER_STATE = 1, 2, 3


class record_function:
    """Give a piece of the program a name in the profile, as a context manager or a decorator.

    Args:
        name: what to call it.
        args: an argument, which the files of a trace show; it is no part of the name.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._token = 0

    def __enter__(self) -> record_function:
        if _record.attached():
            label = self.name if self.args is None else f"{self.name}{ARGUMENT}{self.args}"
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
            attach()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._joined:
            detach()


class _Observers(threading.local):
    """What stands in the calling thread for a session, even for one that has ended meanwhile."""

    attached = False
    kernels: KernelObserver | None = None
    paused: Recording | None = None  # the recording that the thread is to be left out of


_clocks: dict[Any, DeviceClock] = {}  # of the running session
_measured: list[KernelObserver] = []  # the same, of all threads
_observers = _Observers()
WRITER = "tangrad-profiler"  # the thread that writes records, which is not recorded


def attach() -> None:
    """Record the calling thread, and what devices do for it."""
    if not _record.attached():
        detach()  # from a session that the thread has outlived
    _record.attach()
    _observers.attached, _observers.paused = True, None
    _observers.kernels = KernelObserver(_clocks) if _clocks else None
    if _observers.kernels is not None:
        _measured.append(_observers.kernels)
        push_observer(_observers.kernels)


def detach() -> None:
    """Record the calling thread no longer, if it is recorded."""
    kernels, _observers.kernels = _observers.kernels, None
    if kernels is not None:
        pop_observer(kernels)
        if _record.attached():
            kernels.read(wait=True)
        else:  # the session has ended, and its clocks with it
            kernels.forget()
    if _observers.attached:
        _observers.attached = False
        _record.detach()


def pause() -> None:
    """Leave the calling thread out, until it is attached again or another recording begins."""
    detach()
    _observers.paused = _running[0] if _running else None


class NewThreads:
    """Record threads from their beginning that begin while the profiler runs."""

    def install(self) -> None:
        """Be asked by every thread that begins."""
        self._before = threading.getprofile()
        threading.setprofile(self._begin)

    def remove(self) -> None:
        """Be asked no more."""
        if threading.getprofile() == self._begin:
            threading.setprofile(self._before)

    def _begin(self, frame: Any, event: Any, argument: Any) -> None:
        sys.setprofile(self._before)
        own = threading.current_thread().name == WRITER
        if _record.is_recording() and not _record.attached() and not own:
            attach()
        if self._before is not None:
            self._before(frame, event, argument)


class Phases:
    """Tell optimizers, loaders, and modules if asked, by the hooks that they have for everybody.

    Args:
        modules: tell modules. memory: tell what parameters and optimizers have memory for.
    """

    def __init__(self, modules: bool, memory: bool = False) -> None:
        self.modules = modules
        self._purposes = Purposes() if memory else None
        self._handles: list[Any] = []
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._open: list[tuple[Any, int]] = []

    def install(self) -> None:
        """Register the hooks."""
        from tangrad.nn.modules import module
        from tangrad.optim import optimizer

        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        watch_phases(self)
        if self.modules:
            self._handles += [
                module.register_module_forward_pre_hook(self._before_forward),
                module.register_module_forward_hook(self._after, always_call=True),
            ]

    def remove(self) -> None:
        """Remove them, and leave what is open."""
        if self._handles:
            unwatch_phases(self)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        while self._open:
            _record.end(self._open.pop()[1])

    def _enter(self, owner: Any, name: str, kind: int) -> None:
        if _record.attached():
            self._open.append((owner, _record.begin(name, kind)))

    def enter_phase(self, name: str) -> int:
        """Begin what a part of the program announces, in whatever thread.

        A thread that was there before the profiler, such as one that carries out collectives, is
        recorded from its first phase on.
        """
        if not _record.attached() and _record.is_recording() and not is_paused():
            attach()
        return int(_record.begin(name, PHASE))

    def leave_phase(self, token: int) -> None:
        """End it."""
        if token:
            _record.end(token)

    def done_elsewhere(self, name: str, process: int, began: float, ended: float) -> None:
        """Write down what another process did."""
        _record.elsewhere(name, process, int(1e9 * began), int(1e9 * ended))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._purposes is not None and _record.attached():
            self._purposes.of_state(optimizer)
        self._after(optimizer)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._purposes is not None and _record.attached():
            self._purposes.of_gradients(optimizer)
        kind = type(optimizer).__name__
        self._enter(optimizer, f"Optimizer.step#{kind}.step", PHASE)

    def _before_forward(self, module: Any, args: Any) -> None:
        if not self._open or self._path(module) is None:
            for path, member in module.named_modules():
                self._paths[member] = path
            if self._purposes is not None and _record.attached():
                self._purposes.mark([*module.parameters(), *module.buffers()], PARAMETER)
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


class Purposes:
    """Mark what blocks of memory are for."""

    def __init__(self) -> None:
        self._allocators = {device: number for number, device in allocators().items()}
        self._states: dict[int, int] = {}  # identity of an optimizer -> tensors that were marked

    def mark(self, tensors: Iterable[Any], purpose: int) -> None:
        """Write down the purpose of the blocks of some tensors."""
        for t in tensors:
            number = self._allocators.get(t.device)
            if number is None:
                self._allocators = {device: number for number, device in allocators().items()}
                number = self._allocators.get(t.device)
            if number is not None and t.layout is tangrad.strided and t.numel():
                storage = t.untyped_storage()
                _record.mark(number, sum(storage._handle), storage.nbytes(), purpose)

    def of_gradients(self, optimizer: Any) -> None:
        """Mark an optimizer's gradients, which are new in every step."""
        for group in optimizer.param_groups:
            self.mark([g for p in group["params"] if (g := p.grad) is not None], GRADIENT)

    def of_state(self, optimizer: Any) -> None:
        """Mark what it keeps, and its parameters, if there is more than before."""
        count = len(optimizer.state)
        if self._states.get(id(optimizer)) == count:
            return
        self._states[id(optimizer)] = count
        for group in optimizer.param_groups:
            self.mark(group["params"], PARAMETER)
        for own in optimizer.state.values():
            self.mark([v for v in own.values() if isinstance(v, Tensor)], OPTIMIZER_STATE)


class Recording:
    """One recording of the calling thread, from `begin` to `end`.

    Args:
        shapes, memory, stacks, modules, kernels: what is recorded besides times.
    """

    def __init__(
        self,
        shapes: bool = False,
        memory: bool = False,
        stacks: bool = False,
        modules: bool = False,
        kernels: bool = True,
    ) -> None:
        self.options = {"shapes": shapes, "memory": memory, "stacks": stacks, "modules": modules}
        self._phases, self._threads = Phases(modules, memory), NewThreads()
        self._kernels = kernels
        self._left = False  # to the parent of this process
        self._kept: list[tuple[int, bytes]] = []  # what was read while it ran

    def begin(self) -> None:
        """Start.

        Raises:
            RuntimeError: another profiler is running.
        """
        options = self.options
        _record.start(options["shapes"], options["memory"], options["stacks"])
        _clocks.clear()
        try:
            if self._kernels:
                _clocks.update(clocks())
            attach()
        except BaseException:
            _record.stop()
            raise
        self._phases.install()
        self._threads.install()
        _running[:], self._left = [self], False

    def drain(self) -> list[tuple[int, bytes]]:
        """Return what was recorded since the last call, and keep it."""
        pieces: list[tuple[int, bytes]] = _record.drain()
        self._kept += pieces
        return pieces

    def halt(self) -> None:
        """Stop; what was recorded is there until the next recording."""
        if self._left:
            return
        _running.clear()
        self._threads.remove()
        self._phases.remove()
        detach()
        _record.stop()
        for observer in _measured:  # of threads that have not left
            observer.read(wait=True)
        for clock in _clocks.values():
            clock.close()
        _clocks.clear()
        _measured.clear()

    def leave_to_parent(self) -> None:
        """Observe nothing in a child that was forked; it may record itself."""
        self._left, self._kept = True, []
        self._threads.remove()
        self._phases.remove()
        detach()

    def end(self) -> Trace:
        """Stop, and return what was recorded: nothing in a child that was forked meanwhile."""
        self.halt()
        if not self._left:
            self.drain()
        return Trace.of_records(
            self._kept, _record.tables(), _record.clock(), self.options, machine=this_machine()
        )


_running: list[Recording] = []  # at most one


def is_paused() -> bool:
    """Return whether the calling thread is left out of the running recording."""
    return _observers.paused is not None and _observers.paused in _running


def _forget_after_fork() -> None:
    """Leave a recording to the parent: its log, and its devices, are not this process's."""
    _record.forget_after_fork()
    _measured.clear()
    _clocks.clear()
    while _running:
        _running.pop().leave_to_parent()


os.register_at_fork(after_in_child=_forget_after_fork)


@atexit.register
def _stop_at_exit() -> None:
    _record.stop()

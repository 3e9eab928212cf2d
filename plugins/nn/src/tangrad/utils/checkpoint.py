"""Trade computation for memory: run a part of the model again in backward, save nothing of it.

Without reentrance, the values that nodes would save are replaced by slots; the first one that
backward asks for runs the function again, and the values that it saves then fill the slots in
order (after PyTorch's scheme). With reentrance, the function is one node whose backward runs
it again and walks the graph made then.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tangrad
from tangrad.amp.state import HOST_TYPE, USUAL_ACCELERATOR
from tangrad.plugin import SavedArguments, tensors_in, walk_is_selective, walks
from tangrad.random import get_default_generator
from tangrad.utils.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(RuntimeError):
    """The second run of a function did not save what the first would have."""


class _Enough(BaseException):
    """Ends a second run that has saved all that is needed; not for `except Exception`."""


class _Switches(threading.local):
    early_stop: bool | None = None
    debug: bool | None = None


_switches = _Switches()


class set_checkpoint_early_stop:
    """Context manager: whether second runs end once all that is needed is saved.

    It overrides the argument `early_stop` of the calls of `checkpoint` made inside.
    """

    def __init__(self, enable: bool) -> None:
        self.enable = enable

    def __enter__(self) -> None:
        self.previous, _switches.early_stop = _switches.early_stop, self.enable

    def __exit__(self, *exc: Any) -> None:
        _switches.early_stop = self.previous


class set_checkpoint_debug_enabled:
    """Context manager: whether errors list the ops of both runs; None leaves it to `debug`.

    It overrides the argument `debug` of the calls of `checkpoint` made inside.
    """

    def __init__(self, enabled: bool | None) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.previous, _switches.debug = _switches.debug, self.enabled

    def __exit__(self, *exc: Any) -> None:
        _switches.debug = self.previous


class DefaultDeviceType:
    """The device type whose random state is kept where no argument tells one."""

    _default_device_type = USUAL_ACCELERATOR

    @staticmethod
    def set_device_type(device: str = USUAL_ACCELERATOR) -> None:
        """Set it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """Return it."""
        return DefaultDeviceType._default_device_type


def noop_context_fn() -> tuple[Any, Any]:
    """Return two contexts that do nothing: for the first run and for the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with tensors detached, which require gradients as before.

    Raises:
        RuntimeError: `inputs` is no tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, tangrad.Tensor) else x
        for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no tensor among the arguments requires a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, tangrad.Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


def get_device_states(*args: Any) -> tuple[list[Any], list[Any]]:
    """Return the devices of the tensors among arguments, without the host, and their generators'
    states.
    """
    devices = {x.device: None for x in tensors_in(args) if x.device.type not in (HOST_TYPE, "meta")}
    return list(devices), [get_default_generator(device).get_state() for device in devices]


def set_device_states(
    devices: Sequence[Any], states: Sequence[Any], *, device_type: str | None = None
) -> None:
    """Set the states of devices' generators.

    Args:
        devices: the devices. states: a state for each.
        device_type: accepted for compatibility; the devices tell it.
    """
    for device, state in zip(devices, states, strict=True):
        get_default_generator(device).set_state(state)


class _RunState:
    """Random states and autocast as they are now, to run something under them later."""

    def __init__(self, args: Any, preserve_rng_state: bool) -> None:
        self.preserve = preserve_rng_state
        if preserve_rng_state:
            self.host_state = tangrad.get_rng_state()
            self.devices, self.states = get_device_states(*args)
        types = {HOST_TYPE, *(x.device.type for x in tensors_in(args))}
        self.autocast = [
            {
                "device_type": kind,
                "dtype": tangrad.get_autocast_dtype(kind),
                "enabled": tangrad.is_autocast_enabled(kind),
                "cache_enabled": tangrad.is_autocast_cache_enabled(),
            }
            for kind in sorted(types)
            if tangrad.amp.is_autocast_available(kind)
        ]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Run the body under them; the random states of the caller come back afterwards."""
        with contextlib.ExitStack() as stack:
            if self.preserve:
                callers = tangrad.get_rng_state()
                stack.callback(tangrad.set_rng_state, callers)
                now = [get_default_generator(device).get_state() for device in self.devices]
                stack.callback(set_device_states, self.devices, now)
                tangrad.set_rng_state(self.host_state)
                set_device_states(self.devices, self.states)
            for settings in self.autocast:
                stack.enter_context(tangrad.autocast(**settings))
            yield


class CheckpointFunction(tangrad.autograd.Function):
    """A function as one node: its backward runs it again."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Run the function without recording."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _RunState(args, preserve_rng_state)
        ctx.inputs = [None if isinstance(a, tangrad.Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, tangrad.Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with tangrad.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the function again, recording, and walk what was recorded.

        Raises:
            RuntimeError: the walk is for some inputs alone, which it would not know of.
        """
        if walk_is_selective():
            raise RuntimeError(
                "torch.utils.checkpoint is incompatible with autograd.grad() and with "
                "backward(inputs=...) if use_reentrant=True: pass use_reentrant=False"
            )
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = tensor
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.restored(), tangrad.enable_grad():
            outputs = ctx.run_function(*detached)
        outputs = (outputs,) if isinstance(outputs, tangrad.Tensor) else outputs
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if isinstance(output, tangrad.Tensor) and output.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        tangrad.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(x.grad if isinstance(x, tangrad.Tensor) else None for x in detached))


def _metadata(x: Any) -> dict[str, Any]:
    return {"shape": x.shape, "dtype": x.dtype, "device": x.device}


def _no_metadata(x: Any) -> None:
    return None


_CHECKS: dict[str, Callable[[Any], Any]] = {"default": _metadata, "none": _no_metadata}


class _Calls:
    """The calls of ops in the first run and in the second, for errors to tell."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []

    def told(self) -> str:
        """Return both runs' calls as text."""
        first, second = ("\n".join(f"  {call}" for call in run) for run in self.runs[:2])
        return (
            "You are seeing this error because you passed `debug=True` to checkpoint: here are "
            f"the ops that ran.\nIn forward:\n{first}\nRun again in backward:\n{second}"
        )

    def listened(self) -> Any:
        """Return a context whose ops are noted as one run."""
        from tangrad.utils._python_dispatch import TorchDispatchMode

        noted: list[str] = []

        class Listening(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                shapes = ", ".join(str(list(x.shape)) for x in tensors_in(args))
                noted.append(f"{getattr(func, '__name__', func)}({shapes})")
                return func(*args, **(kwargs or {}))

        self.runs.append(noted)
        return Listening()


class _Slot:
    """Stands in a node for a value that is computed again when it is asked for."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Region:
    """One call of a checkpointed function: what it saved, and how to get that again."""

    def __init__(
        self, run_again: Callable[[], Any], early_stop: bool, describe: Any, calls: _Calls | None
    ) -> None:
        self.run_again = run_again
        self.early_stop = early_stop
        self.describe = describe
        self.calls = calls
        self.saved: list[Any] = []
        # Of each backward walk that runs, what is computed for it and not yet taken.
        self.values: dict[int, dict[int, Any]] = {}
        # A call that differentiates itself runs again before all of it has run.
        self.whole = False

    def pack(self, x: Any) -> _Slot:
        self.saved.append(self.describe(x))
        return _Slot(len(self.saved) - 1)

    def unpack(self, slot: _Slot) -> Any:
        under = walks() or [0]
        self.values = {walk: self.values[walk] for walk in under if walk in self.values}
        now = under[0]
        if now == 0 or now not in self.values:
            self.values[now] = self._computed_again()
        if slot.index not in self.values[now]:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already "
                "unpacked once in this backward. A node gives its saved tensors once: keep what "
                "ctx.saved_tensors returns."
            )
        return self.values[now].pop(slot.index)

    def _computed_again(self) -> dict[int, Any]:
        values: dict[int, Any] = {}

        def keep(x: Any) -> Any:
            if len(values) == len(self.saved):
                if not self.whole:
                    return x.detach()
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation "
                    f"than during the original forward pass ({len(self.saved)}): does the "
                    "function do the same each time?"
                )
            values[len(values)] = x.detach()
            if self.early_stop and len(values) == len(self.saved):
                raise _Enough
            return x.detach()

        hooks = tangrad.autograd.graph.saved_tensors_hooks(keep, _as_it_is)
        with contextlib.suppress(_Enough), hooks, tangrad.enable_grad():
            self.run_again()
        self._check(values)
        return values

    def _check(self, values: dict[int, Any]) -> None:
        if len(values) != len(self.saved):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.saved)}\n"
                f"Number of tensors saved during recomputation: {len(values)}."
            )
        different = [
            f"tensor at position {i}:\nsaved metadata: {first}\nrecomputed metadata: {second}"
            for i, first in enumerate(self.saved)
            if first != (second := self.describe(values[i]))
        ]
        if different:
            text = (
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(different)
            )
            if self.calls is not None:
                text = f"{self.calls.told()}\n{text}"
            raise CheckpointError(text)


def _as_it_is(x: Any) -> Any:
    return x


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function, keeping its arguments only; backward calls it once more.

    Args:
        function: must do the same each time.
        *args: its arguments.
        use_reentrant: True for one node whose backward records anew; False (recommended) for
            the function's own nodes, whose saved values are computed again. Pass it.
        context_fn: returns two context managers, for the first run and the second.
        determinism_check: "default" compares shapes, dtypes and devices of both runs; "none".
        debug: have the error about other tensors in the second run list the ops of both.
        early_stop: end the second run once everything needed was saved.
        **kwargs: `preserve_rng_state=True`; the rest goes to the function.

    Raises:
        ValueError: arguments that do not go together.
        CheckpointError: in backward, if the second run saves other tensors than the first.
        RuntimeError: in backward, if a tensor among `args` was modified in place meanwhile. Those
            in lists, in `kwargs` or known to the function are not watched, as in PyTorch.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly; it "
            "is True for now, and use_reentrant=False is recommended.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant:
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in _CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}"
        )
    first, second = context_fn()
    if not tangrad.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    surroundings = _RunState((args, kwargs), preserve)
    arguments = SavedArguments(args)

    calls = _Calls() if (debug if _switches.debug is None else _switches.debug) else None

    def listened() -> Any:
        return contextlib.nullcontext() if calls is None else calls.listened()

    def run_again() -> None:
        again = arguments.again()
        with surroundings.restored(), second, listened():
            function(*again, **kwargs)

    chosen = _switches.early_stop
    stop = early_stop if chosen is None else chosen
    region = _Region(run_again, stop, _CHECKS[determinism_check], calls)
    hooks = tangrad.autograd.graph.saved_tensors_hooks(region.pack, region.unpack)
    with hooks, first, listened():
        result = function(*args, **kwargs)
    region.whole = True
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions one after another in checkpointed segments; the last is not checkpointed.

    Args:
        functions: a Sequential, or functions.
        segments: how many segments of equal length, the last takes the rest.
        input: what the first function gets.
        use_reentrant: as for `checkpoint`.
        **kwargs: `preserve_rng_state=True`.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly; it is True for now, and use_reentrant=False is recommended.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions)

    def segment(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in steps[start:end]:
                x = step(x)
            return x

        return run

    length = len(steps) // segments
    last = length * (segments - 1)
    for start in range(0, last, length):
        input = checkpoint(
            segment(start, start + length),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return segment(last, len(steps))(input)

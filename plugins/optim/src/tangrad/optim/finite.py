"""Find NaN and infinity in training at the price of one check per step; beyond PyTorch.

`autograd.detect_anomaly` looks at every step of backward while it runs. Here a step of training is
a function and its state is known, so it runs as always, one fused check looks at what it made,
and only if that finds something the state is put back and the step is run again, observed.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from ctypes import string_at
from dataclasses import dataclass
from math import isfinite
from typing import Any

import tangrad
from tangrad.autograd.finite_values import NonFiniteError, all_finite, describe, may_be_bad
from tangrad.autograd.observed_calls import is_silent, program_line, silent, tensors_in
from tangrad.nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from tangrad.nn.modules.module import Module
from tangrad.optim.optimizer import Optimizer
from tangrad.plugin import find_op, pop_observer, push_observer
from tangrad.random.generator import default_states, set_default_states

__all__ = ["NonFiniteError", "checked_step"]


class checked_step:
    """Make of a step of training one that raises where it makes NaN or infinity.

        step = checked_step(step, state=[model, optimizer])
        for batch in loader:
            loss = step(batch)
        step.check()

    Every step's loss (what it returns) is looked at, and every `every` steps all gradients and
    parameters, in one fused check; then the state is copied. At a hit the state is put back and
    the steps since are run again under observation, up to the first that is bad: so a step must do
    the same from the same state and arguments, and the arguments must not be written between.

    Args:
        step: function that runs forward and backward; it returns the loss, or a collection with it.
        state: modules, optimizers, tensors, and objects with `state_dict` and `load_state_dict`,
            which is all that the step changes, besides the random generators.
        every: how many steps run between two copies of the state.

    Raises:
        TypeError: the state of an object cannot be put back.
        ValueError: `every` is not positive.
    """

    def __init__(self, step: Callable[..., Any], state: Iterable[Any], every: int = 32) -> None:
        if every < 1:
            raise ValueError(f"checked_step: every must be positive, not {every}")
        self.step, self.state, self.every = step, list(state), every
        self._keepers = [_keeper(item) for item in self.state]
        self._modules = [item for item in self.state if isinstance(item, Module)]
        self._saved: list[Any] = []
        self._random: Any = None
        self._numpy = _NumPyState()
        self._calls: list[tuple[Any, Any]] = []  # since the state was copied

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step.

        Raises:
            NonFiniteError: it made a NaN or an infinity, or one since the state was copied.
        """
        if not self._calls or len(self._calls) >= self.every:
            self.check()
            self._save()
        self._calls.append((args, kwargs))
        result = self.step(*args, **kwargs)
        if not self._is_finite(result):
            self._run_again()
        return result

    def check(self) -> None:
        """Look at all gradients and parameters now.

        Raises:
            NonFiniteError: one of them is not finite.
        """
        if self._calls and not self._all_finite():
            self._run_again()

    def _is_finite(self, result: Any) -> bool:
        if isinstance(result, tangrad.Tensor) and not result.dim() and not result.is_complex():
            return isfinite(result.item())
        with silent():
            return all(map(all_finite, tensors_in(result)))

    def _all_finite(self) -> bool:
        groups: dict[Any, list[Any]] = {}
        for _, p in self._named():
            for t in (p, p.grad):
                if t is not None and may_be_bad(t):
                    groups.setdefault(t.device, []).append(t)
        with silent():
            return all(isfinite(find_op("_total_norm")(group).item()) for group in groups.values())

    def _named(self) -> list[tuple[str, Any]]:
        found = [
            (f"state[{i}]", t) for i, t in enumerate(self.state) if isinstance(t, tangrad.Tensor)
        ]
        for module in self._modules:
            found += module.named_parameters()
        return found

    def _save(self) -> None:
        with silent():
            self._saved = [save() for save, _ in self._keepers]
        self._random = default_states(), random.getstate(), self._numpy()
        self._calls = []

    def _run_again(self) -> None:
        with silent():
            for (_, restore), saved in zip(self._keepers, self._saved, strict=True):
                restore(saved)
        _restore_random(self._random)
        calls, self._calls = self._calls, []
        for args, kwargs in calls:
            incoming = self._bad_incoming(args, kwargs)
            inspection = _Inspection(self._modules)
            with inspection:
                result = self.step(*args, **kwargs)
            if incoming or not (self._is_finite(result) and self._all_finite()):
                raise NonFiniteError(inspection.told(result, self._named(), incoming))
        raise NonFiniteError(
            "checked_step: something was not finite, and in a run again nothing was: the step does "
            "not do the same from the same state and arguments"
        )

    def _bad_incoming(self, args: Any, kwargs: Any) -> list[str]:
        found = [
            f"argument {i} of the step: {describe(t)}"
            for i, t in enumerate(tensors_in([*args, *kwargs.values()]))
            if not all_finite(t)
        ]
        found += [f"{name}: {describe(p)}" for name, p in self._named() if not all_finite(p)]
        return found


# --- state ---------------------------------------------------------------------------------------


def _keeper(item: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return how the state of an object is copied and put back."""
    if isinstance(item, Module):
        return _tensors_keeper(lambda: [*item.parameters(), *item.buffers()])
    if isinstance(item, tangrad.Tensor):
        return _tensors_keeper(lambda: [item])
    if isinstance(item, Optimizer):
        return lambda: _optimizer_state(item), lambda saved: _restore_optimizer(item, saved)
    if hasattr(item, "state_dict") and hasattr(item, "load_state_dict"):
        return lambda: copy.deepcopy(item.state_dict()), item.load_state_dict
    raise TypeError(
        f"checked_step: {type(item).__name__} has no state that can be put back: it needs "
        "state_dict and load_state_dict"
    )


def _tensors_keeper(
    members: Callable[[], list[Any]],
) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def save() -> list[Any]:
        return [(t, t.clone(), None if t.grad is None else t.grad.clone()) for t in members()]

    def restore(saved: list[Any]) -> None:
        for t, values, grad in saved:
            t.detach().copy_(values)
            t.grad = grad

    return save, restore


def _optimizer_state(optimizer: Any) -> Any:
    state = {
        p: {k: v.clone() if isinstance(v, tangrad.Tensor) else v for k, v in own.items()}
        for p, own in optimizer.state.items()
    }
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return state, groups


def _restore_optimizer(optimizer: Any, saved: Any) -> None:
    state, groups = saved
    optimizer.state.clear()
    optimizer.state.update(state)
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)


_MERSENNE_BYTES = 2500  # 624 words and a position


class _NumPyState:
    """The state of NumPy's global generator, read only where numbers were drawn: it takes long.

    The generator's memory tells that, unless a second normal number is kept beside it.
    """

    def __init__(self) -> None:
        self._memory = b""
        self._state: Any = None

    def __call__(self) -> Any:
        """Return it, or None where NumPy's generators have not been loaded: nobody drew."""
        drawing = sys.modules.get("numpy.random")
        if drawing is None:
            return None
        memory = b""
        bits = drawing.get_bit_generator() if hasattr(drawing, "get_bit_generator") else None
        if isinstance(bits, drawing.MT19937):
            memory = string_at(bits.ctypes.state_address, _MERSENNE_BYTES)
        if not memory or memory != self._memory or self._state[3]:
            self._memory, self._state = memory, drawing.get_state()
        return self._state


def _restore_random(saved: Any) -> None:
    set_default_states(saved[0])
    random.setstate(saved[1])
    if saved[2] is not None:
        sys.modules["numpy.random"].set_state(saved[2])


# --- inspection ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _Bad:
    """A call that gave something that is not finite."""

    told: str
    makes_nan: bool
    inputs: list[int]
    results: list[int]


class _Inspection:
    """Observe a step: its forward calls, and its steps of backward.

    Args:
        modules: whose paths are told.
    """

    def __init__(self, modules: list[Any]) -> None:
        self._paths = {m: path for root in modules for path, m in root.named_modules()}
        self._running: list[str] = []
        self._bad: list[_Bad] = []
        self._held: list[Any] = []  # identities must stay unique
        self._backward: str | None = None
        self._nodes: set[int] = set()
        self._within_node = False

    def __enter__(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        push_observer(self)

    def __exit__(self, *exc: object) -> None:
        pop_observer(self)
        for handle in self._handles:
            handle.remove()

    def _enter_module(self, module: Any, args: Any) -> None:
        self._running.append(
            f"{self._paths.get(module, '') or 'the model'} ({type(module).__name__})"
        )

    def _leave_module(self, module: Any, args: Any, result: Any) -> None:
        if self._running:
            self._running.pop()

    def _where(self) -> str:
        module = f", in module {self._running[-1]}" if self._running else ""
        return f"called at {program_line()}{module}"

    def enter_call(self, op: Any, args: Any) -> Any:
        """Note the arguments, which an op may overwrite."""
        if is_silent() or self._within_node:
            return None
        with silent():
            tensors = tensors_in(args)
            told = None if all(map(all_finite, tensors)) else [describe(t) for t in tensors]
        return tensors, told

    def leave_call(self, op: Any, token: Any, result: Any) -> None:
        """Look at what came out."""
        if token is None:
            return
        inputs, told = token
        results = tensors_in(result)
        with silent():
            if not all(map(all_finite, results)):
                told = told or [describe(t) for t in inputs]
                self._note(op, inputs, told, results)
        for t in results:
            node = t.grad_fn
            if node is not None and id(node) not in self._nodes:
                self._nodes.add(id(node))
                self._held.append(node)
                node.register_hook(self._watcher(node.name(), self._where()))

    def _note(self, op: Any, inputs: list[Any], told: list[str], results: list[Any]) -> None:
        text = (
            f"{op.name}, {self._where()}, gave {'; '.join(map(describe, results))}; its operands: "
            f"{'; '.join(told) or 'none'}"
        )
        nan = any(may_be_bad(t) and bool(t.isnan().any()) for t in results)
        had_nan = any("NaN and" in t and " 0 NaN" not in t for t in told)
        self._held += [*inputs, *results]
        self._bad.append(
            _Bad(text, nan and not had_nan, [id(t) for t in inputs], [id(t) for t in results])
        )

    def _watcher(self, name: str, where: str) -> Callable[[Any, Any], None]:
        def look(given: Any, came: Any) -> None:
            if self._backward is not None:
                return
            made, had = tensors_in(given), tensors_in(came)
            with silent():
                if not all(map(all_finite, made)) and all(map(all_finite, had)):
                    self._backward = (
                        f"{name} in backward gave {'; '.join(map(describe, made))}; the gradients "
                        f"that came in: {'; '.join(map(describe, had))}; the forward op was "
                        f"{where}"
                    )

        return look

    def enter_node(self, node: Any) -> bool:
        """Leave ops of backward to the hooks of its steps."""
        before, self._within_node = self._within_node, True
        return before

    def leave_node(self, node: Any, token: bool) -> None:
        """Go on with forward."""
        self._within_node = token

    def told(self, result: Any, named: list[tuple[str, Any]], incoming: list[str]) -> str:
        """Return what went wrong, in words."""
        if incoming:
            return "checked_step: what came in is not finite: " + ", ".join(incoming)
        chain = self._chain([id(t) for t in tensors_in(result)])
        if chain:
            worst = next((bad for bad in chain if bad.makes_nan), chain[0])
            return "checked_step: " + worst.told
        if self._backward is not None:
            return "checked_step: " + self._backward
        names = [
            name
            for name, p in named
            if not all_finite(p) or (p.grad is not None and not all_finite(p.grad))
        ]
        return f"checked_step: these, or their gradients, are not finite: {', '.join(names)}"

    def _chain(self, wanted: list[int]) -> list[_Bad]:
        """Return the calls through which what is not finite came into the result, in order."""
        live, found = set(wanted), []
        for bad in reversed(self._bad):
            if live.intersection(bad.results):
                live.update(bad.inputs)
                found.append(bad)
        return found[::-1]

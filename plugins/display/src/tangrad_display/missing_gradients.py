"""Tell why a tensor's gradient is None or zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin.observe import (
    is_silent,
    pop_observer,
    program_line,
    push_observer,
    silent,
    tensors_in,
)

__all__ = ["Reason", "why_no_grad"]

_DETACHING = {"detach", "detach_"}
# Where these are flat, their inputs' gradients are zero whatever follows.
_FLAT = {
    "relu": "no input is positive, so relu passes nothing back",
    "relu_": "no input is positive, so relu passes nothing back",
    "relu6": "every input is outside of 0 ... 6, where relu6 is flat",
    "hardtanh": "every input is outside of the range that hardtanh passes",
    "hardsigmoid": "every input is where hardsigmoid is flat",
    "hardswish": "every input is where hardswish is flat",
    "threshold": "every input is below the threshold",
    "clamp": "every input is outside of the limits, where clamp is flat",
    "sigmoid": "every input is so large that sigmoid is flat in this dtype",
    "tanh": "every input is so large that tanh is flat in this dtype",
}


class Reason(NamedTuple):
    """One reason why a gradient is missing or zero.

    Attributes:
        kind: "fine", "integer", "not requested", "not a leaf", "no backward", "detached",
            "gradients off", "integer cast", "no derivative", "history lost", "not on the path",
            "dead activations" or "zero derivative".
        told: the sentence. where: "file:line" of the program, "" where it has no place.
    """

    kind: str
    told: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.told}" if self.where else self.told


@dataclass(eq=False)
class _Call:
    """A call that something of the watched tensor went into."""

    name: str
    where: str
    recording: bool
    inputs: list[Any]
    results: list[Any] = field(default_factory=list)
    lost: str = ""  # the input has the memory, but not the history, of what is on the path


class why_no_grad:
    """Tell why a tensor's gradient is None or zero; beyond PyTorch.

    Called behind `backward`, it tells what can be seen then. As a context manager around a step
    (forward and backward) it follows the tensor through the step, and names the line where its
    trail is cut or where its gradient becomes zero. The result prints as its reasons.

        with tangrad.why_no_grad(model[0].weight) as why:
            loss = criterion(model(x), target)
            loss.backward()
        print(why)

    While it watches, all that is computed from the tensor stays in memory.

    Args:
        tensor: whose gradient is missing.

    Attributes:
        reasons: a list of `Reason`, the most likely first.

    Raises:
        TypeError: it is no tensor.
    """

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, tangrad.Tensor):
            raise TypeError(f"why_no_grad: expected a Tensor, but got {type(tensor).__name__}")
        self.tensor = tensor
        self.reasons = _seen_afterwards(tensor)

    def __enter__(self) -> why_no_grad:
        self._trail = _Trail(self.tensor)
        push_observer(self._trail)
        return self

    def __exit__(self, *exc: object) -> None:
        pop_observer(self._trail)
        self.reasons = _reasons(self.tensor, self._trail)
        self._trail.forget()

    def __str__(self) -> str:
        return "\n".join(map(str, self.reasons))

    __repr__ = __str__


def _seen_afterwards(t: Any) -> list[Reason]:
    """Return what is wrong with a tensor by itself."""
    if not (t.is_floating_point() or t.is_complex()):
        return [Reason("integer", f"it is of {t.dtype}: only floating-point and complex tensors "
                       "have gradients")]  # fmt: skip
    if not t.requires_grad:
        return [Reason("not requested", "its requires_grad is False: it was made without, detached,"
                       " or computed where gradients were off")]  # fmt: skip
    if not t.is_leaf and not t.retains_grad:
        return [Reason("not a leaf", f"it was computed (by {t.grad_fn.name()}), and only leaves "
                       "keep their .grad: call retain_grad() on it before backward")]  # fmt: skip
    if t.grad is None:
        return [Reason("no backward", "no backward has reached it: either none was called, or what "
                       "it was called on does not depend on it; run the step in `with "
                       "why_no_grad(tensor) as why:` to learn the line")]  # fmt: skip
    if not bool((t.grad != 0).any()):
        return [Reason("zero derivative", "backward reached it, and all of its gradient is zero; "
                       "run the step in `with why_no_grad(tensor) as why:` to learn "
                       "where it becomes so")]  # fmt: skip
    return [Reason("fine", f"it has a gradient, up to {t.grad.abs().max().item():.6g}")]


class _Trail:
    """Follow a tensor through the ops of a step.

    Args:
        tensor: where the trail begins.
    """

    def __init__(self, tensor: Any) -> None:
        self.on_it: dict[int, Any] = {}  # by identity; held, so that identities stay unique
        self.memory: dict[int, int] = {}  # address of a storage -> identity of a tensor in it
        self.calls: list[_Call] = []
        self.zero: dict[int, bool] = {}  # whether a tensor's gradient was all zero
        self.roots: list[Any] = []  # nodes that backward began at
        self._open: list[_Call | None] = []
        self._within = 0
        self._handles: list[Any] = []
        self._add(tensor)

    def _add(self, t: Any) -> None:
        if id(t) in self.on_it:
            return
        self.on_it[id(t)] = t
        self.memory.setdefault(_address(t), id(t))
        if t.requires_grad:
            self._handles.append(t.register_hook(partial(self._came, id(t))))

    def _came(self, key: int, g: Any) -> None:
        if g is None:  # passed by without a gradient
            return
        with silent():
            self.zero[key] = self.zero.get(key, True) and not bool((g != 0).any())

    def enter_call(self, op: Any, args: Any) -> bool:
        """Note the outermost calls of what is on the trail."""
        self._within += 1
        if self._within > 1 or is_silent():
            return False
        inputs, lost = [], ""
        for t in tensors_in(args):
            if id(t) in self.on_it:
                inputs.append(t)
            elif not t.requires_grad and (known := self.memory.get(_address(t))) is not None:
                inputs.append(self.on_it[known])
                lost = "by .data, numpy() or the like"
        self._open.append(
            _Call(op.name, program_line(), tangrad.is_grad_enabled(), inputs, [], lost)
            if inputs
            else None
        )
        return True

    def leave_call(self, op: Any, token: bool, result: Any) -> None:
        """Put the results on the trail."""
        self._within -= 1
        if not token:
            return
        call = self._open.pop()
        if call is None:
            return
        call.results = tensors_in(result)
        for t in call.results:
            self._add(t)
        self.calls.append(call)

    def enter_node(self, node: Any) -> None:
        """Note where a walk of backward begins; what runs in it is not on the trail."""
        if not self._within:
            self.roots.append(node)
        self._within += 1

    def leave_node(self, node: Any, token: Any) -> None:
        """Go on."""
        self._within -= 1

    def forget(self) -> None:
        """Let go of everything."""
        for handle in self._handles:
            handle.remove()
        self.on_it.clear()
        self.calls.clear()


def _address(t: Any) -> int:
    try:
        return int(t.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a layout without one memory
        return -id(t)


def _reasons(tensor: Any, trail: _Trail) -> list[Reason]:
    first = _seen_afterwards(tensor)
    if first[0].kind in ("integer", "not requested"):
        return first
    if trail.zero.get(id(tensor)):
        return _where_it_vanishes(trail) or first
    if id(tensor) in trail.zero:
        return first
    if not trail.calls:
        return [Reason("not on the path", "nothing in the step was computed from it")]
    cuts = _cuts(trail)
    if not trail.roots and not cuts:
        return [Reason("no backward", "the step did not call backward")]
    if cuts:
        return cuts
    ends = _ends(trail)
    return [Reason("not on the path", f"{call.name} was computed from it, but what backward was "
                   "called on does not depend on that", call.where) for call in ends]  # fmt: skip


def _cuts(trail: _Trail) -> list[Reason]:
    """Return where a call lost the history, those that backward's roots depend on first."""
    begins = {id(t) for c in trail.calls if _cut(c) for t in c.results}
    live, used = set(), {id(t) for call in trail.calls for t in call.inputs}
    for root in trail.roots:
        live |= {id(t) for t in trail.on_it.values() if t.grad_fn is root}
    for call in reversed(trail.calls):
        if any(id(t) in live for t in call.results):
            live |= {id(t) for t in call.inputs}
    # What is tainted behind a cut is cut already.
    behind: set[int] = set()
    found: list[tuple[bool, Reason]] = []
    for call in trail.calls:
        if all(id(t) in behind for t in call.inputs):
            behind |= {id(t) for t in call.results}
        elif (reason := _cut(call)) is not None:
            counts = any(id(t) in live for t in call.results)
            if counts or not trail.roots or any(id(t) in used for t in call.results):
                found.append((counts, reason))
            behind |= {id(t) for t in call.results} & begins
    wanted = [r for counts, r in found if counts] or [r for _, r in found]
    return list(dict.fromkeys(wanted))


def _cut(call: _Call) -> Reason | None:
    """Return how a call lost the history, if it did."""
    if call.lost:
        return Reason("history lost", f"{call.name} was given the memory of what was computed from "
                      f"it, without its history ({call.lost})", call.where)  # fmt: skip
    if any(t.requires_grad for t in call.results) or not call.results:
        return None
    if call.name in _DETACHING:
        return Reason("detached", "detached here", call.where)
    differentiable = [t for t in call.results if t.is_floating_point() or t.is_complex()]
    if not differentiable:
        kind = "integer cast" if call.name in ("_to_copy", "to", "copy_") else "no derivative"
        return Reason(kind, f"{call.name} gives {call.results[0].dtype} here, which has no "
                      "gradients", call.where)  # fmt: skip
    if not call.recording:
        return Reason("gradients off", f"{call.name} ran where gradients are off (no_grad, "
                      "inference_mode or set_grad_enabled(False))", call.where)  # fmt: skip
    return Reason("no derivative", f"{call.name} has no derivative here", call.where)


def _ends(trail: _Trail) -> list[_Call]:
    """Return the calls whose results went nowhere."""
    used = {id(t) for call in trail.calls for t in call.inputs}
    return [c for c in trail.calls if not any(id(t) in used for t in c.results)][-3:]


def _where_it_vanishes(trail: _Trail) -> list[Reason]:
    """Return the calls whose results have a gradient, and whose inputs have none but zeros."""
    found = []
    for call in trail.calls:
        arrives = [t for t in call.results if trail.zero.get(id(t)) is False]
        stops = [t for t in call.inputs if trail.zero.get(id(t))]
        if not arrives or not stops or any(t is s for t in arrives for s in stops):
            continue
        kind = "dead activations" if call.name in _FLAT else "zero derivative"
        with silent():
            low, high = stops[0].detach().aminmax()
            told = f"its {stops[0].numel()} inputs lie between {low:.6g} and {high:.6g}"
        why = _FLAT.get(call.name, "its derivative is zero there")
        found.append(
            Reason(kind, f"the gradient becomes zero at {call.name}: {told}; {why}", call.where)
        )
    if not found and trail.calls:
        found = [Reason("zero derivative", "what backward was called on does not change with it: "
                        "already its own gradient is zero", trail.calls[-1].where)]  # fmt: skip
    return found

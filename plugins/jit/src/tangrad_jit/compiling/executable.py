"""A recording made to run: guards, plan, and what the run leaves behind."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.utils import _pytree
from tangrad_jit._guards import (
    Geometry,
    Identities,
    Overlaps,
    Pattern,
    Places,
    Serving,
    TensorGuard,
    is_same,
)
from tangrad_jit.capture.recorder import memory_of
from tangrad_jit.capture.sources import argument_sources, changed_numbers
from tangrad_jit.compiling.dynamic_scalars import DynamicScalars
from tangrad_jit.compiling.joint import Parts, part
from tangrad_jit.compiling.recording import Recording
from tangrad_jit.compiling.thread_state import state_of_thread
from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.types import ITEMSIZE, TensorType
from tangrad_jit.passes.pipeline import optimize
from tangrad_jit.run.interpreter import interpret
from tangrad_jit.run.plan import Arena, Plan

if TYPE_CHECKING:
    from tangrad_jit.compiling.second_order import SecondOrder

__all__ = ["Executable", "Prepared"]


class Prepared:
    """A graph after the passes.

    Attributes:
        graph, groups, notes: as `optimize` gives them.
        beside: what the graph is given beside the inputs of the one before the passes.
        arena: where its plan places values, or None for one of its own.
    """

    def __init__(
        self, graph: Graph, groups: list[Any], notes: list[str], beside: list[Any]
    ) -> None:
        self.graph, self.groups, self.notes, self.beside = graph, groups, notes, beside


class Executable(Serving):
    """Runs in the place of a function's call.

    Args:
        recording: what the call was. settings: of the compiled function.
        prepare: returns the forward graph (0) and the backward one (1) after the passes, where
            they are known; otherwise the passes are run.
        arena: where both have their values, one after the other; None: in one of their own.

    Attributes:
        forward, backward: the graphs, after the passes; backward is None where nothing is to be
            differentiated outside.
        recorded: the forward graph, before the passes.
        notes: what the passes did.
        plans: how they run, where no back end does.
        measured: seconds of a call by the graph, and by the function; None: not known.
        trial: what compares the first calls with eager's, or None.
        dropped: why it is not used any more, or "". lost: whether because it was no faster.
        seconds: what recording and compiling took.
    """

    def __init__(
        self,
        recording: Recording,
        settings: Any,
        prepare: Callable[[int], Prepared] | None = None,
        arena: Arena | None = None,
    ) -> None:
        assert recording.pattern is not None
        assert recording.guards is not None
        self.pattern, self.guards = recording.pattern, recording.guards
        self.state = state_of_thread()
        self.seconds = 0.0
        self.dropped, self.lost = "", False
        self.notes: list[str] = []
        self.arena = Arena() if arena is None else arena
        self.plans: list[Plan] = []
        self.measured: tuple[float, float] | None = None
        parts = part(recording)
        self.recording, self._settings = recording, settings
        self._kept = parts.kept
        self.numbers = DynamicScalars(recording)
        if prepare is None:
            prepare = _by_passes(parts, settings)
        self.forward, self._run_forward = self._prepare(parts.forward, settings, prepare, 0)
        if recording.infers:
            self._run_forward = tangrad.inference_mode()(self._run_forward)
        self.backward = None
        if parts.backward is not None:
            self.backward, self._run_backward = self._prepare(parts.backward, settings, prepare, 1)
        self.recorded, self._whole_backward = parts.forward, parts.backward
        self._partial: dict[tuple[bool, ...], tuple[Callable[..., Any], list[bool]]] = {}
        self._bind_inputs(parts.forward)
        self._bind_result(recording, parts.forward)
        self.trial = None
        if settings.measure or settings.check:
            from tangrad_jit.compiling.trial import trial_of

            self.trial = trial_of(self, settings)
        for entry in recording.graph.inputs:
            if entry.kind in ("argument", "tangent"):
                entry.tensor = None
        recording.result = None

    def _prepare(
        self, graph: Graph, settings: Any, prepare: Callable[[int], Prepared], k: int
    ) -> tuple[Graph, Callable[..., Any]]:
        if settings.backend is not None:
            from tangrad_jit.compiling.backends import run_by_backend

            return graph, run_by_backend(graph, settings.backend, backward=k == 1)
        made = prepare(k)
        self.notes.extend(made.notes)
        plan = Plan(made.graph, made.groups, self.arena)
        self.plans.append(plan)
        if not made.beside:
            return made.graph, plan.run
        return made.graph, lambda inputs: plan.run(inputs + made.beside)

    def _bind_inputs(self, graph: Graph) -> None:
        template: list[Any] = []
        self._gradients, self._equal, self._fixed = [], [], []
        self._arguments = 0
        same: dict[Any, int] = {}
        captured = {
            memory_of(i.tensor): i.tensor.data_ptr() for i in graph.inputs if i.kind == "capture"
        }
        for place, entry in enumerate(graph.inputs):
            template.append(entry.tensor if entry.kind != "argument" else None)
            if entry.kind == "gradient":
                self._gradients.append((place, entry.tensor))
            if entry.kind != "argument":
                continue
            self._arguments += 1
            key = memory_of(entry.tensor)
            if key in same:
                self._equal.append((same[key], place))
            same.setdefault(key, place)
            if key in self.recording_captures() or key in captured:
                self._fixed.append((place, entry.tensor.data_ptr()))
        self._graded = self.recording.graded
        self.identities = self._identities(graph)
        self._held = template[self._arguments + len(self.numbers.sources) :]
        self._asks_numbers = bool(self.numbers.sources) or self.numbers.reads
        self._writes(graph)

    def _identities(self, graph: Graph) -> Identities:
        """Return which arguments are one, or held; one whose own gradient is used comes again."""
        given = [entry.tensor for entry in graph.inputs if entry.kind == "argument"]
        owners = {id(tensor) for tensor, _ in self.recording.gradients}
        owners |= {id(owner) for _, owner in self._gradients}
        held = [guard.tensor for guard in self.guards.entries if isinstance(guard, TensorGuard)]
        return Identities(given, held, [t for t in given if id(t) in owners])

    def recording_captures(self) -> set[Any]:
        """Return the memory of tensors that the program holds, whichever the graph uses."""
        return {
            memory_of(guard.tensor)
            for guard in self.guards.entries
            if hasattr(guard, "tensor") and hasattr(guard.tensor, "data_ptr")
        }

    def _writes(self, graph: Graph) -> None:
        """Note which inputs are written, to see that no other shares their memory."""
        roots = {value.root for node in graph.nodes for value in node.written}
        self._written = [k for k, i in enumerate(graph.inputs) if i.value in roots]
        held = [i.tensor for i in graph.inputs if i.kind == "capture"]
        if len(held) > 1 and any(graph.inputs[k].kind == "capture" for k in self._written):
            places, watched = Places(held), set(map(id, held))
            for guard in self.guards.entries:
                if isinstance(guard, TensorGuard) and id(guard.tensor) in watched:
                    guard.watch(places)
        self._overlaps = None
        if self._written and self._arguments:
            held = [None if i.kind == "argument" else i.tensor for i in graph.inputs]
            graded = [i.kind == "gradient" for i in graph.inputs]
            extents = [_extent(i.value) for i in graph.inputs]
            self._overlaps = Overlaps(held, graded, extents, self._written, self._arguments)

    def _bind_result(self, recording: Recording, graph: Graph) -> None:
        places = {i.value: k for k, i in enumerate(graph.inputs) if i.kind != "constant"}
        self._spec = recording.spec
        self._leaves = []
        for kind, item in recording.leaves:
            if kind == "output":
                value = recording.graph.outputs[item]
                if isinstance(value, Value) and value in places:
                    self._leaves.append(("input", places[value]))
                    continue
            self._leaves.append((kind, item))
        self._new_gradients = recording.gradients
        kept = {id(owner) for _, owner in self._gradients}
        self._replaced = [t for t, _ in recording.gradients if id(t) not in kept]
        self._single = recording.spec.is_leaf() and len(self._leaves) == 1
        self._spent = recording.spent
        self._differentiable = set(recording.differentiable)
        sources = [value for value, _ in recording.derivatives]
        self._sources = [places[value] for value in sources]
        self._derivative_places = [place is not None for _, place in recording.derivatives]
        if self.backward is not None:
            self._second = self._second_order(recording, graph)
        self._tangents = [value.type for value in recording.tangents]

    def _second_order(self, recording: Recording, graph: Graph) -> SecondOrder:
        from tangrad_jit.compiling.second_order import SecondOrder

        results = sorted(self._differentiable)
        made = SecondOrder(graph, self._sources, results, recording.histories)
        made.refusal = made.refusal or recording.only_once
        return made

    # --- choosing --------------------------------------------------------------------------

    def holds_outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether all but the arguments is as it was."""
        if self.state != state_of_thread() or not self.guards.hold():
            return False
        return self.numbers.take(args, kwargs) is not None

    def doubtful(self, given: list[Any]) -> list[int]:
        """Return which of the numbers that `fits` has found are others than ever before."""
        if not self.numbers.unconfirmed:
            return []
        return self.numbers.doubtful(given[self._arguments :])

    def why_not(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return why `fits` says no, as text."""
        if self.pattern.match(args, kwargs) is None:
            return _difference(self.pattern, Pattern(args, kwargs))
        if self.state != state_of_thread():
            return "grad mode, inference mode, or what new tensors are by default, is another"
        failed = self.guards.failed()
        if failed is not None:
            return failed.why()
        numbers = self.numbers.why_not(args, kwargs)  # which are numbers, say the guards
        if numbers is not None:
            return numbers
        return "arguments share memory otherwise, or are other objects of the program"

    def may_run_again(self) -> bool:
        """Return whether another run of the call changes nothing but the host's random numbers."""
        effects = {effect for node in self.recorded.nodes for effect in node.effects} - {"check"}
        replaced = self._new_gradients or self._gradients or self._spent
        on_host = all(
            entry.tensor is None or entry.tensor.device.type == "cpu"
            for entry in self.recorded.inputs
        )
        return not replaced and effects <= ({"random"} if on_host else set())

    def changed_numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Any, Any]:
        """Return the sources of numbers that are others than the graph holds for, by their keys."""
        found: dict[Any, Any] = dict(changed_numbers(self.guards.entries))
        was = {path: item for path, kind, item in self.pattern.leaves if kind == "constant"}
        for key, source in argument_sources(args, kwargs).items():
            before, now = was.get(source.name), source.get(args, kwargs)
            if type(before) is type(now) and type(now) in (int, float) and before != now:
                found[key] = source
        return found

    # --- running ---------------------------------------------------------------------------

    def _inputs(self, tensors: list[Any]) -> list[Any]:
        inputs = tensors + self._held
        for place, owner in self._gradients:
            inputs[place] = owner.grad
        return inputs

    def _run_recorded(self, inputs: list[Any]) -> list[Any]:
        """Run forward so that its results can be differentiated."""
        outs = _Recorded.apply(self, inputs, *[inputs[k] for k in self._sources])
        return list(outs) if isinstance(outs, tuple) else [outs]

    def _mark_spent(self, outs: list[Any]) -> None:
        for k in self._spent:
            outs[k].requires_grad_().register_hook(_refuse)

    def _result(self, outs: list[Any], inputs: list[Any]) -> Any:
        leaves = [
            outs[item] if kind == "output" else inputs[item] if kind == "input" else item
            for kind, item in self._leaves
        ]
        return _pytree.tree_unflatten(leaves, self._spec)

    def seeds(self, grads: list[Any]) -> list[Any]:
        """Return gradients of the results, zeros where there is none.

        Raises:
            RuntimeError: a Function behind the results would be given zeros, which eager's is not.
        """
        if self.recording.wants_all and any(grad is None for grad in grads):
            raise RuntimeError(
                "a compiled function that calls a Function with set_materialize_grads(False) "
                "cannot be differentiated by some of its results alone; return the others detached"
            )
        return [
            tangrad.zeros(t.shape, dtype=getattr(tangrad, t.dtype), device=t.device)
            if grad is None
            else grad
            for grad, t in zip(grads, self._tangents, strict=True)
        ]

    def differentiate(
        self, saved: list[Any], grads: list[Any], present: tuple[bool, ...]
    ) -> list[Any]:
        """Return the gradients of the sources, given those of the results that are present."""
        seeds = [_conform(g, t) for g, t in zip(grads, self._tangents, strict=True)]
        run, places = self._run_backward, self._derivative_places
        if not all(present):
            run, places = self._backward_of(present)
        made = iter(run([*saved, *seeds]))
        return [next(made) if there else None for there in places]

    def _backward_of(self, present: tuple[bool, ...]) -> tuple[Callable[..., Any], list[bool]]:
        """Return what runs backward for some of the results, and whose gradients it gives."""
        known = self._partial.get(present)
        if known is None:
            known = self._partial[present] = self._new_backward(present)
        return known

    def _new_backward(self, present: tuple[bool, ...]) -> tuple[Callable[..., Any], list[bool]]:
        from tangrad_jit.compiling.partial import backward_of

        assert self._whole_backward is not None
        if self.recording.only_once:  # a Function's backward need not be linear
            reaching = self.recording.reaching
            wanted = [any(a and b for a, b in zip(r, present, strict=True)) for r in reaching]
            there = [a and b for a, b in zip(self._derivative_places, wanted, strict=True)]
            kept = [k for k, one in enumerate(there) if one]
            before = [sum(self._derivative_places[:k]) for k in kept]
            return lambda inputs: _taken(self._run_backward(inputs), before), there
        graph, outputs = backward_of(self._whole_backward, present, tangrad.device)
        owners = [k for k, there in enumerate(self._derivative_places) if there]
        given = {owners[k] for k in outputs}
        there = [k in given for k in range(len(self._derivative_places))]
        if self._settings.backend is not None:
            return lambda inputs: interpret(graph, inputs), there
        made, groups, _ = optimize(graph.copy(), fast=self._settings.fast)
        beside = [entry.tensor for entry in made.inputs[len(graph.inputs) :]]
        plan = Plan(made, groups, self.arena)
        return lambda inputs: plan.run([*inputs, *beside]), there


def _by_passes(parts: Parts, settings: Any) -> Callable[[int], Prepared]:
    def prepare(k: int) -> Prepared:
        before = parts.backward if k else parts.forward
        assert before is not None
        graph, groups, notes = optimize(before.copy(), fast=settings.fast)
        folded = [entry.tensor for entry in graph.inputs[len(before.inputs) :]]
        return Prepared(graph, groups, notes, folded)

    return prepare


def _taken(items: list[Any], places: list[int]) -> list[Any]:
    return [items[k] for k in places]


class _Recorded(tangrad.autograd.Function):
    """A forward graph whose backward is a graph, too."""

    @staticmethod
    def forward(ctx: Any, executable: Executable, inputs: list[Any], *sources: Any) -> Any:
        ctx.set_materialize_grads(False)
        outs = executable._run_forward(inputs)
        count = len(outs) - executable._kept
        saved = outs[count:]
        tensors = [item for item in saved if isinstance(item, tangrad.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.numbers = [None if isinstance(i, tangrad.Tensor) else i for i in saved]
        ctx.executable = executable
        # For second derivatives alone, so no error says that it was written before.
        ctx.inputs, ctx.versions = inputs, executable._second.versions(inputs)
        results = outs[:count]
        plain = [t for k, t in enumerate(results) if k not in executable._differentiable]
        ctx.mark_non_differentiable(*(t for t in plain if isinstance(t, tangrad.Tensor)))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        executable = ctx.executable
        given = [grads[k] for k in sorted(executable._differentiable)]
        present = tuple(grad is not None for grad in given)
        seeds = executable.seeds(given)
        if tangrad.is_grad_enabled():
            inputs = [i() if isinstance(i, weakref.ref) else i for i in ctx.inputs]
            made = executable._second.gradients(inputs, ctx.versions, given)
            return (None, None, *made)
        # A loss that is kept after its backward must not keep what it was computed from.
        ctx.inputs = [weakref.ref(i) if isinstance(i, tangrad.Tensor) else i for i in ctx.inputs]
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if item is None else item for item in ctx.numbers]
        return (None, None, *executable.differentiate(saved, seeds, present))


def _refuse(grad: Any) -> Any:
    """Refuse to differentiate a result whose history the graph has used up, as eager's would be.

    The result is a leaf with this hook: a Function of its own would take eight microseconds.
    """
    raise RuntimeError(
        "Trying to backward through the graph a second time: the compiled function has itself "
        "differentiated what made this result"
    )


def _conform(grad: Any, type: TensorType) -> Any:
    """Return a gradient in the geometry that backward was recorded with."""
    if tuple(grad.stride()) == type.stride and grad.dtype.name == type.dtype:
        return grad
    made = tangrad.empty_strided(type.shape, type.stride, dtype=grad.dtype, device=grad.device)
    return made.copy_(grad)


def _extent(value: Value) -> int:
    type = value.type
    if not isinstance(type, TensorType) or type.numel == 0:
        return 0
    reach = sum((n - 1) * s for n, s in zip(type.shape, type.stride, strict=True)) + 1
    return int(reach * ITEMSIZE.get(type.dtype, 16))


def _difference(old: Pattern, new: Pattern) -> str:
    """Return the first difference between two structures of arguments, as text."""
    kinds = [(p, "constant" if k == "number" else k) for p, k, _ in old.leaves]
    if kinds != [(p, k) for p, k, _ in new.leaves]:
        return "the arguments are of another structure"
    for (path, kind, was), (_, _, now) in zip(old.leaves, new.leaves, strict=True):
        if kind == "constant" and not is_same(was, now):
            return f"{path} is {now!r}, it was {was!r}"
        if kind == "number" and type(now) is not was:
            return f"{path} is {now!r}, it was of type {was.__name__}"
        if kind == "tensor" and isinstance(was, Geometry) and not was.same(now):
            return f"{path}: {was.difference(now)}"
    return "the arguments are others"

"""One run of a function, recorded: its graph, its results, what it leaves behind, its guards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad import nn
from tangrad.plugin import traced_calls
from tangrad.utils import _pytree
from tangrad_jit._guards import (
    GradientGuard,
    Guards,
    Pattern,
    SharedGuard,
    SlotGuard,
    attributes,
    is_same,
)
from tangrad_jit.capture.calls import CallWatch, answers_with_a_number, asks_types, is_library
from tangrad_jit.capture.errors import CaptureError, GuardError, Unsettled
from tangrad_jit.capture.guarded_state import GuardedState, Key, survey
from tangrad_jit.capture.numbers import Number, Numbers, plain_in
from tangrad_jit.capture.recorder import Recorder, memory_of
from tangrad_jit.capture.sources import (
    Source,
    argument_sources,
    held_sources,
    hyperparameters,
    replaced,
)
from tangrad_jit.compiling.results import check_result, containers, mapped
from tangrad_jit.compiling.spent import (
    functions_behind,
    gradients_up_to,
    is_used_up,
    reached,
    refusal_beside,
    tells_of_second_time,
)
from tangrad_jit.graph.ir import DRAW, Graph, Value, map_values, values_in

if TYPE_CHECKING:
    from tangrad_jit.capture.symbolic_sizes import SymbolicSizes

__all__ = ["Recording", "record", "tensors_among"]

_PLAIN = (int, float, bool, complex, str, bytes, type(None))
_BY_NOTHING = "the results cannot be differentiated by anything that the graph is given"


class Recording:
    """What a run was.

    Attributes:
        graph: forward and, where results can be differentiated, backward; its outputs are the
            returned tensors, then the new gradients, then the results of backward.
        result: what the run returned.
        failure: why it is no graph, or None.
        spec: structure of the result. leaves: per leaf the place of its output, or a constant.
        gradients: (tensor, place of its new gradient among the outputs, or None) of tensors whose
            `.grad` the run replaced.
        forward_nodes: how many of the graph's nodes make the results.
        spent: places of results whose history the run itself has used up.
        differentiable: places of results that can be differentiated.
        tangents, derivatives: inputs that are gradients of results; (input, place of its gradient).
        reaching: per derivative of which results it is.
        graded: (place of an argument, tensor or place of the argument whose gradient it is).
        numbers: (source, input, number) of the numbers that the graph is given.
        asked: what the run asked of them, as `Numbers` has it.
        sizes: what the run read of sizes, or None where sizes were not symbolic.
        histories: per node of the forward graph, of its results whether they had a history.
        only_once: why the results cannot be differentiated twice from outside, or "".
        wants_all: whether backward cannot do without the gradient of a result.
        generators: of which the graph draws.
        infers: whether the program enters inference mode for all of its ops.
    """

    def __init__(self, graph: Graph, sizes: SymbolicSizes | None = None) -> None:
        self.graph, self.sizes = graph, sizes
        self.result: Any = None
        self.failure: CaptureError | None = None
        self.pattern: Pattern | None = None
        self.guards: Guards | None = None
        self.executed: dict[CodeType, Any] = {}
        self.spec: Any = None
        self.leaves: list[tuple[str, Any]] = []
        self.gradients: list[tuple[Any, int | None]] = []
        self.forward_nodes = self.returned = 0
        self.spent: list[int] = []
        self.differentiable: list[int] = []
        self.tangents: list[Value] = []
        self.derivatives: list[tuple[Value, Any]] = []
        self.reaching: list[tuple[bool, ...]] = []
        self.graded: list[tuple[int, Any]] = []
        self.numbers: list[tuple[Source, Value, Any]] = []
        self.asked: list[tuple[str, Any, Any, bool]] = []
        self.histories: list[tuple[bool, ...]] = []
        self.only_once = ""
        self.wants_all = False
        self.generators: list[Any] = []
        self.infers = False


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    strict: bool,
    known: dict[CodeType, Any],
    name: str,
    follow: Callable[[Recorder], None] = lambda recorder: None,
    varying: Collection[Key] = (),
    fixed: Collection[Key] = (),
    sizes: bool = False,
) -> Recording:
    """Run a function once, for real, and return what it was.

    Args:
        function, args, kwargs: the call.
        strict: raise what makes a graph impossible where it happens; otherwise the run goes on,
            unrecorded, and the recording has the failure.
        known: code that earlier runs executed.
        name: of the graph.
        follow: told the recorder before the run.
        varying, fixed: keys of sources whose numbers the graph is to be given, beside those of
            optimizers; and of those for whose numbers it is to hold alone.
        sizes: follow what the program reads of sizes.

    Raises:
        CaptureError: the run cannot be a graph, if strict.
        Exception: what the function raises.
    """
    try:
        session = _Session(function, args, kwargs, strict, known, name)
    except GuardError as error:
        if known and strict:
            raise
        recording = _learned(function, args, kwargs, name)
        told = f"the run was to tell what the function executes: {error}"
        recording.failure = error if known else Unsettled(told)
        return recording
    session.choose(varying, fixed)
    if sizes:
        session.follow_sizes()
    follow(session.recorder)
    recording = session.run()
    if recording.failure is None:
        try:
            session.complete(recording)
        except CaptureError as failure:
            recording.failure = failure
    session.recorder.forget()
    if strict and recording.failure is not None and not isinstance(recording.failure, Unsettled):
        raise recording.failure
    return recording


def _learned(function: Any, args: Any, kwargs: Any, name: str) -> Recording:
    """Run a function whose names lead too far, to learn which code it executes."""
    # Code counts as the program's while somebody records it.
    recorder = Recorder(name, lambda tensor: ("capture", "", tensor))
    recorder.strict = False
    recording = Recording(recorder.graph)
    with CallWatch() as watch, traced_calls(recorder):
        recorder.watch = watch.filter
        recording.result = function(*args, **kwargs)
    recorder.forget()
    recording.executed = watch.executed
    return recording


class _Session:
    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        strict: bool,
        known: dict[CodeType, Any],
        name: str,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.strict = strict
        self.sizes: SymbolicSizes | None = None
        self.known = known
        self.before = self._survey_before()
        self.origins: dict[Any, tuple[str, str, Any]] = {}
        for path, tensor in self.before.tensors:
            self.origins.setdefault(memory_of(tensor), ("capture", path, tensor))
        self.recorder = Recorder(name, self._origin)
        self.recorder.strict = strict
        self.recorder.takes_mode = True
        self.grads = self._gradients()

    def _survey_before(self) -> GuardedState:
        try:
            found = survey(self.function, self.args, self.kwargs, None)
        except GuardError:
            if not self.known:
                raise
            # All names lead too far; what the code of earlier runs names is what matters.
            return survey(self.function, self.args, self.kwargs, self.known)
        for code, names in self.known.items():
            if code not in found.code:
                found.code.add(code)
                for item, path in found._names(code, names, f"{code.co_name}()"):
                    found.add(item, path)
        found.follow_namespaces()
        return found

    def choose(self, varying: Collection[Key], fixed: Collection[Key]) -> None:
        """Choose the numbers that the graph is given."""
        held = held_sources(self.before.guards)
        given = argument_sources(self.args, self.kwargs)
        wanted = {*varying, *hyperparameters(self.before._seen.values())} - set(fixed)
        asks = any(asks_types(code) and not is_library(code) for code in self.before.code)
        if asks or any(map(answers_with_a_number, self.known)):
            wanted = set()
        self.sources: list[Any] = [s for s in (*held.values(), *given.values()) if s.key in wanted]

    def follow_sizes(self) -> None:
        """Have the run's sizes made symbolic, unless its code may ask for the types of numbers."""
        if not any(asks_types(code) and not is_library(code) for code in self.before.code):
            from tangrad_jit.capture.symbolic_sizes import SymbolicSizes

            self.sizes = SymbolicSizes(self.recorder)

    def _origin(self, tensor: Any) -> tuple[str, str, Any] | None:
        return self.origins.get(memory_of(tensor))

    def _gradients(self) -> list[tuple[str, Any, Any]]:
        """Return (path, tensor, its gradient) of what may be given one, and know the gradients."""
        found = []
        for path, tensor in [
            *self.before.tensors,
            *tensors_among(self.args),
            *tensors_among(self.kwargs, "kwargs"),
        ]:
            if tensor.is_leaf or tensor.retains_grad:
                found.append((path, tensor, tensor.grad))
                if tensor.grad is not None:
                    key = memory_of(tensor.grad)
                    self.origins.setdefault(key, ("gradient", f"{path}.grad", tensor))
        return found

    def _graded_arguments(self) -> list[tuple[int, Any]]:
        """Return which arguments are gradients, and whose: a graph has one value for both."""
        owners = {
            memory_of(grad): next(
                (k for k, (_, t) in enumerate(self.arguments) if t is tensor), tensor
            )
            for _, tensor, grad in self.grads
            if grad is not None
        }
        if not owners:
            return []
        keys = [memory_of(t) for _, t in self.arguments]
        return [(k, owners[key]) for k, key in enumerate(keys) if key in owners]

    def run(self) -> Recording:
        """Run the function."""
        recorder = self.recorder
        recording = Recording(recorder.graph, sizes=self.sizes)
        keys = {source.key for source in self.sources}
        recording.pattern = Pattern(self.args, self.kwargs, keys)
        for path, tensor in [*tensors_among(self.args), *tensors_among(self.kwargs, "kwargs")]:
            if type(tensor) not in (tangrad.Tensor, nn.Parameter):
                recorder.refuse(f"{path} is a {type(tensor).__name__}, and so would be results")
                continue
            recorder.given(tensor, path)
        self.before_tensors = {id(t): _state(t) for _, t in self.before.tensors}
        self.arguments = [*tensors_among(self.args), *tensors_among(self.kwargs, "kwargs")]
        self.before_arguments = [_state_of_argument(t) for _, t in self.arguments]
        recording.graded = self._graded_arguments()
        for root in self._roots():
            recorder.follow_modules(root)
        args, kwargs = self._follow_numbers(recording)
        try:
            with contextlib.ExitStack() as stack:
                watch = stack.enter_context(CallWatch(bool(self.sources), self.sizes))
                recorder.watch = watch.filter
                stack.enter_context(traced_calls(recorder))
                if self.sizes is not None:
                    stack.enter_context(self.sizes.symbolic())
                recorder.caller = sys._getframe().f_code
                self.raw = self.function(*args, **kwargs)
                if self.sizes is not None:
                    self.raw = mapped(_plain_size, self.raw)
                with contextlib.suppress(CaptureError):
                    recorder.finish()
        finally:
            self._put_numbers_back(recording)
        recording.result = self.raw
        if recording.numbers or recorder.graph.nodes:
            recording.result = mapped(plain_in, self.raw)
        recording.executed = watch.executed
        recording.failure = recorder.failure or watch.refusal
        recording.infers = bool(recorder.infers)
        return recording

    def _follow_numbers(self, recording: Recording) -> tuple[Any, Any]:
        """Put what stands for numbers in their places; return the arguments so changed."""
        numbers = self.recorder.numbers = Numbers(self.recorder)
        recording.asked = numbers.guards
        stand_ins = {}
        for source in self.sources:
            number = source.get(self.args, self.kwargs)
            made = stand_ins[source.key] = numbers.given(number, source.name)
            recording.numbers.append((source, made.value, number))
        for source in self.sources:
            if hasattr(source, "put"):
                source.put(stand_ins[source.key])
        return replaced(self.args, self.kwargs, stand_ins)

    def _put_numbers_back(self, recording: Recording) -> None:
        """Put numbers where something stands for them, also where the run has put it."""
        for source, value, number in recording.numbers:
            if hasattr(source, "put"):
                with contextlib.suppress(LookupError):
                    now = source.get(self.args, self.kwargs)
                    mine = isinstance(now, Number) and now.value is value
                    if not mine:  # at other numbers, putting the same there is a change
                        recording.asked.append(("is", value, number, True))
                    source.put(number if mine else plain_in(now))
        if not recording.numbers and not (self.sizes is not None and self.sizes.handed):
            return
        if Guards(self.before.guards).failed() is None:
            return  # the run has put nothing anywhere, so nothing that stands for a number
        after = survey(self.function, self.args, self.kwargs, None)
        for held in {**self.before._seen, **after._seen}.values():
            if type(held) not in (dict, list):
                continue
            for key, item in list(held.items() if type(held) is dict else enumerate(held)):
                found = plain_in(item) if isinstance(item, (Number, tuple)) else item
                if found is not item:
                    held[key] = found

    def _roots(self) -> list[Any]:
        if isinstance(self.function, nn.Module):
            return [self.function]
        modules = list(self.before.modules())
        inner = {child for m in modules for child in m.modules() if child is not m}
        return [m for m in modules if m not in inner]

    def complete(self, recording: Recording) -> None:
        """Find what the run returned, left behind, and relied on."""
        graph = recording.graph
        recording.forward_nodes = len(graph.nodes)
        self._returned(recording)
        self._left_behind(recording)
        changed = Guards(self.before.guards).failed()
        if changed is not None:
            raise Unsettled(f"the run changed what it reads: {changed.why()}")
        recording.histories = [tuple(map(_has_history, node.results)) for node in graph.nodes]
        with _gradients_apart([tensor for _, tensor, _ in self.grads]):
            self._differentiate(recording)
        self._guard(recording)
        self._keep_used_numbers(recording)

    def _keep_used_numbers(self, recording: Recording) -> None:
        """Drop the inputs for numbers that nothing depends on."""
        graph = recording.graph
        used = {value for node in graph.nodes for value in node.inputs}
        used.update(values_in(graph.outputs))
        for _, left, right, _ in recording.asked:
            used.update(values_in((left, right)))
        recording.numbers = [item for item in recording.numbers if item[1] in used]
        graph.inputs = [i for i in graph.inputs if i.kind != "number" or i.value in used]

    def _returned(self, recording: Recording) -> None:
        self._check_containers()
        leaves, recording.spec = _pytree.tree_flatten(self.raw)
        numbers = [leaf.value if isinstance(leaf, Number) else None for leaf in leaves]
        recorder, graph = self.recorder, recording.graph
        given = {id(e.tensor): e.value for e in graph.inputs if e.kind in ("argument", "capture")}
        owners: dict[Value, Any] = {e.value: e.tensor for e in graph.inputs}
        aliases: dict[int, Value] = {}
        held = {id(tensor): path for path, tensor in self.before.tensors}
        for leaf, number in zip(leaves, numbers, strict=True):
            if number is not None:
                recording.leaves.append(("output", len(graph.outputs)))
                graph.outputs.append(number)
            elif id(leaf) in given:
                recording.leaves.append(("output", len(graph.outputs)))
                graph.outputs.append(given[id(leaf)])
            elif isinstance(leaf, tangrad.Tensor):
                check_result(leaf)
                recording.leaves.append(("output", len(graph.outputs)))
                value = recorder.value_of(leaf)
                if leaf._is_view() and recorder.is_written_uncounted(value):
                    raise CaptureError("a view is returned of what was written through .data")
                if id(leaf) in held and all(entry.tensor is not leaf for entry in graph.inputs):
                    raise CaptureError(
                        f"the function returns {held[id(leaf)]}, of whose memory the program holds "
                        "another tensor: a graph has one value for both"
                    )
                # `.data` of what the program holds is another tensor, also where it is asked first.
                for entry in graph.inputs:
                    if entry.value is value and entry.kind in ("argument", "capture"):
                        owners.setdefault(value, entry.tensor)
                # A Function may return what it is given, with a history of its own, and `.data`
                # shows what was written last.
                written = value.producer is not None and value.producer.written
                owned = written and value.root in owners
                if owners.setdefault(value, leaf) is not leaf or owned:
                    if id(leaf) not in aliases:
                        aliases[id(leaf)] = recorder.alias_of(value)
                    value = aliases[id(leaf)]
                graph.outputs.append(value)
            elif isinstance(leaf, _PLAIN):
                recording.leaves.append(("constant", leaf))
            else:
                raise CaptureError(
                    f"the function returns an object of {type(leaf).__name__}, which a graph "
                    "cannot make; return tensors, numbers, or tuples, lists and dicts of them"
                )
        recording.returned = len(graph.outputs)
        self.out_tensors = [leaf for leaf in leaves if isinstance(leaf, (tangrad.Tensor, Number))]

    def _check_containers(self) -> None:
        """Refuse results that hold lists and dicts of the program, which a graph makes anew."""
        known = {*self.before._seen, *map(id, containers((self.args, list(self.kwargs.values()))))}
        for held in containers(self.raw):
            if id(held) in known:
                raise CaptureError(
                    f"the function returns a {type(held).__name__} that it was given, that the "
                    "program holds, or twice; a graph makes another: return its members"
                )
            known.add(id(held))

    def _left_behind(self, recording: Recording) -> None:
        graph = recording.graph
        for _, tensor, before in self.grads:
            after = tensor.grad
            if after is before:
                continue
            if after is None:
                recording.gradients.append((tensor, None))
                continue
            recording.gradients.append((tensor, len(graph.outputs)))
            graph.outputs.append(self.recorder.value_of(after))
        self._refuse_gradients_within()
        for (path, tensor), state in zip(self.arguments, self.before_arguments, strict=True):
            if _state_of_argument(tensor) != state:
                raise CaptureError(
                    f"{path} has been given other memory, a history, hooks or attributes in the run"
                )
        if not self._are_arguments_as_before(recording):
            raise CaptureError("the run has changed a list or dict that it was given")
        for path, tensor in self.before.tensors:
            if self.before_tensors[id(tensor)] != _state(tensor):
                raise Unsettled(
                    f"{path} has been given other memory, or another history, in the run"
                )

    def _refuse_gradients_within(self) -> None:
        """Refuse a look at `.grad` of what was computed outside and keeps none: it is unwatched."""
        for path, tensor in [*self.before.tensors, *self.arguments]:
            within = not (tensor.is_leaf or tensor.retains_grad)
            if within and self.recorder.has_asked(tensor):
                raise CaptureError(f"the run asks for {path}.grad, of a tensor that is no leaf")

    def _are_arguments_as_before(self, recording: Recording) -> bool:
        assert recording.pattern is not None
        keys = {source.key for source in self.sources}
        before, now = recording.pattern.leaves, Pattern(self.args, self.kwargs, keys).leaves
        tensors = [*tensors_among(self.args), *tensors_among(self.kwargs, "kwargs")]
        return (
            [leaf[:2] for leaf in before] == [leaf[:2] for leaf in now]
            and all(
                k != "constant" or is_same(a, b)
                for (_, k, a), (_, _, b) in zip(before, now, strict=True)
            )
            and all(a is b for (_, a), (_, b) in zip(tensors, self.arguments, strict=True))
        )

    def _differentiate(self, recording: Recording) -> None:
        """Record backward from the results, where they can be differentiated."""
        graph, recorder = recording.graph, self.recorder
        # A result that is an input is returned as it is, with its history.
        given = {id(i.tensor) for i in graph.inputs if i.kind != "constant"}
        places = [
            k
            for k, t in enumerate(self.out_tensors)
            if isinstance(t, tangrad.Tensor) and t.requires_grad and id(t) not in given
        ]
        if places and not tangrad.is_grad_enabled():
            raise CaptureError("a result requires grad, though the call is made without gradients")
        try:
            is_leaf = [self.out_tensors[k].grad_fn is None for k in places]
        except RuntimeError as error:  # a view of what was written since, in another mode
            raise CaptureError(f"a result cannot be differentiated: {error}") from error
        if any(is_leaf):
            raise CaptureError(
                "a result was made to require a gradient of its own in the run, and a graph makes "
                "no leaves; return it without, and ask for its gradient outside"
            )
        if not places:
            return
        sources: list[Value] = []
        tensors: list[Any] = []
        for entry in graph.inputs:
            t = entry.tensor
            if entry.kind in ("argument", "capture") and t.requires_grad and not _in(t, tensors):
                sources.append(entry.value)
                tensors.append(t)
        if not tensors:
            raise CaptureError(_BY_NOTHING)
        self._refuse_shared_sources()
        outs = [self.out_tensors[k] for k in places]
        with tangrad.no_grad():
            seeds = [tangrad.ones_like(t) for t in outs]
        before = len(graph.nodes)
        for k, seed in zip(places, seeds, strict=True):
            recording.tangents.append(recorder.argument(seed, f"gradient of result {k}", "tangent"))
        try:
            with traced_calls(recorder), _without_hooks(tensors):
                grads = gradients_up_to(outs, tensors, seeds)
        except RuntimeError as error:
            if isinstance(error, CaptureError):
                raise
            del graph.nodes[before:]
            del graph.inputs[-len(places) :]
            recording.tangents.clear()
            if not tells_of_second_time(error):
                raise CaptureError(f"the results cannot be differentiated: {error}") from error
            if not all(is_used_up(t, tensors) for t in outs):
                raise CaptureError(
                    "the run has itself differentiated what made some of its results, and others "
                    "can be differentiated outside; return the former detached"
                ) from error
            recording.spent = places  # the run has differentiated them itself
            return
        functions = functions_behind(outs, tensors)
        if functions:
            name = functions[0].name()
            recording.only_once = f"calls a Function ({name}), whose backward is its own,"
        # It tells a gradient that is not there from zeros.
        recording.wants_all = not all(node.materialize_grads for node in functions)
        for t in outs:
            refusal = refusal_beside(t, tensors)
            if refusal is not None:
                raise CaptureError(f"a result cannot be differentiated: {refusal}") from refusal
        written = {v.root for node in graph.nodes[:before] for v in node.written}
        for value in sources:
            if value in written:
                raise CaptureError(
                    "a tensor that requires grad is written in place, and a result is to be "
                    "differentiated outside"
                )
        recording.forward_nodes = before
        recording.differentiable = places
        reaching = list(zip(*(reached([t], tensors) for t in outs), strict=True))
        if not any(map(any, reaching)):
            raise CaptureError(_BY_NOTHING)
        for value, grad, by in zip(sources, grads, reaching, strict=True):
            if not any(by):
                continue
            recording.reaching.append(by)
            place = None
            if grad is not None:
                place = len(graph.outputs)
                graph.outputs.append(recorder.value_of(grad))
            recording.derivatives.append((value, place))

    def _refuse_shared_sources(self) -> None:
        """Refuse tensors that the program holds and that go by another's name in the graph."""
        inputs = [i for i in self.recorder.graph.inputs if i.kind in ("argument", "capture")]
        names = {memory_of(entry.tensor): entry.name for entry in inputs}
        known = {id(entry.tensor) for entry in inputs}
        for path, tensor in self.before.tensors:
            if tensor.requires_grad and id(tensor) not in known and memory_of(tensor) in names:
                raise CaptureError(
                    f"{path} requires grad and shows the memory of {names[memory_of(tensor)]}: a "
                    "graph has one value for both, and could not tell whose gradient is whose"
                )

    def _guard(self, recording: Recording) -> None:
        changed = Guards(self.before.guards).failed()
        if changed is not None:
            raise CaptureError(
                f"the backward of a result changes what the program reads: {changed.why()}"
            )
        keys = [source.key for source in self.sources]
        after = survey(self.function, self.args, self.kwargs, recording.executed, keys)
        if after.refusals:
            path, reason = after.refusals[0]
            raise GuardError(f"{path}: {reason}")
        known = set(self.before._seen)
        fresh = [item for key, item in after._seen.items() if key not in known]
        if any(not isinstance(item, (type, *_PLAIN)) for item in fresh if not callable(item)):
            raise Unsettled("the run reads objects that were found only while it ran")
        recording.generators = _generators(recording.graph, after)
        guards = [*after.guards, *map(_engine, recording.generators)]
        watched = {id(t) for t, _ in recording.gradients}
        watched |= {id(i.tensor) for i in recording.graph.inputs if i.kind == "gradient"}
        # What a run does about gradients may be nothing because of what it found.
        asked = self.recorder.has_asked
        watched |= {id(tensor) for _, tensor in self.before.tensors if asked(tensor)}
        if any(asked(tensor) for _, tensor in self.arguments):
            assert recording.pattern is not None
            recording.pattern.watch_gradients()
        guards.extend(
            _with_gradient(path, tensor, before)
            for path, tensor, before in self.grads
            if id(tensor) in watched
        )
        captures = {id(i.tensor) for i in recording.graph.inputs if i.kind == "capture"}
        for path, tensor in self.before.tensors:
            _, _, first = self.origins[memory_of(tensor)]
            if first is not tensor and id(first) in captures:
                guards.append(SharedGuard(path, first, tensor))
        for path, tensor, grad in self.grads:
            shown = None if grad is None else self.origins.get(memory_of(grad))
            if shown is not None and shown[0] == "capture" and id(shown[2]) in captures:
                guards.append(SharedGuard(f"{path}.grad", shown[2], tensor, True))
        recording.guards = Guards(guards)


def _generators(graph: Graph, found: GuardedState) -> list[Any]:
    """Return the generators of which a graph draws.

    Raises:
        CaptureError: one is the run's own; in the next call it would be another.
    """
    made: dict[int, Any] = {}
    for node in graph.nodes:
        if node.form != DRAW:
            continue
        args = map_values(lambda value: value.example, node.args)
        generator = node.op.definition.generator_of(args)
        made[id(generator)] = generator
        default = tangrad.random.get_default_generator(generator.device)
        if generator is not default and not found.has(generator):
            raise CaptureError("numbers are drawn from a generator that the run made", node.line)
    return list(made.values())


def _engine(generator: Any) -> SlotGuard:
    """Return a guard of a generator's engine: a graph knows none that is sequential."""
    name = f"the engine of a generator of {generator.device_type}"
    return SlotGuard(name, generator, "sequential")


def _with_gradient(path: str, tensor: Any, before: Any) -> GradientGuard:
    """Return a guard of the gradient that a tensor had before the run."""
    now = tensor.grad
    with tangrad.no_grad():
        tensor.grad = before
        try:
            return GradientGuard(path, tensor)
        finally:
            tensor.grad = now


def _has_history(value: Value) -> bool:
    return bool(getattr(value.example, "requires_grad", False))


@contextlib.contextmanager
def _gradients_apart(tensors: list[Any]) -> Iterator[None]:
    """Keep gradients as they are.

    Raises:
        CaptureError: some are accumulated meanwhile, as a reentrant checkpoint does by itself.
    """
    held = [tensor.grad for tensor in tensors]
    for tensor, grad in zip(tensors, held, strict=True):
        if grad is not None:
            tensor.grad = None
    accumulated = False
    try:
        yield
    finally:
        for tensor, grad in zip(tensors, held, strict=True):
            if tensor.grad is not None or grad is not None:
                accumulated = accumulated or tensor.grad is not None
                tensor.grad = grad
    if accumulated:
        raise CaptureError("the backward of a result accumulates gradients by itself")


def _hooks(tensor: Any) -> dict[int, Any] | None:
    """Return a tensor's hooks; what was computed keeps them at its node, where a handle knows."""
    if tensor.grad_fn is None:
        found: dict[int, Any] | None = tensor._backward_hooks
        return found
    handle = tensor.register_hook(lambda grad: grad)
    handle.remove()
    held: dict[int, Any] = handle.hooks
    return held


@contextlib.contextmanager
def _without_hooks(tensors: list[Any]) -> Iterator[None]:
    """Keep the hooks of tensors from running: whoever differentiates outside runs them."""
    held = [_hooks(t) for t in tensors]
    kept = [dict(hooks or {}) for hooks in held]
    for hooks in held:
        if hooks:
            hooks.clear()
    try:
        yield
    finally:
        for hooks, before in zip(held, kept, strict=True):
            if hooks is not None:
                hooks.update(before)


def _plain_size(item: Any) -> Any:
    """Return a size itself for what stands for it among results: the graph holds for it alone."""
    if isinstance(item, Number) and item.env.of_sizes:
        return item.env.settle(item)
    return tangrad.Size(map(_plain_size, item)) if type(item) is tangrad.Size else item


def _in(tensor: Any, tensors: list[Any]) -> bool:
    return any(tensor is other for other in tensors)


def _state(t: Any) -> Any:
    """Return what a run must not change of a tensor that the program holds."""
    place = t.data_ptr(), tuple(t.shape), t.stride()
    return *place, t.dtype, t.requires_grad, id(t.grad_fn), t.retains_grad


def _state_of_argument(t: Any) -> Any:
    hooks = list(_hooks(t) or ()) if t.requires_grad else []
    return _state(t), hooks, attributes(t)


def tensors_among(item: Any, path: str = "args") -> list[tuple[str, Any]]:
    """Return (path, tensor) of nested arguments, in the order in which patterns have them."""
    if isinstance(item, tangrad.Tensor):
        return [(path, item)]
    found: list[tuple[str, Any]] = []
    if type(item) in (tuple, list) or (isinstance(item, tuple) and hasattr(item, "_fields")):
        for i, member in enumerate(item):
            found.extend(tensors_among(member, f"{path}[{i}]"))
    elif type(item) is dict:
        for key, value in item.items():
            found.extend(tensors_among(value, f"{path}[{key!r}]"))
    return found

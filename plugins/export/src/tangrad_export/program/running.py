"""Run an exported program on device "c99", so that its kernels leave the steps it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.plugin import components, traced_calls
from tangrad.random.generator import get_default_generator, get_engine
from tangrad.utils import _pytree
from tangrad_export.program.buffers import Buffer, Ref
from tangrad_export.program.control_flow import branch, is_control_flow, loop
from tangrad_export.program.layouts import array_of, with_array
from tangrad_export.program.recording import Origin, Recording
from tangrad_export.steps.copies import Copy, keep_copy
from tangrad_export.steps.reports import Check, guard

__all__ = ["LaidOut", "Runner", "lay_out"]


# Ops that are computed at the export where all that they take is known.
_FOLDED = frozenset(("div", "mul", "reciprocal", "select", "clone"))


class LaidOut:
    """A program that was laid out for some sizes.

    Attributes:
        steps: what it does.
        buffers: the memory that it uses.
        inputs: the buffers of the inputs that are tensors, in order.
        outputs: (buffer, shape, dtype) of the results that are tensors, in order.
        errors: the cell in which kernels note an index out of bounds, None if none can.
        drawn: how many counters of the random stream it takes.
    """

    drawn = 0

    def __init__(self, recording: Recording, inputs: list[Buffer], outputs: list[Any]) -> None:
        self.steps, self.buffers = recording.steps, recording.buffers
        self.inputs, self.outputs = inputs, outputs
        self.errors = recording.errors
        self.constant = recording.constant_ref


class Kept:
    """A tracer that keeps all that ops give, so that memory tells values apart."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def enter(self, op: Any, functional: Any, args: Any, out: Any) -> None:
        """Let a call begin."""

    def leave(self, call: Any, result: Any) -> None:
        """Keep what a call gave."""
        for t in _pytree.tree_leaves(result):
            self._keep(t)

    def _keep(self, t: Any) -> None:
        if isinstance(t, Tensor) and t.device.type == "c99":
            parts = [t] if t.layout is tangrad.strided else components(t).values()
            for part in parts:
                self.recording.keep(part)

    def constant(self, made: Any) -> None:
        """Keep a tensor of numbers."""
        self._keep(made)

    def allocated(self, made: Any) -> None:
        """Keep a tensor without values."""
        self._keep(made)

    def read(self, t: Any) -> None:
        """Let the device refuse to show a value."""

    def value_reads(self) -> int:
        """Return that reads are not counted."""
        return 0

    def require(self, condition: Any, message: str) -> bool:
        """Have the program look at a condition, and report where it does not hold."""
        if not isinstance(condition, Tensor) or condition.device.type != "c99":
            return bool(condition)
        refs = [self.recording.ref(condition), Ref(self.recording.error_cell(), 0, "int64")]
        self.recording.add(Check(refs))
        return True


class Runner:
    """Runs the calls of a program's graph on the device.

    Args:
        program: what `tangrad.export.export` gives.
        recording: keeps the steps.
        bind: returns the device's tensor for one that the program holds, given its path.
    """

    def __init__(self, program: Any, recording: Recording, bind: Any) -> None:
        self.program, self.recording, self.bind = program, recording, bind
        self.values: dict[Any, Any] = {}
        self.inputs: list[tuple[Any, Tensor]] = []
        self._outermost = frozenset(program.graph.nodes)
        self._constants: dict[Any, Tensor] = {}

    def run(self, leaves: list[Any], names: list[str]) -> list[Any]:
        """Run all calls and return the results, flat.

        Args:
            leaves: the arguments, tensors of the host.
            names: of the inputs that are tensors.
        """
        specs, given = iter(self.program.graph_signature.input_specs), iter(leaves)
        results: list[Any] = []
        titles = iter(names)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                spec = next(specs)
                if spec.kind.name == "CONSTANT_TENSOR":
                    self._constants[node] = self.program._tensor(str(spec.target)).detach()
                if spec.kind.name != "USER_INPUT":
                    self.values[node] = (str(spec.target),)  # bound when it is first used
                    continue
                leaf = next(given)
                if isinstance(leaf, Tensor):
                    bound = self.recording.bind(array_of(leaf), "input", next(titles))
                    self.inputs.append((node, bound))
                    leaf = with_array(leaf, bound)
                self.values[node] = leaf
            elif node.op == "output":
                results = [self._value(v) for v in node.args[0]]
            else:
                self._call(node)
        return results

    def _call(self, node: Any) -> None:
        if node.op == "get_attr":
            return  # a function of the call that uses it
        self.recording.origin = origin_of(node)
        if is_control_flow(node):
            self._branch_or_loop(node)
            return
        if self._known_beforehand(node):
            return
        args, kwargs = self._value(node.args), self._value(dict(node.kwargs))
        if node.op == "call_method":
            self.values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            self.values[node] = node.target(*args, **kwargs)

    def _known_beforehand(self, node: Any) -> bool:
        """Compute what depends on constants of the program alone, such as scales; else False."""
        name = getattr(node.target, "name", None)
        if name not in _FOLDED or node not in self._outermost or not node.all_input_nodes:
            return False
        known = {n: self._constants.get(n) for n in node.all_input_nodes}
        if any(t is None for t in known.values()):
            return False
        with tangrad.device("cpu"):
            args = _pytree.tree_map(lambda v: known.get(v, v), node.args)
            made = node.target(*args, **node.kwargs)
        self._constants[node] = made
        path = f"{self.recording.origin.module}.{node.name}".lstrip(".")
        self.values[node] = bound = self.recording.bind(made, "weight", path)
        self.recording.fixed.add(self.recording.keep(bound))
        return True

    def _branch_or_loop(self, node: Any) -> None:
        call, *parts = self.parts_of(node)
        self.values[node] = call(self, *parts)

    def parts_of(self, node: Any) -> tuple[Any, ...]:
        """Return `branch` or `loop`, and what it is given for a call of the graph."""
        *parts, operands = node.args
        if node.target is tangrad.cond:
            pred, true, false = parts
            graphs = true.meta["graph"], false.meta["graph"]
            return (branch, self._value(pred), *graphs, self._value(operands))
        condition, body, carried = parts
        graphs = condition.meta["graph"], body.meta["graph"]
        return (loop, *graphs, self._value(carried), self._value(operands))

    def inside(self, graph: Any, given: Sequence[Any]) -> Any:
        """Run the calls of a graph of this graph, and return what it returns.

        Args:
            graph: of a function of a branch or a loop.
            given: the values of its inputs.
        """
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.values |= dict(zip(inputs, given, strict=True))
        result: Any = None
        for node in graph.nodes:
            if node.op == "output":
                result = self._value(node.args[0])
            elif node.op != "placeholder":
                self._call(node)
        return result

    def _value(self, value: Any) -> Any:
        if hasattr(value, "op") and hasattr(value, "meta"):
            found = self.values[value]
            if type(found) is tuple and len(found) == 1 and isinstance(found[0], str):
                found = self.values[value] = self.bind(found[0])
                if value in self._constants and found.device.type == "c99":
                    self.recording.fixed.add(self.recording.keep(found))
            return found
        if isinstance(value, slice):
            return slice(*(self._value(x) for x in (value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)):
            made = [self._value(x) for x in value]
            return made if isinstance(value, list) else tuple(made)
        if isinstance(value, dict):
            return {k: self._value(v) for k, v in value.items()}
        if isinstance(value, tangrad.device):
            return tangrad.device("c99")
        return value


def origin_of(node: Any) -> Origin:
    """Return where a call of a graph comes from."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return Origin(stack[-1][0] if stack else "", str(node.meta.get("where", "")))


@contextmanager
def on_device(
    recording: Recording, grad: bool = False, tracer: Kept | None = None
) -> Iterator[None]:
    """Have what a program makes be made on the device, and keep it."""
    kept = traced_calls(tracer or Kept(recording))
    with recording, kept, tangrad.set_grad_enabled(grad), tangrad.device("c99"):
        yield


@contextmanager
def random_stream(drawn: int) -> Iterator[Any]:
    """Have the device draw as the host would, from a place of the stream on.

    Raises:
        ExportError: the program would draw by another engine than Philox.
    """
    own, generator = get_default_generator("cpu"), get_default_generator("c99:0")
    if get_engine() == "mt19937":
        yield None
        return
    generator.manual_seed(own.initial_seed())
    generator.set_offset(drawn)
    yield generator


def lay_out(
    program: Any, leaves: list[Any], names: list[str], drawn: int = 0, trained: bool = False
) -> LaidOut:
    """Return the steps of a program that only computes.

    Args:
        program: what `tangrad.export.export` gives.
        leaves: the leaves of its arguments, tensors of the host.
        names: of the inputs that are tensors.
        drawn: the place in the random stream.
        trained: whether its weights change between two calls.

    Raises:
        ExportError: it has something that cannot be written.
    """
    recording = Recording()
    recording.weights_stay = not trained
    bound: dict[str, Tensor] = {}

    def bind(path: str) -> Tensor:
        if path not in bound:
            bound[path] = recording.bind(program._tensor(path).detach(), "weight", path)
        return bound[path]

    with on_device(recording), random_stream(drawn) as generator:
        runner = Runner(program, recording, bind)
        results = runner.run(leaves, names)
        recording.origin = Origin()
        guard(recording)
        outputs = [place_output(recording, r, k) for k, r in enumerate(tensors_of(results))]
    inputs = [recording.keep(t) for _, t in runner.inputs]
    made = LaidOut(recording, inputs, outputs)
    made.drawn = counters_of(generator, drawn)
    return made


def counters_of(generator: Any, drawn: int) -> int:
    """Return how many counters were drawn of a stream since a place in it."""
    return 0 if generator is None else int(generator.get_offset()) - drawn


def tensors_of(results: list[Any]) -> list[Any]:
    """Return the results that are tensors."""
    return [r for r in results if isinstance(r, Tensor)]


def place_output(recording: Recording, result: Any, number: int) -> tuple[Buffer, Any, str]:
    """Return the buffer of a result: where it was computed, if it may be the caller's memory."""
    if result.device.type != "c99":
        result = result.to("c99")
    result = array_of(result)
    if result.is_conj() or result.is_neg():
        result = result.resolve_conj().resolve_neg()
    ref = recording.ref(result)
    nbytes = max(1, result.numel() * result.itemsize)
    whole = result.is_contiguous() and ref.offset == 0 and ref.buffer.nbytes == nbytes
    uploaded = any(
        getattr(s, "content", None) is not None and ref.buffer in s.written_buffers()
        for s in recording.steps
    )
    name = f"out{number}"
    if whole and ref.buffer.kind == "arena" and not uploaded and recording.errors is None:
        buffer = ref.buffer
        buffer.kind, buffer.name, buffer.dtype = "output", name, result.dtype.name
        return buffer, tuple(result.shape), result.dtype.name
    with tangrad.no_grad():
        made = tangrad.empty(tuple(result.shape), dtype=result.dtype, device="c99")
    buffer = recording.keep(made)
    buffer.kind, buffer.name, buffer.dtype = "output", name, result.dtype.name
    if result.numel():
        if result.is_contiguous():
            recording.add(Copy(recording.ref(made), recording.ref(result), nbytes))
        else:
            keep_copy(made, result)
    return buffer, tuple(result.shape), result.dtype.name

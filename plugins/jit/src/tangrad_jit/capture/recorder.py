"""Make a graph of the calls that a run makes.

The recorder is a tracer (`tangrad.plugin.traced_calls`): the run is a real one, on real tensors,
and the recorder changes nothing of it. A tensor is known again by its memory and geometry, which
the recorder keeps alive.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import tangrad
from tangrad.plugin import Drawn, find_op, value_reads
from tangrad_jit._guards import memory_of
from tangrad_jit.capture.errors import CaptureError
from tangrad_jit.capture.numbers import DynamicScalar, Numbers
from tangrad_jit.capture.source import line_of_program, module_of_program, place_of_program
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, Where
from tangrad_jit.graph.numbers import NUMBER_OPS
from tangrad_jit.graph.types import NumberType, type_of

__all__ = ["Recorder", "memory_of"]

# A tensor's power of these numbers is products and roots, in PyTorch and here.
_POWERS = {2: "square", 3: "_cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}

_PLAIN = (int, float, bool, complex, str, type(None))
_NAMED = ("dtype", "device", "layout", "memory_format", "Generator")
# Most arguments are of these very classes, and are what they are in the graph.
_CONSTANTS = frozenset((*_PLAIN, tangrad.dtype, tangrad.device, tangrad.layout))
_TENSORS = (tangrad.Tensor, tangrad.nn.Parameter)


class Recorder:
    """Follow one run.

    Args:
        name: of the graph.
        origin: asked for a tensor that the recorder does not know: returns (kind, name, tensor) of
            an input, or None where it may not be there.
        values_may_be_read: Python may look at values; they are kept as constants (`jit.trace`).

    Attributes:
        graph: the graph so far.
        reads: lines at which Python looked at values.
        strict: raise what makes a graph impossible; otherwise recording ends, and the run goes on.
        failure: what has made it impossible, or None.
        caller: the code that calls the program, where its results may be numbers of tensors.
        watch: pauses while an op runs, which stands for all that its kernel does; or None.
        takes_mode: the program may enter inference mode, if all of its ops run there.
        infers: whether they do; None: there was no op so far.
    """

    def __init__(
        self,
        name: str,
        origin: Callable[[Any], tuple[str, str, Any] | None],
        values_may_be_read: bool = False,
    ) -> None:
        self.graph = Graph(name)
        self.origin = origin
        self.values_may_be_read = values_may_be_read
        self.reads: list[str] = []
        self.strict = True
        self.failure: CaptureError | None = None
        self.caller: CodeType | None = None
        self._values: dict[Any, Value] = {}
        self._has_history: dict[Any, bool] = {}
        self._without_history: dict[Any, Value] = {}
        self._offsets: dict[Value, int] = {}
        self._drawn: dict[int, tuple[Drawn, Value]] = {}
        self._written: set[Value] = set()
        self._versions: dict[Value, tuple[Any, int]] = {}
        self._keep: list[Any] = []
        self._constants: dict[Any, Any] = {}
        self._known_reads = value_reads()
        self._asked_gradients: dict[int, Any] = {}
        self._names: dict[Any, str] = {}
        self._is_following = False
        self.numbers: Numbers | None = None
        self.watch: Any = None
        self._inference = tangrad.is_inference_mode_enabled()
        self.takes_mode = False
        self.infers: bool | None = None
        self._given_inferred: CaptureError | None = None

    # What the run is given

    def argument(self, tensor: Any, name: str, kind: str = "argument") -> Value:
        """Follow a tensor that the program is given."""
        value = self.graph.add_input(type_of(tensor), kind, name, tensor)
        self._follow(tensor, value)
        self._note_version(tensor, value)
        return value

    def _note_version(self, tensor: Any, value: Value) -> None:
        """Note the version of what the program holds, to see whether writes count as such."""
        if tensor is not None and not tensor.is_inference():
            self._versions[value] = tensor, tensor._version

    def given(self, tensor: Any, name: str) -> None:
        """Follow an argument of the run, which may be one that no graph can have."""
        try:
            if memory_of(tensor) not in self._values:
                self.argument(tensor, name)
            else:
                self.graph.add_input(type_of(tensor), "argument", name, tensor)
        except CaptureError as failure:
            self._fail(failure)

    def value_of(self, tensor: Any) -> Value:
        """Return the value of a tensor, making it an input if that is what it is.

        Raises:
            CaptureError: nobody knows where it comes from.
        """
        key = memory_of(tensor)
        known = self._without_history.get(key) if not tensor.requires_grad else None
        known = self._values.get(key) if known is None else known
        if known is not None:
            return known
        if type(tensor) not in _TENSORS and hasattr(type(tensor), "__torch_dispatch__"):
            raise self._error(f"a {type(tensor).__name__} cannot be in a graph")
        found = self.origin(tensor)
        if found is None and key in self._constants:
            # The program may write into it from here on, and who is given it, later.
            kind, name, made = self._constants[key]
            found = (kind, name, made.detach().clone())
        if found is None and tensor.numel() == 0:
            found = ("constant", "empty", tensor)
        if found is None:
            raise self._error(
                f"a tensor ({type_of(tensor)}) is used whose origin is not known: no argument, no "
                "parameter or tensor that the function's modules, globals and closures hold, and "
                "made by no op"
            )
        kind, name, source = found
        return self.argument(tensor, name, kind) if source is tensor else self._of(found, tensor)

    def gradient(self, tensor: Any) -> None:
        """Note that the program looks at `.grad` of a tensor, or sets it."""
        self._asked_gradients[id(tensor)] = tensor

    def has_asked(self, tensor: Any) -> bool:
        """Return whether the program has looked at `.grad` of a tensor, or set it."""
        return id(tensor) in self._asked_gradients

    def alias_of(self, value: Value) -> Value:
        """Return a value that shows all of another, as a tensor with a history of its own."""
        node = Node(find_op("detach"), (value,), module=self._module, where=self._where())
        (made,) = self.graph.append(node, [value.type])
        made.view_of, made.offset, made.example = value, value.offset, value.example
        return made

    def known_value(self, tensor: Any) -> Value | None:
        """Return the value of a tensor that is in the graph, or None."""
        return self._values.get(memory_of(tensor)) if tensor.layout == tangrad.strided else None

    def is_as_given(self, value: Value) -> bool:
        """Return whether a value is a tensor that the program holds, not written so far."""
        held = any(e.value is value and e.kind == "capture" for e in self.graph.inputs)
        return held and value not in self._written

    def is_written_uncounted(self, value: Value) -> bool:
        """Return whether what a value shows was given and written, but not as a version."""
        given = any(e.value is value.root and not e.counted for e in self.graph.inputs)
        return given and value.root in self._written

    def is_constant(self, value: Value) -> bool:
        """Return whether a value is a tensor that the run made of numbers, not written so far."""
        made = any(e.value is value and e.kind == "constant" for e in self.graph.inputs)
        return made and value not in self._written

    def _of(self, found: tuple[str, str, Any], tensor: Any) -> Value:
        kind, name, source = found
        value = self.graph.add_input(type_of(tensor), kind, name, source)
        self._follow(tensor, value)
        # What the program uses may show the memory with a version of its own.
        if kind != "constant":
            self._note_version(source.grad if kind == "gradient" else source, value)
        return value

    def _follow(self, tensor: Any, value: Value) -> None:
        if tensor.layout != tangrad.strided:
            raise self._error(f"a tensor of layout {tensor.layout} cannot be in a graph")
        if tensor.is_conj() or tensor.is_neg():
            raise self._error("a lazily conjugated or negated tensor cannot be in a graph")
        if tensor.is_inference() and not self._inference and not self.infers:
            refusal = self._error(
                "a tensor made in inference mode cannot be in a graph made outside"
            )
            if not self.takes_mode or self.infers is not None:
                raise refusal
            self._given_inferred = refusal  # unless all ops run in that mode
        key = memory_of(tensor)
        self._without_history.pop(key, None)
        if key in self._values and not tensor.requires_grad and self._has_history[key]:
            self._without_history[key] = value  # detached: beside the tensor that it shows
        elif key not in self._values or not _is_detached(value):
            # Views are of the tensor that was there first: it is the base that they tell.
            self._values[key], self._has_history[key] = value, tensor.requires_grad
        self._keep.append(tensor)
        value.example = tensor
        root = value.root
        if root is value:
            self._offsets[value] = tensor.data_ptr()
        else:
            value.offset = tensor.data_ptr() - self._offsets[root]

    # The tracer's methods

    def constant(self, made: Any) -> None:
        """Note a tensor that was made of numbers."""
        self._keep.append(made)
        self._constants[memory_of(made)] = ("constant", "constant", made)

    def allocated(self, made: Any) -> None:
        """Note a tensor that has no values yet."""
        if self.failure is not None:
            return
        if tangrad.are_deterministic_algorithms_enabled():
            self._fail(self._error("use_deterministic_algorithms has new memory filled"))
            return
        try:
            self._check_mode()
        except CaptureError as failure:
            self._fail(failure)
            return
        args = (tuple(made.shape), made.stride(), made.dtype, None, made.device, False, False)
        op = find_op("empty_strided")
        node = Node(op, args, module=self._module, where=self._where())
        (value,) = self.graph.append(node, [type_of(made)])
        try:
            self._follow(made, value)
        except CaptureError as failure:
            self._fail(failure)

    def read(self, tensor: Any) -> Any:
        """Refuse that Python looks at a value; what goes straight to the caller is a result."""
        if self._is_following:
            return None
        if self.caller is not None and type(tensor) is tangrad.Tensor and self.numbers is not None:
            known = tensor.dtype not in (tangrad.bool, tangrad.complex64, tangrad.complex128)
            # Imported here: it brings `dis`, which few recordings need.
            from tangrad_jit.capture.returned_items import item_is_returned_to

            if self.failure is None and known and item_is_returned_to(self.caller):
                self._known_reads += 1  # this one
                return self.number(tensor)
        self.reads.append(self._line())
        if not self.values_may_be_read:
            self._fail(
                self._error(
                    "Python looks at the value of a tensor (item, bool, int, float, ...), so the "
                    "graph would hold for this value only"
                )
            )
        return None

    def number(self, tensor: Any) -> Any:
        """Return the number that a tensor holds, or what stands for it in the graph."""
        if self.failure is not None or self.numbers is None:
            return tensor.item()
        try:
            self._check_reads()
            with tangrad.no_grad():
                self._is_following = True
                number = tensor.item()
            self._known_reads = value_reads()
            return self.numbers.read(tensor, number)
        except CaptureError as failure:
            self._fail(failure)
            return tensor.item()
        finally:
            self._is_following = False

    def require(self, condition: Any, message: str) -> bool:
        """Look whether a condition of the program holds, and have later runs look as well."""
        if self.failure is None:
            try:
                self._check_reads()
                args = (self.value_of(condition), message)
                op = NUMBER_OPS["number.require"]
                self.graph.append(
                    Node(op, args, module=self._module, where=self._where()), [NumberType("bool")]
                )
            except CaptureError as failure:
                self._fail(failure)
        try:
            self._is_following = True
            return bool(condition.item())
        finally:
            self._is_following = False
            self._known_reads = value_reads()

    def refuse(self, reason: str) -> None:
        """Say that the run can be no graph.

        Raises:
            CaptureError: the recorder is strict.
        """
        self._fail(self._error(reason))

    def _fail(self, failure: CaptureError) -> None:
        self.failure = self.failure or failure
        if self.strict:
            raise failure

    def enter(self, op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> Node | None:
        """Make the node of a call that is about to run."""
        if self.watch is not None:
            self.watch.pause()
        if self.failure is not None:
            return None
        try:
            return self._node(op, functional, args, out)
        except CaptureError as failure:
            self._fail(failure)
            return None

    def leave(self, node: Node | None, result: Any) -> None:
        """Add the node of a call that has run."""
        try:
            if node is not None and self.failure is None:
                self._add(node, result)
        except CaptureError as failure:
            self._fail(failure)
        finally:
            self.failed()

    def failed(self) -> None:
        """End a call that has raised, or ended."""
        if self.watch is not None:
            self.watch.resume()

    def _check_mode(self) -> None:
        """Note whether the first op runs in inference mode, and have all others run alike."""
        if self._inference or not self.takes_mode:
            return
        infers = tangrad.is_inference_mode_enabled()
        if self.infers is None:
            if not infers and self._given_inferred is not None:
                raise self._given_inferred
            self.infers = infers
        elif infers is not self.infers:
            raise self._error("ops in inference mode and ops outside cannot be in one graph")

    def _node(self, op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> Node:
        self._check_reads()
        self._check_mode()
        definition = functional.definition
        if definition.shape_depends_on_data and not self.values_may_be_read:
            raise self._error(f"the size of the result of {functional.title} depends on values")
        if definition.random and args[-1] is None:
            raise self._error("random numbers of engine mt19937 cannot be drawn by a graph")
        if functional.name == "pow" and isinstance(args[1], DynamicScalar):
            # Some exponents are ops of their own, with other bits: each is a graph.
            args = (args[0], args[1].number.env.constant(args[1].number))
        power = _power_of_number(functional, args) if out is None else None
        if power is not None:
            functional, op, args = power, (power if op is functional else op), args[:1]
        form = "call" if out is None else "out"
        if op is not functional:
            form = "inplace"
            if functional.kind == "view":
                raise self._error(f"{op.title} gives its tensor another shape or other strides")
        converted = tuple(
            [
                item if type(item) in _CONSTANTS else self._argument(item, functional, k)
                for k, item in enumerate(args)
            ]
        )
        if definition.random and isinstance(args[-1], Drawn):
            converted = self._draw(functional, args, converted)
        outs: tuple[Value, ...] = ()
        if form == "out":
            given = out if isinstance(out, (tuple, list)) else (out,)
            outs = tuple(self.value_of(t) for t in given)
        return Node(functional, converted, form, outs, self._module, self._where())

    def _add(self, node: Node, result: Any) -> None:
        self._known_reads = value_reads()
        tensors = self._tensors_among(node, result)
        results = self.graph.append(node, [type_of(t) for t in tensors])
        if self.numbers is not None:
            self.numbers.bound(node)
        shown = node.written
        for value in shown:
            self._written.add(value.root)
        if node.form == "out":
            for target, value in zip(node.outs, results, strict=True):
                if target.type != value.type:
                    raise self._error(
                        f"{node.op.title} gives its out another shape or other strides: "
                        f"{target.type} becomes {value.type}"
                    )
        for k, (value, tensor) in enumerate(zip(results, tensors, strict=True)):
            if shown:
                value.view_of = shown[min(k, len(shown) - 1)]
            elif node.op.kind == "view":
                value.view_of = node.args[0]
            else:
                self._check_apart(node, tensor)
            self._follow(tensor, value)

    def _tensors_among(self, node: Node, result: Any) -> list[Any]:
        """Return the tensors that a call has made."""
        lists = node.op.definition.schema.written_lists
        if type(result) in _TENSORS and not lists:
            return [result]
        made = list(result) if isinstance(result, (tuple, list)) else [result]
        if lists:
            made = []
        if any(isinstance(item, (bool, int, float)) for item in made):
            raise self._error(f"{node.op.title} gives Python a value of a tensor")
        tensors = [item for item in made if isinstance(item, tangrad.Tensor)]
        if len(tensors) != len(made) and made != [None]:
            raise self._error(f"{node.op.title} gives results that are no tensors")
        return tensors

    def _check_apart(self, node: Node, tensor: Any) -> None:
        """Notice a result that is an argument, though the op is no view."""
        for value in node.inputs:
            if value.example is tensor and tensor.numel():
                raise self._error(f"{node.op.title} returned one of its arguments")

    # Arguments

    def _argument(self, item: Any, op: Any, position: int = -1) -> Any:
        if isinstance(item, tangrad.Tensor):
            return self.value_of(item)
        if isinstance(item, DynamicScalar):
            return item.number.env.argument(item, op, position)
        if isinstance(item, Drawn):
            known = self._drawn.get(id(item))
            return item if known is None else known[1]
        if isinstance(item, (tuple, list)):
            return type(item)(self._argument(member, op) for member in item)
        if isinstance(item, _PLAIN):
            return item
        if type(item).__name__ in _NAMED:
            return item
        raise self._error(f"{op.title}: a {type(item).__name__} cannot be an argument in a graph")

    def _draw(self, op: Any, args: tuple[Any, ...], converted: tuple[Any, ...]) -> tuple[Any, ...]:
        if id(args[-1]) not in self._drawn:
            node = Node(op, (*converted[:-2], None, None), DRAW, (), self._module, self._where())
            numbers = self.graph.append(node, [NumberType("int"), NumberType("int")])
            for taken, value in zip(args[-2:], numbers, strict=True):
                self._drawn[id(taken)] = (taken, value)
                value.example = int(taken)
        return (*converted[:-2], *(self._drawn[id(taken)][1] for taken in args[-2:]))

    # Places

    @property
    def _module(self) -> str:
        return module_of_program(self._names)

    def _where(self) -> Where:
        return place_of_program()

    def _line(self) -> str:
        return line_of_program()

    def _error(self, reason: str) -> CaptureError:
        return CaptureError(reason, self._line())

    def _check_reads(self, where: str = "before this line") -> None:
        if value_reads() != self._known_reads:
            self._known_reads = value_reads()
            self.reads.append(self._line())
            if not self.values_may_be_read:
                raise self._error(
                    f"{where}, Python looked at the values of a tensor (tolist, numpy, print, "
                    "an index, ...), so the graph would hold for these values only"
                )

    def finish(self) -> None:
        """Look a last time whether values were read."""
        if self.failure is None:
            try:
                self._check_reads("after the last op of this call")
            except CaptureError as failure:
                self._fail(failure)
        for entry in self.graph.inputs:
            if entry.value in self._written and entry.value in self._versions:
                tensor, before = self._versions[entry.value]
                entry.counted = tensor._version != before

    def forget(self) -> None:
        """Let go of the run's tensors: the graph alone is left."""
        made = [value for node in self.graph.nodes for value in node.results]
        for value in (*made, *(entry.value for entry in self.graph.inputs)):
            value.example = None
        self._values.clear()
        self._without_history.clear()
        self._keep.clear()
        self._constants.clear()
        self._drawn.clear()
        self._versions.clear()
        self.origin = lambda tensor: None

    def follow_modules(self, root: Any) -> None:
        """Have nodes tell which of a module's modules made the call."""
        for name, module in root.named_modules():
            self._names.setdefault(module, name)


def _is_detached(value: Value) -> bool:
    return value.producer is not None and value.producer.op.name == "detach"


def _power_of_number(op: Any, args: tuple[Any, ...]) -> Any:
    """Return the op that computes a tensor's power of a number, where that is not `pow`."""
    if op.name != "pow" or not isinstance(args[0], tangrad.Tensor):
        return None
    number = args[1]
    if type(number) not in (int, float) or not args[0].is_floating_point():
        return None
    return find_op(_POWERS[number]) if number in _POWERS else None

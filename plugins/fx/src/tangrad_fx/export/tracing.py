"""From a run of a module to a graph whose inputs are its parameters, buffers and arguments."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import tangrad
from tangrad import Tensor
from tangrad.nn import Module
from tangrad.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from tangrad.overrides import TorchFunctionMode
from tangrad.plugin import components, keeping_branches, level_of, traced_calls
from tangrad.utils import _pytree
from tangrad_fx.arguments import told_apart
from tangrad_fx.export import control_flow
from tangrad_fx.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tangrad_fx.export.nested import Functions
from tangrad_fx.graph import Graph
from tangrad_fx.node import Node

# What gives Python a value of a tensor: a program that uses it may take another way for another.
_READS = frozenset(
    "item tolist numpy is_nonzero equal allclose __bool__ __int__ __float__ __index__ __complex__ "
    "__array__ __contains__ __format__ __repr__".split()
)


class ValueReadError(RuntimeError):
    """The program asks for a value of a tensor that it computes.

    Attributes:
        op, dtype: what asks, and of what.
        module: path of the module that asks.
        where: the program's line, "file:number".
    """

    op = dtype = module = where = ""


_PREFIXES = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b", InputKind.CONSTANT_TENSOR: "c"}


class Trace(NamedTuple):
    """What a run leaves.

    Attributes:
        graph: of the calls.
        signature: of its inputs and outputs.
        constants: tensors that the program has made or holds itself, and buffers that are no part
            of the state, by path.
        out_spec: how the outputs are nested.
    """

    graph: Graph
    signature: ExportGraphSignature
    constants: dict[str, Tensor]
    out_spec: Any


class _Recorder(TorchFunctionMode):
    """Make a node of every call that returns or writes tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.nodes: dict[int, Node] = {}
        self.kept: list[Any] = []  # tensors stay alive, so that their ids stay theirs
        self.outside = _Outside()
        self.specs: list[InputSpec] = []
        self.constants: dict[str, Tensor] = {}
        self.named: set[str] = set()  # inputs
        self.first_argument: Node | None = None
        self.autocast = _autocast()
        self.gradients = tangrad.is_grad_enabled()
        self.running = _Running()

    def inside(self, functions: Functions) -> _Recorder:
        """Return a recorder of a function that the program calls by `cond` or `while_loop`."""
        return _Inside(self, functions)

    def place(self) -> dict[str, Any]:
        """Return what nodes keep of where the program is."""
        return {"nn_module_stack": self.running.modules, "where": _line_of_caller()}

    def lift(self, kind: InputKind, path: str, t: Tensor, persistent: bool | None = None) -> Node:
        """Make a tensor an input of the graph."""
        name = f"{_PREFIXES[kind]}_{re.sub(r'[^0-9a-zA-Z_]', '_', path)}"
        node = self._input(name)
        self.specs.append(InputSpec(kind, TensorArgument(node.name), path, persistent))
        self.outside.add(t)
        self.follow(t, node)
        return node

    def _input(self, name: str) -> Node:
        node = self.graph.placeholder(name)
        if name in self.named:  # paths and arguments may be written alike
            node.target = node.name
        self.named.add(str(node.target))
        return node

    def argument(self, name: str, value: Any) -> None:
        """Make a leaf of the arguments an input of the graph."""
        node = self._input(name)
        self.first_argument = self.first_argument or node
        if isinstance(value, Tensor):
            self.outside.add(value)
            self.follow(value, node)
            arg: Any = TensorArgument(node.name)
        else:
            arg = ConstantArgument(node.name, value)
        self.specs.append(InputSpec(InputKind.USER_INPUT, arg, None))

    def follow(self, t: Tensor, node: Node) -> None:
        """Have a node stand for a tensor from now on.

        Raises:
            NotImplementedError: it is one of a transform, whose function no graph holds.
        """
        if level_of(t) is not None:
            raise NotImplementedError(
                "export: the program calls a transform (vmap, grad, jvp), which a graph does not "
                "hold; write what it computes as ops on whole tensors"
            )
        self.kept.append(t)
        self.nodes[id(t)] = node
        node.meta["val"] = t.detach().to("meta")

    def _node_of(self, t: Tensor) -> Node:
        known = self.nodes.get(id(t))
        if known is not None:
            return known
        if id(t) not in self.outside.made:
            return self._constant(t, t.detach())
        # Made anew in each run, which may write into it.
        held = t.detach().clone()
        node = self.graph.call_function(tangrad.clone, (self._constant(held, held),))
        node.meta["nn_module_stack"] = self.running.modules
        self.follow(t, node)
        return node

    def _constant(self, t: Tensor, held: Tensor) -> Node:
        """Make a tensor that is no part of the module an input, in front of the arguments."""
        path = f"lifted_tensor_{len(self.constants)}"
        self.constants[path] = held
        if self.first_argument is None:
            return self.lift(InputKind.CONSTANT_TENSOR, path, t)
        at = next(i for i, s in enumerate(self.specs) if s.kind is InputKind.USER_INPUT)
        with self.graph.inserting_before(self.first_argument):
            node = self.lift(InputKind.CONSTANT_TENSOR, path, t)
        self.specs.insert(at, self.specs.pop())
        return node

    def given(self, value: Any) -> Any:
        """Return an argument of a call, with nodes for tensors."""
        if isinstance(value, Tensor):
            return self._node_of(value)
        if type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
            made = tangrad.tensor(value)
            self.outside.constant(made)
            return self._node_of(made) if value.ndim else made.item()
        if isinstance(value, slice):
            return slice(*(self.given(x) for x in (value.start, value.stop, value.step)))
        if isinstance(value, tangrad.Size):
            return tuple(value)
        if isinstance(value, (list, tuple)):
            parts = [self.given(x) for x in value]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            return {k: self.given(v) for k, v in value.items()}
        return value

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in control_flow.FUNCTIONS:
            return control_flow.record(self, func, *args)
        self._refuse_reads(func, args)
        leaves = _pytree.tree_leaves((args, kwargs))
        if any(type(x).__name__ == "ndarray" for x in leaves) and not any(
            isinstance(x, Tensor) for x in leaves
        ):
            made = func(*args, **kwargs)  # a constant, as a graph holds no arrays
            for x in _pytree.tree_leaves(made):
                self.outside.constant(x)
            return made
        # Before the call: constants are taken as they are then.
        given, named = self.given(args), self.given(kwargs)
        result = func(*args, **kwargs)
        writes = result is None and bool(args) and isinstance(args[0], Tensor)
        if writes or any(isinstance(x, Tensor) for x in _pytree.tree_leaves(result)):
            self.note_modes()
            node = self._call(func, given, named)
            node.meta |= self.place()
            if writes:
                node.meta["writes"] = True
            self.track(result, node)
        return result

    def _call(self, func: Any, args: Any, kwargs: Any) -> Node:
        descriptor = getattr(func, "__self__", None)
        if getattr(func, "__name__", "") == "__get__" and descriptor is not None:
            attribute = _attribute_name(descriptor)
            return self.graph.call_function(getattr, (args[0], attribute), {})
        name = _method_name(func)
        if name is not None:
            return self.graph.call_method(name, args, kwargs)
        # Methods that compute an op are written as the function that does.
        return self.graph.call_function(getattr(func, "op", func), args, kwargs)

    def track(self, result: Any, node: Node) -> None:
        """Have a node stand for the tensors that a call gave."""
        if isinstance(result, Tensor):
            self.follow(result, node)
        elif isinstance(result, (list, tuple)):
            for i, part in enumerate(result):
                if any(isinstance(x, Tensor) for x in _pytree.tree_leaves(part)):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["nn_module_stack"] = self.running.modules
                    self.track(part, item)

    def _refuse_reads(self, func: Any, args: tuple[Any, ...]) -> None:
        name = getattr(func, "__name__", "")
        read = [a for a in args if isinstance(a, Tensor) and self._computes(a)]
        if name in _READS and read:
            error = ValueReadError(
                f"export: the program asks for a value of a tensor (by {name}), and may take "
                "another way for other inputs; use tangrad.cond or tangrad.where, or compute the "
                "value outside of the module"
            )
            error.op, error.dtype, place = name, read[0].dtype.name, self.place()
            error.module = next((p for p, _ in reversed(place["nn_module_stack"].values())), "")
            error.where = place["where"]
            raise error

    def _computes(self, t: Tensor) -> bool:
        """Return whether a tensor is one of the graph."""
        return id(t) in self.nodes

    def note_modes(self) -> None:
        """Keep where gradients are switched; a change of autocast cannot be kept.

        Raises:
            NotImplementedError: autocast is entered or left inside of the program.
        """
        if _autocast() != self.autocast:
            raise NotImplementedError(
                "export: the program enters or leaves autocast; do so around the exported module"
            )
        if tangrad.is_grad_enabled() != self.gradients:
            self.gradients = tangrad.is_grad_enabled()
            # It belongs where the calls before and behind it do: another may take a module's place.
            last = next((n.meta for n in reversed(self.graph.nodes)), {}).get("nn_module_stack", {})
            now = self.running.modules
            both = takewhile(lambda pair: pair[0] == pair[1], zip(last, now, strict=False))
            node = self.graph.call_function(tangrad.set_grad_enabled, (self.gradients,))
            shared = {call: now[call] for call, _ in both}
            node.meta |= {"writes": True, "nn_module_stack": shared}


class _Inside(_Recorder):
    """Make nodes of what a function does that the program calls by `cond` or `while_loop`.

    Args:
        outer: of the graph of the call.
        functions: of the call; what this one takes from outside becomes an input of each.
    """

    def __init__(self, outer: _Recorder, functions: Functions) -> None:
        super().__init__()
        self.outer, self.functions = outer, functions
        self.graph = functions.graph()
        self.outside, self.running = outer.outside, outer.running
        self.writes_outside = False
        self.storages = dict(outer.storages) if isinstance(outer, _Inside) else {}
        for t in outer.kept:
            self._note_storage(t)

    def __enter__(self) -> _Inside:
        self.outside.functions.append(self)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self.outside.functions.pop()

    def note_write(self, t: Tensor) -> None:
        """Note whether memory is written that was there before the function."""
        self.writes_outside |= id(t.untyped_storage()) in self.storages

    def _note_storage(self, t: Tensor) -> None:
        for part in _in_memory(t):
            storage = part.untyped_storage()
            self.storages[id(storage)] = storage

    def _node_of(self, t: Tensor) -> Node:
        known = self.nodes.get(id(t))
        if known is None:
            self._note_storage(t)
            known = self.functions.capture(self.graph, self.outer._node_of(t))
            self.follow(t, known)
        return known

    def _computes(self, t: Tensor) -> bool:
        return super()._computes(t) or self.outer._computes(t)


class _Running:
    """The modules that are running.

    Attributes:
        modules: {call: (path, type)}.
    """

    def __init__(self) -> None:
        self.modules: dict[str, tuple[str, str]] = {}
        self._calls: dict[str, int] = {}

    def enter(self, path: str, module: Module) -> None:
        """Note that a module begins to run."""
        again = self._calls.get(path, 0)
        self._calls[path] = again + 1
        cls = type(module)
        call = f"{path}@{again}" if again else path
        self.modules = self.modules | {call: (path, f"{cls.__module__}.{cls.__qualname__}")}

    def leave(self) -> None:
        """Note that the module that began last has run."""
        self.modules = dict(list(self.modules.items())[:-1])


class _Outside:
    """Tells what a run makes without an op, and puts back what it writes of what was there before.

    Attributes:
        made: tensors that the run made without an op, by id.
        functions: what the functions know that are running inside of each other.
    """

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.functions: list[_Inside] = []
        self._storages: dict[int, Any] = {}
        self._before: list[tuple[Any, Any]] = []  # storages that were written, and copies

    def add(self, t: Tensor) -> None:
        """Note a tensor that was there before."""
        for part in _in_memory(t):
            storage = part.untyped_storage()
            self._storages[id(storage)] = storage

    def put_back(self) -> None:
        """Give all that was written the values that it had."""
        for storage, before in self._before:
            storage.copy_(before)

    def enter(self, op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> None:
        """Keep what a call is about to write."""
        schema = functional.definition.schema
        places = (schema.written, *schema.written_lists, -1 if op is functional else 0)
        for t in _pytree.tree_leaves((out, [args[place] for place in places if place >= 0])):
            for part in _in_memory(t) if isinstance(t, Tensor) else ():
                if self.functions:
                    self.functions[-1].note_write(part)
                storage = self._storages.pop(id(part.untyped_storage()), None)
                if storage is not None:
                    self._before.append((storage, storage.clone()))

    def leave(self, call: Any, result: Any) -> None:
        """Leave what a call gave to the recorder."""

    def constant(self, made: Any) -> None:
        """Note a tensor of numbers."""
        self.made[id(made)] = made

    def allocated(self, made: Any) -> None:
        """Note a tensor without values."""
        self.made[id(made)] = made

    def read(self, t: Any) -> None:
        """Let the recorder refuse what asks for values."""

    def value_reads(self) -> int:
        """Return that reads are not counted."""
        return 0


def _in_memory(t: Tensor) -> list[Tensor]:
    """Return what has elements in memory: a tensor itself, or the components of another layout."""
    return [t] if t.layout is tangrad.strided else list(components(t).values())


def _line_of_caller() -> str:
    """Return "file:line" of the innermost code that is no package of tangrad, "" if none is."""
    frame = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(("tangrad.", "tangrad_")) and name != "tangrad":
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _method_name(func: Any) -> str | None:
    """Return which method of tensors a function is, or None if it is none, or an op."""
    if isinstance(func, type(tangrad.relu)):
        return None
    name = getattr(func, "__name__", "")
    if getattr(Tensor, name, None) is func:
        return str(name)
    # Functions that implement methods may have names of their own.
    return next((n for n, value in vars(Tensor).items() if value is func), None)


def _attribute_name(descriptor: Any) -> str:
    """Return which attribute of tensors a descriptor reads."""
    return next(name for name in dir(Tensor) if getattr(Tensor, name, None) is descriptor)


def _autocast() -> tuple[Any, ...]:
    kinds = ("cpu", "cuda")
    return tuple(tangrad.is_autocast_enabled(kind) for kind in kinds)


def trace(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> Trace:
    """Run a module on arguments and return the graph of what it did.

    The module, the arguments and the state of the random numbers are left as they were.

    Args:
        module: the module.
        args, kwargs: its arguments.
        names: a name for each leaf of them.

    Raises:
        RuntimeError: it asks for the value of a tensor that the graph computes.
        NotImplementedError: it enters or leaves autocast.
    """
    recorder = _Recorder()
    persistent = set(module.state_dict(keep_vars=True))
    for path, parameter in module.named_parameters(remove_duplicate=False):
        recorder.lift(InputKind.PARAMETER, path, parameter)
    buffers = dict(module.named_buffers(remove_duplicate=False))
    for path, buffer in buffers.items():
        recorder.lift(InputKind.BUFFER, path, buffer, path in persistent)
        if path not in persistent:
            recorder.constants[path] = buffer
    leaves, in_spec = _pytree.tree_flatten((args, kwargs))
    leaves = told_apart(leaves, [*module.parameters(), *module.buffers()])
    for name, leaf in zip(names, leaves, strict=True):
        recorder.argument(name, leaf)
    args, kwargs = _pytree.tree_unflatten(leaves, in_spec)
    with _left_as_they_were(module, buffers, recorder), tangrad.random.fork_rng(devices=[]):
        noted = _noted_modules(recorder, module)
        with noted, traced_calls(recorder.outside), keeping_branches(), recorder:
            result = module(*args, **kwargs)
        recorder.note_modes()
        _keep_assigned_buffers(recorder, module, buffers)
    outputs, out_spec = _pytree.tree_flatten(result)
    recorder.graph.output(tuple(recorder.given(x) for x in outputs))
    drop_unused_parts(recorder.graph)
    specs = [OutputSpec(OutputKind.USER_OUTPUT, _output(recorder, x), None) for x in outputs]
    signature = ExportGraphSignature(recorder.specs, specs)
    return Trace(recorder.graph, signature, recorder.constants, out_spec)


def _output(recorder: _Recorder, value: Any) -> TensorArgument | ConstantArgument:
    if isinstance(value, Tensor):
        return TensorArgument(recorder.given(value).name)
    return ConstantArgument("", value)


@contextmanager
def _noted_modules(recorder: _Recorder, module: Module) -> Iterator[None]:
    """Have a recorder know which submodules are running."""
    paths = {id(m): path for path, m in module.named_modules()}

    def enter(running: Module, args: Any) -> None:
        if id(running) in paths:
            recorder.running.enter(paths[id(running)], running)

    def leave(running: Module, args: Any, result: Any) -> None:
        if id(running) in paths:
            recorder.running.leave()

    before = register_module_forward_pre_hook(enter)
    after = register_module_forward_hook(leave)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextmanager
def _left_as_they_were(
    module: Module, buffers: dict[str, Tensor], recorder: _Recorder
) -> Iterator[None]:
    try:
        yield
    finally:
        for path, buffer in buffers.items():
            above, _, last = path.rpartition(".")
            module.get_submodule(above)._buffers[last] = buffer
        recorder.outside.put_back()


def _keep_assigned_buffers(recorder: _Recorder, module: Module, buffers: dict[str, Tensor]) -> None:
    """Write what a program has put in the place of a buffer into that buffer."""
    for path, now in module.named_buffers(remove_duplicate=False):
        before = buffers.get(path)
        if before is not None and now is not before:
            if now.shape != before.shape or now.dtype != before.dtype:
                had, has = (f"{t.dtype}{list(t.shape)}" for t in (before, now))
                raise RuntimeError(
                    f"export: the program puts {has} in the place of the buffer {path!r}, which is "
                    f"{had}; if it does so in its first call alone, call the module once before"
                )
            given = recorder.given(before), recorder.given(now)
            recorder.graph.call_method("copy_", given).meta["writes"] = True


def drop_unused_parts(graph: Graph) -> None:
    """Erase the items of tuples that nothing uses."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node.target is operator.getitem and not node.users:
            graph.erase_node(node)

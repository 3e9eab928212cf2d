"""`jit.trace`: run a function or module on an example, and keep the graph of what it did."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import tangrad
from tangrad import nn
from tangrad.plugin import is_intercepted, traced_calls
from tangrad_jit.capture.recorder import Recorder, memory_of
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.printer import text_of
from tangrad_jit.graph.verifier import verify
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.tracing.batches import BatchGraph, LaterBatch, of_any_batch
from tangrad_jit.tracing.other_sizes import OtherSizes
from tangrad_jit.tracing.structure import Arguments, Structure
from tangrad_jit.tracing.traced_module import ScriptFunction, TopLevelTracedModule, TracedGraph
from tangrad_jit.tracing.watch import Watch

__all__ = ["TracerWarning", "TracingCheckError", "is_tracing", "trace", "trace_module"]

_tracing = threading.local()


class TracerWarning(Warning):
    """A traced program did what a graph cannot repeat."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silence these warnings where the library itself causes them."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="tangrad.(?!jit)")


class TracingCheckError(RuntimeError):
    """A traced graph gives other results than the program, or the program another graph."""


def is_tracing() -> bool:
    """Return whether this thread is tracing."""
    return bool(getattr(_tracing, "depth", 0))


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Return a traced function, or module with the parameters and buffers of the one given.

    A graph holds for the sizes of its example. For others the run is a program of the script
    language, which computes what depends on sizes, and in which scripts stay calls; where Python
    has compared sizes, or asked for dimensions or dtypes, the run is recorded anew, and a call is
    refused for which it calls other ops. Values at which Python looked are constants, which a
    `TracerWarning` tells.

    Args:
        func: function, module, or the bound `forward` of one, which is traced as the module.
        example_inputs: a tensor, or a tuple of arguments.
        check_trace: run again and compare the graphs; warn where results are not the program's.
        check_inputs: further tuples of arguments to compare with.
        check_tolerance: by which the results may differ, relatively and absolutely.
        example_kwarg_inputs: arguments by name.
        strict: refuse dicts as results, and warn of lists: what is in them might depend on the
            arguments.
        _force_outplace: record writes of whole tensors as ops that make new ones.
        optimize, _module_class, _compilation_unit, _store_inputs: accepted.

    Raises:
        AttributeError: `func` is another method of a module.
        RuntimeError: neither kind of arguments is given; the program uses tensors that cannot be
            in a graph; a result is a dict, and `strict` is not False.
        ValueError: a module has hooks of its backward.
        TracingCheckError: the program, run again, gave another graph.
    """
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs or example_inputs must be given")
    args = _as_tuple(example_inputs)
    kwargs = example_kwarg_inputs or {}
    owner = func if isinstance(func, nn.Module) else getattr(func, "__self__", None)
    if isinstance(owner, nn.Module):
        if owner is not func and func.__name__ != "forward":
            raise AttributeError(
                f"jit.trace: {func.__name__} is a method of {type(owner).__name__}, which has "
                f"parameters; use jit.trace_module(module, {{{func.__name__!r}: inputs}})"
            )
        return _trace_methods(
            owner,
            {"forward": (args, kwargs)},
            check_trace,
            check_inputs,
            check_tolerance,
            strict,
            _force_outplace,
        )
    from tangrad_jit.scripting.recording.objects import Program

    program = Program(None, _force_outplace)
    name = getattr(func, "__name__", "function")
    run = _trace_call(func, args, kwargs, None, program.method(func, name))
    _check_result(run.result.data, strict)
    traced = run.graph
    made: Any
    if traced is not None:
        traced = _with_batches(traced, func, args, kwargs, None)
    if traced is None or program.is_whole:
        made = program.function(traced)
    else:
        made = ScriptFunction(name, traced)
    if check_trace:
        again = program.again(func, name)
        _check(func, made, traced, args, kwargs, None, again, check_inputs, check_tolerance)
    return made


def trace_module(
    mod: nn.Module,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Return a module whose methods are traced.

    Args:
        mod: the module.
        inputs: name of a method -> example arguments.
        example_inputs_is_kwarg: the examples are dicts of arguments by name.
        optimize, check_trace, check_inputs, check_tolerance, strict, _force_outplace: as in
            `trace`.
        _module_class, _compilation_unit, _store_inputs: accepted.

    Raises:
        AttributeError: `mod` is no module, or `inputs` no dict.
    """
    if not isinstance(mod, nn.Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    calls = {
        name: ((), dict(given)) if example_inputs_is_kwarg else (_as_tuple(given), {})
        for name, given in inputs.items()
    }
    return _trace_methods(
        mod, calls, check_trace, check_inputs, check_tolerance, strict, _force_outplace
    )


def _as_tuple(item: Any) -> tuple[Any, ...]:
    if item is None:
        return ()
    if isinstance(item, (tangrad.Tensor, dict)):
        return (item,)
    return tuple(item)


def _trace_methods(
    module: nn.Module,
    calls: dict[str, tuple[Any, Any]],
    check: bool,
    check_inputs: Any,
    tolerance: float,
    strict: bool,
    outplace: bool,
) -> Any:
    from tangrad_jit.scripting.recording.objects import Program

    program = Program(module, outplace)
    methods: dict[str, TracedGraph | None] = {}
    for name, (args, kwargs) in calls.items():
        call = module if name == "forward" else getattr(module, name)
        run = _trace_call(call, args, kwargs, module, program.method(call, name))
        _check_result(run.result.data, strict)
        graph = run.graph
        methods[name] = graph and _with_batches(graph, call, args, kwargs, module)
    graphs = {name: graph for name, graph in methods.items() if graph is not None}
    made: Any
    if program.is_whole or graphs != methods:
        made = program.module(graphs)
    else:
        made = TopLevelTracedModule(module, graphs)
    if check:
        for name, (args, kwargs) in calls.items():
            call = module if name == "forward" else getattr(module, name)
            other = made if name == "forward" else getattr(made, name)
            again = program.again(call, name)
            others = [
                given[name] if isinstance(given, dict) else given
                for given in check_inputs or ()
                if not isinstance(given, dict) or name in given
            ]
            _check(call, other, methods[name], args, kwargs, module, again, others, tolerance)
    return made


def _check_result(data: Any, strict: bool) -> None:
    """Refuse results that a trace may get wrong for other arguments, or whose values it keeps.

    Raises:
        RuntimeError: it is one.
    """
    kind, held = data
    if kind in ("tensor", "constant"):
        return
    members = [inner for _, inner in held] if kind == "dict" else held
    if kind == "list" and any(inner[0] == "list" for inner in members):
        raise RuntimeError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from "
            "traced functions: a list holds lists"
        )
    if kind != "tuple" and any(inner[0] == "constant" for inner in members):
        raise RuntimeError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from "
            f"traced functions: a {kind} holds a {type(members[0][1]).__name__}"
        )
    if kind == "dict" and any(
        inner[0] == "tuple" and any(one[0] == "constant" for one in inner[1]) for inner in members
    ):
        raise RuntimeError(
            "the dict that is returned cannot be understood by the tracer, only outputs matching "
            "tensors, and tuples, lists and dicts of them, can"
        )
    if kind != "tuple" and strict:
        told = (
            f"Encountering a {kind} at the output of the tracer might cause the trace to be "
            "incorrect, this is only valid if the container structure does not change based on "
            f"the module's inputs. Return a {'NamedTuple' if kind == 'dict' else 'tuple'} instead, "
            "or pass strict=False to allow it"
        )
        if kind == "dict":
            raise RuntimeError(told)
        warnings.warn(told, TracerWarning, stacklevel=4)
    for inner in members:
        _check_result(inner, strict)


class _Run(NamedTuple):
    """A call that has been traced: the structure of its result, and its graph.

    There is no graph where scripts are called: their branches are in the program alone.
    """

    result: Structure
    graph: TracedGraph | None


def _trace_call(
    call: Callable[..., Any],
    args: Any,
    kwargs: Any,
    module: nn.Module | None,
    method: Any = None,
) -> _Run:
    """Run a call and return its graph.

    Args:
        call: what is traced. args, kwargs: what it is called with.
        module: the module whose tensors it may use, or None.
        method: records the call as a program; or None, and scripts that it calls are followed.
    """
    known: dict[Any, tuple[str, str, Any]] = {}
    if module is not None:
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            known.setdefault(memory_of(t), ("capture", name, t))

    def origin(tensor: Any) -> tuple[str, str, Any]:
        found = known.get(memory_of(tensor))
        if found is None and tensor.requires_grad:
            raise RuntimeError(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a "
                "parameter or input, or detaching the gradient"
            )
        return found or ("constant", "constant", tensor)

    recorder = Recorder("forward" if module is not None else "function", origin, True)
    if module is not None:
        recorder.follow_modules(module)
    order: list[Any] = []

    def number(tensor: Any) -> int:
        order.append(tensor)
        return len(order) - 1

    held = {_storage(t) for _, _, t in known.values()}
    args, kwargs = _apart(args, held), _apart(kwargs, held)
    arguments = Arguments.of_call(call, (args, kwargs), number)
    for k, tensor in enumerate(order):
        recorder.argument(tensor, f"argument {k}")
    _tracing.depth = getattr(_tracing, "depth", 0) + 1
    watch = Watch(recorder)
    try:
        with _functions_told(), traced_calls(watch):
            if method is None:
                result = call(*args, **kwargs)
            else:
                result = method.run(watch, args, kwargs)
        if not watch.is_over:
            recorder.finish()
    finally:
        _tracing.depth -= 1
    for line in dict.fromkeys(recorder.reads):
        warnings.warn(
            f"{line}: Python looks at a value of a tensor; the trace keeps it as a constant, and "
            "will not be right for others",
            TracerWarning,
            stacklevel=4,
        )
    for line in dict.fromkeys(() if method is None else method.kept):
        warnings.warn(
            f"{line}: a result of a script is neither a tensor nor an integer; the trace keeps it "
            "as a constant, and will not be right for others",
            TracerWarning,
            stacklevel=4,
        )
    if watch.is_over:
        return _Run(Structure.of(result, lambda t: 0), None)
    graph = recorder.graph
    for node in graph.nodes:
        if node.op.definition.shape_depends_on_data:
            warnings.warn(
                f"{node.line}: the size of the result of {node.name} depends on values; the traced "
                "graph refuses values that give another",
                TracerWarning,
                stacklevel=4,
            )
    returned = Structure.of(result, lambda t: _output(graph, recorder, t))
    remove_dead_code(graph)
    verify(graph, "trace")
    _keep_no_examples(graph)
    traced = TracedGraph(graph, arguments, returned, reads_values=bool(recorder.reads))
    return _Run(returned, traced)


def _storage(tensor: Any) -> Any:
    return tensor.untyped_storage().data_ptr() if tensor.layout == tangrad.strided else None


def _apart(item: Any, held: set[Any]) -> Any:
    """Return arguments that share no memory with others, nor with what is held.

    A program may hold what it is given, so that a tensor is its own copy only where it must.
    """

    def one(tensor: Any) -> Any:
        place = _storage(tensor)
        if not place or place in held or not tensor.is_leaf:
            return _copy(tensor)
        held.add(place)
        return tensor

    return _with_tensors(item, one)


def _copy(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _cloned(item: Any) -> Any:
    """Return arguments with each tensor a copy of its own, whatever it shares its memory with."""
    return _with_tensors(item, _copy)


def _with_tensors(item: Any, new: Callable[[Any], Any]) -> Any:
    if isinstance(item, tangrad.Tensor):
        return new(item)
    if isinstance(item, dict):
        return {key: _with_tensors(value, new) for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        members = [_with_tensors(member, new) for member in item]
        named = getattr(item, "_fields", None) is not None
        return type(item)(*members) if named else type(item)(members)
    return item


_APPLY = tangrad.autograd.Function.apply.__func__.__code__


@contextmanager
def _functions_told() -> Iterator[None]:
    """Warn of the program's `Function`s: a trace has their ops, and not their backward."""
    found: dict[str, None] = {}

    def watch(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is _APPLY:
            kind = frame.f_locals["cls"]
            if not kind.__module__.startswith("tangrad"):
                found[kind.__name__] = None

    previous = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(previous)
    for name in found:
        warnings.warn(
            f"the trace keeps what {name} computes and not its backward: gradients through it "
            "are those of its ops",
            TracerWarning,
            stacklevel=6,
        )


def _with_batches(
    traced: TracedGraph, call: Callable[..., Any], args: Any, kwargs: Any, module: nn.Module | None
) -> TracedGraph:
    """Let the graph take batches of other sizes, if the program does; that is found out later."""
    modes = {} if module is None else {part: part.training for part in module.modules()}
    grad = tangrad.is_grad_enabled()

    def record(tensors: list[Any]) -> tuple[Graph, Structure]:
        given, named = traced.arguments.rebuild(tensors)
        again = _trace_call(call, given, named, module).graph
        assert again is not None
        return again.graph, again.result

    tensors = traced.arguments.flatten((args, kwargs))

    def find() -> BatchGraph | None:
        with tangrad.set_grad_enabled(grad), _training_as(modes):
            return of_any_batch(record, tensors, traced.graph, traced.result)

    traced.batch = LaterBatch(find)
    if is_intercepted():
        _ = traced.batch  # autocast, a mode or a transform is part of what is traced
    elif not traced.reads_values and not _writes(traced.graph):

        def anew(given: list[Any]) -> tuple[Graph, Structure]:
            with tangrad.set_grad_enabled(grad), _training_as(modes):
                return record(given)

        traced.others = OtherSizes(anew, tensors, traced.graph, traced.result)
    return traced


@contextmanager
def _training_as(modes: dict[nn.Module, bool]) -> Iterator[None]:
    """Have modules in the modes in which they were traced."""
    now = {part: part.training for part in modes}
    for part, training in modes.items():
        part.training = training
    try:
        yield
    finally:
        for part, training in now.items():
            part.training = training


def _output(graph: Graph, recorder: Recorder, tensor: Any) -> int:
    graph.outputs.append(recorder.value_of(tensor))
    return len(graph.outputs) - 1


def _keep_no_examples(graph: Graph) -> None:
    for entry in graph.inputs:
        entry.value.example = None
        if entry.kind == "argument":
            entry.tensor = None
    for node in graph.nodes:
        for value in node.results:
            value.example = None


def _check(
    call: Any,
    made: Any,
    traced: TracedGraph | None,
    args: Any,
    kwargs: Any,
    module: nn.Module | None,
    method: Any,
    check_inputs: Any,
    tolerance: float,
) -> None:
    """Trace again and compare, then compare the results on the example and the other inputs.

    Args:
        call: what was traced. made: what it has become. traced: its graph, if there is one.
        args, kwargs, module: as in `_trace_call`.
        method: records the second trace.
        check_inputs, tolerance: as in `trace`.

    Raises:
        TracingCheckError: the program gives another graph.
    """
    if traced is not None and _writes(traced.graph):
        return
    drawn = [] if traced is None else sorted({n.name for n in traced.graph.nodes if _draws(n)})
    if drawn:
        warnings.warn(
            f"Trace had nondeterministic nodes ({', '.join(drawn)}): its results are not those of "
            "the program",
            TracerWarning,
            stacklevel=4,
        )
    elif traced is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TracerWarning)
            again = _trace_call(call, _cloned(args), _cloned(kwargs), module, method).graph
        if again is None or not _are_same(again.graph, traced.graph):
            raise TracingCheckError(
                "Tracing failed sanity checks! Graphs differed across invocations! The program "
                "does something else each time, or keeps what it has computed; its second graph:\n"
                f"{'' if again is None else again.graph}"
            )
    examples = [(args, kwargs), *[(_as_tuple(given), {}) for given in check_inputs or ()]]
    for given, named in examples:
        with tangrad.no_grad(), tangrad.random.fork_rng():
            wanted = call(*_cloned(given), **_cloned(named))
        with tangrad.no_grad():
            found = made(*_cloned(given), **_cloned(named))
        _compare(found, wanted, tolerance)


def _are_same(one: Graph, other: Graph) -> bool:
    return text_of(one, places=False) == text_of(other, places=False)


def _draws(node: Any) -> bool:
    return "random" in node.effects


def _writes(graph: Graph) -> bool:
    return any(
        entry.value in {v.root for n in graph.nodes for v in n.written} for entry in graph.inputs
    )


def _compare(found: Any, wanted: Any, tolerance: float) -> None:
    """Warn of results that are not the program's."""
    both = [(found, wanted)]
    if isinstance(wanted, (tuple, list)) and isinstance(found, (tuple, list)):
        both = list(zip(found, wanted, strict=True))
    for k, (one, other) in enumerate(both):
        try:
            tangrad.testing.assert_close(
                one, other, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            warnings.warn(
                f"Output nr {k + 1}. of the traced function does not match the corresponding "
                f"output of the Python function: {error}",
                TracerWarning,
                stacklevel=5,
            )

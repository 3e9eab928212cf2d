"""One recording for calls of all sizes.

Two runs of a function at different sizes are one program where their graphs differ in nothing but
sizes, and in numbers that are known to be sizes of what came before (`size_terms`). Its types at
other sizes are told by the ops themselves (`graph.retyping`), its passes and kernels are made once,
at sizes that are like no others, and a new size costs a plan. It holds where

- the sizes that were the same stay the same, those that were equal in both runs stay equal, and
  those that were not stay different; none is 0 or 1, which ops treat apart;
- what the program decided by sizes is decided alike (`capture.symbolic_sizes`);
- whatever numbers were known by agrees.
"""

from __future__ import annotations

import copy
from typing import Any

from tangrad_jit._guards import Geometry, Pattern
from tangrad_jit.compiling.executable import Executable
from tangrad_jit.compiling.joint import part
from tangrad_jit.compiling.recording import Recording, tensors_among
from tangrad_jit.compiling.size_template import Template
from tangrad_jit.compiling.size_terms import Terms, Unknown, values_of
from tangrad_jit.compiling.sizes import Dimension, is_static, size_changes
from tangrad_jit.graph.ir import Graph, Node, Value, map_values
from tangrad_jit.graph.printer import text_of
from tangrad_jit.graph.retyping import retype
from tangrad_jit.graph.sized import SizedFloat, SizedInt, resized, sized
from tangrad_jit.graph.types import TensorType, contiguous_stride, type_of

__all__ = ["SizeFamily"]

# Sizes to make passes at that no program is likely to have; where ops do not take them, smaller.
_UNLIKE = (
    [840 * p for p in (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049)],
    [24 * p for p in (11, 13, 17, 19, 23, 29, 31, 37)],
    [11, 13, 17, 19, 23, 29, 31, 37],
)


class SizeFamily:
    """A recording that serves calls of other sizes.

    Args:
        one, two: executables of recordings that differ in sizes alone. settings: as they have them.

    Attributes:
        symbols: name -> the dimensions of arguments that have this size.
        served: how many sizes it has made executables for.
        seconds: what the last of them took.

    Raises:
        Unknown: they are not one program, or it is not known that they are.
    """

    def __init__(self, one: Executable, two: Executable, settings: Any) -> None:
        self.base, self.settings = one, settings
        self.served, self.seconds = 0, 0.0
        self._places, pairs = _symbols(one.pattern, two.pattern)
        self.symbols = {f"s{k}": tuple(dims) for k, dims in enumerate(pairs.values())}
        self._recordings = one.recording, two.recording
        a, b = self._recordings
        if a.sizes is None or b.sizes is None:
            raise Unknown("the sizes that the program reads were not symbolic")
        if a.sizes.lost or b.sizes.lost:
            raise Unknown(a.sizes.lost or b.sizes.lost)
        _check_alike(a, b)
        self.terms = Terms()
        self.graph = self._joined(a, b)
        self._check(b)
        for recording in (a, b):
            if not self._decides_alike(recording.graph):
                raise Unknown("the program decides otherwise by its sizes")
        self.template = self._new_template()

    # --- joining -------------------------------------------------------------------------

    def _joined(self, a: Recording, b: Recording) -> Graph:
        """Return the first graph, with the numbers marked that differ in the second."""
        one, two = a.graph, b.graph
        first, second = values_of(one), values_of(two)
        place = {value: k for k, value in enumerate(first)}
        numbered = place, {value: k for k, value in enumerate(second)}
        for k, entry in enumerate(one.inputs):
            if entry.kind != "tangent":
                self.terms.see(k, first[k].type, second[k].type)
        assert a.sizes is not None
        assert b.sizes is not None
        if len(a.sizes.given) != len(b.sizes.given):
            raise Unknown("the program gives ops other sizes")
        given = list(zip(a.sizes.given, b.sizes.given, strict=True))
        self._constant = [t for (_, s), (_, t) in given if s.hint == t.hint]
        marked = one.copy()
        twins = dict(zip(first, values_of(marked), strict=True))
        for k, (x, y, made) in enumerate(zip(one.nodes, two.nodes, marked.nodes, strict=True)):
            if k == a.forward_nodes:  # gradients of results are known from here on
                for v, w in zip(a.tangents, b.tangents, strict=True):
                    self.terms.see(place[v], v.type, w.type)
            while given and given[0][0][0] <= k:
                (_, s), (_, t) = given.pop(0)
                self.terms.see_given(s, t, self._symbols_of(a, place))
            if x.op is not y.op or x.form != y.form or len(x.results) != len(y.results):
                raise Unknown(f"{x.name} is {y.name} at other sizes")
            try:
                made.args = map_values(twins.__getitem__, self._marked(x.args, y.args, numbered))
            except Unknown as error:
                raise Unknown(f"{x.name} at {x.line or 'no line'} is given {error}") from None
            for v, w in zip(x.results, y.results, strict=True):
                self.terms.see(place[v], v.type, w.type)
        self._marked(one.outputs, two.outputs, numbered)
        return marked

    def _symbols_of(self, a: Recording, place: dict[Value, int]) -> Any:
        assert a.sizes is not None
        where = {name: (place[value], dim) for name, (value, dim) in a.sizes.places.items()}
        return lambda types: _Sizes(where, types)

    def _marked(self, a: Any, b: Any, numbered: Any) -> Any:
        """Return arguments with the numbers marked that differ.

        Raises:
            Unknown: anything else does.
        """
        if isinstance(a, Value) and isinstance(b, Value):
            if numbered[0][a] != numbered[1][b]:
                raise Unknown("another value at other sizes")
            return a
        if type(a) is not type(b):
            raise Unknown(f"{a!r} and {b!r} at other sizes")
        if isinstance(a, (tuple, list)):
            if len(a) != len(b):
                raise Unknown(f"{len(a)} and {len(b)} items at other sizes")
            return type(a)(self._marked(x, y, numbered) for x, y in zip(a, b, strict=True))
        if a is b or a == b or (a != a and b != b):
            return a
        if type(a) in (int, float):
            return sized(a, self.terms.key_of(a, b))
        raise Unknown(f"{a!r} and {b!r} at other sizes")

    def _check(self, other: Recording) -> None:
        """Compare the graph at the sizes of the second run with what was recorded there."""
        types = [entry.value.type for entry in other.graph.inputs]
        try:
            found = self._graph_at(types)[0]
        except Exception as error:  # of an op: whatever it is, there is no graph
            raise Unknown(f"{type(error).__name__}: {error}") from error
        if text_of(found, places=False) != text_of(other.graph, places=False):
            raise Unknown("the ops' results have other strides there")

    def _graph_at(self, types: list[Any], keep: bool = False) -> tuple[Graph, dict[int, Any]]:
        """Return the graph at other sizes, and its numbers by key.

        Args:
            types: of the inputs; those of gradients of results follow from the results.
            keep: the numbers stay marked.
        """
        made, recording = self.graph.copy(), self._recordings[0]
        values = values_of(made)
        seen, numbers = _Types(values), {}

        def arguments(node: Node) -> tuple[Any, ...]:
            for key in _keys_in(node.args):
                numbers[key] = self.terms.number(key, seen)
            found: tuple[Any, ...] = resized(node.args, numbers, keep)  # type: ignore[arg-type]
            return found

        tangents = [entry.value for entry in made.inputs if entry.kind == "tangent"]

        def late() -> list[tuple[Value, Any]]:
            outs = [made.outputs[k].type for k in recording.differentiable]
            return [(v, _like(t)) for v, t in zip(tangents, outs, strict=True)]

        retype(made, types, arguments, (recording.forward_nodes, late) if tangents else None)
        return made, numbers

    # --- other sizes ---------------------------------------------------------------------

    def _new_template(self) -> Template:
        """Return the graphs after the passes, made at sizes that are like no others."""
        reasons = []
        held = {
            size
            for value in values_of(self.graph)
            if isinstance(value.type, TensorType)
            for size in value.type.shape
        }
        for sizes in _UNLIKE:
            chosen = [size for size in sizes if size not in held][: len(self.symbols)]
            if len(chosen) < len(self.symbols):
                continue
            try:
                graph, _ = self._graph_at(self._input_types(chosen), keep=True)
            except Exception as error:  # of an op, or of what does not agree
                reasons.append(f"{type(error).__name__}: {error}")
                continue
            return Template(part(self._recording(graph)), self.settings)
        raise Unknown(f"no sizes are found to make its passes at: {reasons}")

    def _input_types(self, sizes: list[int]) -> list[Any]:
        return [
            self._type_at(entry.name, entry.value.type, sizes)
            if entry.kind == "argument"
            else entry.value.type
            for entry in self.graph.inputs
        ]

    def _type_at(self, path: str, type: Any, sizes: list[int]) -> Any:
        if not any((path, d) in self._places for d in range(len(type.shape))):
            return type
        shape = tuple(
            sizes[self._places[path, d]] if (path, d) in self._places else size
            for d, size in enumerate(type.shape)
        )
        return TensorType(type.dtype, shape, contiguous_stride(shape), type.device)

    def _recording(self, graph: Graph) -> Recording:
        """Return the recording with another graph of the same values."""
        recording = self._recordings[0]
        twins = dict(zip(values_of(recording.graph), values_of(graph), strict=True))
        made = copy.copy(recording)
        made.graph, made.sizes = graph, None
        made.tangents = [twins[value] for value in recording.tangents]
        made.derivatives = [(twins[value], place) for value, place in recording.derivatives]
        made.numbers = [(s, twins.get(value, value), n) for s, value, n in recording.numbers]
        made.asked = [(c, _twin(a, twins), _twin(b, twins), o) for c, a, b, o in recording.asked]
        return made

    def sizes_of(self, pattern: Pattern, tensors: dict[str, Any]) -> list[int] | None:
        """Return the symbols' sizes of a call, or None where the recording does not hold for it."""
        changes = size_changes(self.base.pattern, pattern)
        if changes is None or not changes <= self._places.keys():
            return None
        sizes: dict[int, int] = {}
        for (path, dim), symbol in self._places.items():
            tensor = tensors[path]
            size = int(tensor.shape[dim])
            if sizes.setdefault(symbol, size) != size or size < 2 or is_static(tensor, dim):
                return None
            if not tensor.is_contiguous():
                return None
        if len(set(sizes.values())) < len(sizes):
            return None
        found = [sizes[k] for k in range(len(sizes))]
        expected = {
            entry.name: self._type_at(entry.name, entry.value.type, found)
            for entry in self.graph.inputs
            if entry.kind == "argument"
        }
        return found if all(type_of(tensors[p]) == t for p, t in expected.items()) else None

    def executable_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Executable | None:
        """Return what runs calls of these sizes, or None where the recording does not hold."""
        base = self.base
        pattern = Pattern(args, kwargs, base.numbers.keys())
        tensors = dict(tensors_among(args, "args") + tensors_among(kwargs, "kwargs"))
        sizes = self.sizes_of(pattern, tensors)
        if sizes is None or not base.holds_outside(args, kwargs):
            return None
        if not base.identities.hold(list(tensors.values())):
            return None
        try:
            graph, numbers = self._graph_at(self._input_types(sizes))
            if not self._decides_alike(graph):
                return None
            recording = self._recording(graph)
            recording.pattern = pattern
            for entry in graph.inputs:
                if entry.kind == "argument":
                    entry.tensor = tensors[entry.name]
            prepare = self.template.at(part(recording), numbers)
            made = Executable(recording, self.settings, prepare, base.arena)
        except Exception:  # of an op that takes no such size: what it raises is raised by the run
            return None
        made.identities = base.identities
        made.numbers.unconfirmed = base.numbers.unconfirmed
        if made.trial is not None:
            made.trial.profit = None  # it was measured at other sizes
        self.served += 1
        return made

    def _decides_alike(self, graph: Graph) -> bool:
        types = _Types(values_of(graph))
        for recording in self._recordings:
            place = {value: k for k, value in enumerate(values_of(recording.graph))}
            assert recording.sizes is not None
            symbols = self._symbols_of(recording, place)(types)
            if not recording.sizes.env.holds(symbols):
                return False
        # What was one number in both runs is taken for a constant of the program.
        return all(number.evaluate(symbols) == number.hint for number in self._constant)

    @property
    def conditions(self) -> list[str]:
        """What must be true of sizes, as text."""
        told: dict[str, None] = {}
        for recording in self._recordings:
            assert recording.sizes is not None
            told.update(dict.fromkeys(recording.sizes.env.guards))
        return list(told)


class _Types:
    """The types that values have now, by place."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values

    def __getitem__(self, place: int) -> Any:
        return self.values[place].type


class _Sizes:
    """The values of symbols, by name."""

    def __init__(self, where: dict[str, tuple[int, int]], types: Any) -> None:
        self.where, self.types = where, types

    def __getitem__(self, name: str) -> int:
        place, dim = self.where[name]
        return int(self.types[place].shape[dim])


def _symbols(
    one: Pattern, two: Pattern
) -> tuple[dict[Dimension, int], dict[tuple[int, int], list[Dimension]]]:
    """Return dimension -> number of its symbol, and the dimensions by their sizes in both runs."""
    changes = size_changes(one, two)
    if not changes:
        raise Unknown("the arguments differ in more than sizes")
    pairs: dict[tuple[int, int], list[Dimension]] = {}
    for (path, _, was), (_, _, now) in zip(one.leaves, two.leaves, strict=True):
        if not isinstance(was, Geometry):
            continue
        for dim, pair in enumerate(zip(was.shape, now.shape, strict=True)):
            if pair[0] != pair[1]:
                if min(pair) < 2:
                    raise Unknown("a size is 0 or 1")
                pairs.setdefault(pair, []).append((path, dim))
    for k in (0, 1):
        if len({pair[k] for pair in pairs}) < len(pairs):
            raise Unknown("sizes are equal in one run, and not in the other")
    places = {dim: k for k, dims in enumerate(pairs.values()) for dim in dims}
    return places, pairs


def _check_alike(a: Recording, b: Recording) -> None:
    """Raise Unknown unless two recordings do the same with the results of their graphs."""
    graphs = a.graph, b.graph
    same = (
        len(graphs[0].nodes) == len(graphs[1].nodes)
        and a.forward_nodes == b.forward_nodes
        and a.leaves == b.leaves
        and a.spec == b.spec
        and a.spent == b.spent
        and [(k, t if type(t) is int else id(t)) for k, t in a.graded]
        == [(k, t if type(t) is int else id(t)) for k, t in b.graded]
        and a.differentiable == b.differentiable
        and len(a.tangents) == len(b.tangents)
        and [place for _, place in a.derivatives] == [place for _, place in b.derivatives]
        and a.reaching == b.reaching
        and [(id(t), place) for t, place in a.gradients]
        == [(id(t), place) for t, place in b.gradients]
        and [s.key for s, _, _ in a.numbers] == [s.key for s, _, _ in b.numbers]
        and len(graphs[0].inputs) == len(graphs[1].inputs)
    )
    if not same:
        raise Unknown("the runs are different programs")
    for x, y in zip(graphs[0].inputs, graphs[1].inputs, strict=True):
        alike = (x.kind, x.name) == (y.kind, y.name)
        if x.kind == "constant":
            alike = alike and x.value.type == y.value.type and _equal(x.tensor, y.tensor)
        elif x.kind in ("capture", "gradient"):
            alike = alike and x.tensor is y.tensor
        if not alike:
            raise Unknown(f"{x.name} is another at other sizes")
    arguments = [
        i.value.type for i in (*graphs[0].inputs, *graphs[1].inputs) if i.kind == "argument"
    ]
    if not all(type.contiguous for type in arguments):
        raise Unknown("an argument is not contiguous")


def _equal(a: Any, b: Any) -> bool:
    import tangrad

    with tangrad.no_grad():
        return bool(((a == b) | ((a != a) & (b != b))).all())


def _keys_in(item: Any) -> list[int]:
    if isinstance(item, (tuple, list)):
        return [key for member in item for key in _keys_in(member)]
    return [item.key] if isinstance(item, (SizedInt, SizedFloat)) else []


def _twin(item: Any, twins: dict[Value, Value]) -> Any:
    return twins.get(item, item) if isinstance(item, Value) else item


def _like(type: TensorType) -> TensorType:
    """Return the type of ones like a tensor of a type."""
    import tangrad

    shown = tangrad.empty_strided(
        type.shape, type.stride, dtype=getattr(tangrad, type.dtype), device="meta"
    )
    found = type_of(tangrad.ones_like(shown))
    return TensorType(found.dtype, found.shape, found.stride, type.device)

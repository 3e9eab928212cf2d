"""A graph, ready to run: kernels found, memory laid out, one arena for what lives within a run.

Values that leave the graph get memory of their own in each run; those that do not have their
place in the arena for as long as the plan lives, or in the memory of one that is made later and
leaves. What Python has to call (ops without a compiled kernel, random draws, views that an op in
Python is given) stands between the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.plugin import call_unrecorded
from tangrad_jit._run import Program
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, values_in
from tangrad_jit.graph.types import ITEMSIZE, TensorType, contiguous_stride
from tangrad_jit.passes import branches
from tangrad_jit.passes.branches import ParallelRegion, Step
from tangrad_jit.passes.in_place_reuse import WRITE_INTO_FIRST
from tangrad_jit.passes.work import work_of, work_of_loops
from tangrad_jit.run.arena import Arena, plain_tensors
from tangrad_jit.run.interpreter import interpret, run_node
from tangrad_jit.run.lowering import Lowered, lower
from tangrad_jit.run.placement import Lives, chosen
from tangrad_jit.run.python_steps import add_allocation, add_draw, add_number, add_op
from tangrad_jit.run.written_through import written_through

__all__ = ["Arena", "Plan"]

ALLOCATION = "empty_strided"
# Branches for which memory is kept take at most this share of the time in turn.
_FASTER = 0.97


class Plan:
    """Run a graph again and again.

    Args:
        graph: the graph; it must not be changed afterwards.
        groups: fused groups, from `tangrad_jit.passes.fusion`, already compiled.
        arena: where values are placed; None: in one of its own.

    Attributes:
        arena_bytes: what is used of the arena.
        regions: what runs in branches.
    """

    def __init__(
        self, graph: Graph, groups: Sequence[Any] = (), arena: Arena | None = None
    ) -> None:
        self.graph = graph
        self.groups = list(groups)
        self.arena_bytes = 0
        self.regions: list[ParallelRegion] = []
        self._refused: set[ParallelRegion] = set()
        self._shared_arena = Arena() if arena is None else arena
        if not self._shared_arena.lock.acquire(blocking=False):
            # A run is under way, so that its memory cannot be moved.
            self._shared_arena = Arena()
            self._shared_arena.lock.acquire()
        lock = self._shared_arena.lock
        self._acquire, self._release = lock.acquire, lock.release
        try:
            self._build()
        finally:
            lock.release()

    def run(self, inputs: list[Any]) -> list[Any]:
        """Return the outputs for inputs in the order of the graph's.

        A second run that begins before the first has ended is interpreted: it has no arena.
        """
        if not self._acquire(False):
            return interpret(self.graph, inputs)
        try:
            if self.program.busy:
                return interpret(self.graph, inputs)
            if self._added and self.program.timed:
                self._keep_what_pays()
            if self._records and tangrad.is_grad_enabled():
                made: list[Any] = call_unrecorded(self.program.run, inputs)
            else:
                made = self.program.run(inputs)
        finally:
            self._release()
        if self._nested is None:
            return made
        return [item if register is None else made[register] for item, register in self._nested]

    # --- building ------------------------------------------------------------------------

    def _keep_what_pays(self) -> None:
        """Plan anew without branches that have turned out no faster: they need memory."""
        self._added = 0
        told = zip(self.regions, self.program.branches, strict=True)
        slow = {s for s, (_, on, turn, apart) in told if not on or apart > _FASTER * turn}
        if slow:
            self._refused |= slow
            self._build()
            self._shared_arena.fit()

    def _build(self) -> None:
        graph = self.graph
        self._lowered = self._lower_all()
        self._through = written_through(graph, self.groups, self._lowered)
        self._spared = {
            node
            for node in graph.nodes
            if node.name == "copy_" and self._through.get(node.args[1]) is node.args[0]
        }
        self._returned = {value.root for value in graph.returned()}
        self._find_roots()
        self._find_registers()
        self._lay_out()
        self._emit()

    def _lower_all(self) -> dict[Node, Lowered]:
        devices = {
            value.type.device for value in self._all_values() if isinstance(value.type, TensorType)
        }
        self._grouped = {node: group for group in self.groups for node in group.nodes}
        self._positions = {node: k for k, node in enumerate(self.graph.nodes)}
        # A group runs where its last node is.
        self._ends = {
            self._grouped[node]: node for node in self.graph.nodes if node in self._grouped
        }
        found: dict[Node, Lowered] = {}
        self._away = len(devices) == 1 and not _is_host(next(iter(devices)))
        if len(devices) != 1:
            self._grouped = {}
            self.groups = []
        if len(devices) != 1 or self._away:
            return found
        device = next(iter(devices)).partition(":")[0]
        for node in self.graph.nodes:
            if node in self._grouped:
                continue
            lowered = lower(node, device)
            if lowered is not None:
                found[node] = lowered
        return found

    def _all_values(self) -> list[Value]:
        values = [given.value for given in self.graph.inputs]
        for node in self.graph.nodes:
            values.extend(node.results)
        return values

    def _is_native(self, node: Node) -> bool:
        return node in self._lowered or node in self._grouped

    def _is_silent(self, node: Node) -> bool:
        """Whether a node needs no step by itself: its result is memory, seen by others."""
        return node.op.kind == "view" or node.name == ALLOCATION

    def _find_roots(self) -> None:
        """Decide for each memory whether it is given, in the arena, fresh, or Python's."""
        self._kind: dict[Value, str] = {}
        self._copied = self.graph.fresh_constants()
        for given in self.graph.inputs:
            self._kind[given.value] = "input"
        for node in self.graph.nodes:
            for value in node.results:
                if value.root is not value or not isinstance(value.type, TensorType):
                    continue
                if value in self._through:
                    self._kind[value] = "through"
                    continue
                native = self._is_native(node) or node.name == ALLOCATION
                dense = _dense(value.type)
                gaps = node.name == ALLOCATION and not dense
                away = not _is_host(value.type.device) or value.type.numel == 0
                if not native or away or gaps:
                    self._kind[value] = "python"
                elif value in self._returned:
                    usual = value.type.stride == contiguous_stride(value.type.shape)
                    self._kind[value] = "fresh" if usual else "strided"
                else:
                    self._kind[value] = "arena"

    def _find_registers(self) -> None:
        """Give registers to the values that must be Python objects."""
        self._register: dict[Value, int] = {}
        for given in self.graph.inputs:
            self._register[given.value] = len(self._register)
        needed: list[Value] = [value for item in self.graph.outputs for value in values_in(item)]
        for node in self.graph.nodes:
            group = self._grouped.get(node)
            if group is not None and self._away:
                needed.extend((*group.inputs, *group.outputs))
            if self._is_native(node):
                continue
            if self._is_silent(node):
                if node.name == ALLOCATION and self._kind[node.results[0]] == "python":
                    needed.extend(node.results)
                continue
            needed.extend(node.inputs)
            needed.extend(node.results)
        needed.extend(v for v, kind in self._kind.items() if kind in ("fresh", "strided"))
        pending = needed[::-1]
        while pending:
            value = self._object_of(pending.pop())
            if value in self._register:
                continue
            self._register[value] = len(self._register)
            # A view of what is not in the arena is made from the object that it is a view of.
            if value.view_of is not None and self._kind.get(value.root) != "arena":
                pending.extend(values_in(value.producer.args))  # type: ignore[union-attr]

    def _object_of(self, value: Value) -> Value:
        """Return the value whose object this one is: what was written in place is itself."""
        value = self._through.get(value, value)
        while (
            value.view_of is not None
            and value.producer is not None
            and value.producer.op.kind != "view"
        ):
            value = value.view_of
        return value

    def _lay_out(self) -> None:
        """Place what lives within a run in the arena, and choose what runs side by side."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for position, node in enumerate(self.graph.nodes):
            group = self._grouped.get(node)
            at = position if group is None else self._positions[self._ends[group]]
            for value in (*node.inputs, *node.results):
                root = value.root
                first[root] = min(first.get(root, at), at)
                last[root] = max(last.get(root, at), at)
        self._let_go = self._last_registers(last)
        looped = {
            value
            for node in self._lowered
            if node.op.kind == "pointwise" or node.name in WRITE_INTO_FIRST
            for value in node.results
        }
        kinds = [(root, kind) for root, kind in self._kind.items() if root in first]
        lives = Lives(
            self.graph,
            first,
            last,
            {root for root, kind in kinds if kind == "arena" and self._has_memory(root)},
            looped,
            {value.root for value in self._register},
            [root for root, kind in kinds if kind == "fresh"],
            self._steps(),
        )
        self.regions, placement, self._added = chosen(
            lives, tangrad.get_num_threads(), self._refused
        )
        self._offsets, self._lodged = placement.offsets, placement.lodged
        for root in self._lodged:
            self._kind[root] = "lodged"
        self.arena_bytes = placement.nbytes
        self._shared_arena.grow(self.arena_bytes, self)

    def _steps(self) -> list[Step]:
        """Return the steps of the program, in order."""
        found = []
        for position, node in enumerate(self.graph.nodes):
            group = self._grouped.get(node)
            if node in self._spared or (group is not None and node is not self._ends[group]):
                continue
            if group is not None and not self._away:
                reads, writes = group.inputs, group.outputs
                work, pieces = work_of_loops(group.nodes, reads, writes)
            elif node in self._lowered:
                reads, writes = node.inputs, [*node.results, *node.written]
                work, pieces = work_of(node)
            elif _is_early(node) or (self._is_silent(node) and not self._shows(node)):
                continue
            else:
                reads, writes = node.inputs, [*node.results, *node.written]
                work, pieces = 0.0, 1
            made = {value.root for value in writes}
            joins = work > 0 and all(
                self._kind.get(root) in ("arena", "fresh", "strided") for root in made
            )
            roots = frozenset(value.root for value in reads if isinstance(value.type, TensorType))
            found.append(Step(position, roots, frozenset(made), work, joins, pieces))
        return found

    def _last_registers(self, last: dict[Value, int]) -> dict[int, list[int]]:
        """Return after which steps the objects that ops in Python have made are needed no more."""
        found: dict[int, list[int]] = {}
        for value, register in self._register.items():
            root = value.root
            made = self._kind.get(root) in ("python", "strided") and root not in self._returned
            if made and root in last:
                found.setdefault(last[root], []).append(register)
        return found

    def _has_memory(self, root: Value) -> bool:
        group = self._grouped.get(root.producer) if root.producer is not None else None
        return group is None or root in group.outputs

    def _emit(self) -> None:
        order = [-1]
        self._buffers: dict[Value, int] = {}
        for value, register in self._register.items():
            if value.root is value and isinstance(value.type, TensorType):
                self._buffers[value] = len(order)
                order.append(register)
        program = Program(len(self._register), len(self.graph.inputs), order)
        self.program = program
        self._records = bool(self._copied)  # whether a step would be recorded by autograd
        with plain_tensors():
            self._like = tangrad.empty(0)
            self.enter_arena()
        for given in self._copied:
            register = self._register[given.value]
            program.add_python("", lambda r, k=register: _copy_register(r, k))
        written = {v.root for node in self.graph.nodes for v in node.written}
        for given in self.graph.inputs:
            if not given.counted and given.value in written:
                register = self._register[given.value]
                program.add_python("", lambda r, k=register: _leave_uncounted(r, k))
        self._hosts = dict.fromkeys(host for host, _ in self._lodged.values())
        for value in self._hosts:
            self._emit_fresh(value, "")
        begins = {region.first: region for region in self.regions}
        position = 0
        while position < len(self.graph.nodes):
            region = begins.get(position)
            end = position + 1 if region is None else region.last + 1
            nodes = self.graph.nodes[position:end]
            for node in nodes:
                self._emit_results(node)
            if region is None:
                self._emit_node(nodes[0])
            else:
                self._emit_parallel_region(region)
            gone = [r for k in range(position, end) for r in self._let_go.get(k, ())]
            if gone:
                program.add_let_go(tuple(gone))
            position = end
        self._bump_versions()
        flat: list[int] = []
        nested: list[tuple[Any, int | None]] = []
        for item in self.graph.outputs:
            if isinstance(item, Value):
                nested.append((None, len(flat)))
                flat.append(self._register[self._object_of(item)])
            else:
                nested.append((item, None))
        program.outputs = flat
        self._nested = None if len(flat) == len(self.graph.outputs) else nested
        program.clears = [r for v, r in self._register.items() if v not in self._persistent]

    def enter_arena(self) -> None:
        """Have values where the arena is now, and make the objects that ops in Python are given."""
        self.program.fix(0, self._shared_arena.memory)
        self._persistent = {
            value: register
            for value, register in self._register.items()
            if self._kind.get(value.root) == "arena" and isinstance(value.type, TensorType)
        }
        for value, register in self._persistent.items():
            self.program.registers[register] = self._on_arena(value)

    def leave_arena(self) -> None:
        """Let go of the arena's memory."""
        self.program.fix(0, None)
        for register in self._persistent.values():
            self.program.registers[register] = None

    def _on_arena(self, value: Value) -> Any:
        type = value.type
        assert isinstance(type, TensorType)
        at = self._offsets[value.root] + value.offset
        reach = sum((n - 1) * s for n, s in zip(type.shape, type.stride, strict=True)) + 1
        if type.numel == 0:
            reach = 0
        nbytes = reach * ITEMSIZE[type.dtype]
        flat = self._shared_arena.memory[at : at + nbytes].view(getattr(tangrad, type.dtype))
        return flat.as_strided(type.shape, type.stride)

    def _place(self, value: Value) -> tuple[int, int]:
        if not isinstance(value.type, TensorType):
            return self._register[value], 0
        root = value.root
        if self._kind.get(root) == "arena":
            return 0, self._offsets[root] + value.offset
        if root in self._lodged:
            host, at = self._lodged[root]
            return self._buffers[host], at + value.offset
        return self._buffers[self._through.get(root, root)], value.offset

    def _emit_parallel_region(self, region: ParallelRegion) -> None:
        """Add the steps of a parallel region, and which of them are a branch."""
        program = self.program
        nodes = self.graph.nodes[region.first : region.last + 1]
        for node in filter(_is_early, nodes):
            self._emit_node(node)
        begin = program.begin_parallel_region()
        steps: dict[int, list[int]] = {}
        for position, node in enumerate(nodes, region.first):
            before = program.count
            if not _is_early(node):
                self._emit_node(node)
            steps[position] = list(range(before, program.count))
        apart = [[k for place in places for k in steps[place]] for places in region.branches]
        untimed = branches.costs.always or not branches.costs.timed
        program.end_parallel_region(begin, apart, untimed)

    def _emit_results(self, node: Node) -> None:
        """Make the memory of what leaves the graph."""
        line = _line_of(node)
        for value in node.results:
            kind = self._kind.get(value)
            if kind == "fresh" and value not in self._hosts:
                self._emit_fresh(value, line)
            elif kind == "strided":
                add_allocation(self.program, value.type, line, self._register[value])

    def _emit_node(self, node: Node) -> None:
        line = _line_of(node)
        group = self._grouped.get(node)
        if group is not None:
            self._emit_group(group, node, line)
            return
        if node in self._spared:
            return
        lowered = self._lowered.get(node)
        if lowered is not None:
            lowered(self.program, line, self._place, self._otherwise(node))
            return
        if self._is_silent(node):
            self._emit_silent(node, line)
            return
        self._emit_op(node, line)

    def _emit_group(self, group: Any, node: Node, line: str) -> None:
        """Add a group's kernel where its last node is; away, results are made at their nodes."""
        if not self._away:
            if node is self._ends[group]:
                group.add(self.program, line, self._place)
            return
        for value in node.results:
            if value in group.outputs:
                add_allocation(self.program, value.type, line, self._register[value])
        if node is not self._ends[group]:
            return
        places = {
            value: self._register[self._object_of(value)]
            for value in (*group.outputs, *group.inputs)
        }

        def run(held: list[Any]) -> tuple[int, ...]:
            group.run_on(held, places.__getitem__)
            return ()

        self.program.add_python(line, run)

    def _emit_fresh(self, value: Value, line: str) -> None:
        assert isinstance(value.type, TensorType)
        self.program.add_fresh(
            line, self._register[value], value.type.shape, value.type.dtype, self._like
        )

    def _emit_silent(self, node: Node, line: str) -> None:
        if self._shows(node):
            self._emit_op(node, line)

    def _shows(self, node: Node) -> bool:
        """Return whether a node that is silent makes an object of Python's nevertheless."""
        if node.name == ALLOCATION and self._kind[node.results[0]] != "python":
            return False
        return any(
            value in self._register and self._kind.get(value.root) != "arena"
            for value in node.results
        )

    def _emit_op(self, node: Node, line: str) -> None:
        def taken(value: Value) -> int:
            return self._register[self._object_of(value)]

        made = [self._register.get(value, -1) for value in node.results]
        if node.form == DRAW:
            add_draw(self.program, node, line, taken, made)
        elif node.op.kind == "number":
            add_number(self.program, node, line, taken, made[0])
        else:
            self._records = True
            add_op(self.program, node, line, taken, [] if node.written else made)

    def _otherwise(self, node: Node) -> Any:
        """Return what runs a node whose kernel declines: the op itself, on the same memory."""

        def run() -> None:
            env = {value: self._tensor_of(value) for value in node.inputs}
            targets = {value: self._tensor_of(value) for value in node.results}
            with tangrad.no_grad():
                run_node(node, env)
                for value, target in targets.items() if not node.written else ():
                    target.copy_(env[value])

        return run

    def _tensor_of(self, value: Value) -> Any:
        if not isinstance(value.type, TensorType):
            return self.program.registers[self._register[value]]
        if self._kind.get(value.root) == "arena":
            return self._on_arena(value)
        held, at = self._lodged.get(value.root, (self._object_of(value.root), 0))
        root = self.program.registers[self._register[held]]
        if value.root is value and value not in self._lodged:
            return root
        type = value.type
        start = root.storage_offset() * root.element_size() + at + value.offset
        whole = tangrad.empty(0, dtype=getattr(tangrad, type.dtype), device=root.device)
        size = ITEMSIZE[type.dtype]
        return whole.set_(root.untyped_storage(), start // size, type.shape, type.stride)

    def _bump_versions(self) -> None:
        """Count the writes of kernels into tensors that others hold."""
        roots = {
            value.root
            for node in self.graph.nodes
            if self._is_native(node)
            for value in node.written
        }
        counted = {entry.value for entry in self.graph.inputs if entry.counted}
        registers = [self._register[root] for root in roots if root in counted]
        if not registers:
            return
        increment = tangrad.autograd.graph.increment_version

        def bump(held: list[Any]) -> tuple[int, ...]:
            increment([held[r] for r in registers])
            return ()

        self.program.add_python("", bump)

    @property
    def steps(self) -> list[str]:
        """What the steps are, in order, as `Program.kinds` names them."""
        return self.program.kinds


def _copy_register(registers: list[Any], k: int) -> tuple[int, ...]:
    registers[k] = registers[k].clone()
    return (k,)


def _leave_uncounted(registers: list[Any], k: int) -> tuple[int, ...]:
    """Have ops write to a tensor as through `.data`, so that its version stays."""
    registers[k] = registers[k].data
    return (k,)


def _is_host(device: str) -> bool:
    return device == "cpu"


def _is_early(node: Node) -> bool:
    """Return whether a node may run before its region: a draw asks of tensors only their sizes."""
    return node.form == DRAW and all(isinstance(v.type, TensorType) for v in node.inputs)


def _line_of(node: Node) -> str:
    return " ".join(part for part in (node.module, node.line) if part)


def _dense(type: TensorType) -> bool:
    """Return whether a tensor's elements fill a parallel region of memory without gaps."""
    step = 1
    for stride, size in sorted(zip(type.stride, type.shape, strict=True)):
        if size == 1:
            continue
        if stride != step:
            return False
        step *= size
    return True

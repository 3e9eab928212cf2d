"""Horizontal fusion: groups of the same code over different tensors become one kernel call.

Rule: the later groups read nothing that the earlier ones make, and up to the last of them nobody
reads what these make, or writes what they read. They all run where the last one stands: tiles of
one space, in which each has its own operands, numbers, rows and columns. Larger groups stay alone,
as what a call costs is nothing there, and memory would be held for longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit._run import Program
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.passes.fusion import FusedGroup, forms_of_numbers

__all__ = ["MOST_ELEMENTS", "GroupsSideBySide", "merge_side_by_side"]

MOST_ELEMENTS = 1 << 16


class GroupsSideBySide:
    """Groups of one kernel that run as one call.

    Attributes:
        members: the groups, in order.
        nodes, inputs, outputs: theirs together. code: their kernel.
    """

    def __init__(self, members: list[FusedGroup]) -> None:
        self.members, self.code = members, members[0].code
        self.nodes = [node for group in members for node in group.nodes]
        self.inputs = [value for group in members for value in group.inputs]
        self.outputs = [value for group in members for value in group.outputs]

    def add(self, program: Program, line: str, place: Callable[[Value], tuple[int, int]]) -> None:
        """Add the one call to a program."""
        program.add_groups(
            line,
            self.code.kernel.entry_of_several,
            self.code.kernel.context,
            [
                (
                    [place(v) for v in group.outputs],
                    [place(v) for v in group.inputs],
                    forms_of_numbers(group.inputs),
                    group.rows,
                    group.columns,
                )
                for group in self.members
            ],
            self.code,
        )

    def run_on(self, held: list[Any], register: Callable[[Value], int]) -> None:
        """Run on tensors in registers."""
        for group in self.members:
            group.run_on(held, register)

    def at(self, twin: Callable[[Any], Any]) -> GroupsSideBySide:
        """Return the groups of a graph that is this one at other sizes; see `FusedGroup.at`."""
        return GroupsSideBySide([group.at(twin) for group in self.members])

    def __str__(self) -> str:
        return "side by side:\n" + "\n".join(f"  {group}" for group in self.members)

    def listing(self) -> str:
        """Return what the kernel is, as text."""
        return f"{self}\n{self.code.listing()}"


def merge_side_by_side(graph: Graph, groups: list[FusedGroup]) -> list[Any]:
    """Return the groups, those that may be one call as `GroupsSideBySide`."""
    position = {node: k for k, node in enumerate(graph.nodes)}
    ends = {group: max(position[node] for node in group.nodes) for group in groups}
    ordered = sorted(groups, key=ends.__getitem__)
    rows: list[_Row] = []
    growing: dict[int, _Row] = {}
    for group in ordered:
        end = ends[group]
        row = growing.get(id(group.code))
        small = group.rows * group.columns <= MOST_ELEMENTS
        if row is None or not small or not row.reaches(graph.nodes, end):
            row = _Row()
            rows.append(row)
            if small:
                growing[id(group.code)] = row
        row.add(group, end)
    return [r.members[0] if len(r.members) == 1 else GroupsSideBySide(r.members) for r in rows]


class _Row:
    """Groups that are one call, as far as one has looked."""

    def __init__(self) -> None:
        self.members: list[FusedGroup] = []
        self.end = -1
        self._made: set[Value] = set()
        self._read: set[Value] = set()

    def add(self, group: FusedGroup, end: int) -> None:
        self.members.append(group)
        self.end = end
        self._made.update(value for node in group.nodes for value in node.results)
        self._read.update(value.root for value in group.inputs)

    def reaches(self, nodes: list[Node], end: int) -> bool:
        """Return whether the groups may as well run at a later place."""
        for node in nodes[self.end + 1 : end + 1]:
            if any(value.root in self._made for value in node.inputs):
                return False
            if any(value.root in self._read for value in node.written):
                return False
        return True

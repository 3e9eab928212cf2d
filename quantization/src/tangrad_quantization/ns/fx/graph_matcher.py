"""Which nodes of one graph are which of another, where one was made of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto
from itertools import zip_longest
from typing import Any

from tangrad import fx
from tangrad_quantization.ns.fx.mappings import (
    Families,
    get_base_name_for_op,
    get_base_name_to_sets_of_related_ops,
    get_unmatchable_types_map,
)
from tangrad_quantization.ns.fx.ns_types import NSSubgraph
from tangrad_quantization.ns.fx.pattern_utils import (
    chain_ending_at,
    get_reversed_fusions,
    get_type_a_related_to_b,
)
from tangrad_quantization.ns.fx.utils import called_module, nodes_in, observes, target_type


class GraphMatchingException(Exception):
    """Two graphs are not of one model."""


class SubgraphTypeRelationship(Enum):
    """What two calls have to do with each other.

    They are of one type, of one type that no family knows, of one family, or nothing.
    """

    EQUAL = auto()
    EQUAL_BUT_UKNOWN = auto()  # sic
    RELATED_BUT_NOT_EQUAL = auto()
    NOT_RELATED = auto()


class _Subgraphs:
    """The parts of a graph that can be compared, from its output backwards.

    Args:
        gm: the graph module.
        unmatchable: what is not compared, see `get_unmatchable_types_map`.
    """

    def __init__(self, gm: Any, unmatchable: Families) -> None:
        self.gm = gm
        self._functions = unmatchable["funs_unmatchable"]
        self._modules = tuple(unmatchable["mods_unmatchable"])
        self._methods = unmatchable["meths_unmatchable"]
        self._chains = get_reversed_fusions()
        self._seen: set[fx.Node] = set()

    def __iter__(self) -> Iterator[NSSubgraph]:
        waiting = [node for node in self.gm.graph.nodes if node.op == "output"]
        while waiting:
            end = waiting.pop()
            if end in self._seen:
                continue
            found = self._ending_at(end)
            self._seen.add(found.start_node)
            waiting += list(dict.fromkeys(nodes_in([found.start_node.args])))
            waiting += list(nodes_in(dict(found.start_node.kwargs)))
            if self._compares(found.base_op_node):
                yield found

    def _ending_at(self, end: fx.Node) -> NSSubgraph:
        """Return the longest chain that ends at a node, with the observer of its output."""
        last: Any = end.args[0] if observes(end, self.gm) and end.args else end
        for chain, base in self._chains:
            nodes = chain_ending_at(last, chain, self.gm, self._seen)
            if nodes is not None:
                self._seen |= {end, *nodes}
                return NSSubgraph(nodes[-1], end, nodes[-1 - base])
        # An observer of what has no pattern, as of an input, stands for itself.
        if last is not end and last not in self._seen and self._compares(last):
            self._seen.add(end)
            return NSSubgraph(last, end, last)
        return NSSubgraph(end, end, end)

    def _compares(self, node: fx.Node) -> bool:
        if node.op == "call_function":
            return node.target not in self._functions
        if node.op == "call_method":
            return node.target not in self._methods
        if node.op != "call_module" or observes(node, self.gm):
            return False
        return not isinstance(called_module(node, self.gm), self._modules)


def _relationship(one: Any, other: Any, related: set[tuple[Any, Any]]) -> SubgraphTypeRelationship:
    if (one, other) in related:
        same = one == other
        return (
            SubgraphTypeRelationship.EQUAL
            if same
            else SubgraphTypeRelationship.RELATED_BUT_NOT_EQUAL
        )
    if one == other:
        return SubgraphTypeRelationship.EQUAL_BUT_UKNOWN
    return SubgraphTypeRelationship.NOT_RELATED


def get_matching_subgraph_pairs(
    gm_a: Any,
    gm_b: Any,
    base_name_to_sets_of_related_ops: Families | None = None,
    unmatchable_types_map: Families | None = None,
) -> dict[str, tuple[NSSubgraph, NSSubgraph]]:
    """Return the parts of two graphs that belong together, in the order in which they run.

    Args:
        gm_a: a graph module.
        gm_b: another of the same model, as it is after fusing, preparing or converting.
        base_name_to_sets_of_related_ops: the forms of each op; those that this package makes by
            default.
        unmatchable_types_map: what is not compared.

    Raises:
        GraphMatchingException: the graphs do not have the same ops in the same order.
    """
    unmatchable = unmatchable_types_map or get_unmatchable_types_map()
    families = base_name_to_sets_of_related_ops or get_base_name_to_sets_of_related_ops()
    related = get_type_a_related_to_b(families)
    found: dict[str, tuple[NSSubgraph, NSSubgraph]] = {}
    count: Counter[str | None] = Counter()
    for a, b in zip_longest(_Subgraphs(gm_a, unmatchable), _Subgraphs(gm_b, unmatchable)):
        kinds = [
            None if part is None else target_type(part.base_op_node, gm)
            for part, gm in ((a, gm_a), (b, gm_b))
        ]
        relationship = _relationship(*kinds, related)
        if a is None or b is None or relationship is SubgraphTypeRelationship.NOT_RELATED:
            raise GraphMatchingException(
                f"{_said(a, kinds[0])} of one graph and {_said(b, kinds[1])} of the other are not "
                f"related; both graphs must come of one model, and have the same ops in the same "
                f"order"
            )
        if relationship is SubgraphTypeRelationship.EQUAL_BUT_UKNOWN:
            continue
        family = get_base_name_for_op(families, kinds[0])
        found[f"base_op_{family}_{count[family]}"] = (a, b)
        count[family] += 1
    return dict(reversed(found.items()))


def _said(part: NSSubgraph | None, kind: Any) -> str:
    return "nothing" if part is None else f"'{part.base_op_node.name}' ({kind})"

"""What a pipe is made of: the pipes in its attributes, and in theirs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tangrad.utils.data.datapipes import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipe = IterDataPipe[Any] | MapDataPipe[Any]
# {id of a pipe: (the pipe, the graph of what it is made of)}
DataPipeGraph = dict[int, tuple[Any, "DataPipeGraph"]]


def _pipes_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the pipes in a value: itself, or those in containers."""
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        yield value
    elif isinstance(value, Mapping) and depth < 8:
        for item in (*value.keys(), *value.values()):
            yield from _pipes_in(item, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < 8:
        for item in value:
            yield from _pipes_in(item, depth + 1)


def traverse_dps(datapipe: Any) -> DataPipeGraph:
    """Return the graph of the pipes that a pipe is made of.

    Args:
        datapipe: the last pipe.

    Returns:
        {id: (pipe, graph of those in its attributes, also in lists, tuples, sets and dicts)}.

    Raises:
        RuntimeError: it is no pipe.
    """
    if not isinstance(datapipe, (IterDataPipe, MapDataPipe)):
        raise RuntimeError(
            f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found"
        )
    return _graph_of(datapipe, frozenset())


def _graph_of(pipe: Any, above: frozenset[int]) -> DataPipeGraph:
    above |= {id(pipe)}
    graph: DataPipeGraph = {}
    for inner in _pipes_in(list(vars(pipe).values())):
        if id(inner) not in above and id(inner) not in graph:
            graph.update(_graph_of(inner, above))
    return {id(pipe): (pipe, graph)}


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> DataPipeGraph:
    """Return what `traverse_dps` does; deprecated."""
    warnings.warn(
        "`traverse` function is deprecated. Please use `traverse_dps` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return traverse_dps(datapipe)

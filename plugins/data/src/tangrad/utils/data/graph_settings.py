"""What loaders set in all pipes of a graph: parts, orders, seeds."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tangrad
from tangrad.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from tangrad.utils.data.graph import DataPipeGraph, traverse_dps

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph: DataPipeGraph) -> list[Any]:
    """Return all pipes of a graph, each once, those that come later first."""

    def walk(part: DataPipeGraph) -> Iterator[Any]:
        for pipe, inner in part.values():
            yield pipe
            yield from walk(inner)

    return list({id(pipe): pipe for pipe in walk(graph)}.values())


def _method(pipe: Any, name: str) -> Callable[..., Any] | None:
    # Not `getattr` of the pipe: what it lacks may be a function that makes further pipes.
    return getattr(pipe, name) if inspect.isroutine(getattr(type(pipe), name, None)) else None


def apply_sharding(
    datapipe: Any,
    num_of_instances: int,
    instance_id: int,
    sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
) -> Any:
    """Have the pipes of a graph that can share samples out take one of so many parts.

    Raises:
        RuntimeError: two of them stand one behind the other: samples would be lost.
    """
    _share(traverse_dps(datapipe), (num_of_instances, instance_id), sharding_group, None)
    return datapipe


def _share(graph: DataPipeGraph, part: tuple[int, int], group: Any, before: Any) -> None:
    for pipe, inner in graph.values():
        apply = _method(pipe, "apply_sharding")
        if apply is not None:
            if before is not None:
                raise RuntimeError(
                    "Sharding twice on a single pipeline is likely unintended and will cause data "
                    f"loss. Sharding already applied to {before} while trying to apply to {pipe}"
                )
            takes_group = len(inspect.signature(apply).parameters) >= 3
            apply(*part, **({"sharding_group": group} if takes_group else {}))
        _share(inner, part, group, before if apply is None else pipe)


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Have the pipes of a graph that can shuffle do so, or not.

    Args:
        datapipe: the last pipe.
        shuffle: whether they do; None: they stay as they are.

    Returns:
        The pipe, or, where none can and one should, one that shuffles it.
    """
    if shuffle is None:
        return datapipe
    pipes = get_all_graph_pipes(traverse_dps(datapipe))
    shufflers = [p for p in pipes if _method(p, "set_shuffle") and _method(p, "set_seed")]
    if shuffle and not shufflers:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at "
            "the end. Be aware that the default buffer size might not be sufficient for your task.",
            stacklevel=2,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Give each pipe of a graph that draws random numbers a seed.

    Args:
        datapipe: the last pipe.
        rng: the generator that seeds are drawn from.
    """
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        set_seed = _method(pipe, "set_seed")
        if set_seed is not None:
            set_seed(int(tangrad.empty((), dtype=tangrad.int64).random_(generator=rng).item()))
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """Do what `apply_random_seed` does; deprecated."""
    warnings.warn(
        "`apply_shuffle_seed` is deprecated. Please use `apply_random_seed` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return apply_random_seed(datapipe, rng)

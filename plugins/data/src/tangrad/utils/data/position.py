"""Where a loader stands in its data set, to go on from there in another process.

The order of samples is what the sampler draws, and that follows from the state of the random
generators when the pass began. A state is therefore those generators' states and the number of
batches given since: as many keys are drawn again and dropped, and no sample of theirs is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import tangrad
from tangrad.plugin import own_copy
from tangrad.utils.data import piped

VERSION = 1


class Position:
    """Where a loader stands.

    Attributes:
        epoch: number of passes that have ended.
        batches: number of batches given in this pass.
        generators: states of the generators when the pass began; None between passes.
        seeds: whether the pass began by drawing a seed for workers.
        pipe_seed: what a pipe shuffles by in this pass, in all processes; None without a pipe.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch, self.batches = epoch, 0
        self.generators: list[Any] | None = None
        self.seeds = True
        self.pipe_seed: int | None = None

    def end_pass(self) -> None:
        """Note that a pass has ended."""
        self.epoch, self.batches, self.generators = self.epoch + 1, 0, None


def _generators(loader: Any) -> list[Any]:
    """Return the generators that the order may come from, the default one first."""
    found = [tangrad.default_generator]
    inner = getattr(loader.batch_sampler, "sampler", None)
    for owner in (loader, loader.sampler, loader.batch_sampler, inner):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, tangrad.Generator) and generator not in found:
            found.append(generator)
    return found


def draw_seed(loader: Any) -> int:
    """Return the seed of a loader's workers."""
    drawn = tangrad.empty((), dtype=tangrad.int64).random_(generator=loader.generator)
    return int(drawn.item())


def begin_pass(loader: Any, seed: int | None) -> tuple[Iterator[Any], int]:
    """Begin a pass, or go on with one whose state was loaded.

    Args:
        loader: the loader.
        seed: that of the workers, if they run already.

    Returns:
        The keys that are left, and the seed of the workers.
    """
    last, loaded = loader._position, loader._loaded
    # An object of its own: an older iterator of the loader may still be in use.
    position = loader._position = Position(last.epoch + bool(last.batches))
    loader._loaded = None
    generators = _generators(loader)
    program = generators[0].get_state()
    if loaded is None:
        position.generators = [g.get_state() for g in generators]
        position.seeds = seed is None
    else:
        position.epoch, position.batches = loaded["epoch"], loaded["batches"]
        position.generators, position.seeds = loaded["generators"], loaded["seeds"]
        if seed is None and not position.seeds:
            seed = draw_seed(loader)
        for generator, state in zip(generators, loaded["generators"], strict=True):
            generator.set_state(state)
    # One seed for all processes that shuffle a pipe, drawn before that of the workers.
    position.pipe_seed = draw_seed(loader) if piped.is_pipe(loader.dataset) else None
    keys = iter(loader._index_sampler)
    if position.seeds:
        drawn = draw_seed(loader)
        seed = drawn if seed is None else seed
    if loaded is not None:
        keys = keys if loader._streaming else _after(keys, position.batches)
        # The program's own random numbers go on from where it left them.
        generators[0].set_state(program)
    assert seed is not None
    return keys, seed


def _after(keys: Iterator[Any], count: int) -> Iterator[Any]:
    """Return what is left of `keys` after `count`, with the next already drawn."""
    for _ in islice(keys, count):
        pass
    return chain(list(islice(keys, 1)), keys)


def _traits(loader: Any) -> dict[str, Any]:
    """Return what has to be the same for a state to mean the same batches."""
    traits = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if loader._streaming:  # who reads what of a stream depends on who there is
        return {**traits, "num_workers": loader.num_workers}
    return {**traits, "keys": len(loader.sampler) if hasattr(loader.sampler, "__len__") else None}


def save(loader: Any) -> dict[str, Any]:
    """Return a loader's state; see `DataLoader.state_dict`."""
    position = loader._position
    if loader._loaded is not None:
        return own_copy(loader._loaded)
    if position.batches and loader.num_workers and not loader.in_order:
        raise ValueError(
            "DataLoader.state_dict(): with in_order=False the batches that were given are not the "
            "first ones; make the loader with in_order=True"
        )
    states = position.generators
    if states is None:
        states = [g.get_state() for g in _generators(loader)]
    return {
        "version": VERSION,
        "epoch": position.epoch,
        "batches": position.batches,
        "within": position.generators is not None,
        "seeds": position.seeds,
        "generators": own_copy(states),
        "traits": _traits(loader),
    }


def load(loader: Any, state: dict[str, Any]) -> None:
    """Have a loader's next pass begin at a state; see `DataLoader.load_state_dict`."""
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise ValueError(
            f"DataLoader.load_state_dict(): expected what state_dict() of a DataLoader gave, of "
            f"version {VERSION}, got {type(state).__name__} of version {version}"
        )
    traits, generators = _traits(loader), _generators(loader)
    if state["traits"] != traits or len(state["generators"]) != len(generators):
        raise ValueError(
            f"DataLoader.load_state_dict(): the state is of a loader with {state['traits']} and "
            f"{len(state['generators']) - 1} generators of its own, and this one has {traits} and "
            f"{len(generators) - 1}; they would not give the same batches"
        )
    position = loader._position = Position()
    if state["within"]:
        loader._loaded = own_copy(state)
        return
    loader._loaded, position.epoch = None, state["epoch"]
    for generator, saved in zip(generators[1:], state["generators"][1:], strict=True):
        generator.set_state(saved)

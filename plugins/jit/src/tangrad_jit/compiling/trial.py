"""Measure a graph against eager in its first calls, and check a share of the later ones.

Measured calls alternate: one is run by the graph, the next by the function itself; both are right,
and neither is run twice. Checked calls are run twice: the graph works on copies of what it would
write, with the random state put back, and then the function runs for real.
"""

from __future__ import annotations

import time
from typing import Any

import tangrad
from tangrad.utils import _pytree

__all__ = ["Trial", "trial_of"]

_CALLS = 6
# Below this share of eager's time a graph is kept; timers and neighbours are not that exact.
_TOLERANCE = 1.1


class Trial:
    """What runs an executable's calls while they are compared with eager's.

    Args:
        measure: compare times in the first calls.
        check: share of the calls that run both ways.
        fast: whether the passes may change the last bits.
    """

    def __init__(self, measure: bool, check: float, fast: bool = False) -> None:
        self.check, self.fast = check, fast
        self.pending = 2 * _CALLS if measure else 0
        self.times: dict[bool, list[float]] = {True: [], False: []}
        if check:
            import random

            self._dice = random.Random(0)

    def run(
        self, executable: Any, tensors: list[Any], function: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a call by the graph, by the function, or by both."""
        if self.check and self._dice.random() < self.check:
            return self._both(executable, tensors, function, args, kwargs)
        if not self.pending:
            return executable.run(tensors)
        by_graph = self.pending % 2 == 0
        self.pending -= 1
        start = time.perf_counter()
        result = executable.run(tensors) if by_graph else function(*args, **kwargs)
        self.times[by_graph].append(time.perf_counter() - start)
        if not self.pending:
            self._decide(executable)
        return result

    def _decide(self, executable: Any) -> None:
        graph, eager = min(self.times[True]), min(self.times[False])
        executable.measured = (graph, eager)
        if not self.check:
            executable.trial = None
        if graph > _TOLERANCE * eager:
            executable.dropped = (
                f"the graph took {1e6 * graph:.1f} us, the function itself {1e6 * eager:.1f} us"
            )

    def _both(
        self, executable: Any, tensors: list[Any], function: Any, args: Any, kwargs: Any
    ) -> Any:
        from tangrad_jit.compiling.difference import same_bits, write_program

        inputs = executable._inputs(tensors)
        copies = [
            item.detach().clone() if k in executable._written else item
            for k, item in enumerate(inputs)
        ]
        state = tangrad.get_rng_state()
        given = [
            item.detach().clone() if isinstance(item, tangrad.Tensor) else item for item in copies
        ]
        outs = executable._run_forward(copies)
        tangrad.set_rng_state(state)
        result = function(*args, **kwargs)
        after = tangrad.get_rng_state()
        wanted = list(_pytree.tree_flatten(result)[0])
        found = executable._result(outs, copies)
        pairs = list(zip(_pytree.tree_flatten(found)[0], wanted, strict=True))
        pairs += [(copies[k], inputs[k]) for k in executable._written]
        pairs += [
            (None if at is None else outs[at], tensor.grad)
            for tensor, at in executable._new_gradients
        ]
        if not all(same_bits(a, b) for a, b in pairs):
            tangrad.set_rng_state(state)
            where = write_program(executable.recorded, given, self.fast, pairs)
            tangrad.set_rng_state(after)
            executable.dropped = f"its results differ from the function's; {where} shows it"
        return result


def trial_of(executable: Any, settings: Any) -> Trial | None:
    """Return what runs an executable's calls both ways, or None where nothing is to be compared."""
    if not settings.measure and not settings.check:
        return None
    return Trial(settings.measure, settings.check, settings.fast)

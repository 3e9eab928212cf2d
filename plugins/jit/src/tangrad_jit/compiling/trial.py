"""Measure a graph against eager in its first calls, and check a share of the later ones.

A call by the graph is timed with the guards that it begins with. Checked calls are run twice: the
graph works on copies of what it would write, with the random state put back, and then the function
runs for real.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.utils import _pytree
from tangrad_jit.compiling.profitability import ProfitabilityCheck
from tangrad_jit.compiling.verdict import NO_FASTER

__all__ = ["Trial", "trial_of"]


class Trial:
    """What runs an executable's calls while they are compared with eager's.

    Args:
        measure: compare times in the first calls.
        check: share of the calls that run both ways.
        fast: whether the passes may change the last bits.
    """

    def __init__(self, measure: bool, check: float, fast: bool = False) -> None:
        self.check, self.fast = check, fast
        self.profit = ProfitabilityCheck() if measure else None
        if check:
            import random

            self._dice = random.Random(0)

    def run(
        self, executable: Any, tensors: list[Any], function: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a call by the graph, by the function, or by both."""
        if self.check and self._dice.random() < self.check:
            return self._both(executable, tensors, function, args, kwargs)
        check = self.profit
        if check is None:
            return executable.run(tensors)

        def by_graph() -> Any:
            executable.fits(args, kwargs)  # again: each call pays for it
            return executable.run(tensors)

        result = check.run(by_graph, lambda: function(*args, **kwargs))
        if not check.open:
            self._decide(executable, check)
        return result

    def _decide(self, executable: Any, check: ProfitabilityCheck) -> None:
        executable.measured, self.profit = check.times, None
        if not self.check:
            executable.trial = None
        if check.lost:
            graph, eager = executable.measured
            executable.lost = True
            executable.dropped = (
                f"{NO_FASTER}: the graph took {1e6 * graph:.1f} us, "
                f"the function itself {1e6 * eager:.1f} us"
            )

    def _both(
        self, executable: Any, tensors: list[Any], function: Any, args: Any, kwargs: Any
    ) -> Any:
        from tangrad_jit.compiling.difference import copied, same_bits, write_program

        inputs = executable._inputs(tensors)
        copies = [
            copied(item) if k in executable._written else item for k, item in enumerate(inputs)
        ]
        state = tangrad.get_rng_state()
        states = [(g, g.get_state()) for g in executable.recording.generators]
        given = [copied(item) for item in copies]
        outs = executable._run_forward(copies)
        for generator, before in states:
            generator.set_state(before)
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

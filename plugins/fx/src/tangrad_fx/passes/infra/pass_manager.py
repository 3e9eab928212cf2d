"""Run passes in an order that meets what each relies on, until nothing changes or a few times."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tangrad_fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn: Callable[..., Any]) -> Callable[[Any], PassResult | None]:
    """Return a pass for a function that changes a module and returns nothing, or the module."""

    @wraps(fn)
    def run(graph_module: Any) -> PassResult | None:
        found = fn(graph_module)
        if found is None:
            return PassResult(graph_module, True)
        return found if isinstance(found, PassResult) else PassResult(found, True)

    return run


def this_before_that_pass_constraint(this: Any, that: Any) -> Callable[[Any, Any], bool]:
    """Return a constraint: one pass does not run behind another."""
    return lambda a, b: not (a is that and b is this)


class PassManager:
    """Run passes.

    Args:
        passes: the passes, functions of a module.
        constraints: functions of two passes: whether the first may run before the second.
        steps: how often all are run at most.
        run_checks_after_each_pass: whether `check` runs after each.
        suppress_check_failures: accepted.
    """

    def __init__(
        self,
        passes: list[Callable[..., Any]] | None = None,
        constraints: list[Callable[[Any, Any], bool]] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = list(passes or [])
        self.constraints = list(constraints or [])
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self._checks: list[Callable[[Any], Any]] = []

    def add_pass(self, _pass: Callable[..., Any]) -> None:
        """Add a pass."""
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable[[Any, Any], bool]) -> None:
        """Add a constraint."""
        self.constraints.append(constraint)

    def add_checks(self, check: Callable[[Any], Any]) -> None:
        """Add a check that runs after passes."""
        self._checks.append(check)

    def check(self, module: Any) -> None:
        """Run the checks."""
        for one in self._checks:
            one(module)

    def solve_constraints(self) -> None:
        """Put the passes into an order that meets the constraints.

        Raises:
            RuntimeError: there is none.
        """
        remaining, ordered = list(self.passes), []
        while remaining:
            for candidate in remaining:
                others = [p for p in remaining if p is not candidate]
                if all(c(candidate, other) for c in self.constraints for other in others):
                    ordered.append(candidate)
                    remaining = others
                    break
            else:
                raise RuntimeError("no order of the passes meets the constraints")
        self.passes = ordered

    def __call__(self, module: Any) -> PassResult:
        """Run the passes on a module."""
        self.solve_constraints()
        changed = False
        for _ in range(self.steps):
            before = changed
            modified = False
            for one in self.passes:
                found = one(module)
                if isinstance(found, PassResult):
                    module, modified = found.graph_module, modified or found.modified
                if self.run_checks_after_each_pass:
                    self.check(module)
            changed = before or modified
            if not modified:
                break
        return PassResult(module, changed)

"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.optim.line_search import Point, strong_wolfe
from tangrad.optim.optimizer import Optimizer, _value

__all__ = ["LBFGS"]

_LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    r"""Quasi-Newton descent with a limited memory of earlier steps.

    Liu, Nocedal 1989, https://doi.org/10.1007/BF01589116: the inverse Hessian is known by the last
    steps \(s\) and changes of the gradient \(y\), and scaled by \(y^T s / y^T y\). There is one
    group of parameters, on one device.

    Args:
        params: parameters; complex ones count as pairs of real numbers.
        lr: learning rate.
        max_iter: greatest number of iterations in a `step`.
        max_eval: greatest number of evaluations in a `step`; `max_iter * 5 / 4` by default.
        tolerance_grad: largest component of the gradient at which to stop.
        tolerance_change: change of the loss or of the parameters at which to stop.
        history_size: number of steps remembered.
        line_search_fn: "strong_wolfe", or None: steps of length `lr`.

    Raises:
        ValueError: if there are several groups, or `lr` is negative.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if isinstance(lr, tangrad.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take up to `max_iter` quasi-Newton steps.

        Args:
            closure: clears the gradients, evaluates the model, calls `backward`, and returns the
                loss.

        Returns:
            The loss before the first of them.

        Raises:
            RuntimeError: if `line_search_fn` is unknown.
        """
        with tangrad.no_grad():
            return self._minimize(tangrad.enable_grad()(closure))

    def _minimize(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, smallest = _value(group["lr"]), group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, evaluations = float(first), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        direction, step = state.get("d"), state.get("t")
        previous_grad, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = -grad
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
                total = grad.abs().sum().item()
                step = (1.0 / total if total > 1.0 else 1.0) * lr
            else:
                self._remember(state, grad - previous_grad, direction * step)
                direction = _descent(state, grad)
                step = lr
            previous_grad, previous_loss = grad.clone(), loss
            slope = grad.dot(direction)
            if slope > -smallest:
                break
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, previous_grad, slope.item())
                tries = group["max_eval"] - evaluations
                found, tried = self._search(closure, start, step, direction, tries)
                step, loss, grad = found.step, found.loss, found.grad
                self._move(step, direction)
            else:
                self._move(step, direction)
                tried = 0
                if iteration != group["max_iter"]:
                    loss, grad, tried = float(closure()), self._gradient(), 1
            evaluations += tried
            state["func_evals"] += tried
            if (
                iteration == group["max_iter"]
                or evaluations >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or (direction * step).abs().max() <= smallest
                or abs(loss - previous_loss) < smallest
            ):
                break
        state.update(d=direction, t=step, prev_flat_grad=previous_grad, prev_loss=previous_loss)
        return first

    def _remember(self, state: dict[str, Any], change: Any, taken: Any) -> None:
        """Add a step and the change of the gradient along it, unless the function bends away."""
        curvature = change.dot(taken)
        if curvature <= _LEAST_CURVATURE:
            return
        histories = (state["old_dirs"], state["old_stps"], state["ro"])
        if len(state["old_dirs"]) == self.param_groups[0]["history_size"]:
            for history in histories:
                history.pop(0)
        for history, value in zip(histories, (change, taken, 1.0 / curvature), strict=True):
            history.append(value)
        state["H_diag"] = curvature / change.dot(change)

    def _search(
        self, closure: Callable[[], Any], start: Point, step: float, direction: Any, tries: int
    ) -> tuple[Point, int]:
        kind = self.param_groups[0]["line_search_fn"]
        if kind != "strong_wolfe":
            raise RuntimeError(f"only 'strong_wolfe' is supported, got line_search_fn={kind!r}")
        origin = [parameter.clone() for parameter in self._params]

        def evaluate(step: float) -> Point:
            self._move(step, direction)
            loss, grad = float(closure()), self._gradient()
            for parameter, value in zip(self._params, origin, strict=True):
                parameter.copy_(value)
            return Point(step, loss, grad, grad.dot(direction).item())

        longest = direction.abs().max().item()
        return strong_wolfe(evaluate, start, step, longest, tries=tries)

    def _gradient(self) -> Any:
        """Return all gradients as one vector."""
        pieces = [
            tangrad.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self._params
        ]
        return tangrad.cat([_real(piece.resolve_conj()).reshape(-1) for piece in pieces])

    def _move(self, step: float, direction: Any) -> None:
        """Add a multiple of a vector to the parameters."""
        offset = 0
        for parameter in self._params:
            moved = _real(parameter)
            count = moved.numel()
            piece = direction[offset : offset + count]
            moved.add_(piece.view_as(moved), alpha=step)
            offset += count


def _real(t: Any) -> Any:
    return tangrad.view_as_real(t) if t.is_complex() else t


def _descent(state: dict[str, Any], grad: Any) -> Any:
    """Return minus the product of the inverse Hessian and the gradient, by the two loops."""
    memory = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    direction, weights = -grad, []
    for change, taken, inverse in reversed(memory):
        weights.append((taken.dot(direction) * inverse).item())
        direction.add_(change, alpha=-weights[-1])
    direction = direction * state["H_diag"]
    for (change, taken, inverse), weight in zip(memory, reversed(weights), strict=True):
        direction.add_(taken, alpha=weight - (change.dot(direction) * inverse).item())
    return direction

"""Sums and products as modules of float models, so that observers can stand behind them."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn


class FloatFunctional(nn.Module):
    """Sums, products and concatenations whose results are observed.

    Use `self.skip.add(x, y)` in place of `x + y`, with one module for each place in the model.

    Attributes:
        took_numbers: whether a number was added or multiplied, which needs no observer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.took_numbers = False
        self.activation_post_process: Any = nn.Identity()

    def forward(self, x: Any) -> Any:
        """Refuse: call one of the methods.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "FloatFunctional is not intended to use the 'forward'. Please use the underlying "
            "operation, such as add"
        )

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y."""
        return self.activation_post_process(tangrad.add(x, y))

    def add_scalar(self, x: Any, y: float) -> Any:
        """Return x + y; not observed, for the range follows."""
        self.took_numbers = True
        return tangrad.add(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """Return x * y."""
        return self.activation_post_process(tangrad.mul(x, y))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """Return x * y; not observed, for the range follows."""
        self.took_numbers = True
        return tangrad.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Return the tensors joined."""
        return self.activation_post_process(tangrad.cat(x, dim=dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        """Return relu(x + y)."""
        return self.activation_post_process(tangrad.relu(tangrad.add(x, y)))

    def matmul(self, x: Any, y: Any) -> Any:
        """Return x @ y."""
        return self.activation_post_process(tangrad.matmul(x, y))


class FXFloatFunctional(nn.Module):
    """`FloatFunctional` without observers, for graph mode, which puts its own."""

    def forward(self, x: Any) -> Any:
        """Refuse: call one of the methods.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("FXFloatFunctional is not intended to use the 'forward'")

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y."""
        return tangrad.add(x, y)

    add_scalar = add

    def mul(self, x: Any, y: Any) -> Any:
        """Return x * y."""
        return tangrad.mul(x, y)

    mul_scalar = mul

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Return the tensors joined."""
        return tangrad.cat(x, dim=dim)

    def add_relu(self, x: Any, y: Any) -> Any:
        """Return relu(x + y)."""
        return tangrad.relu(tangrad.add(x, y))

    def matmul(self, x: Any, y: Any) -> Any:
        """Return x @ y."""
        return tangrad.matmul(x, y)

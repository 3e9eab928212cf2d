"""The calibration loop that PyTorch's examples use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["default_eval_fn"]


def default_eval_fn(model: Any, calib_data: Iterable[tuple[Any, Any]]) -> None:
    """Run a model over pairs of input and target; targets are not used."""
    for data, _target in calib_data:
        model(data)

"""Summaries by PyTorch's names, which other loggers write themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tangrad_tensorboard import summaries

__all__ = ["hparams"]


def hparams(
    hparam_dict: Mapping[str, Any] | None = None,
    metric_dict: Mapping[str, Any] | None = None,
    hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
) -> tuple[bytes, ...]:
    """Return the summaries of a run's hyperparameters: experiment, start and end.

    Args:
        hparam_dict: bools, numbers or texts by name.
        metric_dict: what the run is measured by.
        hparam_domain_discrete: all values that a hyperparameter may have.

    Raises:
        TypeError: an argument is no mapping.
        ValueError: a value is of another kind.
    """
    if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
        raise TypeError("hparams: hparam_dict and metric_dict have to be mappings")
    found = summaries.hparams(hparam_dict, list(metric_dict), hparam_domain_discrete or {})
    return tuple(found)

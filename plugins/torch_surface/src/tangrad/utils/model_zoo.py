"""Older names of `tangrad.hub`."""

from __future__ import annotations

from typing import Any

from tangrad import hub
from tangrad.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # which other libraries import from here
        return hub.tqdm
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

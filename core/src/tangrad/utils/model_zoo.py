"""Older names of `tangrad.hub`."""

from __future__ import annotations

from tangrad.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> object:
    if name == "tqdm":  # which other libraries import from here
        from tqdm import tqdm

        return tqdm
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

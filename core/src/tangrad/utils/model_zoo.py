"""Older names of `tangrad.hub`."""

from __future__ import annotations

from tangrad.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]

"""Regions and boxes in pictures: what torchvision computes in its compiled extension."""

from __future__ import annotations

from tangrad_vision import ops

API = 1

__all__ = ["ops"]

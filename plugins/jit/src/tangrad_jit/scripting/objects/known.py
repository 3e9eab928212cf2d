"""What has been scripted in this process."""

from __future__ import annotations

from tangrad_jit.scripting.check.world import World

__all__ = ["WORLD"]

WORLD = World()

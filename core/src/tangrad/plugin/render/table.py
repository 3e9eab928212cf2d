"""The ops of a kind, each once: not by its aliases, and not its in-place form."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition import registry


def ops_of(*kinds: str) -> list[Any]:
    """Return the core's ops of some kinds, in the order of their definition."""
    found = {op.definition.key: op for op in registry.load_all().values() if op.kind in kinds}
    return [op.definition.op for op in found.values()]

"""What `importlib.metadata` finds for `torch` while tangrad stands in for it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from tangrad.compat.alias import metadata_text


class StandingDistribution(metadata.Distribution):
    """The distribution `torch`, with PyTorch's version and no files of its own."""

    def read_text(self, filename: str) -> str | None:
        """Return a file of its metadata, or None."""
        return {"METADATA": metadata_text("torch"), "RECORD": ""}.get(filename)

    def locate_file(self, path: Any) -> Path:
        """Return where a file of it would be."""
        return Path(__file__).parents[2] / path

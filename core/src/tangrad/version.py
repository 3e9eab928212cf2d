"""Versions, as `torch.version` tells them."""

from __future__ import annotations

from tangrad import __version__ as __version__

debug = False
# None where the core knows of no such part: a package that brings one tells its own version.
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str | None = None

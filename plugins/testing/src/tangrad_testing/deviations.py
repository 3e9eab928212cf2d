"""Where tangrad departs from PyTorch on purpose, on every device: test name patterns and reasons."""

from __future__ import annotations

DEVIATIONS: dict[str, str] = {}

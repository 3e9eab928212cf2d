"""The cases that plugins add to the suite."""

from __future__ import annotations

from collections.abc import Callable


def test_case_of_a_plugin(plugin_case: Callable[[str], None], device: str) -> None:
    plugin_case(device)

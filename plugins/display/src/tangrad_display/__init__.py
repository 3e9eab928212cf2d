"""What one sees of tensors, models and loops: `tangrad.display`, and `tangrad.plot`.

Notebooks show tensors and modules by it once the package is installed; `TANGRAD_DISPLAY=plain` in
the environment, or `rich(False)`, has them show plain text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_display.figures import Statistics, statistics
    from tangrad_display.modules import module_html as module
    from tangrad_display.progress_line import progress
    from tangrad_display.settings import is_rich, rich
    from tangrad_display.tensors import tensor_html as tensor

API = 1

__all__ = ["Statistics", "is_rich", "module", "progress", "rich", "statistics", "tensor"]

# The command `summary` loads this module with every command: the others wait.
_WHERE = {
    "Statistics": "figures:Statistics",
    "is_rich": "settings:is_rich",
    "module": "modules:module_html",
    "progress": "progress_line:progress",
    "rich": "settings:rich",
    "statistics": "figures:statistics",
    "tensor": "tensors:tensor_html",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _WHERE:
        raise AttributeError(f"module 'tangrad.display' has no attribute '{name}'")
    module, _, attribute = _WHERE[name].partition(":")
    value = getattr(importlib.import_module(f"tangrad_display.{module}"), attribute)
    globals()[name] = value
    return value

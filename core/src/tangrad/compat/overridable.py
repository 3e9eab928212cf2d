"""Python functions of the public namespace whose calls others may take over."""

from __future__ import annotations

from typing import Any

from tangrad.tensor.offered import offered


def overridable(function: Any) -> Any:
    """Let objects with `__torch_function__`, and modes, take over calls of a Python function.

    They get what this returns, which is to be shown under the function's name, and the arguments
    as they were written; those of functions in `dispatch/python_forms.py` as PyTorch binds them.
    """
    return offered(function)

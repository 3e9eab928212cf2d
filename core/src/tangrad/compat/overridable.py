"""Python functions of the public namespace whose calls others may take over."""

from __future__ import annotations

from functools import update_wrapper
from typing import Any

from tangrad import _C


def overridable(function: Any) -> Any:
    """Let objects with `__torch_function__`, and modes, take over calls of a Python function.

    They get what this returns, which is to be shown under the function's name, and the arguments
    as they were written; those of functions in `dispatch/python_forms.py` as PyTorch binds them.
    """
    return update_wrapper(_C.Overridable(function), function)

"""`while_loop` where PyTorch has it, beside the other functions of its kind."""

from __future__ import annotations

from tangrad import while_loop

__all__ = ["while_loop"]

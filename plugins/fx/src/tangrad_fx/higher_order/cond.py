"""`cond` where PyTorch has it, beside the other functions of its kind."""

from __future__ import annotations

from tangrad import cond

__all__ = ["cond"]

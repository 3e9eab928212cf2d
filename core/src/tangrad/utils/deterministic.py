"""What deterministic runs do besides choosing algorithms: `torch.utils.deterministic`."""

from __future__ import annotations

import sys
from types import ModuleType

from tangrad import settings


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `empty`, `resize_` and their kin fill new memory in deterministic runs.

        Then, after `use_deterministic_algorithms(True)`, it holds NaN, the largest integer or
        True, so that a program which reads what it never wrote does the same each time.
        """
        return settings.fills_uninitialized_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        settings.fill_uninitialized_memory(mode)


sys.modules[__name__].__class__ = _Deterministic

"""Nothing private is left behind that nothing uses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dead_code", ROOT / "tools" / "dead_code.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dead_code"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files")
def test_every_private_name_is_used(tool: ModuleType) -> None:
    assert tool.dead() == []


def test_private_names_are_found_where_they_are_defined(tool: ModuleType) -> None:
    python = "_LIMIT = 3\ndef _left():\n    pass\n@hook\ndef _taken(): ...\n_add = op(1)\n"
    assert list(tool.private_names(Path("a.py"), python)) == [(1, "_LIMIT"), (2, "_left")]
    compiled = "cdef inline bint plain(object x):\n    return 1\n\ncdef class Left:\n    pass\n"
    assert list(tool.private_names(Path("a.pyx"), compiled)) == [(1, "plain")]

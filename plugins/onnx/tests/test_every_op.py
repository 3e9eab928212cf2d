"""Ops of the table on their samples, as ONNX: a part of them, all with TANGRAD_TESTS=full."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
ops_in_onnx: Any = pytest.importorskip("ops_in_onnx")

SHARE = 1 if os.environ.get("TANGRAD_TESTS") == "full" else 16
PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


def test_ops_are_written_that_the_page_does_not_name() -> None:
    names = [n for n in ops_in_onnx.ops() if zlib.crc32(n.encode()) % SHARE == 0]
    found = ops_in_onnx.sweep(names)
    text = PAGE.read_text("utf-8").partition("<!-- table: missing -->")[2]
    listed = set(re.findall(r"`(\w+)`", text.partition("<!-- table: end -->")[0]))
    refused = {name for name, told in found.items() if any(told.values())}
    assert refused == listed & set(found), "write the table anew: python ops_in_onnx.py"

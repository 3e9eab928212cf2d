"""Ops of the table on their samples, as C: a part of them, all with TANGRAD_TESTS=full."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

import ops_in_c
from compiling import needs_compiler

FULL = os.environ.get("TANGRAD_TESTS") == "full"
SHARE = 1 if FULL else 24
PAGE = Path(__file__).resolve().parents[3] / "docs" / "export.md"

pytestmark = needs_compiler


@needs_compiler
def test_ops_are_computed_as_eager_does() -> None:
    names = [n for n in ops_in_c.ops() if zlib.crc32(n.encode()) % SHARE == 0]
    found = ops_in_c.sweep(names, 2)
    differ = {
        label: text
        for told in found.values()
        for label, text in told.items()
        if text and ops_in_c.reason_of(text) == "differs"
    }
    assert not differ
    text = PAGE.read_text("utf-8").partition("<!-- table: ops -->")[2]
    listed = set(re.findall(r"`(\w+)`", text.partition("<!-- table: end -->")[0]))
    refused = {name for name, told in found.items() if any(told.values())}
    assert refused == listed & set(found), "write the table anew: python ops_in_c.py"

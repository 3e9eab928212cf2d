"""The tables of docs/onnx.md are those that the package gives."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from tangrad_onnx import tables  # noqa: E402

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"
TABLES = {"operators": tables.operators_in, "ops": tables.ops_out}


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() != 28, reason="the page tells of another version of onnx"
)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_one_that_the_package_gives(name: str) -> None:
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- table: end -->)", re.DOTALL)
    text = PAGE.read_text("utf-8")
    lines = "\n".join(TABLES[name]())
    whole = pattern.sub(lambda found: f"{found[1]}{lines}\n{found[2]}", text)
    if os.environ.get("TANGRAD_WRITE_TABLES"):
        PAGE.write_text(whole, "utf-8")
    assert whole == PAGE.read_text("utf-8"), "write it anew with TANGRAD_WRITE_TABLES=1"

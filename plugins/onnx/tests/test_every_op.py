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
sizes_in_onnx: Any = pytest.importorskip("sizes_in_onnx")

SHARE = 1 if os.environ.get("TANGRAD_TESTS") == "full" else 16
PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


def test_ops_are_written_that_the_page_does_not_name() -> None:
    names = [n for n in ops_in_onnx.ops() if zlib.crc32(n.encode()) % SHARE == 0]
    found = ops_in_onnx.sweep(names)
    text = PAGE.read_text("utf-8").partition("<!-- table: missing -->")[2]
    listed = set(re.findall(r"`(\w+)`", text.partition("<!-- table: end -->")[0]))
    refused = {name for name, told in found.items() if any(told.values())}
    assert refused == listed & set(found), "write the table anew: python ops_in_onnx.py"


# These write the numbers of windows, of frequencies and of diagonals by sizes.
@pytest.mark.parametrize(
    "name",
    "_fft_c2r _fft_r2c _fft_c2c adaptive_avg_pool2d adaptive_max_pool2d_with_indices "
    "diag diag_embed diagonal eye im2col unfold".split(),
)
def test_sizes_that_vary_are_written_as_such(name: str) -> None:
    found = sizes_in_onnx.sweep([name])
    assert found or name == "eye"
    assert not any(found.values()), {k: v for k, v in found.items() if v}


def test_no_op_keeps_the_sizes_of_the_example() -> None:
    names = [n for n in ops_in_onnx.ops() if zlib.crc32(n.encode()) % SHARE == 1 % SHARE]
    found = sizes_in_onnx.sweep(names, 2 if SHARE == 1 else 1)
    assert found
    assert not any(found.values()), {k: v for k, v in found.items() if v}

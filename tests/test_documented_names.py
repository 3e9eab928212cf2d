"""The table of names that the docs speak of is that of the docs as they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool():
    """The script that writes the table."""
    pytest.importorskip("torch")
    place = ROOT / "tools" / "documented_names.py"
    spec = importlib.util.spec_from_file_location("documented_names", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date(tool) -> None:
    assert tool.TARGET.read_text("utf-8") == tool.written(), "run python tools/documented_names.py"


def test_every_anchor_is_a_heading_of_the_page(tool) -> None:
    from tangrad.compat.documented_names import LIBRARIES, SECTIONS

    headings = {anchor for anchor, _ in tool.sections(tool.DEVIATIONS.read_text("utf-8"))}
    assert set(SECTIONS) <= headings
    assert "timm" in LIBRARIES.split()


def test_names_in_blocks_of_code_do_not_count(tool) -> None:
    page = "# T\n\n## One, two\nOf `Tensor.add` and `nn.Linear(3)`.\n```python\n`ones`\n```\n"
    ((anchor, text),) = tool.sections(page)
    assert anchor == "one-two"
    assert tool.names_in(text) == ["Tensor.add", "nn.Linear"]

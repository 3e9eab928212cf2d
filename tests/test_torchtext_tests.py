"""The tool that runs torchtext's own tests counts what it should, and writes its table."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import torchtext_tests as tool  # noqa: E402


def failed(kind: str, text: str) -> dict[str, str]:
    return {"verdict": "error", "kind": kind, "text": text}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"verdict": "pass"}, ""),
        ({"verdict": "skip"}, "skipped"),
        ({"verdict": "hang"}, "hang"),
        (failed("ConnectionError", "Max retries exceeded with url"), "network"),
        (failed("ModuleNotFoundError", "No module named 'spacy'"), "library"),
        (failed("RuntimeError", "Token a not found"), "raised"),
        ({"verdict": "fail", "kind": "AssertionError", "text": "1 != 2"}, "value"),
    ],
)
def test_a_failure_has_a_cause(entry: dict[str, str], expected: str) -> None:
    assert tool.why(entry) == expected


def test_the_table_adds_up_and_stands_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tool.table({"vocab": Counter({"": 3, "raised": 1}), "the rest": Counter({"": 4})})
    assert "| vocab | 4 | 3 | 75.0 | 1 |" in text
    assert "| all | 8 | 7 | 87.5 | 1 |" in text
    page = tmp_path / "text.md"
    page.write_text(f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n")
    monkeypatch.setattr(tool, "PAGE", page)
    tool.write(text)
    assert page.read_text() == f"before\n{tool.BEGIN}\n{text}\n{tool.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no marks"):
        tool.write(text)


def test_the_page_has_a_table_in_which_the_goal_is_reached() -> None:
    rows = [line.split("|") for line in tool.PAGE.read_text("utf-8").splitlines() if "|" in line]
    counts = {row[1].strip(): row[2:4] for row in rows if len(row) > 4}
    ran, passed = (sum(int(counts[name][k]) for name in tool.GOAL) for k in (0, 1))
    assert 100 * passed / ran >= tool.LEAST

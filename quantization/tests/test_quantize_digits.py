"""The example: digits are read as well with integers, in a third of the bytes."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    where = ROOT / "examples" / "quantize_digits.py"
    spec = importlib.util.spec_from_file_location("quantize_digits", where)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    sys.modules.pop("digits", None)


def test_accuracy_stays_and_bytes_shrink(example, tmp_path):
    made = example.main(["--epochs", "4", "--report", str(tmp_path / "report.html")])
    rows = made["rows"]
    assert rows["float"][0] > 0.95
    assert rows["float"][0] - rows["static int8"][0] <= 0.01
    assert rows["float"][0] - rows["trained int8"][0] <= 0.01
    assert rows["static int8"][1] < 0.6 * rows["float"][1]
    assert [row.name for row in made["report"].layers] == ["1", "5", "10", "12"]
    assert "<svg" in (tmp_path / "report.html").read_text()

"""The documentation tells the truth: its Python blocks run, file by file and in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def program(document: Path) -> str:
    """Return the document's Python blocks on the lines where they stand in it."""
    text = document.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if BLOCK.search(path.read_text("utf-8"))], ids=name
)
def test_the_python_blocks_of_a_document_run(document: Path, tmp_path: Path) -> None:
    script = tmp_path / document.with_suffix(".py").name
    script.write_text(program(document), "utf-8")
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert outcome.returncode == 0, f"lines as in {name(document)}:\n{outcome.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text("utf-8"))
    assert not [target for target in targets if not (document.parent / target).exists()]


def test_continuous_integration_runs_the_test_command_of_the_readme() -> None:
    command = "pip install --quiet tox && tox run -e core"
    assert f"\n{command}\n" in (ROOT / "README.md").read_text("utf-8")
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text("utf-8")

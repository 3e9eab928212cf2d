"""The documentation tells the truth: its blocks run, file by file and in order.

A block whose first line is a comment with a file's name is that file: a document can show a whole
package. Its modules are importable and its entry points are found, as if it were installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.website.documents import broken_links

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?:python|toml|c)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?:#|/\*) (\S+\.(?:py|toml|c))(?: \*/)?\n")
# A document of one package says so: <!-- needs tangrad-x -->.
NEEDS = re.compile(r"^<!-- needs (\S+) -->$", re.MULTILINE)


def program(document: Path) -> str:
    """Return the statements of the document's Python blocks, on the lines where they stand."""
    text = document.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        if block.group().startswith("```python") and not FILE_NAME.match(block.group(1)):
            first = text.count("\n", 0, block.start(1))
            code = block.group(1).splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines).rstrip()


def write_files(document: Path, folder: Path) -> None:
    """Write the files that the document shows and register its package's entry points."""
    for block in BLOCK.finditer(document.read_text("utf-8")):
        if named := FILE_NAME.match(block.group(1)):
            # The last part of the path: the folder stands for an installed package's.
            target = folder / Path(named.group(1)).name
            target.write_text(block.group(1), "utf-8")
            if target.name == "pyproject.toml":
                write_metadata(tomllib.loads(block.group(1))["project"], folder)


def write_metadata(project: dict, folder: Path) -> None:
    name, version = project["name"], project["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project.get("entry-points", {})
    entries = [
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in points.items())])
        for group, points in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(entries) + "\n")


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", list(filter(program, DOCUMENTS)), ids=name)
def test_the_python_blocks_of_a_document_run(document: Path, tmp_path: Path) -> None:
    for package in NEEDS.findall(document.read_text("utf-8")):
        if find_spec(package.replace("-", "_")) is None:
            pytest.skip(f"{package} is not installed")
    write_files(document, tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # documents run in a clone's root
    script = tmp_path / "document.py"
    script.write_text(program(document), "utf-8")
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert outcome.returncode == 0, f"lines as in {name(document)}:\n{outcome.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert not broken_links(name(document))


def test_continuous_integration_runs_the_test_command_of_the_readme() -> None:
    command = "pip install --quiet tox && tox run -e ci"
    assert f"\n{command}\n" in (ROOT / "README.md").read_text("utf-8")
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text("utf-8")

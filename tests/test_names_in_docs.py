"""Whatever the docs put in back quotes as ours stands in the code: a file, a folder, or a name."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = {".py", ".pyx", ".pxi", ".pxd", ".pyi", ".c", ".h", ".hpp", ".cpp", ".cu", ".cl", ".sh"}
DATA = {".toml", ".json", ".ini", ".in", ".txt"}
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
# A word of plain English is no sign of anything; a name of ours has an underscore or a suffix.
FILE = re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:py|pyx|pxi|pxd|c|h|hpp)\b")
NAME = re.compile(r"\b_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
# Pages that name the files and names of others, of PyTorch's repository above all.
OF_OTHERS = {
    "docs/deviations.md",
    "docs/distributed.md",
    "docs/libraries.md",
    "docs/pytorch-script-tests.md",
    "docs/pytorch-tests.md",
    "docs/text.md",
}
# Written when a package is built; a function whose name ends like a file's.
NO_FILES = {"_index.py", "tangrad.export.c"}
# Names that the reader writes, or that others define, by page.
KNOWN = {
    "docs/add-a-device.md": {"is_box"},  # follows from the name of the page's device
    "docs/cpu.md": {"NAME.c"},
    "docs/export.md": {"tiny_run", "tiny.c", "name.py"},  # follow from the name of the page's file
    "docs/releasing.md": {"manylinux_2_28"},
    "docs/quantization.md": {
        "conv2d_unpack_sizes",  # private ops of PyTorch that are not there
        "int4mm_packed_weight_cpu",
        "make_quantized_cell_params",
        "_legacy",
    },
    "docs/script.md": {"_ignore_context"},
}


def tracked() -> list[str]:
    """Return the repository's files; none where it is no clone."""
    try:
        return subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


@functools.cache
def known() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of files, and every word of the code with its files' stems and folders."""
    files, words = set(), set()
    for path in map(Path, tracked()):
        files.add(path.name)
        words.update(path.parts, {path.stem})
        is_code = path.suffix in CODE | DATA and path.parts[0] != "docs"
        if is_code and path.name != Path(__file__).name and (ROOT / path).exists():
            words.update(re.findall(r"\w+", (ROOT / path).read_text("utf-8", "ignore")))
    return frozenset(files), frozenset(words)


def unknown(page: str) -> list[str]:
    """Return the files and names that a page quotes and the code does not have."""
    files, words = known()
    quoted = QUOTED.findall(BLOCK.sub("", (ROOT / page).read_text("utf-8")))
    found = {name for text in quoted for name in FILE.findall(text) if name not in files}
    found |= {name for text in quoted for name in NAME.findall(text) if name not in words}
    return sorted(found - NO_FILES - KNOWN.get(page, set()))


PAGES = [page for page in tracked() if page.endswith(".md") and page not in OF_OTHERS]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_quotes_is_there(page: str) -> None:
    assert not unknown(page)


def test_exceptions_are_still_needed() -> None:
    files, words = known()
    for page, names in KNOWN.items():
        text = (ROOT / page).read_text("utf-8")
        assert {name for name in names if name not in text or name in words - files} == set(), page

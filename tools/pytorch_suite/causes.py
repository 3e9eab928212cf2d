"""Why a test that passes on PyTorch does not pass here, and what a run of many came to."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

# In the order of the page's columns.
CAUSES = {
    "value": "another value, shape, dtype or layout",
    "accepted": "accepted here, an error there",
    "raised": "an error here, none there",
    "name": "a public name is missing",
    "words": "the words of a message or a warning, and printed text",
    "hang": "over the time for a test",
    "crash": "the process ended",
    "skipped": "the test skipped itself, or could not be loaded",
    "apart": "asks for nested tensors, or is named after CSC, BSR or BSC, whether it passes or not",
    "private": "asks for a private name, as listed, or for a part of PyTorch's build",
}
# What counts against no share: it is not asked for.
OMITTED = ("apart", "private")
LIST = Path(__file__).with_name("private_names.txt")
MISSING = ("AttributeError", "ImportError", "ModuleNotFoundError")
MISSED = re.compile(
    r"cannot import name '(\w+)'|No module named '([\w.]+)'|"
    r"(?:has no|does not have the) attribute '(\w+)'|"
    r"has no '(?:tangrad|torch)([\w.]+)'"
)
# What a test, which expects another error, has met in place of it.
MET = re.compile(r"does not match (?:\"private name ([\w.]+)\"|\".*has no 'tangrad([\w.]+)')")
APART = re.compile(r"nested_tensor")
NAMED_APART = re.compile(r"Sparse(?:CSC|BSR|BSC)")
# Why a test skips itself where a part of PyTorch's own build is not there.
BUILD = re.compile(r"MKL-?DNN|NNPACK|ITT is required", re.IGNORECASE)
# What answers or stands for private modules, asked or used as what it is not.
STAND_IN = re.compile(
    r"'types.SimpleNamespace' object has no attribute|StubModule|_TorchScriptTesting"
)
OWNER = re.compile(r"module '([\w.]+)' has no attribute")
WORDS = re.compile(r"does not match|String comparison|warning|not triggered|re\.compile")


@cache
def private_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the listed names, dotted, and the last part of each."""
    lines = [line.partition("#")[0].strip() for line in LIST.read_text("utf-8").splitlines()]
    names = frozenset(line for line in lines if line)
    return names, frozenset(name.rpartition(".")[2] for name in names)


def is_private(entry: dict[str, Any]) -> bool:
    """Tell whether a failure asks for a listed name, or for something below it."""
    names, last = private_names()
    kind, asked = entry.get("kind", ""), entry.get("name", "")
    if kind == "PrivateName":
        return _is_below(asked, names)
    if kind == "OSError" and "Could not load this library" in entry.get("text", ""):
        return True  # it is part of PyTorch's own build
    if STAND_IN.search(entry.get("text", "").partition("\n")[0]):
        return True
    met = MET.search(entry.get("text", ""))
    if kind in MISSING or "Missing" in kind or met:
        found = met or MISSED.search(entry.get("text", ""))
        missed = next(filter(None, found.groups())) if found else asked
        missed = f"torch{missed}" if missed.startswith(".") else missed
        owner = OWNER.search(entry.get("text", ""))
        if owner and _is_below(owner[1], names):
            return True
        if any(missed.startswith(f"{name}.") for name in names if name.startswith("torch._")):
            return True
        return missed in names or missed.rpartition(".")[2] in last
    return False


def _is_below(name: str, names: frozenset[str]) -> bool:
    """Tell whether a dotted name is a listed one, or below it."""
    parts = name.split(".")
    return any(".".join(parts[:n]) in names for n in range(1, len(parts) + 1))


def cause(entry: dict[str, Any] | None) -> str:
    """Return the cause of a verdict, one of `CAUSES`; "" if the test passed."""
    verdict = "absent" if entry is None else entry["verdict"]
    if verdict == "pass":
        return ""
    if verdict in ("hang", "crash"):
        return str(verdict)
    if verdict not in ("fail", "error"):
        own = verdict == "skip" and BUILD.search(entry.get("text", "") if entry else "")
        return "private" if own else "skipped"
    assert entry is not None
    kind, text = entry.get("kind", ""), entry.get("text", "").strip()
    if is_private(entry):
        return "private"
    if kind not in ("AssertionError", "TypeError") and APART.search(text.partition("\n")[0]):
        return "apart"
    if kind in (*MISSING, "PrivateName"):
        return "name"
    if kind != "AssertionError":
        return "raised"
    if "not raised" in text:
        return "accepted"
    return "words" if WORDS.search(text.partition("\n")[0]) else "value"


def compare(
    theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return, of the tests that pass on PyTorch and ran here, {name: {"cause", ...}}.

    Args:
        theirs: a file's verdicts on PyTorch, by test.
        ours: its verdicts on tangrad; a line `<load>` says that it could not be loaded.
    """
    unloaded = ours.get("<load>")
    found = {}
    for name, entry in theirs.items():
        if name.startswith("<") or entry["verdict"] != "pass":
            continue
        here = unloaded or ours.get(name)
        if here is None or here["verdict"] == "start":  # the time was up before it
            continue
        details = {key: here.get(key, "") for key in ("kind", "text", "at", "raised")}
        why = "apart" if NAMED_APART.search(name) else cause(here)
        found[name] = {"cause": why, **(details if why else {})}
    return found


def broken(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the tests that passed in the report `before` and fail in the report `now`."""
    return [
        f"{file}::{name}: {test['cause']} {test['kind']} {test['text'].partition(chr(10))[0][:100]}"
        for file, tests in now["files"].items()
        for name, test in tests.items()
        if test["cause"] and before["files"].get(file, {}).get(name, {}).get("cause") == ""
    ]

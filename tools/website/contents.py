"""What the site has besides generated pages: which documents, in which order, under which path."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The sidebar: captions and pages. A page of docs/ that is missing here is an error.
SIDEBAR: dict[str, list[str]] = {
    "Begin": ["start", "surprises", "packages", "libraries"],
    "Tutorials": [
        *("train-digits", "train-char-gpt", "move-a-program", "train-in-processes"),
        *("display", "profiling", "quantization", "script", "export", "onnx", "text"),
    ],
    "Extend": [
        *("extend", "add-an-op", "first-device", "add-a-device", "add-a-compiling-device"),
        *("add-a-dtype", "add-a-layout", "add-a-feature", "which-fields"),
    ],
    "Reference": [
        *("names/index", "ops/index", "deviations-table", "deviations", "api-status"),
        *("benchmarks", "pytorch-tests", "pytorch-script-tests", "changelog"),
    ],
    "Why": [
        *("architecture", "from-scratch", "fast-paths", "allocator", "cpu", "cuda", "jit"),
        *("sparse", "distributed", "scaling", "site", "releasing", "security", "contributing"),
    ],
    "Packages": [],  # the README of each, by name
}
# Documents outside docs/, and their pages.
ELSEWHERE = {
    "README.md": "readme",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "backend_cuda/VERIFIED.md": "packages/cuda-verified",
}


def documents() -> dict[str, str]:
    """Return {path in the repository: page} of all documents in Markdown."""
    pages = {f"docs/{path.name}": path.stem for path in sorted((ROOT / "docs").glob("*.md"))}
    for path in package_readmes():
        pages[path] = f"packages/{package_name(path)}"
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        pages[str(path.relative_to(ROOT))] = f"files/{path.parent.name}"
    return {**pages, **ELSEWHERE}


def package_readmes() -> list[str]:
    """Return the paths of the packages' descriptions."""
    found = [path for path in ROOT.glob("*/README.md") if (path.parent / "pyproject.toml").exists()]
    found += ROOT.glob("plugins/*/README.md")
    found += ROOT.glob("backend_*/*/README.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def package_name(readme: str) -> str:
    """Return what a package is called in the sidebar: its folder."""
    return "-".join(Path(readme).parent.parts).removeprefix("plugins-").replace("_", "-")


def toctrees() -> list[str]:
    """Return the lines of the sidebar.

    Raises:
        LookupError: a page of docs/ has no place.
    """
    packages = [f"packages/{package_name(path)}" for path in package_readmes()]
    groups = {**SIDEBAR, "Packages": packages}
    placed = {"index", *(page for pages in groups.values() for page in pages)}
    missing = {path.stem for path in (ROOT / "docs").glob("*.md")} - placed
    if missing:
        raise LookupError(f"no place in the sidebar: {', '.join(sorted(missing))} ({__file__})")
    lines = []
    for caption, pages in groups.items():
        lines += ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
    return lines

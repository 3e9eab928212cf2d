"""Write what files of the whole repository say of each package: `python tools/package_tables.py`.

A package describes itself once, in its own pyproject.toml; all keys are optional::

    [tool.tangrad.package]
    about = "..."                # what it is, for docs/architecture.md; or else its description
    installed-with = "standard"  # the smallest set that has it: "tangrad" (always), "standard",
                                 # "all", or "nothing": it comes with those that require it
    extra-options = ["pycuda"]   # extras of its own that its extra of `tangrad` asks for
    type-checked = false         # whether mypy reads its modules
    test-paths = ["tests"]       # folders with modules that several of its test files import
    test-note = "with MPI"       # what `tox list` says besides

From it follow the extras and the settings of mypy and pytest in the root pyproject.toml, the
factors in tox.ini, and the tables in docs/packages.md and docs/architecture.md. They stand between
marks; `--check` compares, and writes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TANGRAD, STANDARD, ALL, NOTHING = "tangrad", "standard", "all", "nothing"
KEYS = {"about", "installed-with", "extra-options", "type-checked", "test-paths", "test-note"}
BEGIN = "packages: {} (tools/package_tables.py)"
END = "packages: end"
# As people write them, where a requirement is in lower case.
NAMES = {"numpy": "NumPy", "pillow": "Pillow"}


@dataclass(frozen=True)
class Described:
    """Say of one package what its pyproject.toml does.

    Attributes:
        name: of the distribution.
        folder: where it stands, from the repository's root.
        description: in one line.
        about: what it is, in Markdown, with links from docs/.
        installed_with: the smallest set of packages that has it.
        extra_options: extras of its own that its extra asks for.
        is_type_checked: whether mypy reads its modules.
        test_paths: folders with modules of its tests, from the repository's root.
        test_note: what is said of its tests besides.
        requires: distributions that are installed with it.
        requires_to_build: packages of ours that must be there to build it.
        extras: names of its own extras.
        modules: its top-level modules but `tangrad`.
        compiled: dotted names of its modules in Cython.
        has_tests: whether it has tests of its own.
        version: of the distribution.
    """

    name: str
    folder: Path
    description: str
    about: str
    installed_with: str
    extra_options: tuple[str, ...]
    is_type_checked: bool
    test_paths: tuple[str, ...]
    test_note: str
    requires: tuple[str, ...]
    requires_to_build: tuple[str, ...]
    extras: tuple[str, ...]
    modules: tuple[str, ...]
    compiled: tuple[str, ...]
    has_tests: bool
    version: str

    @property
    def extra(self) -> str:
        """Return its name among the extras of `tangrad`."""
        return self.name.removeprefix("tangrad-")

    @property
    def pinned(self) -> str:
        """Return the requirement of its minor version."""
        minor = self.version.rpartition(".")[0]
        return f"{self.name}~={minor}.0"


def read_package(folder: Path, root: Path = ROOT) -> Described:
    """Read how a package describes itself.

    Args:
        folder: the package's.
        root: the repository's.

    Raises:
        ValueError: a key or a value of its table means nothing.
    """
    document = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    project = document["project"]
    table = document.get("tool", {}).get("tangrad", {}).get("package", {})
    place = folder.relative_to(root)
    if unknown := set(table) - KEYS:
        raise ValueError(f"{place}: [tool.tangrad.package] knows no {', '.join(sorted(unknown))}")
    installed_with = table.get("installed-with", ALL)
    if installed_with not in {TANGRAD, STANDARD, ALL, NOTHING}:
        raise ValueError(f"{place}: installed-with is tangrad, standard, all or nothing")
    source = folder / "src"
    compiled = [path.relative_to(source) for path in sorted(source.rglob("*.pyx"))]
    return Described(
        name=project["name"],
        folder=place,
        description=project["description"],
        about=table.get("about", project["description"]),
        installed_with=installed_with,
        extra_options=tuple(table.get("extra-options", ())),
        is_type_checked=table.get("type-checked", True),
        test_paths=tuple(f"{place}/{path}" for path in table.get("test-paths", ())),
        test_note=table.get("test-note", ""),
        requires=tuple(map(_plain_name, project.get("dependencies", ()))),
        requires_to_build=_ours(map(_plain_name, document["build-system"]["requires"])),
        extras=tuple(project.get("optional-dependencies", ())),
        modules=tuple(
            path.name
            for path in sorted(source.iterdir())
            if path.name != "tangrad" and (path / "__init__.py").exists()
        ),
        compiled=tuple(".".join(path.with_suffix("").parts) for path in compiled),
        has_tests=(folder / "tests").is_dir(),
        version=project["version"],
    )


def _plain_name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _ours(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith("tangrad"))


def read_packages() -> list[Described]:
    """Return all packages of this repository but the root's, the core first."""
    from build_wheelhouse import package_folders

    return [read_package(folder) for folder in package_folders() if folder != ROOT]


def dependencies(packages: Sequence[Described]) -> list[str]:
    """Return the lines of what `tangrad` requires."""
    required = sorted(package.pinned for package in packages if package.installed_with == TANGRAD)
    return [*_array("dependencies", required)]


def extras(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the extras: one a package, and those of many."""
    by_name = sorted(packages, key=lambda package: package.name)
    single = [package for package in by_name if package.installed_with in {STANDARD, ALL}]
    lines = []
    for package in single:
        options = f"[{','.join(package.extra_options)}]" if package.extra_options else ""
        pinned = package.pinned.replace("~=", f"{options}~=")
        lines.append(f'{package.extra} = ["{pinned}"]')
    usual = [package.pinned for package in single if package.installed_with == STANDARD]
    return [
        *lines,
        "# What a program written for PyTorch expects to find.",
        *_array(STANDARD, usual),
        "# Every package; it installs anywhere, with or without a GPU or a compiler.",
        *_array(ALL, [package.pinned for package in single]),
    ]


def proved(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the tests that are the distribution's own: of what it requires."""
    required = [package for package in packages if package.installed_with == TANGRAD]
    folders = [f"{p.folder.as_posix()}/tests" for p in required if p.extra != "core"]
    return _array("tests", ["tests", *folders])


def typed(packages: Sequence[Described]) -> list[str]:
    """Return the lines of what mypy reads."""
    modules = sorted(m for package in packages if package.is_type_checked for m in package.modules)
    paths = [f".typed/{module}" for module in ("tangrad", *modules)]
    return _array("files", [*paths, "build_wheelhouse.py", "ci", "examples/digits.py"])


def untyped(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the compiled modules, of which mypy knows no types."""
    return _array("module", sorted(name for package in packages for name in package.compiled))


def test_paths(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the folders in which pytest finds modules that tests share."""
    paths = [path for package in packages for path in package.test_paths]
    return _array("pythonpath", [".", "tests", "benchmarks", *paths])


def factors(packages: Sequence[Described]) -> list[str]:
    """Return the lines of tox's factors."""
    tested = [package for package in packages if package.has_tests and package.extra != "core"]
    notes = {p.extra: f"; {p.test_note}" if p.test_note else "" for p in tested}
    return [
        f"    {extra.replace('-', '_')}: run the tests of tangrad-{extra}{note}"
        for extra, note in notes.items()
    ]


def linted(packages: Sequence[Described]) -> list[str]:
    """Return the line that checks the style of Cython."""
    folders = [f"{package.folder.as_posix()}/src" for package in packages if package.compiled]
    return [f"    cython-lint {' '.join(folders)}"]


def listed(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the table in docs/packages.md."""
    rows = [
        f"| [`{p.folder.as_posix()}/`](../{p.folder.as_posix()}/README.md) | `{p.name}` "
        f"| {p.description} | {installed_by(p)} |"
        for p in packages
    ]
    return ["| folder | package | is | installed by |", "|---|---|---|---|", *rows]


def installed_by(package: Described) -> str:
    """Return the commands that install a package, in Markdown."""
    if package.installed_with == TANGRAD:
        return "`tangrad`"
    if package.installed_with == NOTHING:
        return "what needs it"
    others = ", `tangrad[standard]`" if package.installed_with == STANDARD else ""
    return f"`tangrad[{package.extra}]`{others}"


def architecture(packages: Sequence[Described]) -> list[str]:
    """Return the lines of the table in docs/architecture.md."""
    rows = [
        f"| [`{p.folder.as_posix()}/`](../{p.folder.as_posix()}/README.md) → `{p.name}` "
        f"| {p.about} | {needed(p)} |"
        for p in packages
    ]
    return ["| package | is | depends on |", "|---|---|---|", *rows]


def needed(package: Described) -> str:
    """Return what a package depends on, in Markdown."""
    names = [f"`{n}`" if n.startswith("tangrad") else NAMES.get(n, n) for n in package.requires]
    parts = [", ".join(names) or "nothing"]
    only = [f"`{name}`" for name in package.requires_to_build if name not in package.requires]
    parts += [f"to build also {', '.join(only)}"] if only else []
    parts += [f"extras: {', '.join(package.extras)}"] if package.extras else []
    return "; ".join(parts)


def _array(name: str, values: Sequence[str]) -> list[str]:
    """Return the lines of an array in TOML."""
    return [f"{name} = [", *(f'    "{value}",' for value in values), "]"]


Writer = Callable[[Sequence[Described]], list[str]]
#: What stands where: {file: {name of the mark: what makes its lines}}.
TABLES: dict[str, dict[str, Writer]] = {
    "pyproject.toml": {
        "dependencies": dependencies,
        "extras": extras,
        "tests": proved,
        "mypy": typed,
        "compiled": untyped,
        "pytest": test_paths,
    },
    "tox.ini": {"factors": factors, "cython": linted},
    "docs/packages.md": {"table": listed},
    "docs/architecture.md": {"table": architecture},
}


def written(text: str, file: str, tables: dict[str, Any], packages: Sequence[Described]) -> str:
    """Return a file's text with what is between its marks made anew.

    Args:
        text: of the file.
        file: its name, for errors.
        tables: {name of the mark: what makes its lines}.
        packages: all of the repository.

    Raises:
        ValueError: a mark is missing.
    """
    for name, lines_of in tables.items():
        marked = re.compile(
            rf"(^[^\n]*{re.escape(BEGIN.format(name))}[^\n]*\n).*?(^[^\n]*{END})",
            re.MULTILINE | re.DOTALL,
        )
        if not marked.search(text):
            raise ValueError(f"{file} has no lines between marks for {name}")
        lines = "".join(f"{line}\n" for line in lines_of(packages))
        text = marked.sub(lambda found, lines=lines: found[1] + lines + found[2], text, count=1)  # type: ignore[misc]
    return text


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return {file: its text made anew} of the files that differ from what packages say."""
    packages = read_packages()
    found = {}
    for file, tables in TABLES.items():
        text = (root / file).read_text("utf-8")
        made = written(text, file, tables, packages)
        if made != text:
            found[root / file] = made
    return found


def main(words: Sequence[str]) -> int:
    """Write the files that differ; or tell them, with --check, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args(words).check
    differing = stale()
    for path, text in differing.items():
        print(f"{'differs' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, "utf-8")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

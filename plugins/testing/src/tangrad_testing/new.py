"""`python -m tangrad new KIND NAME`: a package that builds and passes its tests, to start from."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

PLUGINS = "tangrad.plugins"
# Kind: (what it is, entry-point group, entry point).
KINDS: dict[str, tuple[str, str, str]] = {
    "device": ("Device '@name@' of tangrad", "tangrad.devices", '@name@ = "@module@:@Class@"'),
    "op": ("Op '@name@' of tangrad", PLUGINS, '@name@ = "@module@"'),
    "dtype": ("Dtype '@name@' of tangrad", PLUGINS, '@name@ = "@module@"'),
    "layout": ("Layout '@name@' of tangrad", PLUGINS, '@name@ = "@module@"'),
    "plugin": ("A feature '@name@' of tangrad", PLUGINS, '@name@ = "@module@"'),
}
# What begins in a checkout of tangrad's own repository, beside its other packages.
PACKAGE = "package"
OURS = ("A part '@name@' of tangrad", "tangrad.namespaces", '@name@ = "@module@"')
TABLES = Path("tools") / "package_tables.py"
SUFFIX = ".in"


def add_new(commands: Any) -> None:
    """Add the command to those of `python -m tangrad`."""
    parser = commands.add_parser("new", help="write a package that extends tangrad")
    kinds = [*KINDS, PACKAGE]
    told = f"{', '.join(KINDS)}; or {PACKAGE}, of tangrad's own repository"
    parser.add_argument("kind", choices=kinds, metavar="KIND", help=told)
    parser.add_argument("name", metavar="NAME", help="of the device, op, ...: an identifier")
    parser.add_argument(
        "--into",
        metavar="FOLDER",
        help="where the package's folder is made (default: here; of a package: plugins)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0, or 1 if nothing was written."""
    try:
        if options.kind == PACKAGE:
            folder = write_package(options.name, Path(options.into or "plugins"))
        else:
            folder = write(options.kind, options.name, Path(options.into or "."))
    except (ValueError, OSError) as error:
        print(f"python -m tangrad new: {error}", file=sys.stderr)
        return 1
    extra = "" if options.kind == PACKAGE else "[test]"
    print(f"wrote {folder}; now: pip install -e '{folder}{extra}' && pytest {folder}")
    return 0


def write(kind: str, name: str, into: Path) -> Path:
    """Write a package and return its folder.

    Args:
        kind: one of `KINDS`.
        name: of what it brings, in lower case.
        into: where its folder is made.

    Raises:
        ValueError: the name is no identifier in lower case, or is taken.
        FileExistsError: the folder is there already.
    """
    check_name(kind, name)
    words = words_for(kind, name)
    folder = into / words["@distribution@"]
    if folder.exists():
        raise FileExistsError(f"{folder} exists already: nothing was written")
    for source in ("common", kind):
        fill(folder, source, words)
    return folder


def write_package(name: str, plugins: Path) -> Path:
    """Write a package of tangrad's own repository, with the lines of others that speak of it.

    Args:
        name: of the module below `tangrad`, in lower case.
        plugins: the folder of packages in a checkout of the repository.

    Raises:
        ValueError: the name is no identifier in lower case, or is taken; or `plugins` is in no
            checkout.
        FileExistsError: the folder is there already.
    """
    check_name(PACKAGE, name)
    root = plugins.resolve().parent
    if not (root / TABLES).exists():
        raise ValueError(f"{plugins} is no folder of packages in a checkout of tangrad")
    folder = plugins / name
    if folder.exists():
        raise FileExistsError(f"{folder} exists already: nothing was written")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    words = {
        **words_for(PACKAGE, name),
        "@extra@": name.replace("_", "-"),
        "@version@": project["version"],
        "@minor@": project["version"].rpartition(".")[0],
    }
    fill(folder, PACKAGE, words)
    (folder / "LICENSE").write_bytes((root / "LICENSE").read_bytes())
    subprocess.run([sys.executable, str(root / TABLES)], check=True, stdout=subprocess.DEVNULL)
    return folder


def fill(folder: Path, source: str, words: dict[str, str]) -> None:
    """Write the files of one folder of templates."""
    for path, text in templates_in(resources.files("tangrad_testing") / "templates" / source):
        target = folder / filled(path, words)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(text, words), "utf-8")


def check_name(kind: str, name: str) -> None:
    """Refuse names that cannot be used.

    Raises:
        ValueError: see `write`.
    """
    import keyword

    import tangrad
    from tangrad.plugin import all_ops, device_names

    if not name.isidentifier() or name != name.lower() or keyword.iskeyword(name):
        raise ValueError(f"'{name}' is no identifier in lower case, such as 'my_{kind}'")
    if name.startswith("_"):
        raise ValueError(f"'{name}' starts with an underscore: such names are private")
    taken = {"device": name in device_names(), "op": name in all_ops(), "plugin": False}
    if taken.get(kind, hasattr(tangrad, name)):
        raise ValueError(f"{kind} '{name}' exists already")


def words_for(kind: str, name: str) -> dict[str, str]:
    """Return what stands for each placeholder."""
    description, group, entry = OURS if kind == PACKAGE else KINDS[kind]
    words = {
        "@description@": description,
        "@group@": group,
        "@entry@": entry,
        "@module@": f"tangrad_{name}",
        "@distribution@": f"tangrad-{name.replace('_', '-')}",
        "@Class@": "".join(part.capitalize() for part in name.split("_")),
        "@NAME@": name.upper(),
    }
    return {**words, "@name@": name}


def filled(text: str, words: dict[str, str]) -> str:
    """Put words in the place of placeholders; those that hold others come first."""
    for placeholder, word in words.items():
        text = text.replace(placeholder, word)
    return text


def templates_in(folder: Any, path: str = "") -> list[tuple[str, str]]:
    """Return (path, text) of the templates below a folder."""
    found = []
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        inside = f"{path}/{item.name}" if path else item.name
        if item.is_dir():
            found += templates_in(item, inside)
        elif item.name.endswith(SUFFIX):
            found.append((inside.removesuffix(SUFFIX), item.read_text("utf-8")))
    return found

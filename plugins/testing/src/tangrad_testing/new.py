"""`python -m tangrad new KIND NAME`: a package that builds and passes its tests, to start from."""

from __future__ import annotations

import argparse
import sys
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
SUFFIX = ".in"


def add_new(commands: Any) -> None:
    """Add the command to those of `python -m tangrad`."""
    parser = commands.add_parser("new", help="write a package that extends tangrad")
    parser.add_argument("kind", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("name", metavar="NAME", help="of the device, op, ...: an identifier")
    parser.add_argument(
        "--into", metavar="FOLDER", default=".", help="where the package's folder is made"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0, or 1 if nothing was written."""
    try:
        folder = write(options.kind, options.name, Path(options.into))
    except (ValueError, OSError) as error:
        print(f"python -m tangrad new: {error}", file=sys.stderr)
        return 1
    print(f"wrote {folder}; now: pip install -e '{folder}[test]' && pytest {folder}")
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
    files = resources.files("tangrad_testing") / "templates"
    for source in (files / "common", files / kind):
        for path, text in templates_in(source):
            target = folder / filled(path, words)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(filled(text, words), "utf-8")
    return folder


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
    description, group, entry = KINDS[kind]
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

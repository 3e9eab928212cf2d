"""Write the generated sources of a build: rendered kernel files and the tables of all kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from render import pointwise, reductions
from render.dialect import shared_source
from tangrad.plugin.render import definitions


def write_sources(folder: Path, levels: list[str], handwritten: Iterable[Path]) -> list[Path]:
    """Write all generated C files and return those that are compiled for each level.

    Two others are compiled once: ``tables.c`` and ``special.c``.

    Args:
        folder: where they go; files whose content does not change keep their dates.
        levels: names of the instruction-set levels.
        handwritten: kernel files of the source tree; each ends with a table of its kernels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handwritten = list(handwritten)
    rendered = pointwise.sources() | reductions.render_reductions(replaced(handwritten))
    paths = [write(folder / f"{name}.c", text) for name, text in rendered.items()]
    # Of two kernels for one op and dtype the later wins: that written by hand.
    tables = [path.stem for path in [*paths, *handwritten] if has_table(path)]
    named = named_in([*paths, *handwritten])
    write(folder / "tables.c", tables_source(levels, tables) + fingerprints_source(named))
    write(folder / "special.c", shared_source())
    return paths


def named_in(files: Iterable[Path]) -> set[str]:
    """Return what stands between quotes in C files: the keys of their tables are among it."""
    return {name for path in files for name in re.findall(r'"([^"\n]+)"', path.read_text("utf-8"))}


def fingerprints_source(named: set[str]) -> str:
    """Return the C source that tells for which definitions the kernels are made.

    Args:
        named: the keys of all definitions that have kernels, among whatever else.
    """
    of_key = {definition.key: definition for definition in definitions()}
    lines = ["", "const tgc_fingerprint tgc_fingerprints[] = {"]
    for key in sorted(named & of_key.keys()):
        lines.append(f'    {{"{key}", {of_key[key].fingerprint}u}},')
    return "\n".join([*lines, "    {0, 0}", "};", ""])


def replaced(handwritten: Iterable[Path]) -> set[tuple[str, str]]:
    """Return the (op, dtype) pairs of handwritten kernels, as their tables list them."""
    text = "".join(path.read_text("utf-8") for path in handwritten)
    return set(re.findall(r'\{"([^"]+)", "(\w+)", TGC_', text))


def has_table(path: Path) -> bool:
    """Tell whether a kernel file has a table: some serve other kernel files only."""
    return f"TGC(tgc_table_{path.stem})" in path.read_text("utf-8")


def tables_source(levels: list[str], tables: list[str]) -> str:
    """Return the C source that lists every table of every level."""
    lines = ['#include "tgc.h"', ""]
    for level in levels:
        lines += [f"extern const tgc_kernel tgc_table_{name}_{level}[];" for name in tables]
        names = ", ".join([*(f"tgc_table_{name}_{level}" for name in tables), "0"])
        lines.append(f"static const tgc_kernel *const tables_{level}[] = {{{names}}};")
    names = ", ".join([*(f'"{level}"' for level in levels), "0"])
    lines.append(f"const char *const tgc_level_names[] = {{{names}}};")
    names = ", ".join(f"tables_{level}" for level in levels)
    lines.append(f"const tgc_kernel *const *const tgc_level_tables[] = {{{names}}};")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> Path:
    """Write a file unless it has this content already, so that builds are incremental."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
    return path

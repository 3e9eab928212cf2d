"""Write what docs/deviations.md and docs/libraries.md speak of, for `check-program`.

    python tools/documented_names.py            # writes it
    python tools/documented_names.py --check    # fails if it is out of date

A name stands in back quotes in a section's text, as `compile`, `jit.trace` or `nn.LSTM`; blocks of
code do not count. It is told as PyTorch has it below `torch`, in every namespace that has it.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEVIATIONS = ROOT / "docs" / "deviations.md"
LIBRARIES = ROOT / "docs" / "libraries.md"
TARGET = ROOT / "plugins/torch_surface/src/tangrad/compat/documented_names.py"
# Where a name without a namespace may stand.
PLACES = (
    "",
    "Tensor",
    "nn",
    "nn.functional",
    "nn.utils",
    "optim",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "linalg",
    "fft",
    "special",
    "func",
    "autograd",
    "distributions",
    "distributed",
    "utils.data",
    "amp",
    "ao.quantization",
    "quantization",
)
# Builtins and parts of Python, which texts name too.
NOT_OURS = frozenset({"isinstance", "True", "False", "None", "func", "debug", "X", "inf", "tensor"})
# Sections about every name of a kind, and the names.
KINDS = {
    "random-numbers": "rand rand_like randn randn_like randint randint_like randperm normal"
    " Tensor.normal_ Tensor.uniform_ Tensor.random_ nn.Dropout",
}
# Another thing of the same name.
OTHERS = frozenset({"linalg.cond"})
WIDTH = 100
HEADER = '''"""Names of PyTorch in docs/deviations.md, and libraries in docs/libraries.md.

Written by tools/documented_names.py.
"""

# anchor of a section -> names below `torch`
SECTIONS: dict[str, str] = {
'''
FOOTER = """}

# Packages of which a program gives PyTorch's results.
LIBRARIES = (
"""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield each section's anchor and its text without blocks of code."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        yield anchor_of(title), re.sub(r"```.*?```", "", body, flags=re.DOTALL)


def anchor_of(title: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")


def names_in(text: str) -> list[str]:
    """Return the full names, below `torch`, that a text speaks of."""
    said = set(re.findall(r"`((?:torch|tangrad)?\.?[A-Za-z_][\w.]*)(?:\([^`]*\))?`", text))
    found = set()
    for name in said:
        plain = re.sub(r"^(torch|tangrad)\.", "", name)
        if plain in NOT_OURS or plain.endswith("Error") or plain.startswith("__"):
            continue
        places = ("",) if "." in plain else PLACES
        found |= {full for place in places if exists(full := f"{place}.{plain}".strip("."))}
    return sorted(found - OTHERS)


def exists(name: str) -> bool:
    """Return whether PyTorch, which must be installed, has a name."""
    *path, last = name.split(".")
    value: Any = importlib.import_module("torch")
    for part in path:
        value = getattr(value, part, None)
    return value is not None and hasattr(value, last)


def libraries() -> list[str]:
    """Return the packages of the table of programs that agree."""
    table = LIBRARIES.read_text("utf-8").partition("| library | program |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)


def wrapped(names: list[str], indent: str) -> list[str]:
    """Return the lines of a string of names."""
    lines = textwrap.wrap(" ".join(names), WIDTH - len(indent) - 3)
    return [f'{indent}"{line} "' for line in lines[:-1]] + [f'{indent}"{lines[-1]}"']


def written() -> str:
    """Return the module's text."""
    lines = []
    for anchor, text in sections(DEVIATIONS.read_text("utf-8")):
        names = sorted({*names_in(text), *KINDS.get(anchor, "").split()})
        if names:
            rows = wrapped(names, " " * 8)
            one = f'    "{anchor}": {rows[0].strip()},'
            apart = len(rows) > 1 or len(one) > WIDTH
            lines += [f'    "{anchor}": (', *rows, "    ),"] if apart else [one]
    return "\n".join(
        [HEADER + "\n".join(lines), FOOTER + "\n".join(wrapped(libraries(), "    ")), ")", ""]
    )


def main() -> int:
    """Write the table, or compare it."""
    text = written()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text("utf-8") == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is out of date: run python tools/documented_names.py")
        return 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

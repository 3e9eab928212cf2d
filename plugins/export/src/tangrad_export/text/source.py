"""Sources of functions: of scalars, and of templates, renamed so that many stand in one file."""

from __future__ import annotations

import re
from typing import Any

from tangrad.plugin.render import prelude
from tangrad_export.steps.functions import Function
from tangrad_export.steps.templates import Source
from tangrad_export.steps.vectors import VECTORS, broadcast_product
from tangrad_export.target.dialect import DIALECT
from tangrad_export.text.names import unique

__all__ = ["Functions", "wrapped"]

_WIDTH = 120
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_PLAIN = (
    (r"\(tk_int\)TG_BLOCK \* TG_LANES \+ TG_LANE", "0"),
    (r"\(tk_int\)TG_BLOCKS \* TG_LANES", "1"),
    (r"\(tk_int\)TG_BLOCK\b", "0"),
    (r"\(tk_int\)TG_BLOCKS\b", "1"),
    (r"\bTG_BLOCKS\b", "1"),
    (r"\bTG_BLOCK\b", "0"),
    (r"\bTG_LANES\b", "1"),
    (r"\bTG_LANE\b", "0"),
    (r"\bTG_WARP\b", "1"),
    (r" *\bTG_BARRIER; *", ""),
    (r"\bTG_SHARED_POINTER ", ""),
    (r"\bTG_SHARED ", ""),
    (r"\bTG_GLOBAL ", ""),
    (r"\btk_int\b", "int64_t"),
)


# Templates serve many cases, of which one may not use all variables.
_QUIET = """#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif
"""
_LOUD = """#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
"""


class Functions:
    """The functions that a file defines, each once.

    Args:
        vectors: whether they use vectors of the compiler where it has them.
    """

    def __init__(self, vectors: bool = True) -> None:
        self.vectors = vectors
        self.names: dict[str, str] = {}
        self.texts: list[str] = []
        self._taken: set[str] = set()
        self._sources: dict[str, dict[str, str]] = {}

    def name(self, function: Any) -> str:
        """Return the name of a function, which is defined from now on."""
        key = function.key()
        if key not in self.names:
            if isinstance(function, Function):
                name = unique(f"op_{function.title}", self._taken)
                self.texts.append(function.text.replace("void @(", f"void {name}(", 1))
                self.names[key] = name
            elif isinstance(function, Source):
                self.names[key] = self._source(function)
            else:
                name = unique(f"op_{function.title}", self._taken)
                text = function.text.replace("@", name)
                if "PRODUCT(" in text:
                    text = text.replace("PRODUCT(", f"{self.name(broadcast_product())}(")
                self.texts.append(text)
                self.names[key] = name
        return self.names[key]

    def _source(self, source: Source) -> str:
        known = self._sources.get(source.text)
        own = source.template.name
        if known is None:
            body = source.text.partition(DIALECT.macros())[2] or source.text
            names = set(re.findall(r"\btk_\w+", body)) - {"tk_int"}
            kernels = re.findall(r"static void (\w+)\(", body)
            known = {}
            for name in kernels:
                known[name] = unique(f"op_{name}", self._taken)
                known[f"{name}_numbers"] = f"{known[name]}_numbers"
            for name in sorted(names - set(known)):
                known[name] = unique(name, self._taken)
            self._sources[source.text] = known
            self.texts.append(_renamed(body, known))
        return known[own]

    def definitions(self, rest: str) -> str:
        """Return the source of all functions, with the helpers that they and a text call."""
        body = "\n".join(self.texts)
        vectors = VECTORS if "TK_BYTES" in body and self.vectors else ""
        body = vectors + body
        helpers = prelude(DIALECT, f"{body}\n{rest}").strip("\n")
        # Helpers serve many dtypes, of which one may not look at its operand; what a template
        # names in a macro it may not call, of which clang warns.
        several = re.search(r"tg_(imag|isinf|isnan|conj|real|sign)\w*\(", helpers)
        quiet = _QUIET if several or _QUIET in body else ""
        return "\n".join([f"{quiet}{helpers}", _LOUD if quiet else "", body])


def _renamed(body: str, known: dict[str, str]) -> str:
    for pattern, text in _PLAIN:
        body = re.sub(pattern, text, body)
    names = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    # A name is one of a function or type, also one cast to, never that of a member or a variable.
    used = rf"(?<![.\w>])({names})\b(?=\s*\(|\s+\*?\w|;|\*)|(?<=\()({names})(?=\))"
    body = re.sub(used, lambda m: known[m[1] or m[2]], body)
    body = re.sub(r"\b\w+_numbers\b", lambda m: known.get(m[0], m[0]), body)
    undone = dict.fromkeys(_DEFINED.findall(body))
    ends = "".join(f"#undef {name}\n" for name in undone)
    return f"{_QUIET}{body}{ends}{_LOUD}"


def wrapped(text: str) -> str:
    """Return a source whose lines have 120 columns at most."""
    lines: list[str] = []
    for line in text.split("\n"):
        inside = bool(lines) and lines[-1].endswith("\\")
        while len(line) > _WIDTH:
            indent = re.match(r"\s*", line)[0]  # type: ignore[index]
            macro = line.lstrip().startswith("#define") or line.endswith("\\") or inside
            room = _WIDTH - 2 * macro
            at = max(
                line.rfind(mark, len(indent) + 1, room) + len(mark.rstrip())
                for mark in (
                    ", ",
                    " + ",
                    " ? ",
                    " : ",
                    " && ",
                    " || ",
                    "; ",
                    " { ",
                    " = ",
                    " * ",
                    "} ",
                )
            )
            if at <= len(indent) + 4:
                at = line.rfind(" ", len(indent) + 1, room)
                if at <= len(indent):
                    break
            lines.append(line[:at].rstrip() + " \\" * macro)
            line = f"{indent}    {line[at:].lstrip()}"
        lines.append(line.rstrip())
    return "\n".join(lines)

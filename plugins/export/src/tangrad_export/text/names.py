"""Identifiers of C for files, inputs and modules."""

from __future__ import annotations

import re

__all__ = ["identifier", "parameter_name", "unique"]

_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while _Bool _Complex _Imaginary "
    # What C++ reserves besides, as the header is read by both, and names that the file uses.
    "alignas alignof and and_eq asm bitand bitor bool catch class compl concept const_cast "
    "consteval constexpr constinit co_await co_return co_yield decltype delete dynamic_cast "
    "explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or "
    "or_eq private protected public reinterpret_cast requires static_assert static_cast template "
    "this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq "
    "size_t main NULL NAN INFINITY I errno assert stdin stdout stderr".split()
)


def identifier(text: str, reserved: bool = False) -> str:
    """Return a text as an identifier: letters beyond ASCII by their numbers.

    Args:
        text: such as the stem of a file.
        reserved: whether it stands alone, and may be no keyword.
    """
    made = "".join(
        c if c.isascii() and (c.isalnum() or c == "_") else "_" if c.isascii() else f"u{ord(c):04x}"
        for c in text
    )
    if not made or made[0].isdigit() or made[0] == "_":
        made = f"model{'' if made.startswith('_') else '_'}{made}"
    made = re.sub(r"__+", "_", made)
    return f"{made}_" if reserved and made in _KEYWORDS else made


# What functions of a file call their own: variables of loops, helpers, and the file's memory.
_OWN = re.compile(
    r"[a-zA-Z]\d*|out\d*|at|arena|bad|bound|drawn|loss|report|steps_taken|stream|taken"
    r"|(arena|w|c|op|tg|tk|out)_.*|TG_.*|TK_.*|u?int\d+_t|mem\w+"
)


def parameter_name(text: str, kind: str, taken: set[str]) -> str:
    """Return the name of a function's parameter, which clashes with nothing, and take it.

    Args:
        text: what the program calls it.
        kind: what stands in front of a name that the file uses.
        taken: names of other parameters.
    """
    name = identifier(text, True)
    if name != "x" and _OWN.fullmatch(name):
        name = f"{kind}_{name}"
    return unique(name, taken)


def unique(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, and take it."""
    made, number = name, 2
    while made in taken:
        made, number = f"{name}_{number}", number + 1
    taken.add(made)
    return made

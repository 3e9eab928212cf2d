"""Which names code reads, and which modules it imports."""

from __future__ import annotations

import types
from functools import lru_cache

from tangrad_jit.capture.bytecode import instructions, name_of

__all__ = ["imports_of", "names_read", "words_of"]


@lru_cache(maxsize=4096)
def names_read(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the global names that code reads or sets, with the attributes read of them, in order.

    Code within it (comprehensions, nested functions) counts.
    """
    found: dict[tuple[str, ...], None] = {}
    chain: list[str] = []
    for name, argument in instructions(code):
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            if chain:
                found[tuple(chain)] = None
            chain = [name_of(code, name, argument)]
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain.append(name_of(code, name, argument))
        elif name not in ("CACHE", "PUSH_NULL", "PRECALL"):
            if chain:
                found[tuple(chain)] = None
            chain = []
    if chain:
        found[tuple(chain)] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(names_read(constant)))
    return tuple(found)


@lru_cache(maxsize=4096)
def imports_of(code: types.CodeType, package: str) -> tuple[str, ...]:
    """Return the modules that code imports where it runs, code within it included.

    Args:
        code: the code.
        package: that of its module, for imports relative to it.
    """
    found: list[str] = []
    constants: list[object] = []
    for instruction, argument in instructions(code):
        if instruction == "LOAD_CONST":
            constants.append(code.co_consts[argument])
        elif instruction == "LOAD_SMALL_INT":
            constants.append(argument)
        elif instruction == "IMPORT_NAME":
            level, names = constants[-2:]
            name = name_of(code, instruction, argument)
            whole = _resolved("." * level + name, package) if isinstance(level, int) else ""
            found.append(whole if names else whole.partition(".")[0])
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.extend(imports_of(constant, package))
    return tuple(found)


def _resolved(name: str, package: str) -> str:
    if not name.startswith("."):
        return name
    from importlib.util import resolve_name

    return resolve_name(name, package)


@lru_cache(maxsize=4096)
def words_of(code: types.CodeType) -> frozenset[str]:
    """Return the names and texts in code, by which it may read an attribute."""
    found = {*code.co_names, *(c for c in code.co_consts if type(c) is str and c.isidentifier())}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= words_of(constant)
    return frozenset(found)

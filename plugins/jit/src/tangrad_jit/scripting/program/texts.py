"""What scripted code calls for texts: as PyTorch's scripts write them and cut them."""

from __future__ import annotations

import enum
import math
import sys
import warnings
from typing import Any

import tangrad
from tangrad_jit.scripting.program.codes import rt_code
from tangrad_jit.scripting.program.tensor_text import tensor_text

__all__ = ["text_of"]


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    text = f"{value:.17g}"
    return text + "." if text.lstrip("-").isdigit() else text


def text_of(value: Any, inside: bool = False, quote: str = "'") -> str:
    """Return a value as PyTorch's scripts write it.

    Args:
        value: a value.
        inside: whether it is a member of a container, in which texts stand in quotes.
        quote: the quotes.
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, complex):
        sign = "" if value.imag < 0 else "+"
        return f"{_float_text(value.real)}{sign}{_float_text(value.imag)}j"
    if isinstance(value, str):
        return f"{quote}{value}{quote}" if inside else value
    if isinstance(value, enum.Enum):
        return f"Enum<{type(value).__name__}.{value.name}>"
    if isinstance(value, list):
        return f"[{', '.join(text_of(item, True, quote) for item in value)}]"
    if isinstance(value, dict):
        items = (f"{text_of(k, True, quote)}: {text_of(v, True, quote)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, tuple):
        items = (text_of(item, True, quote) for item in value)
        return f"({', '.join(items)}{',' if len(value) == 1 else ''})"
    if isinstance(value, (tangrad.dtype, tangrad.layout, tangrad.memory_format)):
        return str(rt_code(value))
    if isinstance(value, tangrad.Tensor):
        return tensor_text(value)
    return str(value)


def rt_text(value: Any) -> str:
    """Return a value as a text."""
    return text_of(value, quote="")


def rt_format(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text.

    Raises:
        RuntimeError: it has more places than there are values.
    """
    parts = template.split("{}")
    if len(parts) - 1 > len(args):
        raise RuntimeError(f"Too few arguments for format string: {template}")
    made = [parts[0]]
    for k, part in enumerate(parts[1:]):
        made += [rt_text(args[k]), part]
    return "".join(made)


def rt_format_plain(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text in which braces of its own are doubled."""
    return template.format(*map(rt_text, args))


def rt_percent(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text of C's form.

    Raises:
        RuntimeError: the places and the values do not fit.
    """
    if len(args) == 1 and isinstance(args[0], tuple):
        args = args[0]
    parts = template.replace("%%", "\0").split("%")
    made, rest = [parts[0]], list(args)
    for part in parts[1:]:
        if not part:
            raise RuntimeError("Incomplete format specifier")
        if not rest:
            raise RuntimeError("Too few arguments for format string")
        made += [_formatted(part[0], rest.pop(0)), part[1:]]
    if rest:
        raise RuntimeError("Too many arguments for format string")
    return "".join(made).replace("\0", "%")


def _formatted(key: str, value: Any) -> str:
    kind = _TAGS.get(type(value), type(value).__name__)
    if key in "dieEfFgG":
        if type(value) not in (int, float):
            raise RuntimeError(f"%{key} requires a number for formatting, but got {kind}")
        return f"%{key}" % value
    if key == "c":
        if type(value) is not int and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%{key} requires an int or char for formatting, but got {kind}")
        return f"%{key}" % value
    if key == "s":
        return rt_text(value)
    raise RuntimeError(f"The specifier %{key} is not supported in TorchScript format strings")


_TAGS = {str: "String", bool: "Bool", complex: "ComplexDouble", list: "GenericList", tuple: "Tuple"}


def rt_print(args: tuple[Any, ...]) -> None:
    """Write values to the standard output."""
    sys.stdout.write(" ".join(map(rt_text, args)) + "\n")


def rt_warn(message: str) -> None:
    """Give a warning."""
    warnings.warn(message, UserWarning, stacklevel=3)


def rt_ord(text: str) -> int:
    """Return the number of a character.

    Raises:
        RuntimeError: the text is not one character.
    """
    if len(text) != 1:
        raise RuntimeError(f"String for ord() must be 1 character, found {len(text)}")
    return ord(text)


def rt_character(text: str, index: int) -> str:
    """Return a character.

    Raises:
        RuntimeError: the text is shorter.
    """
    try:
        return text[index]
    except IndexError:
        raise RuntimeError("String index out of range") from None


def rt_center(text: str, width: int, fill: str) -> str:
    """Put a text in the middle of a width."""
    if len(fill) != 1:
        raise RuntimeError("TypeError: The fill character must be exactly one character long")
    return text.center(width, fill)


def _end(text: str, end: int) -> int:
    return len(text) if end == -1 else end + len(text) if end < 0 else end


def rt_count(text: str, part: str, start: int, end: int) -> int:
    """Count a text in another."""
    return text.count(part, start, _end(text, end))


def rt_startswith(text: str, part: str, start: int, end: int) -> bool:
    """Return whether a text begins with another."""
    return text.startswith(part, start, _end(text, end))


def rt_endswith(text: str, part: str, start: int, end: int) -> bool:
    """Return whether a text ends with another."""
    return text.endswith(part, start, _end(text, end))


def rt_find(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands in another, or -1."""
    return text.find(part, start, _end(text, end))


def rt_rfind(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands last in another, or -1."""
    return text.rfind(part, start, _end(text, end))


def rt_str_index(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands in another.

    Raises:
        RuntimeError: nowhere.
    """
    found = text.find(part, start, _end(text, end))
    if found < 0:
        raise RuntimeError("ValueError: substring not found")
    return found


def rt_str_rindex(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands last in another.

    Raises:
        RuntimeError: nowhere.
    """
    found = text.rfind(part, start, _end(text, end))
    if found < 0:
        raise RuntimeError("ValueError: substring not found")
    return found

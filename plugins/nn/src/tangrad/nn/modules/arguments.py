"""What is said of a layer that is made with wrong arguments: its own name, and a likely one.

Layers share constructors: that of `Conv2d` is `_ConvNd`'s, and Python's error names the latter.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

_UNKNOWN = re.compile(r"got an unexpected keyword argument '(\w+)'")


def say_whose(module: Any, error: TypeError, trace: TracebackType | None) -> None:
    """Put the class of a module into the error of its constructor's arguments.

    Args:
        module: what was to be made.
        error: what Python raised; its text is changed where it is of a constructor of the class
            that was called from no line but those of other constructors of layers.
        trace: its traceback down from the constructor.
    """
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_code.co_name != "__init__" or frame.f_globals.get("__package__") != __package__:
            return
    text = str(error)
    inits = (vars(kind).get("__init__") for kind in type(module).__mro__)
    for init in inits:
        name = getattr(init, "__qualname__", None)
        if name is not None and text.startswith(f"{name}() "):
            error.args = (
                f"{type(module).__qualname__}.__init__{text[len(name) :]}" + _hint(text, init),
            )
            return


def _hint(text: str, init: Any) -> str:
    unknown = _UNKNOWN.search(text)
    if unknown is None or "Did you mean" in text:  # newer versions of Python say so themselves
        return ""
    from difflib import get_close_matches

    code = init.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return "".join(f". Did you mean '{n}'?" for n in get_close_matches(unknown[1], names, 1))

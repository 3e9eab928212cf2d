"""Read pickles without running the code that they name.

A pickle is a program for a stack machine (CPython, Lib/pickletools.py, describes its opcodes).
This one calls nothing but what its caller allows; the standard library's would call anything.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from tangrad.serialization.errors import SerializationError, UnsafeContentError, shown

_MARK = object()
# Deeper keys would overflow the stack in `hash`. A tuple that holds one tuple twice, and so on,
# doubles the steps of `hash` at each level: they have a budget, of so many per byte of the file.
_DEEPEST_KEY = 200
_LEAST_STEPS, _STEPS_PER_BYTE = 1_000_000, 16
_PLAIN_KEYS = (str, int, float, bool, bytes, complex, type(None))


class SafeUnpickler:
    """Build what a pickle describes.

    Args:
        content: the pickle, and what may follow it.
        find_global: (module, name) -> what the pickle may call or hold.
        load_persistent: persistent id -> object.
        may_call: whether the pickle may call, or make an object of, what it named, with arguments.
        may_build: whether an object's state may be set from the pickle.
        file: the file's name, for messages.
        encoding, errors: of texts that Python 2 wrote; "bytes" leaves them bytes.
    """

    def __init__(
        self,
        content: Any,
        find_global: Callable[[str, str], Any],
        load_persistent: Callable[[Any], Any],
        may_call: Callable[[Any, tuple[Any, ...]], bool],
        may_build: Callable[[Any], bool],
        file: str | None = None,
        encoding: str = "latin-1",
        errors: str = "strict",
    ) -> None:
        self._content = memoryview(content)
        self._encoding, self._errors = encoding, errors
        self._find_global = find_global
        self._load_persistent = load_persistent
        self._may_call = may_call
        self._may_build = may_build
        self._file = file
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self, start: int = 0) -> tuple[Any, int]:
        """Return the object of the pickle that begins at `start`, and where it ends.

        Raises:
            SerializationError: the pickle is damaged, or asks for what is not allowed.
        """
        self._at, self._stack, self._memo = start, [], {}
        self._steps_left = _LEAST_STEPS + _STEPS_PER_BYTE * len(self._content)
        try:
            while True:
                opcode = self._take(1)[0]
                if opcode == 0x2E:  # STOP
                    return self._pop(), self._at
                step = _STEPS.get(opcode)
                if step is None:
                    raise self._error(f"the pickle has an unknown opcode {opcode:#04x}")
                step(self)
        except SerializationError as error:
            error.file = error.file or self._file
            error.offset = self._at if error.offset is None else error.offset
            raise
        except RecursionError as error:
            raise self._error("the pickle is nested too deeply") from error
        except Exception as error:
            # Whatever a damaged pickle makes Python's own types say.
            raise self._error(f"the pickle is damaged: {error or type(error).__name__}") from error

    def _error(self, reason: str) -> SerializationError:
        return SerializationError(reason, file=self._file, offset=self._at)

    # --- bytes and the stack

    def _take(self, count: int) -> memoryview:
        end = self._at + count
        if count < 0 or end > len(self._content):
            raise self._error("the pickle ends early: Ran out of input")
        taken = self._content[self._at : end]
        self._at = end
        return taken

    def _number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self._take(layout.size))[0]

    def _line(self) -> str:
        end = self._at
        limit = min(len(self._content), self._at + 4096)
        while end < limit and self._content[end] != 0x0A:
            end += 1
        if end == limit:
            raise self._error("the pickle holds a line without an end")
        text = bytes(self._take(end - self._at)).decode("utf-8")
        self._at += 1
        return text

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("the pickle takes more from its stack than it put there")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("the pickle takes more from its stack than it put there")
        return self._stack[-1]

    def _pop_to_mark(self) -> list[Any]:
        stack = self._stack
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                items = stack[place + 1 :]
                del stack[place:]
                return items
        raise self._error("the pickle closes what it did not open")

    # --- opcodes

    def _push_global(self, module: str, name: str) -> None:
        self._stack.append(self._find_global(module, name))

    def _global(self) -> None:
        module = self._line()
        self._push_global(module, self._line())

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise self._error("the pickle names a global by something else than text")
        self._push_global(module, name)

    def _reduce(self) -> None:
        args, function = self._pop(), self._pop()
        # Archives of scripts make members of enums from their plain values.
        given = (args,) if getattr(function, "takes_value", False) else args
        if not isinstance(given, tuple):
            raise self._error("the pickle calls a function with something else than a tuple")
        self._check_call(function, given)
        self._stack.append(function(*given))

    def _check_call(self, function: Any, args: tuple[Any, ...]) -> None:
        if not self._may_call(function, args):
            raise UnsafeContentError(
                f"the pickle calls {shown(function)}, which a load of plain values does not do"
            )

        # What it makes may hash whatever it is given.
        self._count(args, (tuple, list, dict))

    def _newobj(self) -> None:
        args, cls = self._pop(), self._pop()
        if not isinstance(args, tuple):
            raise self._error("the pickle makes an object from something else than a tuple")
        self._check_call(cls, args)
        made = cls.__new__(cls, *args) if isinstance(cls, type) else cls(*args)
        self._stack.append(made)

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if not self._may_build(target):
            raise UnsafeContentError(
                f"the pickle sets the state of a {type(target).__name__}, which a load of plain "
                "values does not do"
            )
        if hasattr(target, "__setstate__"):
            target.__setstate__(state)
            return
        slots: Any = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        if state:
            target.__dict__.update(state)
        for name, value in (slots or {}).items():
            setattr(target, name, value)

    def _setitem(self) -> None:
        value, key = self._pop(), self._pop()
        self._fill(self._top(), [key, value])

    def _setitems(self) -> None:
        items = self._pop_to_mark()
        self._fill(self._top(), items)

    def _fill(self, target: Any, items: list[Any]) -> None:
        if type(target) not in (dict, OrderedDict, defaultdict) or len(items) % 2:
            raise self._error(f"the pickle puts items into a {type(target).__name__}")
        for i in range(0, len(items), 2):
            target[self._key(items[i])] = items[i + 1]

    def _key(self, key: Any) -> Any:
        """Return a key whose hash does not take too many steps."""
        if isinstance(key, (tuple, frozenset)):
            self._count(key, (tuple,))
        elif not isinstance(key, _PLAIN_KEYS) and type(key).__hash__ is None:
            raise self._error(f"the pickle has a {type(key).__name__} as a key")
        return key

    def _count(self, whole: Any, opened: tuple[type, ...]) -> None:
        """Take what is in a container, and in those of the types `opened` in it, off the budget."""
        level, depth = [whole], 0
        while level:
            depth += 1
            below: list[Any] = []
            for container in level:
                self._steps_left -= 1 + len(container)
                if self._steps_left < 0:
                    raise self._error(
                        "the pickle has keys that take too many steps: tuples that hold one "
                        "tuple several times, level by level"
                    )
                for part in container:
                    if isinstance(part, opened):
                        below.append(part)
            if below and depth > _DEEPEST_KEY:
                raise self._error("the pickle has a key that is nested too deeply")
            level = below

    def _append(self) -> None:
        value = self._pop()
        self._extend(self._top(), [value])

    def _appends(self) -> None:
        items = self._pop_to_mark()
        self._extend(self._top(), items)

    def _extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            raise self._error(f"the pickle appends to a {type(target).__name__}")
        target.extend(items)

    def _additems(self) -> None:
        items = self._pop_to_mark()
        target = self._top()
        if type(target) is not set:
            raise self._error(f"the pickle adds to a {type(target).__name__}")
        target.update(self._key(item) for item in items)

    def _frozenset(self) -> None:
        self._stack.append(frozenset(self._key(item) for item in self._pop_to_mark()))

    def _dict(self) -> None:
        items = self._pop_to_mark()
        made: dict[Any, Any] = {}
        self._fill(made, items)
        self._stack.append(made)

    def _tuple_of(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def _put(self, place: int) -> None:
        self._memo[place] = self._top()

    def _get(self, place: int) -> None:
        if place not in self._memo:
            raise self._error("the pickle refers to something that it did not remember")
        self._stack.append(self._memo[place])

    def _persistent(self) -> None:
        self._stack.append(self._load_persistent(self._pop()))

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if version > 5:
            raise self._error(f"the pickle's protocol {version} is unknown")

    def _pop_mark(self) -> None:
        self._pop_to_mark()

    def _long(self, layout: struct.Struct) -> None:
        count = self._number(layout)
        self._stack.append(int.from_bytes(self._take(count), "little", signed=True))

    def _text(self, layout: struct.Struct) -> None:
        count = self._number(layout)
        self._stack.append(str(self._take(count), "utf-8", "surrogatepass"))

    def _old_text(self, layout: struct.Struct) -> None:
        text = bytes(self._take(self._number(layout)))
        if self._encoding == "bytes":
            self._stack.append(text)
            return
        try:
            self._stack.append(text.decode(self._encoding, self._errors))
        except UnicodeDecodeError as error:
            raise self._error(
                f"the pickle has a text that is not {self._encoding} ({error}); give load its "
                "encoding: encoding='latin1' reads any, encoding='bytes' leaves it as it is"
            ) from error

    def _bytes(self, layout: struct.Struct) -> None:
        self._stack.append(bytes(self._take(self._number(layout))))

    def _frame(self) -> None:
        self._take(8)


_U1, _U2, _U4, _U8 = (struct.Struct(f"<{code}") for code in "BHIQ")
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")


def _pushes(value: Callable[[], Any]) -> Callable[[SafeUnpickler], None]:
    def step(machine: SafeUnpickler) -> None:
        machine._stack.append(value())

    return step


def _with(method: Callable[..., None], *args: Any) -> Callable[[SafeUnpickler], None]:
    def step(machine: SafeUnpickler) -> None:
        method(machine, *args)

    return step


def _numbered(method: Callable[..., None], layout: struct.Struct) -> Any:
    def step(machine: SafeUnpickler) -> None:
        method(machine, machine._number(layout))

    return step


def _pushed_number(layout: struct.Struct) -> Any:
    def step(machine: SafeUnpickler) -> None:
        machine._stack.append(machine._number(layout))

    return step


_S = SafeUnpickler
_STEPS: dict[int, Callable[[SafeUnpickler], Any]] = {
    0x28: _pushes(lambda: _MARK),
    0x30: _S._pop,
    0x31: _S._pop_mark,
    0x32: lambda machine: machine._stack.append(machine._top()),
    0x80: _S._protocol,
    0x95: _S._frame,
    0x4E: _pushes(lambda: None),
    0x88: _pushes(lambda: True),
    0x89: _pushes(lambda: False),
    0x5D: _pushes(list),
    0x7D: _pushes(dict),
    0x29: _pushes(tuple),
    0x8F: _pushes(set),
    0x4A: _pushed_number(_I4),
    0x4B: _pushed_number(_U1),
    0x4D: _pushed_number(_U2),
    0x47: _pushed_number(_F8),
    0x8A: _with(_S._long, _U1),
    0x8B: _with(_S._long, _I4),
    0x58: _with(_S._text, _U4),
    0x8C: _with(_S._text, _U1),
    0x8D: _with(_S._text, _U8),
    0x54: _with(_S._old_text, _I4),
    0x55: _with(_S._old_text, _U1),
    0x42: _with(_S._bytes, _U4),
    0x43: _with(_S._bytes, _U1),
    0x8E: _with(_S._bytes, _U8),
    0x6C: lambda machine: machine._stack.append(machine._pop_to_mark()),
    0x74: lambda machine: machine._stack.append(tuple(machine._pop_to_mark())),
    0x64: _S._dict,
    0x85: _with(_S._tuple_of, 1),
    0x86: _with(_S._tuple_of, 2),
    0x87: _with(_S._tuple_of, 3),
    0x61: _S._append,
    0x65: _S._appends,
    0x73: _S._setitem,
    0x75: _S._setitems,
    0x90: _S._additems,
    0x91: _S._frozenset,
    0x71: _numbered(_S._put, _U1),
    0x72: _numbered(_S._put, _U4),
    0x94: lambda machine: machine._put(len(machine._memo)),
    0x68: _numbered(_S._get, _U1),
    0x6A: _numbered(_S._get, _U4),
    0x63: _S._global,
    0x93: _S._stack_global,
    0x52: _S._reduce,
    0x81: _S._newobj,
    0x62: _S._build,
    0x51: _S._persistent,
}

"""Files that pipes hand on, names of files, and checks of functions that pipes call."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import IOBase
from typing import Any, ClassVar, NoReturn

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "length_of",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]

_DEEPEST = 10


def length_of(pipe: Any, *sources: Any) -> int:
    """Return the length of the shortest of the sources of a pipe.

    Raises:
        TypeError: one has none.
    """
    try:
        return min(len(source) for source in sources)
    except TypeError:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None


def validate_input_col(fn: Callable[..., Any], input_col: Any) -> None:
    """Check that a function takes as many arguments as columns are chosen.

    Args:
        fn: the function; one whose signature cannot be told is not checked.
        input_col: a column, several in a list or tuple, or None for the whole sample.

    Raises:
        ValueError: it takes fewer or more, or must be given others by name.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return
    count = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    function = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(function, "__name__", repr(function))
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if by_name:
        raise ValueError(
            f"The function {name} takes {len(by_name)} non-default keyword-only parameters, which "
            "is not allowed."
        )
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    required = sum(p.default is p.empty for p in places)
    if required > count or (len(places) < count and not takes_any):
        raise ValueError(
            f"The function {name} takes {len(places)} positional parameters, but {count} are "
            "required."
        )


def _check_unpickable_fn(fn: Callable[..., Any]) -> None:
    """Warn where worker processes could not get a function.

    Raises:
        TypeError: it is none.
    """
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    if "<locals>" in name or "<lambda>" in name:
        warnings.warn(
            "Local function is not supported by pickle, please use regular python function or "
            "functools.partial instead.",
            stacklevel=3,
        )


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Tell whether a name is like one of some patterns of the shell; like "" all are."""
    if not masks:
        return True
    several = [masks] if isinstance(masks, str) else masks
    return any(fnmatch.fnmatch(name, mask) for mask in several)


def _fail(error: OSError) -> NoReturn:
    warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=3)
    raise error


def get_file_pathnames_from_root(
    root: str,
    masks: str | list[str],
    recursive: bool = False,
    abspath: bool = False,
    non_deterministic: bool = False,
) -> Iterator[str]:
    """Yield the files of a folder, or the file that is named.

    Args:
        root: the folder, or a file.
        masks: patterns of the shell for the files' names.
        recursive: whether also those of the folders inside.
        abspath: whether paths begin at the root of the file system.
        non_deterministic: whether they come as the system lists them, and not sorted.

    Raises:
        OSError: a folder cannot be read.
    """
    if os.path.isfile(root):
        if match_masks(os.path.basename(root), masks):
            yield os.path.abspath(root) if abspath else root
        return
    for path, folders, files in os.walk(root, onerror=_fail):
        if not non_deterministic:
            folders.sort()
            files.sort()
        if not recursive:
            folders.clear()
        place = os.path.abspath(path) if abspath else path
        yield from (os.path.join(place, name) for name in files if match_masks(name, masks))


def get_file_binaries_from_pathnames(
    pathnames: Iterable[str], mode: str, encoding: str | None = None
) -> Iterator[tuple[str, StreamWrapper]]:
    """Yield (path, open file).

    Raises:
        TypeError: a path is no string.
        OSError: a file cannot be opened.
    """
    mode = mode if mode.startswith("r") else f"r{mode}"
    for path in pathnames if isinstance(pathnames, Iterable) else [pathnames]:
        if not isinstance(path, str):
            raise TypeError(f"Expected string type for pathname, but got {type(path)}")
        yield path, StreamWrapper(open(path, mode, encoding=encoding))  # noqa: SIM115


def validate_pathname_binary_tuple(data: Any) -> None:
    """Check that a sample is (path, stream).

    Raises:
        TypeError: it is not.
    """
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    path, stream = data
    if not isinstance(path, str):
        raise TypeError(f"pathname within the tuple should be a string, but it is {type(path)}")
    if not isinstance(stream, (IOBase, StreamWrapper)):
        raise TypeError(
            "binary stream within the tuple should have IOBase or its subclasses as type, but it "
            f"is type {type(stream)}"
        )


class StreamWrapper:
    """A stream that closes when nobody holds it, or when the last stream out of it has closed.

    Args:
        file_obj: the stream.
        parent_stream: the one that this one is read out of, such as its archive's.
        name: for messages.

    Raises:
        RuntimeError: the parent is no such stream.
    """

    session_streams: ClassVar[dict[Any, int]] = {}
    debug_unclosed_streams: ClassVar[bool] = False

    def __init__(
        self, file_obj: Any, parent_stream: StreamWrapper | None = None, name: str | None = None
    ) -> None:
        self.closed = True  # where the parent is refused
        if parent_stream is not None and not isinstance(parent_stream, StreamWrapper):
            raise RuntimeError(
                f"Parent stream should be StreamWrapper, {type(parent_stream)} was given"
            )
        self.file_obj, self.parent_stream, self.name = file_obj, parent_stream, name
        self.child_counter, self.close_on_last_child, self.closed = 0, False, False
        if parent_stream is not None:
            parent_stream.child_counter += 1
        if StreamWrapper.debug_unclosed_streams:
            StreamWrapper.session_streams[self] = 1

    @classmethod
    def close_streams(cls, v: Any, depth: int = 0) -> None:
        """Close all streams in a sample: in dicts, lists and tuples."""
        if isinstance(v, StreamWrapper):
            v.close()
        elif isinstance(v, (dict, list, tuple)) and depth <= _DEEPEST:
            for item in v.values() if isinstance(v, dict) else v:
                cls.close_streams(item, depth + 1)

    def __getattr__(self, name: str) -> Any:
        if name == "file_obj":  # not yet there while it is unpickled
            raise AttributeError(name)
        return getattr(self.file_obj, name)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the stream, and its parent's where this is the last out of it."""
        if self.closed:
            return
        self.closed = True
        StreamWrapper.session_streams.pop(self, None)
        parent = self.parent_stream
        if parent is not None:
            parent.child_counter -= 1
            if not parent.child_counter and parent.close_on_last_child:
                parent.close()
        close = getattr(self.file_obj, "close", None)
        if close is not None:
            close(*args, **kwargs)

    def autoclose(self) -> None:
        """Close when the last stream that is read out of this one has closed; now if none is."""
        self.close_on_last_child = True
        if not self.child_counter:
            self.close()

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(type(self)), *dir(self.file_obj)})

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name},"
        return f"StreamWrapper<{name}{self.file_obj!r}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, obj: Any) -> None:
        StreamWrapper.__init__(self, obj)

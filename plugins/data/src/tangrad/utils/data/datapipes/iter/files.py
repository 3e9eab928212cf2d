"""Pipes over files: their names, their streams, what these hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tangrad.utils.data.datapipes import IterDataPipe, functional_datapipe
from tangrad.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe
from tangrad.utils.data.datapipes.utils.common import (
    get_file_binaries_from_pathnames,
    get_file_pathnames_from_root,
    length_of,
)
from tangrad.utils.data.datapipes.utils.decoder import (
    Decoder,
    basichandlers,
    extension_extract_fn,
    imagehandler,
)

__all__ = [
    "FileListerIterDataPipe",
    "FileOpenerIterDataPipe",
    "RoutedDecoderIterDataPipe",
    "StreamReaderIterDataPipe",
]


class _OfSaidLength(IterDataPipe[Any]):
    """A pipe whose length is what the caller says; -1: it has none."""

    length = -1

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("list_files")
class FileListerIterDataPipe(_OfSaidLength):
    """Hand out the paths of the files in folders.

    Args:
        root: a folder, several, or a pipe of them.
        masks: patterns of the shell for the files' names.
        recursive: whether also those of the folders inside.
        abspath: whether paths begin at the root of the file system.
        non_deterministic: whether they come as the system lists them, and not sorted.
        length: what `len` says.
    """

    def __init__(
        self,
        root: str | Sequence[str] | IterDataPipe[str] = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        folders = [root] if isinstance(root, str) else root
        is_pipe = isinstance(folders, IterDataPipe)
        self.datapipe = folders if is_pipe else IterableWrapperIterDataPipe(folders)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        options = self.masks, self.recursive, self.abspath, self.non_deterministic
        for path in self.datapipe:
            yield from get_file_pathnames_from_root(path, *options)


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(_OfSaidLength):
    """Hand out (path, open file) for each path; the file closes when nobody holds it.

    Args:
        datapipe: where paths come from.
        mode: "r", "rt" or "t" for text, "rb" or "b" for bytes.
        encoding: of text.
        length: what `len` says.

    Raises:
        ValueError: the mode is another, or bytes have an encoding.
    """

    def __init__(
        self, datapipe: Any, mode: str = "r", encoding: str | None = None, length: int = -1
    ) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """Hand out (path, what was read) of streams, in pieces or whole; a stream at its end closes.

    Args:
        datapipe: where (path, stream) come from.
        chunk: how much is read at a time; None: all.
    """

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, stream in self.datapipe:
            while piece := stream.read(self.chunk):
                yield path, piece
            stream.close()


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """Decode files by the ends of their names.

    Args:
        datapipe: where (path, stream) come from.
        handlers: functions of a key and bytes; by default texts, numbers, JSON and pictures.
        key_fn: path -> key; by default the end of its name.
    """

    def __init__(
        self,
        datapipe: Any,
        *handlers: Callable[..., Any],
        key_fn: Callable[[str], str] = extension_extract_fn,
    ) -> None:
        chosen = handlers or (basichandlers, imagehandler("torch"))
        self.datapipe, self.decoder = datapipe, Decoder(*chosen, key_fn=key_fn)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Add handlers, which are asked last."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for sample in self.datapipe:
            yield from self.decoder(sample).items()

    def __len__(self) -> int:
        return length_of(self, self.datapipe)

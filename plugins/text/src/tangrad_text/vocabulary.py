"""Vocabularies: tokens and their numbers, from lists and from files."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

VERSION = "0.0.2"


class Vocab:
    """Tokens, numbered from 0 without gaps.

    Args:
        tokens: the tokens, by number.
        default_index: the number of all other tokens; None: they are refused.

    Raises:
        RuntimeError: a token stands there twice.
        TypeError: a token is no text, or the default no integer.
    """

    def __init__(self, tokens: list[str], default_index: int | None = None) -> None:
        self.itos_: list[str] = _texts(tokens)
        self.set_default_index(default_index)
        self._stoi = {token: number for number, token in enumerate(self.itos_)}
        if len(self._stoi) != len(self.itos_):
            first: dict[str, int] = {}
            for number, token in enumerate(self.itos_):
                if first.setdefault(token, number) != number:
                    raise RuntimeError(
                        f"Duplicate token found in tokens list: {token!r} has the numbers "
                        f"{first[token]} and {number}; give each token once"
                    )

    def __len__(self) -> int:
        return len(self.itos_)

    def __contains__(self, token: str) -> bool:
        return token in self._stoi

    def __getitem__(self, token: str) -> int:
        found = self._stoi.get(token, self.default_index_)
        if found is None:
            raise _unknown(token)
        return found

    def set_default_index(self, index: int | None) -> None:
        """Set the number of tokens that are not there; None: they are refused.

        Raises:
            TypeError: it is no integer.
        """
        self.default_index_ = None if index is None else _integer("default index", index)

    def get_default_index(self) -> int | None:
        """Return the number of tokens that are not there, or None."""
        return self.default_index_

    def insert_token(self, token: str, index: int) -> None:
        """Insert a token; those from its number on move up by one.

        Raises:
            RuntimeError: the token is there, or the number lies outside.
            TypeError: the token is no text, or the number no integer.
        """
        index = _integer("index", index)
        if not 0 <= index <= len(self.itos_):
            raise self._outside(index)
        self._refuse_twin(token)
        self.itos_.insert(index, token)
        for number in range(index, len(self.itos_)):
            self._stoi[self.itos_[number]] = number

    def append_token(self, token: str) -> None:
        """Add a token after the last.

        Raises:
            RuntimeError: it is there.
            TypeError: it is no text.
        """
        self._refuse_twin(token)
        self._stoi[token] = len(self.itos_)
        self.itos_.append(token)

    def lookup_token(self, index: int) -> str:
        """Return the token of a number.

        Raises:
            RuntimeError: there is none.
        """
        if not 0 <= index < len(self.itos_):
            raise self._outside(index)
        return self.itos_[index]

    def lookup_tokens(self, indices: list[int]) -> list[str]:
        """Return the tokens of numbers.

        Raises:
            RuntimeError: one has none.
        """
        size, tokens = len(self.itos_), self.itos_
        if indices and not 0 <= min(indices) <= max(indices) < size:
            at = next(k for k, index in enumerate(indices) if not 0 <= index < size)
            raise self._outside(indices[at], f" at position {at}")
        return [tokens[index] for index in indices]

    def lookup_indices(self, tokens: list[str]) -> list[int]:
        """Return the numbers of tokens.

        Raises:
            RuntimeError: one has none, and there is no default.
        """
        known, default = self._stoi, self.default_index_
        if default is not None:
            return [known.get(token, default) for token in tokens]
        try:
            return [known[token] for token in tokens]
        except KeyError as error:
            raise _unknown(error.args[0]) from None

    def get_stoi(self) -> dict[str, int]:
        """Return {token: number}."""
        return dict(self._stoi)

    def get_itos(self) -> list[str]:
        """Return the tokens by number."""
        return list(self.itos_)

    def __getstate__(self) -> tuple[str, list[int], list[str], list[Any]]:
        default = [] if self.default_index_ is None else [self.default_index_]
        return VERSION, default, self.itos_, []

    def __setstate__(self, state: tuple[str, list[int], list[str], list[Any]]) -> None:
        version, default, tokens, _ = checked_state("Vocab", state, 4)
        if version < VERSION:
            raise RuntimeError(f"Found unexpected version for serialized Vocab: {version}")
        Vocab.__init__(self, tokens, default[0] if default else None)

    def _refuse_twin(self, token: str) -> None:
        _texts([token])
        if token in self._stoi:
            raise RuntimeError(
                f"Token {token} already exists in the Vocab with index: {self._stoi[token]}"
            )

    def _outside(self, index: int, where: str = "") -> RuntimeError:
        return RuntimeError(
            f"Specified index {index}{where} is out of bounds for vocab of size {len(self.itos_)}"
        )


def _texts(tokens: Iterable[str]) -> list[str]:
    if isinstance(tokens, str):
        raise TypeError(f"Vocab takes a list of tokens, not the text {tokens!r}; give [{tokens!r}]")
    if not isinstance(tokens, Iterable):
        raise TypeError(f"Vocab takes a list of tokens, not {tokens!r} ({type(tokens).__name__})")
    found = list(tokens)
    for number, token in enumerate(found):
        if not isinstance(token, str):
            raise TypeError(
                f"Vocab: token {number} is {token!r} ({type(token).__name__}); tokens are texts: "
                "give str(token)"
            )
    return found


def _integer(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"Vocab: the {name} is an integer, not {value!r} ({type(value).__name__})")
    return operator.index(value)


def _unknown(token: str) -> RuntimeError:
    return RuntimeError(
        f"Token {token} not found and default index is not set: call set_default_index"
    )


def checked_state(name: str, state: Any, size: int) -> Any:
    """Return the state of a pickled object, if it is a tuple of so many members.

    Raises:
        RuntimeError: it is not.
    """
    if not isinstance(state, tuple) or len(state) != size:
        raise RuntimeError(f"Expected deserialized {name} to have {size} states")
    return state


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line of a file, from 1, and its text without the newline.

    Raises:
        RuntimeError: there is no such file, or a line is not UTF-8.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, line.decode("utf-8").rstrip("\n")
                except UnicodeDecodeError as error:
                    raise RuntimeError(f"{path}, line {number}: no UTF-8: {error}") from None
    except OSError as error:
        raise RuntimeError(f"Cannot open input file {path}: {error.strerror}") from None


def tokens_of_file(file_path: str, min_freq: int) -> list[str]:
    """Return the tokens of a file of one token per line, in the order of their first lines.

    Args:
        file_path: the file.
        min_freq: how often a token must stand there.

    Raises:
        RuntimeError: there is no such file, a line has several tokens, or is not UTF-8.
    """
    counts: Counter[str] = Counter()
    for number, line in lines_of(file_path):
        token = line.strip(" \t\n\v\f\r")
        if any(space in token for space in " \t\v\f\r"):
            raise RuntimeError(
                f"{file_path}, line {number}: a line holds one token, this one holds {token!r}; "
                "a text is read by build_vocab_from_text_file"
            )
        if token:
            counts[token] += 1
    return [token for token, count in counts.items() if count >= min_freq]


def tokens_of_text(
    file_path: str, min_freq: int, tokenizer: Callable[[str], Iterable[str]]
) -> list[str]:
    """Return the tokens of a text, the most frequent first.

    Args:
        file_path: the text.
        min_freq: how often a token must stand there.
        tokenizer: line -> tokens, scripted or not.

    Raises:
        RuntimeError: there is no such file, or a line is not UTF-8.
    """
    counts = Counter(_tokens(file_path, tokenizer))
    counts.pop("", None)
    chosen = [pair for pair in counts.items() if pair[1] >= min_freq]
    chosen.sort(key=lambda pair: (-pair[1], pair[0]))
    return [token for token, _ in chosen]


def _tokens(path: str, tokenizer: Callable[[str], Iterable[str]]) -> Iterator[str]:
    for _, line in lines_of(path):
        yield from tokenizer(line)

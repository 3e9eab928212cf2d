"""Vectors of words, from tensors and from files."""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_text.vocabulary import checked_state, lines_of

VERSION = "0.0.1"


class Vectors:
    """A vector for each of some tokens, and one for all others.

    Args:
        tokens: the tokens.
        indices: their rows.
        vectors: (rows, width).
        unk_tensor: the vector of other tokens, (width,).

    Raises:
        RuntimeError: a token stands there twice, the numbers of tokens and rows differ, or a row
            lies outside; the vector of other tokens has another shape.
    """

    def __init__(
        self, tokens: list[str], indices: list[int], vectors: Tensor, unk_tensor: Tensor
    ) -> None:
        if len(tokens) != len(indices):
            raise RuntimeError(
                f"Mismatching sizes for tokens and indices. Size of tokens: {len(tokens)}, size of "
                f"indices: {len(indices)}."
            )
        self._stoi: dict[str, int] = {}
        for token, index in zip(tokens, indices, strict=True):
            if token in self._stoi:
                raise RuntimeError(f"Duplicate token found in tokens list: {token}")
            if not 0 <= index < len(vectors):
                raise RuntimeError(f"{token!r} has row {index} of {len(vectors)} vectors")
            self._stoi[token] = index
        if vectors.numel() and (vectors.ndim != 2 or unk_tensor.shape != vectors.shape[1:]):
            raise RuntimeError(
                f"Vectors: vectors of shape {tuple(vectors.shape)} are no table of (rows, width), "
                f"or the vector of other tokens, {tuple(unk_tensor.shape)}, has another width"
            )
        self.vectors_, self.unk_tensor_ = vectors, unk_tensor

    def get_stoi(self) -> dict[str, int]:
        """Return {token: row}."""
        return dict(self._stoi)

    def __getitem__(self, token: str) -> Tensor:
        found = self._stoi.get(token)
        return self.unk_tensor_ if found is None else self.vectors_[found]

    def lookup_vectors(self, tokens: list[str]) -> Tensor:
        """Return the vectors of tokens, (tokens, width)."""
        rows = [self._stoi.get(token, -1) for token in tokens]
        if -1 not in rows:
            return self.vectors_[tangrad.tensor(rows, dtype=tangrad.int64)]
        return tangrad.stack([self[token] for token in tokens])

    def __setitem__(self, token: str, vector: Tensor) -> None:
        if vector.shape != self.vectors_.shape[1:]:
            raise RuntimeError(
                f"the vector of {token!r} has shape {tuple(vector.shape)}, the others have "
                f"{tuple(self.vectors_.shape[1:])}"
            )
        found = self._stoi.get(token)
        if found is None:
            self._stoi[token] = len(self.vectors_)
            self.vectors_ = tangrad.cat([self.vectors_, vector.unsqueeze(0)])
        else:
            self.vectors_[found] = vector

    def __len__(self) -> int:
        return len(self._stoi)

    def __getstate__(self) -> tuple[str, list[int], list[str], list[Tensor]]:
        tensors = [self.vectors_, self.unk_tensor_]
        return VERSION, list(self._stoi.values()), list(self._stoi), tensors

    def __setstate__(self, state: tuple[str, list[int], list[str], list[Tensor]]) -> None:
        version, rows, tokens, tensors = checked_state("Vectors", state, 4)
        if version < VERSION or len(tensors) != 2:
            raise RuntimeError(f"Found unexpected version for serialized Vectors: {version}")
        Vectors.__init__(self, tokens, rows, *tensors)


def vectors_of_file(file_path: str, delimiter: str) -> tuple[list[str], Tensor, list[str]]:
    """Read a file of lines "token number number ...", which one of two words may stand before.

    Args:
        file_path: the file.
        delimiter: what stands after the token; between numbers is a space.

    Returns:
        The tokens, their vectors, float32 of shape (tokens, width), and the tokens of lines whose
        token had come before.

    Raises:
        RuntimeError: the delimiter is longer, there is no such file, or a line has another number
            of numbers, something that is none, or is not UTF-8; the line is named.
    """
    if len(delimiter) != 1:
        raise RuntimeError("Only string delimeters of size 1 are supported.")
    rows: dict[str, Any] = {}
    twins: list[str] = []
    width = 0
    for number, line in lines_of(file_path):
        token, _, rest = line.partition(delimiter)
        words = rest.split()
        if not width and len(words) <= 2:
            continue  # the numbers of words and of columns, before the first vector
        width = width or len(words)
        if not line.strip():
            continue
        if len(words) != width:
            raise RuntimeError(
                f"{file_path}, line {number}: the vector of {token!r} has {len(words)} numbers, "
                f"those before have {width}"
            )
        if token in rows:
            twins.append(token)
            continue
        rows[token] = _numbers(words, file_path, number, token)
    if not rows:
        raise RuntimeError(f"{file_path}: no line holds a token and its vector")
    return list(rows), tangrad.from_numpy(np.stack(list(rows.values()))), twins


def _numbers(words: list[str], path: str, line: int, token: str) -> Any:
    try:
        return np.array(words, dtype=np.float32)
    except ValueError as error:
        raise RuntimeError(f"{path}, line {line}: the vector of {token!r}: {error}") from None

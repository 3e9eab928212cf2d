"""Operators on strings, and counts of n-grams."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.patterns import Pattern
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import Array, to_array


def _each(function: Any, *arrays: Array) -> Array:
    spread = np.broadcast_arrays(*arrays)
    rows = zip(*(a.ravel() for a in spread), strict=True)
    values = [function(*row) for row in rows]
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(spread[0].shape)


def _length(x: Any) -> int:
    return sum(len(str(text)) for text in x.ravel())


@operator(raw=True)
def StringConcat(a: Any, b: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape)
    count = math.prod(shape)
    repeated = [_length(x) * count // max(x.size, 1) for x in (a, b)]
    checked_count([count + sum(repeated)])
    return _each(lambda p, q: str(p) + str(q), a, b)


@operator(raw=True)
def StringSplit(x: Any, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    most = -1 if maxsplit is None else maxsplit
    parts = [str(text).split(delimiter or None, most) if text else [] for text in x.ravel()]
    width = max(map(len, parts), default=0)
    checked_count([len(parts), width])
    cells = np.full((len(parts), width), "", object)
    for i, row in enumerate(parts):
        cells[i, : len(row)] = row
    counts = tangrad.tensor(np.array([len(row) for row in parts], np.int64).reshape(x.shape))
    return cells.reshape((*x.shape, width)), counts


@operator(raw=True)
def StringNormalizer(
    x: Any,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Any = (),
) -> Any:
    change: Any = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case_change_action]
    fold = str if is_case_sensitive else str.lower
    stopped = {fold(word) for word in stopwords or ()}

    def kept(row: Array) -> list[str]:
        words = [change(str(w)) for w in row if fold(str(w)) not in stopped]
        return words or [""]

    if x.ndim == 1:
        return np.array(kept(x), object)
    return np.array([kept(row) for row in x], object)


@operator(raw=True)
def RegexFullMatch(x: Any, *, pattern: str) -> Any:
    compiled = Pattern(pattern)
    found = [compiled.matches(str(text)) for text in x.ravel()]
    return tangrad.tensor(np.array(found, bool).reshape(x.shape))


@operator(raw=True)
def TfIdfVectorizer(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Any,
    ngram_indexes: Any,
    pool_int64s: Any = None,
    pool_strings: Any = None,
    weights: Any = None,
) -> Any:
    pool = list(pool_strings if pool_strings is not None else pool_int64s or ())
    grams: dict[tuple[Any, ...], int] = {}
    bounds = [min(max(at, 0), len(pool)) for at in (*ngram_counts, len(pool))]
    for length, (start, stop) in enumerate(pairwise(bounds), 1):
        for at in range(start, stop, length):
            grams[tuple(pool[at : at + length])] = len(grams)
    array = to_array(x)
    rows = array.reshape(1, -1) if array.ndim < 2 else array
    checked_count([len(rows), max(ngram_indexes) + 1], 4)
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    longest = min(max_gram_length, rows.shape[1], len(ngram_counts))
    skips = min(max_skip_count, rows.shape[1])
    for row, words in enumerate(rows.tolist()):
        for length in range(max(min_gram_length, 1), longest + 1):
            for skip in range(1, (skips if length > 1 else 0) + 2):
                reach = (length - 1) * skip
                for at in range(len(words) - reach):
                    gram = grams.get(tuple(words[at : at + reach + 1 : skip]))
                    if gram is not None:
                        counts[row, ngram_indexes[gram]] += 1
    scale = np.ones(counts.shape[1], np.float32)
    if weights is not None and mode != "TF":
        scale[list(ngram_indexes)] = weights
    if mode in {"IDF", "TFIDF"}:
        counts = (counts > 0 if mode == "IDF" else counts) * scale
    result = counts.astype(np.float32)
    return tangrad.tensor(result[0] if array.ndim < 2 else result)

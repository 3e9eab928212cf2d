"""The module `torchtext._torchtext`, and the classes of `torch.classes.torchtext`.

As in torchtext's extension, there are two classes of each name, neither derived from the other: one
for Python, one for scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad_text import (
    byte_pairs,
    guards,
    patterns,
    sentence_pieces,
    vectors,
    vocabulary,
    word_pieces,
)

__all__ = [
    "BERTEncoder",
    "CLIPEncoder",
    "GPT2BPEEncoder",
    "Regex",
    "RegexTokenizer",
    "SentencePiece",
    "Vectors",
    "Vocab",
    "_build_vocab_from_text_file",
    "_build_vocab_from_text_file_using_python_tokenizer",
    "_load_token_and_vectors_from_file",
    "_load_vocab_from_file",
]


def _for_both(cls: type) -> Any:
    """Register a class for scripts, and return the one for Python."""
    tangrad.library.register_class(f"torchtext::{cls.__name__}", cls)
    return type(
        cls.__name__, (cls,), {"__module__": "torchtext._torchtext", "__doc__": cls.__doc__}
    )


BERTEncoder = _for_both(word_pieces.BERTEncoder)
CLIPEncoder = _for_both(byte_pairs.CLIPEncoder)
GPT2BPEEncoder = _for_both(byte_pairs.GPT2BPEEncoder)
Regex = _for_both(patterns.Regex)
RegexTokenizer = _for_both(patterns.RegexTokenizer)
SentencePiece = _for_both(sentence_pieces.SentencePiece)
Vectors = _for_both(vectors.Vectors)
Vocab = _for_both(vocabulary.Vocab)


def _load_vocab_from_file(file_path: str, min_freq: int, num_cpus: int = 1) -> Any:
    return Vocab(vocabulary.tokens_of_file(file_path, min_freq))


def _build_vocab_from_text_file(
    file_path: str, min_freq: int, num_cpus: int, fn: Callable[[str], Sequence[str]]
) -> Any:
    return Vocab(vocabulary.tokens_of_text(file_path, min_freq, fn))


def _build_vocab_from_text_file_using_python_tokenizer(
    file_path: str, min_freq: int, tokenizer: Callable[[str], Sequence[str]]
) -> Any:
    return Vocab(vocabulary.tokens_of_text(file_path, min_freq, tokenizer))


def _load_token_and_vectors_from_file(
    file_path: str, delimiter: str, num_cpus: int, unk_tensor: Tensor | None
) -> tuple[Any, list[str]]:
    tokens, table, twins = vectors.vectors_of_file(file_path, delimiter)
    rest = tangrad.zeros(table.shape[1]) if unk_tensor is None else unk_tensor
    return Vectors(tokens, list(range(len(tokens))), table, rest), twins


# torchtext loads this module before the others of its own.
guards.install()

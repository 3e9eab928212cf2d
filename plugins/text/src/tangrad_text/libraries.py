"""The libraries that compute tokens: loaded when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def tokenizers() -> Any:
    """Return the module `tokenizers`.

    Raises:
        ImportError: it is not installed.
    """
    return _library("tokenizers", "GPT-2's, CLIP's and BERT's tokens")


def sentencepiece() -> Any:
    """Return the module `sentencepiece`.

    Raises:
        ImportError: it is not installed.
    """
    return _library("sentencepiece", "SentencePiece's tokens")


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"{what} are made by {name}, which is not installed: "
            f"pip install 'tangrad-text[{name}]'",
            name=name,
        ) from None

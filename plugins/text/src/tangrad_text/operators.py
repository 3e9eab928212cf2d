"""The ops of torchtext's extension, by its names and signatures; it declares them itself."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_text import byte_pairs, extension, sentence_pieces

assert extension  # it registers the classes


def _load_string(content: Any) -> Any:
    return tangrad.classes.torchtext.SentencePiece(content)


def _load(path: str) -> Any:
    return _load_string(sentence_pieces.load(path).content_)


_COMPUTED = {
    "generate_sp_model": sentence_pieces.train,
    "load_sp_model": _load,
    "load_sp_model_string": _load_string,
    "gpt2_bpe_pre_tokenizer": byte_pairs.words_of,
    "set_utf8_decoding_ignore": byte_pairs.ignore_broken_utf8,
}
for _name, _kernel in _COMPUTED.items():
    tangrad.library.impl(f"torchtext::{_name}", "default", _kernel)

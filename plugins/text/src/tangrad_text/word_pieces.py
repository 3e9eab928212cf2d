"""BERT's tokens: the longest pieces of words that a vocabulary has, by `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tangrad_text.byte_pairs import _broken
from tangrad_text.libraries import tokenizers
from tangrad_text.vocabulary import Vocab, checked_state, lines_of

_UNKNOWN = "[UNK]"
_LONGEST_WORD = 100


def _tokens_of(path: str) -> list[str]:
    """Return the tokens of a file, one per line; an empty line stands for the newline."""
    tokens = (line.rstrip("\r") or "\n" for _, line in lines_of(path))
    return list(dict.fromkeys(tokens))


class BERTEncoder:
    """BERT's tokens.

    Args:
        vocab_file: a file of one token per line; of twins the first counts.
        do_lower_case: whether capitals become small.
        strip_accents: whether accents are left out; None: where capitals become small.
        never_split: words between spaces whose punctuation, capitals and accents stay.

    Raises:
        RuntimeError: there is no such file, or it is not UTF-8.
        ImportError: `tokenizers` is not installed.
    """

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool,
        strip_accents: bool | None,
        never_split: list[str],
    ) -> None:
        self._make(_tokens_of(vocab_file), do_lower_case, strip_accents, never_split)

    def _make(
        self, tokens: list[str], lower: bool, strip_accents: bool | None, never_split: list[str]
    ) -> None:
        self.vocab_ = Vocab(tokens)
        self.do_lower_case_, self.strip_accents_ = lower, strip_accents
        self.never_split_ = list(never_split)
        self._whole = frozenset(never_split)
        self._library = self._built(lower, lower if strip_accents is None else strip_accents)
        self._library_of_whole: Any = None

    def _built(self, lower: bool, strip_accents: bool, punctuation: bool = True) -> Any:
        library = tokenizers()
        model = library.models.WordPiece(
            self.vocab_.get_stoi(), unk_token=_UNKNOWN, max_input_chars_per_word=_LONGEST_WORD
        )
        made = library.Tokenizer(model)
        made.normalizer = library.normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=True,
            strip_accents=strip_accents,
            lowercase=lower,
        )
        cut = library.pre_tokenizers
        made.pre_tokenizer = cut.BertPreTokenizer() if punctuation else cut.WhitespaceSplit()
        return made

    def tokenize(self, text: str) -> list[str]:
        """Return a text's tokens.

        Raises:
            RuntimeError: a word has none, and the vocabulary has no [UNK].
        """
        return [token for found in self._encodings(text) for token in found.tokens]

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's tokens.

        Raises:
            RuntimeError: a word has none, and the vocabulary has no [UNK].
        """
        return [number for found in self._encodings(text) for number in found.ids]

    def batch_tokenize(self, texts: list[str]) -> list[list[str]]:
        """Return the tokens of each of several texts."""
        if self._whole:
            return [self.tokenize(text) for text in texts]
        return [found.tokens for found in self._all(texts)]

    def batch_encode(self, texts: list[str]) -> list[list[int]]:
        """Return the numbers of the tokens of each of several texts."""
        if self._whole:
            return [self.encode(text) for text in texts]
        return [found.ids for found in self._all(texts)]

    def _all(self, texts: list[str]) -> Any:
        return self._asked(self._library.encode_batch, texts, "".join(map(str, texts)))

    def _encodings(self, text: str) -> Iterator[Any]:
        if not self._whole or self._whole.isdisjoint(text.split(" ")):
            yield self._asked(self._library.encode, text, text)
            return
        for whole, words in groupby(text.split(" "), self._whole.__contains__):
            part = " ".join(words)
            library = self._for_whole() if whole else self._library
            yield self._asked(library.encode, part, part)

    def _for_whole(self) -> Any:
        """Return what makes the pieces of words that keep their capitals and punctuation."""
        if self._library_of_whole is None:
            self._library_of_whole = self._built(False, False, punctuation=False)
        return self._library_of_whole

    def _asked(self, function: Any, given: Any, text: str) -> Any:
        try:
            return function(given, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            raise RuntimeError(_broken(text)) from None
        except Exception as error:  # the library raises nothing more special
            if "Missing [UNK]" not in str(error):
                raise
            raise RuntimeError(
                f"Token {_UNKNOWN} not found and default index is not set: the vocabulary must "
                "have it, as a word of the text is made of none of its tokens"
            ) from None

    def __getstate__(self) -> tuple[bool, bool | None, list[str], list[str]]:
        return self.do_lower_case_, self.strip_accents_, self.never_split_, self.vocab_.get_itos()

    def __setstate__(self, state: tuple[bool, bool | None, list[str], list[str]]) -> None:
        lower, strip_accents, never_split, tokens = checked_state("BERTEncoder", state, 4)
        self._make(tokens, lower, strip_accents, never_split)

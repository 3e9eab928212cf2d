"""GPT-2's and CLIP's tokens: pairs of bytes that are merged, by the library `tokenizers`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_text.libraries import tokenizers
from tangrad_text.patterns import compiled
from tangrad_text.vocabulary import checked_state

# Words with the space before them, and what remains of spaces before the one of the next word.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CLIP = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
_CLIP_SPECIAL = ("<|startoftext|>", "<|endoftext|>")
# A token that stands for bytes which the vocabulary does not have; no text can give it.
_ABSENT = "\0absent"


def _spelled_bytes() -> dict[int, str]:
    """Return the letter that stands for each byte: itself where it can be seen and is no space."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + k) for k, byte in enumerate(rest)}


LETTERS = _spelled_bytes()
_BYTES = {letter: byte for byte, letter in LETTERS.items()}


_ignores_broken_utf8 = False


def ignore_broken_utf8(should_ignore: bool) -> None:
    """Set whether texts that scripts decode lack what is no UTF-8, or are refused."""
    global _ignores_broken_utf8
    _ignores_broken_utf8 = should_ignore


def words_of(text: str) -> list[str]:
    """Return the pieces of a text that GPT-2 merges the bytes of, without `tokenizers`."""
    return _words().findall(text)


def _words() -> re.Pattern[str]:
    # Looking ahead is not RE2's: the branch for spaces is written without, then put in.
    plain = compiled(r"'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^SPACES\pL\pN]+").pattern
    return re.compile(plain.replace("SPACES", r"\s") + r"|\s+(?!\S)|\s+")


class GPT2BPEEncoder:
    """GPT-2's tokens.

    Args:
        bpe_encoder: token -> its number.
        bpe_merge_ranks: two tokens with the separator between -> when they are merged, from 0.
        seperator: the separator.
        byte_encoder: byte -> the letter that stands for it; GPT-2's.
        caching_enabled: ignored: the library keeps the words that it has seen.

    Raises:
        RuntimeError: merges name tokens that are not there, two tokens have one number, or the
            letters are others than GPT-2's.
        ImportError: `tokenizers` is not installed.
    """

    _suffix = ""

    def __init__(
        self,
        bpe_encoder: dict[str, int],
        bpe_merge_ranks: dict[str, int],
        seperator: str,
        byte_encoder: dict[int, str],
        caching_enabled: bool = True,
    ) -> None:
        if dict(byte_encoder) != LETTERS:
            raise RuntimeError(
                "byte_encoder: other letters for bytes than GPT-2's; pass bytes_to_unicode()"
            )
        self.bpe_encoder_, self.bpe_merge_ranks_ = dict(bpe_encoder), dict(bpe_merge_ranks)
        self.seperator_, self.byte_encoder_ = seperator, dict(byte_encoder)
        self.caching_enabled_ = caching_enabled
        self._special: list[str] = []
        self._added: dict[str, int] = {}
        self._decoder = {number: token for token, number in self.bpe_encoder_.items()}
        if len(self._decoder) != len(self.bpe_encoder_):
            token = next(t for t, n in self.bpe_encoder_.items() if self._decoder[n] != t)
            number = self.bpe_encoder_[token]
            raise RuntimeError(
                f"bpe_encoder: {token!r} and {self._decoder[number]!r} both have number {number}"
            )
        self._library = self._built()
        self._divider: re.Pattern[str] | None = None
        self._of_added: dict[int, str] = {}

    def _built(self) -> Any:
        library = tokenizers()
        merges = []
        ranked = sorted(self.bpe_merge_ranks_.items(), key=lambda item: item[1])
        for pair, rank in ranked:
            if not pair:  # an empty line
                continue
            left, _, right = pair.partition(self.seperator_)
            if not left or not right:
                raise RuntimeError(f"bpe_merge_ranks: merge {rank} names one token, {left!r}")
            for token in (left, right, left + right):
                if token not in self.bpe_encoder_:
                    raise RuntimeError(
                        f"bpe_merge_ranks: merge {rank}, {left!r} and {right!r}: the vocabulary "
                        f"has no {token!r}; take the vocabulary and the merges of one model"
                    )
            merges.append((left, right))
        vocabulary = dict(self.bpe_encoder_)
        wanted = {letter + end for letter in LETTERS.values() for end in {"", self._suffix}}
        self._is_whole = wanted <= vocabulary.keys()
        options: dict[str, Any] = {}
        if not self._is_whole:
            vocabulary[_ABSENT] = max(vocabulary.values(), default=-1) + 1
            options["unk_token"] = _ABSENT
        if self._suffix:
            options["end_of_word_suffix"] = self._suffix
        made = library.Tokenizer(library.models.BPE(vocabulary, merges, **options))
        made.pre_tokenizer = self._cut(library)
        return made

    def _cut(self, library: Any) -> Any:
        return library.pre_tokenizers.Sequence(
            [
                library.pre_tokenizers.Split(library.Regex(_GPT2), "isolated"),
                library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's tokens.

        Raises:
            RuntimeError: the vocabulary has not all of its bytes.
        """
        if not self._special:
            return self._numbers(text)
        numbers: list[int] = []
        for part, special in self._parts(text):
            if not special:
                numbers += self._numbers(part)
            elif part in self._added:
                numbers.append(self._added[part])
            else:
                numbers.append(self.bpe_encoder_[part])
        return numbers

    def tokenize(self, text: str) -> list[str]:
        """Return a text's tokens, their bytes as letters.

        Raises:
            RuntimeError: the vocabulary has not all of its bytes.
        """
        tokens: list[str] = []
        for part, special in self._parts(text) if self._special else [(text, False)]:
            tokens += [part] if special else map(self._decoder.__getitem__, self._numbers(part))
        return tokens

    def _numbers(self, text: str) -> list[int]:
        found = self._encoded(text)
        numbers: list[int] = found.ids
        if not self._is_whole and _ABSENT in found.tokens:
            start, end = found.offsets[found.tokens.index(_ABSENT)]
            raise RuntimeError(
                f"the vocabulary has no token for the bytes of {text[start:end]!r}, at {start}; "
                "bpe_encoder must have the 256 letters of byte_encoder"
            )
        return numbers

    def _encoded(self, text: str) -> Any:
        try:
            return self._library.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            raise RuntimeError(_broken(text)) from None

    def _parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield what stands between special tokens, and these.

        A space on either side of them belongs to neither: `decode` puts one there.
        """
        assert self._divider is not None
        last = 0
        for found in self._divider.finditer(text):
            start, end = found.span()
            before = text[last:start]
            if before[-1:].isspace():
                before = before[:-1]
            if before:
                yield before, False
            yield found[0], True
            last = end + 1 if text[end : end + 1].isspace() else end
        if last < len(text):
            yield text[last:], False

    def add_special_tokens(self, special_tokens: dict[str, str], additional: list[str]) -> int:
        """Make tokens that are never cut; those that the vocabulary has not are added to it.

        Args:
            special_tokens: what they are for -> token.
            additional: further ones.

        Returns:
            How many were added.

        Raises:
            RuntimeError: one is empty.
        """
        before = len(self._added)
        for token in (*special_tokens.values(), *additional):
            if not token:
                raise RuntimeError("add_special_tokens: a special token is empty")
            if token not in self._special:
                self._special.append(token)
            if token not in self.bpe_encoder_ and token not in self._added:
                self._added[token] = len(self.bpe_encoder_) + len(self._added)
        longest_first = sorted(self._special, key=len, reverse=True)
        self._divider = re.compile("|".join(map(re.escape, longest_first)))
        self._of_added = {number: token for token, number in self._added.items()}
        return len(self._added) - before

    def decode(self, tokens: list[int]) -> str:
        """Return the text of numbers; what is no UTF-8 is left out.

        In scripts it is left out where `ignore_broken_utf8` says so.

        Raises:
            RuntimeError: a number has no token.
            UnicodeDecodeError: in a script, what is no UTF-8.
        """
        text: list[bytes] = []
        was_special = False
        for k, number in enumerate(tokens):
            token = self._decoder.get(number)
            if token is None:
                token = self._of_added.get(number)
                if token is None:
                    raise RuntimeError(f"no token has the number {number}, at position {k}")
            if number in self._of_added or token in self._special:
                space_before = b" " if k and not was_special else b""
                space_after = b" " if k + 1 < len(tokens) else b""
                text.append(space_before + token.encode() + space_after)
                was_special = True
            else:
                text.append(self._bytes_of(token))
                was_special = False
        strict = isinstance(self, tangrad.ScriptObject) and not _ignores_broken_utf8
        return b"".join(text).decode("utf-8", "strict" if strict else "ignore")

    def _bytes_of(self, token: str) -> bytes:
        return bytes(map(_BYTES.__getitem__, token))

    def __getstate__(self) -> tuple[dict[str, int], dict[str, int], str, dict[int, str], bool]:
        merges, letters = self.bpe_merge_ranks_, self.byte_encoder_
        return self.bpe_encoder_, merges, self.seperator_, letters, self.caching_enabled_

    def __setstate__(
        self, state: tuple[dict[str, int], dict[str, int], str, dict[int, str], bool]
    ) -> None:
        type(self).__init__(self, *checked_state(type(self).__name__, state, 5))


class CLIPEncoder(GPT2BPEEncoder):
    """CLIP's tokens: of words without spaces, whose last token ends with `</w>`."""

    _suffix = "</w>"

    def __init__(
        self,
        bpe_encoder: dict[str, int],
        bpe_merge_ranks: dict[str, int],
        seperator: str,
        byte_encoder: dict[int, str],
        caching_enabled: bool = True,
    ) -> None:
        super().__init__(bpe_encoder, bpe_merge_ranks, seperator, byte_encoder, caching_enabled)
        self._special = [token for token in _CLIP_SPECIAL if token in self.bpe_encoder_]
        self._divider = re.compile("|".join(map(re.escape, _CLIP_SPECIAL)))

    def _cut(self, library: Any) -> Any:
        return library.pre_tokenizers.Sequence(
            [
                library.pre_tokenizers.Split(library.Regex(_CLIP), "removed", invert=True),
                library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def _bytes_of(self, token: str) -> bytes:
        body = token.removesuffix(self._suffix)
        return super()._bytes_of(body) + (b" " if body != token else b"")


def _broken(text: Any) -> str:
    """Return why the library does not take a text."""
    if not isinstance(text, str):
        return f"a text was expected, got {type(text).__name__}"
    at = next((k for k, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return (
        f"the text has half of a pair of UTF-16 at {at}, which is no character; read files with "
        "errors='strict' or 'replace'"
    )

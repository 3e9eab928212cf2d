"""SentencePiece's tokens, by the library `sentencepiece`."""

from __future__ import annotations

import tangrad
from tangrad import Tensor
from tangrad_text.libraries import sentencepiece


class SentencePiece:
    """A model of SentencePiece.

    Args:
        content: what the model's file holds.

    Raises:
        RuntimeError: that is no model.
        ImportError: `sentencepiece` is not installed.
    """

    def __init__(self, content: bytes) -> None:
        self.content_ = bytes(content)
        self._library = sentencepiece().SentencePieceProcessor()
        try:
            loaded = bool(self.content_) and self._library.LoadFromSerializedProto(self.content_)
        except RuntimeError:
            loaded = False
        if not loaded:
            raise RuntimeError(
                f"Failed to load SentencePiece model: {len(self.content_)} bytes are no model"
            )

    def _return_content(self) -> bytes:
        return self.content_

    def Encode(self, input: str) -> list[str]:
        """Return the pieces of a text."""
        return list(self._library.EncodeAsPieces(input))

    def EncodeAsPieces(self, input: str) -> list[str]:
        """Return the pieces of a text."""
        return list(self._library.EncodeAsPieces(input))

    def EncodeAsIds(self, input: str) -> list[int]:
        """Return the numbers of the pieces of a text."""
        return list(self._library.EncodeAsIds(input))

    def DecodeIds(self, ids: list[int]) -> str:
        """Return the text of numbers.

        Raises:
            RuntimeError: one has no piece.
        """
        for number in ids:
            self._check(number)
        return str(self._library.DecodeIds(list(ids)))

    def DecodePieces(self, pieces: list[str]) -> str:
        """Return the text of pieces."""
        return str(self._library.DecodePieces(list(pieces)))

    def GetPieceSize(self) -> int:
        """Return how many pieces there are."""
        return int(self._library.GetPieceSize())

    def unk_id(self) -> int:
        """Return the number of what has no piece."""
        return int(self._library.unk_id())

    def PieceToId(self, piece: str) -> int:
        """Return the number of a piece."""
        return int(self._library.PieceToId(piece))

    def IdToPiece(self, id: int) -> str:
        """Return the piece of a number.

        Raises:
            RuntimeError: it has none.
        """
        self._check(id)
        return str(self._library.IdToPiece(id))

    def _check(self, number: int) -> None:
        if not 0 <= number < self.GetPieceSize():
            raise RuntimeError(f"no piece has the number {number}: there are {self.GetPieceSize()}")

    def __getstate__(self) -> Tensor:
        # Archives of scripts hold no bytes.
        return tangrad.frombuffer(bytearray(self.content_), dtype=tangrad.uint8)

    def __setstate__(self, state: Tensor) -> None:
        SentencePiece.__init__(self, state.cpu().numpy().tobytes())


def train(filename: str, vocab_size: int, model_type: str, model_prefix: str) -> None:
    """Train a model on a text, and write it.

    Args:
        filename: the text.
        vocab_size: how many pieces the model has.
        model_type: "unigram", "bpe", "char" or "word".
        model_prefix: of the two files that are written.

    Raises:
        RuntimeError: it cannot be trained: the text has too few words, or the type is unknown.
        ImportError: `sentencepiece` is not installed.
    """
    library = sentencepiece()
    try:
        library.SentencePieceTrainer.Train(
            input=filename,
            vocab_size=vocab_size,
            model_type=model_type,
            model_prefix=model_prefix,
            minloglevel=2,
        )
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"Failed to train SentencePiece model on {filename}: {error}") from None


def load(path: str) -> SentencePiece:
    """Return the model of a file.

    Raises:
        RuntimeError: there is none, or it is no model.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise RuntimeError(f"Failed to open file {path}: {error.strerror}") from None
    try:
        return SentencePiece(content)
    except RuntimeError as error:
        raise RuntimeError(f"{path}: {error}") from None

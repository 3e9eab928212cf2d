"""SentencePiece's pieces by its own library."""

import pickle

import pytest

import tangrad
from tangrad_text import sentence_pieces

library = pytest.importorskip("sentencepiece")


def load_bytes(path):
    with open(path, "rb") as file:
        return tangrad.ops.torchtext.load_sp_model_string(file.read())


def test_a_model_gives_what_the_library_does(pieces):
    own = library.SentencePieceProcessor(model_file=pieces)
    model = sentence_pieces.load(pieces)
    text = "Some statements of the language. Ünïcode"
    assert model.EncodeAsPieces(text) == model.Encode(text) == own.encode(text, out_type=str)
    numbers = model.EncodeAsIds(text)
    assert numbers == own.encode(text)
    assert model.DecodeIds(numbers) == own.decode(numbers)
    assert model.DecodePieces(model.EncodeAsPieces("the language")) == "the language"
    assert model.GetPieceSize() == 300
    assert model.unk_id() == 0
    assert model.PieceToId(model.IdToPiece(9)) == 9
    for again in (tangrad.ops.torchtext.load_sp_model(pieces), load_bytes(pieces)):
        assert isinstance(again, tangrad.classes.torchtext.SentencePiece)
        assert again.EncodeAsIds(text) == numbers
    assert pickle.loads(pickle.dumps(model)).EncodeAsIds(text) == numbers


def test_what_is_no_model_is_refused(tmp_path, pieces):
    wrong = tmp_path / "wrong.model"
    wrong.write_bytes(b"no model")
    with pytest.raises(RuntimeError, match="wrong.model: Failed to load SentencePiece model"):
        sentence_pieces.load(str(wrong))
    with pytest.raises(RuntimeError, match="Failed to open file .*none"):
        sentence_pieces.load(str(tmp_path / "none"))
    model = sentence_pieces.load(pieces)
    for ask in (lambda: model.IdToPiece(300), lambda: model.DecodeIds([1, 300])):
        with pytest.raises(RuntimeError, match="no piece has the number 300: there are 300"):
            ask()
    few = tmp_path / "few.txt"
    few.write_text("a b\n")
    with pytest.raises(RuntimeError, match="Failed to train SentencePiece model on .*few.txt"):
        sentence_pieces.train(str(few), 5000, "bpe", str(tmp_path / "few"))

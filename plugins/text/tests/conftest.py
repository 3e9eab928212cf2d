"""Vocabularies and models for the tests, trained here on the text that ships with Python."""

import json
from pydoc_data import topics

import pytest

import tangrad


@pytest.fixture(scope="session", autouse=True)
def library(tmp_path_factory):
    """Load a file of the name of torchtext's library, which declares its ops."""
    file = tmp_path_factory.mktemp("torchtext") / "lib" / "libtorchtext.so"
    file.parent.mkdir()
    file.touch()
    tangrad.ops.load_library(str(file))


@pytest.fixture(scope="session")
def text():
    return "\n".join(topics.topics[name] for name in sorted(topics.topics)[:12])


@pytest.fixture(scope="session")
def byte_pairs(tmp_path_factory, text):
    """Return the vocabulary, the merges and the files of a model of byte pairs."""
    tokenizers = pytest.importorskip("tokenizers")
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator([text], vocab_size=600, show_progress=False)
    folder = tmp_path_factory.mktemp("byte_pairs")
    files = trained.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    merges = (folder / "merges.txt").read_text("utf-8").split("\n")[1:]
    ranks = {"\u0001".join(line.split()): rank for rank, line in enumerate(merges) if line}
    return vocabulary, ranks, files


@pytest.fixture(scope="session")
def words(tmp_path_factory, text):
    """Return the file of a vocabulary of pieces of words."""
    tokenizers = pytest.importorskip("tokenizers")
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator([text], vocab_size=500, show_progress=False)
    folder = tmp_path_factory.mktemp("words")
    return trained.save_model(str(folder))[0]


@pytest.fixture(scope="session")
def pieces(tmp_path_factory, text):
    """Return the file of a model of SentencePiece."""
    pytest.importorskip("sentencepiece")
    from tangrad_text.sentence_pieces import train

    folder = tmp_path_factory.mktemp("pieces")
    source = folder / "text.txt"
    source.write_text(text, "utf-8")
    train(str(source), 300, "unigram", str(folder / "model"))
    return str(folder / "model.model")

"""Vocabularies: numbers, files, and what is refused."""

import copy
import pickle

import pytest

from tangrad_text import extension
from tangrad_text.vocabulary import Vocab


@pytest.fixture
def vocab():
    return Vocab(["<unk>", "a", "b"])


def test_tokens_have_numbers_without_gaps(vocab):
    assert len(vocab) == 3
    assert [vocab[token] for token in ("<unk>", "a", "b")] == [0, 1, 2]
    assert "a" in vocab
    assert "c" not in vocab
    assert vocab.lookup_indices(["b", "a", "b"]) == [2, 1, 2]
    assert vocab.lookup_tokens([2, 0]) == ["b", "<unk>"]
    assert vocab.get_stoi() == {"<unk>": 0, "a": 1, "b": 2}


def test_a_token_that_is_not_there_has_the_default_number(vocab):
    for ask in (lambda: vocab["c"], lambda: vocab.lookup_indices(["a", "c"])):
        with pytest.raises(RuntimeError, match="Token c not found.* set_default_index"):
            ask()
    vocab.set_default_index(-7)
    assert vocab["c"] == -7
    assert vocab.lookup_indices(["a", "c"]) == [1, -7]
    vocab.set_default_index(None)
    assert vocab.get_default_index() is None
    with pytest.raises(RuntimeError, match="not found"):
        vocab["c"]


def test_tokens_are_inserted_and_appended(vocab):
    vocab.insert_token("c", 1)
    vocab.append_token("d")
    assert vocab.get_itos() == ["<unk>", "c", "a", "b", "d"]
    assert vocab.get_stoi() == {token: k for k, token in enumerate(vocab.get_itos())}
    vocab.get_itos().append("not the vocabulary's own list")
    assert len(vocab) == 5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda v: v.insert_token("c", 4), "index 4 is out of bounds for vocab of size 3"),
        (lambda v: v.insert_token("a", 0), "Token a already exists in the Vocab with index: 1"),
        (lambda v: v.append_token("a"), "already exists"),
        (lambda v: v.lookup_token(3), "index 3 is out of bounds"),
        (lambda v: v.lookup_token(-1), "index -1 is out of bounds"),
        (lambda v: v.lookup_tokens([0, 5, 9]), "index 5 at position 1 is out of bounds"),
        (lambda v: Vocab(["a", "b", "a"]), "Duplicate token.*'a' has the numbers 0 and 2"),
        (lambda v: v.__setstate__(("0.0.1", [], [], [])), "unexpected version"),
        (lambda v: v.__setstate__(("0.0.2", [])), "to have 4 states"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(vocab, wrong, said):
    with pytest.raises(RuntimeError, match=said):
        wrong(vocab)
    assert vocab.get_itos() == ["<unk>", "a", "b"]
    assert vocab.get_stoi() == {"<unk>": 0, "a": 1, "b": 2}


def test_a_vocabulary_is_pickled_and_copied(vocab):
    vocab.set_default_index(0)
    for made in (pickle.loads(pickle.dumps(vocab)), copy.deepcopy(vocab)):
        assert made.get_itos() == vocab.get_itos()
        assert made["unknown"] == 0


def test_a_file_of_tokens_keeps_their_order(tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text("b\na\n\nb\nᑌᑎIᑕOᗪᕮ\n", "utf-8")
    assert extension._load_vocab_from_file(str(file), 1, 4).get_itos() == ["b", "a", "ᑌᑎIᑕOᗪᕮ"]
    assert extension._load_vocab_from_file(str(file), 2, 4).get_itos() == ["b"]


def test_a_texts_tokens_are_sorted_by_their_counts(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("a b b\nc b a\n", "utf-8")
    build = extension._build_vocab_from_text_file_using_python_tokenizer
    assert build(str(file), 1, str.split).get_itos() == ["b", "a", "c"]
    assert extension._build_vocab_from_text_file(str(file), 2, 1, str.split).get_itos() == [
        "b",
        "a",
    ]


def test_a_wrong_file_is_named_with_its_line(tmp_path):
    file = tmp_path / "tokens.txt"
    with pytest.raises(RuntimeError, match="Cannot open input file .*tokens.txt"):
        extension._load_vocab_from_file(str(file), 1, 1)
    file.write_bytes(b"a\nb\xff\n")
    with pytest.raises(RuntimeError, match="tokens.txt, line 2: no UTF-8"):
        extension._load_vocab_from_file(str(file), 1, 1)
    file.write_text("a\nb\nc d\n")
    with pytest.raises(RuntimeError, match="tokens.txt, line 3: a line holds one token"):
        extension._load_vocab_from_file(str(file), 1, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda v: Vocab([1]), "token 0 is 1 .int."),
        (lambda v: Vocab(["a", None]), "token 1 is None"),
        (lambda v: Vocab("ab"), "takes a list of tokens"),
        (lambda v: Vocab(None), "takes a list of tokens, not None"),
        (lambda v: Vocab(["a"], "x"), "default index is an integer, not 'x'"),
        (lambda v: v.set_default_index("x"), "default index is an integer, not 'x'"),
        (lambda v: v.set_default_index(1.0), "default index is an integer, not 1.0"),
        (lambda v: v.insert_token("c", "0"), "index is an integer, not '0'"),
        (lambda v: v.insert_token(3, 0), "token 0 is 3"),
        (lambda v: v.append_token(3), "token 0 is 3"),
    ],
)
def test_another_type_is_refused_and_changes_nothing(vocab, wrong, said):
    with pytest.raises(TypeError, match=said):
        wrong(vocab)
    assert vocab.get_itos() == ["<unk>", "a", "b"]
    assert vocab.get_default_index() is None

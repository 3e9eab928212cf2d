"""Vectors of words: from tensors, from files, and what is refused."""

import pickle

import pytest

import tangrad
from tangrad_text import extension
from tangrad_text.vectors import Vectors


@pytest.fixture
def vectors():
    table = tangrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    return Vectors(["a", "b"], [1, 0], table, tangrad.tensor([9.0, 9.0]))


def test_tokens_have_vectors(vectors):
    assert vectors["a"].tolist() == [3, 4]
    assert vectors["other"].tolist() == [9, 9]
    assert vectors.lookup_vectors(["b", "a", "b"]).tolist() == [[1, 2], [3, 4], [1, 2]]
    assert vectors.lookup_vectors(["b", "other"]).tolist() == [[1, 2], [9, 9]]
    assert len(vectors) == 2


def test_a_vector_is_replaced_or_added(vectors):
    vectors["a"] = tangrad.tensor([5.0, 6.0])
    vectors["c"] = tangrad.tensor([7.0, 8.0])
    assert vectors.lookup_vectors(["a", "b", "c"]).tolist() == [[5, 6], [1, 2], [7, 8]]
    assert vectors.get_stoi() == {"a": 1, "b": 0, "c": 2}
    again = pickle.loads(pickle.dumps(vectors))
    assert again.lookup_vectors(["c", "d"]).tolist() == [[7, 8], [9, 9]]


@pytest.mark.parametrize(
    ("tokens", "rows", "said"),
    [
        (["a"], [0, 1], "Size of tokens: 1, size of indices: 2"),
        (["a", "a"], [0, 1], "Duplicate token found in tokens list: a"),
        (["a"], [2], "'a' has row 2 of 2 vectors"),
        (["a"], [-1], "'a' has row -1 of 2 vectors"),
    ],
)
def test_tokens_that_do_not_fit_the_rows_are_refused(tokens, rows, said):
    with pytest.raises(RuntimeError, match=said):
        Vectors(tokens, rows, tangrad.zeros(2, 2), tangrad.zeros(2))


def test_a_vector_of_another_width_is_refused(vectors):
    with pytest.raises(RuntimeError, match=r"'c' has shape \(3,\), the others have \(2,\)"):
        vectors["c"] = tangrad.zeros(3)
    assert "c" not in vectors.get_stoi()


def read(path, delimiter=" ", unknown=None):
    return extension._load_token_and_vectors_from_file(str(path), delimiter, 2, unknown)


def test_a_file_of_vectors_is_read(tmp_path):
    file = tmp_path / "words.vec"
    file.write_text("3 3\nthe 0.5 -1 2e-1\ncafé 1 2 3\nthe 7 7 7\n", "utf-8")
    found, twins = read(file)
    assert twins == ["the"]
    assert found["the"].tolist() == pytest.approx([0.5, -1, 0.2])
    assert found["café"].tolist() == [1, 2, 3]
    assert found["other"].tolist() == [0, 0, 0]
    assert read(file, unknown=tangrad.ones(3))[0]["other"].tolist() == [1, 1, 1]
    file.write_text("a,1 2 3\nb c,4 5 6")
    assert read(file, ",")[0]["b c"].tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a 1 2 3\nb 1 2\n", "line 2: the vector of 'b' has 2 numbers, those before have 3"),
        (b"a 1 2 3\nb 1 2 x\n", "line 2: the vector of 'b': could not convert"),
        (b"a 1 2 3\n\xff 1 2 3\n", "line 2: no UTF-8"),
        (b"2 3\n", "no line holds a token and its vector"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, content, said):
    file = tmp_path / "words.vec"
    file.write_bytes(content)
    with pytest.raises(RuntimeError, match=f"words.vec.*{said}"):
        read(file)
    with pytest.raises(RuntimeError, match="delimeters of size 1"):
        read(file, "\t\t")
    with pytest.raises(RuntimeError, match="Cannot open"):
        read(tmp_path / "none")


def test_a_table_and_a_rest_of_other_widths_are_refused():
    table = tangrad.ones(1, 2)
    with pytest.raises(RuntimeError, match=r"\(1, 2\).* has another width"):
        Vectors(["a"], [0], table, tangrad.ones(3))
    with pytest.raises(RuntimeError, match="no table"):
        Vectors(["a"], [0], tangrad.ones(1), tangrad.ones(1))
    empty = Vectors([], [], tangrad.empty(0), tangrad.ones(1))
    assert empty["a"].tolist() == [1.0]

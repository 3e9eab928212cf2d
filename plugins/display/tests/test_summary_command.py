"""`python -m tangrad summary` prints the layers of a model that a file makes."""

from __future__ import annotations

import pytest

from tangrad import cli

FILE = """\
import tangrad
from tangrad import nn
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
example_inputs = tangrad.ones(2, 3)
def make():
    return nn.Embedding(5, 2)
"""


@pytest.fixture
def file(tmp_path):
    """A file of Python that makes models."""
    place = tmp_path / "m.py"
    place.write_text(FILE)
    return place


def test_it_prints_layers_with_the_inputs_of_the_file(file, capsys) -> None:
    assert cli.main(["summary", f"{file}:model"]) == 0
    said = capsys.readouterr().out
    assert "Linear" in said
    assert "[2, 4]" in said
    assert "16 parameters" in said


def test_it_takes_inputs_and_writes_a_page(file, tmp_path, capsys) -> None:
    page = tmp_path / "page.html"
    command = ["summary", f"{file}:make", "--input", "2x4:int64", "--html", str(page)]
    assert cli.main(command) == 0
    assert "[2, 4, 2]" in capsys.readouterr().out
    assert "<b>Embedding</b>" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("place", "said"),
    [("m.py", "FILE:MODEL"), ("{}:none", "has no 'none'"), ("no.py:m", "No such file")],
)
def test_wrong_words_are_one_line(file, capsys, place, said) -> None:
    assert cli.main(["summary", place.format(file)]) == 1
    assert said in capsys.readouterr().err


def test_a_wrong_example_is_told(file, capsys) -> None:
    assert cli.main(["summary", f"{file}:model", "--input", "2xq"]) == 1
    assert "no shape with a dtype" in capsys.readouterr().err

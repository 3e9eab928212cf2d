"""The site has a page for each public name, and its examples are true.

This is the part that takes seconds; `tox run -e site` builds every page and follows every link.
"""

from __future__ import annotations

import doctest
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tangrad
from tangrad.ops.definition.catalogue import all_ops
from tools import torch_names
from tools.website import (
    benchmarks,
    by_hand,
    contents,
    deviations,
    documents,
    op_examples,
    op_pages,
    surface,
)
from tools.website import markdown as md

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = 40  # ops whose examples are made here


@pytest.fixture(scope="module")
def entries() -> list[surface.Entry]:
    return surface.collect()


def test_every_public_module_is_listed_and_each_name_stands_once(entries) -> None:
    names = [name for entry in entries for name in entry.names]
    assert len(names) == len(set(names))
    assert {"tangrad.nn.Linear", "tangrad.float32", "tangrad.Tensor.backward"} <= set(names)


def test_a_module_that_nobody_listed_is_named(monkeypatch) -> None:
    monkeypatch.delitem(surface.SPACES, "tangrad.special")
    with pytest.raises(LookupError, match=r"module tangrad\.special has no page"):
        surface.collect()


def test_every_document_has_its_place_in_the_sidebar(monkeypatch) -> None:
    assert contents.toctrees()
    monkeypatch.setitem(contents.SIDEBAR, "Begin", ["surprises"])
    with pytest.raises(LookupError, match="no place in the sidebar: .*start"):
        contents.toctrees()


@pytest.mark.parametrize("example", by_hand.read_all(), ids=lambda e: e.names[0])
def test_an_example_by_hand_gives_what_it_says(example) -> None:
    if not example.can_run:
        pytest.skip(f"{example.needs} is not installed")
    assert not by_hand.failures(example)


def test_an_example_that_fails_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(by_hand, "ROOT", tmp_path)
    path = tmp_path / "x.txt"
    path.write_text("# A file.\n\nones, zeros\n>>> tangrad.ones(1)\ntensor([2.])\n", "utf-8")
    (example,) = by_hand.read(path)
    assert example.names == ("tangrad.ones", "tangrad.zeros")
    assert "x.txt:3: tangrad.ones" in by_hand.failures(example)


def test_the_names_that_libraries_use_most_have_examples_by_hand(entries) -> None:
    given = {name for example in by_hand.read_all() for name in example.names}
    assert len(by_hand.most_used()) >= 150
    assert not set(by_hand.most_used()) - given
    here = {name for e in by_hand.read_all() if e.can_run for name in e.names}
    assert not here - {name for entry in entries for name in entry.names}


def test_examples_of_ops_are_made_from_their_samples() -> None:
    ops = {(op.functional or op).name: op.functional or op for op in all_ops().values()}
    for name in sorted(ops, key=lambda name: zlib.crc32(name.encode()))[:SAMPLE]:
        try:
            text = op_pages.example_of(ops[name], None)
        except op_examples.NoExampleError:
            continue
        test = doctest.DocTestParser().get_doctest(text + "\n", {"tangrad": tangrad}, name, None, 0)
        assert test.examples[-1].want


def test_an_op_has_a_page_made_from_its_definition(entries) -> None:
    entry = next(entry for entry in entries if entry.op == "softplus")
    page = "\n".join(op_pages.page(tangrad.plugin.find_op("softplus"), entry, None, "its parts"))
    assert "# `tangrad.nn.functional.softplus`" in page
    assert "| Backward |" in page
    assert "ONNX: its parts" in page
    assert ">>> tangrad.nn.functional.softplus(" in page


def test_most_used_names_are_counted_by_library() -> None:
    used = {"a": {"torch.nn.Linear": ["x"], "torch.ones": ["x", "y"]}, "b": {"torch.ones": ["z"]}}
    assert torch_names.most_used(used, 1) == [("torch.ones", 2)]


def test_a_docstring_becomes_markdown() -> None:
    text = """Add *x* and `y`.

    Args:
        x: a number,
            or two.

    Raises:
        ValueError: it is none.

    >>> 1
    """
    page = "\n".join(md.docstring(text))
    assert r"Add \*x\* and `y`." in page
    assert "## Arguments\n\n- **`x`**: a number, or two." in page
    assert "## Errors" in page


def test_formulas_are_shown_without_a_program() -> None:
    pytest.importorskip("docutils", reason="a part of what builds the site")
    assert "<math" in md.plain(r"The square \(x^2\).")


def test_a_link_that_leads_nowhere_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "# A b\n[1](b.md) [2](#a-b) [3](a.md#c) [4](http://x)\n", "utf-8"
    )
    assert documents.broken_links("a.md") == ["b.md", "a.md#c"]
    page = documents.Documents()
    page.pages = {"a.md": "a"}
    page.read("a.md")
    assert page.broken == ["a.md: b.md"]


def test_deviations_are_rows_with_a_subject_and_found_by_name() -> None:
    rows = deviations.read()
    assert len({row.anchor for row in rows}) == len(rows) > 100
    assert not [row.what for row in rows if row.what.endswith(":")]  # programs are left out
    assert {row.subject for row in rows} >= {"Random numbers", "Results", "Quantization"}
    found = deviations.of_names(["tangrad.heaviside", "tangrad.fmod"])
    assert [row.subject for row in found["tangrad.heaviside"]] == ["Results"]
    assert "tangrad.fmod" not in found


def test_a_picture_of_benchmarks_is_not_broken_by_the_names_of_workloads() -> None:
    figures = [{"workload": f"{name} 1M", "ratio": [1, 0.5, 2]} for name in ("a*b+c", "a_b < *c*")]
    picture = benchmarks._picture(figures)
    assert not {"*", "_"} & set(picture)
    texts = [element.text for element in ElementTree.fromstring(picture) if element.tag == "text"]
    assert texts[-2:] == ["a*b+c 1M", "a_b < *c* 1M"]

"""The example that makes the table of accuracy: it runs, and little is lost."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    where = ROOT / "examples" / "quantize_networks.py"
    spec = importlib.util.spec_from_file_location("quantize_networks", where)
    module = importlib.util.module_from_spec(spec)
    before, names = list(sys.path), ("digits", "char_gpt", "quantize_digits")
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("network", ["gpt", "lstm"])
def test_networks_of_text_keep_their_perplexity(example, network):
    rows = example.main(["--only", network, "--steps", "0.02"])
    assert rows
    assert all(row.kept for row in rows)


def test_shapes_are_of_six_kinds_and_told_apart_by_a_network(example):
    images, kinds = example.drawn(60, seed=0).tensors
    assert images.shape == (60, 1, example.SIZE, example.SIZE)
    assert sorted(kinds.unique().tolist()) == list(range(example.SHAPES))
    assert example.residual()(images[:2]).shape == (2, example.SHAPES)

"""The pictures of `tangrad.plot` show what they are given."""

from __future__ import annotations

import numpy as np
import pytest

import tangrad
from tangrad import nn

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    """Close the figures of a test."""
    yield
    matplotlib.pyplot.close("all")


def test_curves_have_a_line_each_and_gaps_for_nan() -> None:
    history = {"train": [3.0, 2.0, float("nan"), 1.0], "test": tangrad.tensor([4.0, 3.0])}
    ax = tangrad.plot.curves(history, log=True)
    assert [line.get_label() for line in ax.lines] == ["train", "test"]
    assert ax.get_yscale() == "log"
    assert np.isnan(ax.lines[0].get_ydata()[2])
    ax.figure.canvas.draw()


def test_a_smoothed_curve_is_not_drawn_towards_zero() -> None:
    ax = tangrad.plot.curves({"a": [5.0, 5.0, float("nan"), 5.0]}, smooth=0.9)
    smooth = ax.lines[1].get_ydata()
    assert np.allclose(smooth[[0, 1, 3]], 5.0)
    assert np.isnan(smooth[2])


def test_a_confusion_matrix_counts_pairs() -> None:
    scores = tangrad.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    ax = tangrad.plot.confusion_matrix(scores, tangrad.tensor([0, 1, 1]), ["cat", "dog"])
    assert ax.images[0].get_array().tolist() == [[1, 0], [1, 1]]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["cat", "dog"]
    shares = tangrad.plot.confusion_matrix([0, 1, 1], [0, 0, 1], normalize=True)
    assert shares.images[0].get_array().tolist() == [[0.5, 0.5], [0, 1]]


def test_filters_and_attention_have_a_picture_each() -> None:
    figure = tangrad.plot.filters(nn.Conv2d(3, 10, 5))
    assert len(figure.axes) == 10
    assert tangrad.plot.filters(tangrad.randn(3, 2, 3, 3), columns=2).axes
    figure = tangrad.plot.attention(tangrad.rand(1, 2, 3, 4), list("abc"), list("wxyz"))
    assert [ax.get_title() for ax in figure.axes] == ["head 0", "head 1"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list("abc")


class Block(nn.Module):
    """A residual block, and an op by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return tangrad.cat([self.second(self.first(x).relu()) + x, x], 1)


def test_a_graph_has_modules_ops_and_what_they_take() -> None:
    from tangrad_display.plot.graphs import recorded

    model = Block()
    nodes = recorded(model, tangrad.ones(2, 4))
    assert [(node.title, node.shape, node.sources) for node in nodes] == [
        ("input 0", "[2, 4]", ()),
        ("first: Linear", "[2, 4]", (0,)),
        ("relu", "[2, 4]", (1,)),
        ("second: Linear", "[2, 4]", (2,)),
        ("add", "[2, 4]", (3, 0)),
        ("cat", "[2, 8]", (4, 0)),
    ]
    assert not model.first._forward_hooks
    assert not model.first._forward_pre_hooks
    ax = tangrad.plot.graph(model, tangrad.ones(2, 4))
    assert sum("Linear" in text.get_text() for text in ax.texts) == 2
    ax.figure.canvas.draw()
    function = recorded(lambda x: (x * 2).sum(), tangrad.ones(3))
    assert [node.title for node in function][1:] == ["mul", "sum"]


def test_a_model_that_raises_keeps_no_hooks() -> None:
    model = Block()
    with pytest.raises(RuntimeError):
        tangrad.plot.graph(model, tangrad.ones(2, 5))
    assert not model.first._forward_hooks


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: p.curves({}), "holds no curve"),
        (lambda p: p.curves({"a": [[1.0]]}, smooth=1.0), "smooth must be"),
        (lambda p: p.curves({"a": tangrad.ones(2, 2)}), r"1 dimensions, got shape \[2, 2\]"),
        (lambda p: p.confusion_matrix([0, 1], [0]), "2 predictions for 1 targets"),
        (lambda p: p.confusion_matrix([0, 5], [0, 1], 3), "must be 0 to 2, got 0 to 5"),
        (lambda p: p.confusion_matrix([0.5], [0], 3), "class numbers"),
        (lambda p: p.filters(nn.Linear(2, 2)), r"4 dimensions, got shape \[2, 2\]"),
        (lambda p: p.attention(tangrad.ones(2, 1, 3, 3)), "one sample"),
        (lambda p: p.attention(tangrad.ones(3, 3), ["a"]), "1 tokens for 3 positions"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said) -> None:
    with pytest.raises(ValueError, match=said):
        call(tangrad.plot)


def test_without_matplotlib_its_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(RuntimeError, match=r"pip install tangrad-display\[plot\]"):
        tangrad.plot.curves({"a": [1.0]})


def test_the_namespaces_are_imported_as_modules() -> None:
    import tangrad.display as display
    import tangrad.plot as plot
    from tangrad.plot import curves

    assert (display, plot) == (tangrad.display, tangrad.plot)
    assert curves is tangrad.plot.curves

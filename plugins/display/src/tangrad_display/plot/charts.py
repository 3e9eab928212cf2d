"""Curves of training, confusion matrices, filters of convolutions, attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tangrad_display.pictures import heat_map, image
from tangrad_display.plot.drawing import array_of, axes_of, pyplot

_LABELLED = 30  # classes or tokens whose names and numbers fit


def curves(
    history: Mapping[str, Sequence[Any]],
    *,
    smooth: float = 0.0,
    log: bool = False,
    step: str = "step",
    ax: Any = None,
) -> Any:
    """Draw losses or metrics over the steps of training.

    Args:
        history: {name: its numbers, one for each step}; NaN leaves a gap.
        smooth: weight of the past in a running mean, from 0 (none) to below 1; then the numbers
            themselves stand faintly behind.
        log: a logarithmic axis of values.
        step: what a step is called.
        ax: matplotlib axes to draw into.

    Returns:
        The axes.

    Raises:
        ValueError: there is nothing to draw, `smooth` is not in its range, or a curve is no list.
    """
    if not history:
        raise ValueError("plot.curves: history holds no curve")
    if not 0 <= smooth < 1:
        raise ValueError(f"plot.curves: smooth must be at least 0 and below 1, got {smooth}")
    ax = axes_of(ax, (7, 4))
    for name, numbers in history.items():
        values = array_of(_plain(numbers), f"plot.curves: {name}", (1,))
        steps = np.arange(1, len(values) + 1)
        if smooth:
            (faint,) = ax.plot(steps, values, alpha=0.25)
            ax.plot(steps, _running_mean(values, smooth), color=faint.get_color(), label=name)
        else:
            ax.plot(steps, values, label=name)
    if log:
        ax.set_yscale("log")
    ax.set_xlabel(step)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _plain(numbers: Any) -> Any:
    if isinstance(numbers, (list, tuple)):
        return [float(number) for number in numbers]
    return numbers


def _running_mean(values: np.ndarray[Any, Any], past: float) -> np.ndarray[Any, Any]:
    """Average exponentially; the first values are not drawn towards zero."""
    found, mean, weight = np.full(values.shape, np.nan), 0.0, 0.0
    for i, value in enumerate(values):
        if np.isfinite(value):
            mean = past * mean + (1 - past) * value
            weight = past * weight + (1 - past)
            found[i] = mean / weight
    return found


def confusion_matrix(
    predicted: Any,
    target: Any,
    classes: Sequence[str] | int | None = None,
    *,
    normalize: bool = False,
    ax: Any = None,
) -> Any:
    """Draw how often each class was taken for each other.

    Args:
        predicted: class numbers of shape `(N,)`, or scores of shape `(N, classes)`, of which the
            greatest counts.
        target: the true class numbers, of shape `(N,)`.
        classes: their names, or how many there are; by default as many as appear.
        normalize: tell shares of each true class in place of counts.
        ax: matplotlib axes to draw into.

    Returns:
        The axes; rows are true classes.

    Raises:
        ValueError: shapes do not agree, or a number is no class.
    """
    guesses = array_of(predicted, "plot.confusion_matrix: predicted", (1, 2))
    if guesses.ndim == 2:
        guesses = guesses.argmax(axis=1)
    truth = array_of(target, "plot.confusion_matrix: target", (1,))
    if truth.shape != guesses.shape:
        raise ValueError(
            f"plot.confusion_matrix: {len(guesses)} predictions for {len(truth)} targets"
        )
    both = np.concatenate([guesses, truth])
    names = [str(name) for name in classes] if isinstance(classes, Sequence) else None
    count = len(names) if names else classes
    if count is None:
        count = int(both.max()) + 1 if both.size else 0
    assert isinstance(count, int)
    if both.size and (both.min() < 0 or both.max() >= count or (both != np.floor(both)).any()):
        raise ValueError(
            f"plot.confusion_matrix: class numbers must be 0 to {count - 1}, got "
            f"{both.min():g} to {both.max():g}"
        )
    places = truth.astype(np.int64) * count + guesses.astype(np.int64)
    table = np.bincount(places, minlength=count * count).reshape(count, count).astype(np.float64)
    if normalize:
        table /= np.maximum(table.sum(axis=1, keepdims=True), 1)
    side = min(2.5 + 0.45 * count, 10)
    ax = axes_of(ax, (side, side))
    ax.imshow(table, cmap="Blues")
    if count <= _LABELLED:
        _write_numbers(ax, table, normalize)
        labels = names or [str(i) for i in range(count)]
        turned = max(map(len, labels), default=0) > 3
        ax.set_xticks(range(count), labels, rotation=90 if turned else 0)
        ax.set_yticks(range(count), labels)
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    return ax


def _write_numbers(ax: Any, table: np.ndarray[Any, Any], shares: bool) -> None:
    half = table.max() / 2 if table.size else 0
    for (row, column), value in np.ndenumerate(table):
        if value:
            text = f"{value:.2f}" if shares else f"{int(value)}"
            colour = "white" if value > half else "black"
            ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)


def filters(weight: Any, *, columns: int = 8, most: int = 64, figure: Any = None) -> Any:
    """Draw the filters of a convolution.

    Args:
        weight: of shape `(out, in, height, width)`, or a module that has such a `weight`. With
            three input channels a filter is drawn in colours, else its first channel around zero.
        columns: filters beside each other.
        most: filters that are drawn.
        figure: matplotlib figure to draw into.

    Returns:
        The figure.

    Raises:
        ValueError: the weight has no such shape.
    """
    weight = getattr(weight, "weight", weight)
    values = array_of(weight, "plot.filters: weight", (4,))[:most]
    count = len(values)
    if not values.size:
        raise ValueError("plot.filters: weight has no elements")
    columns = min(columns, count)
    rows = -(-count // columns)
    if figure is None:
        figure = pyplot().figure(figsize=(columns * 0.8, rows * 0.8), layout="constrained")
    for i, one in enumerate(values):
        ax = figure.add_subplot(rows, columns, i + 1)
        if len(one) == 3:
            spread = np.abs(one).max() or 1.0
            ax.imshow(image(one / (2 * spread) + 0.5, is_byte=False))
        else:
            ax.imshow(heat_map(one[0]))
        ax.set_axis_off()
    return figure


def attention(
    weights: Any,
    tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    figure: Any = None,
) -> Any:
    """Draw attention weights, a picture for each head.

    Args:
        weights: of shape `(queries, keys)`, `(heads, queries, keys)` or with a batch of one in
            front.
        tokens: names of the queries, and of the keys unless `keys` names them.
        keys: names of the keys.
        figure: matplotlib figure to draw into.

    Returns:
        The figure.

    Raises:
        ValueError: the shape is another, or there are not as many names as positions.
    """
    values = array_of(weights, "plot.attention: weights", (2, 3, 4))
    if values.ndim == 4:
        if len(values) != 1:
            raise ValueError(f"plot.attention: weights of one sample are drawn, got {len(values)}")
        values = values[0]
    values = values[None] if values.ndim == 2 else values
    keys = tokens if keys is None else keys
    for names, size, which in (
        (tokens, values.shape[1], "tokens"),
        (keys, values.shape[2], "keys"),
    ):
        if names is not None and len(names) != size:
            raise ValueError(f"plot.attention: {len(names)} {which} for {size} positions")
    heads = len(values)
    columns = min(heads, 4)
    rows = -(-heads // columns)
    if figure is None:
        figure = pyplot().figure(figsize=(3 * columns, 3 * rows), layout="constrained")
    for i, head in enumerate(values):
        ax = figure.add_subplot(rows, columns, i + 1)
        ax.imshow(head, cmap="viridis", vmin=0)
        if heads > 1:
            ax.set_title(f"head {i}", fontsize=9)
        for names, set_ticks, turned in ((keys, ax.set_xticks, 90), (tokens, ax.set_yticks, 0)):
            if names is not None and len(names) <= _LABELLED:
                set_ticks(range(len(names)), names, rotation=turned, fontsize=8)
    return figure

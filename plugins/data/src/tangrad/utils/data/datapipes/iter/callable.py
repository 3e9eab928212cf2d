"""Pipes that call a function of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tangrad.utils.data.collate import default_collate
from tangrad.utils.data.datapipes import IterDataPipe, functional_datapipe
from tangrad.utils.data.datapipes.utils.common import (
    StreamWrapper,
    _check_unpickable_fn,
    length_of,
    validate_input_col,
)

__all__ = ["CollatorIterDataPipe", "FilterIterDataPipe", "MapperIterDataPipe"]


def _called(fn: Callable[..., Any], sample: Any, columns: Any) -> Any:
    """Return what a function gives of a sample, or of its columns."""
    if columns is None:
        return fn(sample)
    if isinstance(columns, (list, tuple)):
        return fn(*(sample[column] for column in columns))
    return fn(sample[columns])


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """Put what a function gives in the place of a sample, or of some of its columns.

    Args:
        datapipe: where samples come from.
        fn: the function.
        input_col: what it gets: None for the sample, a column, or several.
        output_col: where the result stands: None for the first of the input's, -1 for the end.

    Raises:
        ValueError: it takes other arguments, or `output_col` is given without `input_col`.
    """

    def __init__(
        self,
        datapipe: Any,
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
    ) -> None:
        _check_unpickable_fn(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        validate_input_col(fn, input_col)
        self.datapipe, self.fn = datapipe, fn
        self.input_col, self.output_col = input_col, output_col

    def _apply_fn(self, sample: Any) -> Any:
        result = _called(self.fn, sample, self.input_col)
        if self.input_col is None:
            return result
        made = list(sample) if isinstance(sample, tuple) else sample
        if self.output_col == -1:
            made.append(result)
        elif self.output_col is not None:
            made[self.output_col] = result
        elif isinstance(self.input_col, (list, tuple)):
            first, *rest = self.input_col
            made[first] = result
            for column in sorted(rest, reverse=True):
                del made[column]
        else:
            made[self.input_col] = result
        return tuple(made) if isinstance(sample, tuple) else made

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._apply_fn(sample)

    def __len__(self) -> int:
        return length_of(self, self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Make a batch of tensors of each list of samples.

    Args:
        datapipe: where lists of samples come from.
        conversion: what makes a batch; the same as `collate_fn`.
        collate_fn: what makes a batch.

    Raises:
        NotImplementedError: `conversion` is a dict, which is for data frames.
    """

    def __init__(
        self,
        datapipe: Any,
        conversion: Any = default_collate,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        if collate_fn is None and not callable(conversion):
            raise NotImplementedError(
                "collate: conversion is given by column, which is for data frames; pass a function"
            )
        super().__init__(datapipe, conversion if collate_fn is None else collate_fn)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """Hand on the samples that a function says True of.

    Args:
        datapipe: where samples come from.
        filter_fn: the function.
        input_col: what it gets: None for the sample, a column, or several.

    Raises:
        ValueError: it takes other arguments, or, in iteration, gives no bool.
    """

    def __init__(
        self, datapipe: Any, filter_fn: Callable[..., bool], input_col: Any = None
    ) -> None:
        _check_unpickable_fn(filter_fn)
        validate_input_col(filter_fn, input_col)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            kept = _called(self.filter_fn, sample, self.input_col)
            if not isinstance(kept, bool):
                raise ValueError(
                    "Boolean output is required for `filter_fn` of FilterIterDataPipe, got "
                    f"{type(kept)}"
                )
            if kept:
                yield sample
            else:
                StreamWrapper.close_streams(sample)

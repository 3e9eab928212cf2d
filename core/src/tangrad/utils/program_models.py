"""Models that commands name as FILE:MODEL, with example inputs for them."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Any

import tangrad


def load_model(place: str, examples: Sequence[str] = ()) -> tuple[Any, tuple[Any, ...]]:
    """Run a file of Python and return a model of it, with inputs to call it with.

    Args:
        place: "FILE:MODEL": a module in the file, or a function or class that makes one.
        examples: inputs such as "1x16:int64", of ones; by default the file's `example_inputs`.

    Raises:
        ValueError, LookupError, OSError: no such form, name, or file.
    """
    file, _, name = place.rpartition(":")
    if not file:
        raise ValueError("name the model as FILE:MODEL")
    names = runpy.run_path(file, run_name="__tangrad_model__")
    model = names.get(name)
    if model is None:
        raise LookupError(f"{file} has no {name!r}")
    if isinstance(model, type) or not hasattr(model, "state_dict"):
        model = model()
    inputs = tuple(map(_example, examples)) or names.get("example_inputs", ())
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def _example(text: str) -> Any:
    shape, _, dtype = text.partition(":")
    try:
        sizes = [int(size) for size in shape.split("x") if size]
        return tangrad.ones(sizes, dtype=getattr(tangrad, dtype or "float32"))
    except (ValueError, AttributeError):
        raise ValueError(f"{text!r} is no shape with a dtype, such as 1x16:int64") from None

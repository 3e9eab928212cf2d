"""Models that commands name as FILE:MODEL, with example inputs for them."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Any

import tangrad

__all__ = ["load_model"]


def load_model(place: str, examples: Sequence[str] = ()) -> tuple[Any, tuple[Any, ...]]:
    """Run a file of Python and return a model of it, with inputs to call it with.

    Args:
        place: "FILE:MODEL": a module in the file, or a function or class that makes one.
        examples: inputs such as "1x3x224x224" or "1x16:int64", once for each: tensors of ones,
            which are indices, too. Without, `example_inputs` of the file is taken, if it has it.

    Raises:
        ValueError: `place` names no file and model, or an example is no shape with a dtype.
        LookupError: the file has no such name.
        OSError: there is no such file.
    """
    file, _, name = place.rpartition(":")
    if not file:
        raise ValueError("name the model as FILE:MODEL")
    names = runpy.run_path(file, run_name="__tangrad_model__")
    if name not in names:
        raise LookupError(f"{file} has no {name!r}")
    model = names[name]
    if isinstance(model, type) or not hasattr(model, "state_dict"):
        model = model()
    inputs = tuple(map(_example, examples)) or names.get("example_inputs", ())
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def _example(text: str) -> Any:
    shape, _, dtype = text.partition(":")
    try:
        sizes = [int(size) for size in shape.split("x") if size]
        kind = getattr(tangrad, dtype or "float32")
    except (ValueError, AttributeError):
        raise ValueError(f"{text!r} is no shape with a dtype, such as 1x16:int64") from None
    return tangrad.ones(sizes, dtype=kind)

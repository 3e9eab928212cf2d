"""State dicts of quantized models as safetensors: integers and scales beside a JSON header.

The file's tensors are plain, so every reader of safetensors reads them. What they stand for is said
by one entry of the header's metadata, `tangrad.quantized`: JSON that has, for each key of the state
dict, one of

- `{"tensor": NAME}`: a tensor of the file;
- `{"quantized": {"dtype", "shape", "values": NAME, "scale", "zero_point"}}`, or with `"scales"`,
  `"zero_points"` (names) and `"axis"`, or with these and `"group_size"`;
- `{"tuple": [...]}`, `{"dtype": NAME}`, `{"value": number, text, true, false or null}`.

The entry `tangrad.versions` has the versions of the modules, by which they read older states.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad import plugin
from tangrad.serialization import SerializationError
from tangrad.serialization import safetensors as plain
from tangrad.serialization.inspection import describe
from tangrad_quantization.layouts import layout
from tangrad_quantization.weights import groups

__all__ = ["load_file", "save_file"]

KEY, VERSIONS = "tangrad.quantized", "tangrad.versions"


def save_file(
    state: Mapping[str, Any], filename: Any, metadata: dict[str, str] | None = None
) -> None:
    """Write the state dict of a model, quantized or not.

    Args:
        state: what `state_dict()` returned.
        filename: the path.
        metadata: texts to keep with it.

    Raises:
        SerializationError: the state holds something that JSON and tensors cannot say.
    """
    tensors: dict[str, Any] = {}
    tree = {key: _described(value, key, tensors) for key, value in state.items()}
    said = {KEY: json.dumps(tree), VERSIONS: json.dumps(getattr(state, "_metadata", {}))}
    plain.save_file(tensors, filename, {**(metadata or {}), **said})


def _described(value: Any, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a value, whose tensors are added under names that begin with `name`."""
    if layout.is_quantized(value):
        return {"quantized": _quantized(value, name, tensors)}
    if isinstance(value, tangrad.Tensor):
        return {"tensor": _added(value, name, tensors)}
    if isinstance(value, (tuple, list)):
        parts = enumerate(value)
        return {"tuple": [_described(part, f"{name}.{n}", tensors) for n, part in parts]}
    if isinstance(value, tangrad.dtype):
        return {"dtype": str(value).partition(".")[2]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise SerializationError(
        f"safetensors: '{name}' is {type(value).__name__}, which neither tensors nor JSON say; "
        f"save the model by tangrad.save"
    )


def _added(tensor: Any, name: str, tensors: dict[str, Any]) -> str:
    # A state dict may have one tensor twice, and safetensors has none.
    tensors[name] = tensor.detach().clone()
    return name


def _quantized(x: Any, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "dtype": x.dtype.name,
        "shape": list(x.shape),
        "values": _added(layout.values_of(x).contiguous(), name, tensors),
    }
    if x.layout.name == layout.PER_TENSOR:
        scale, zero_point = layout.scale_and_zero(x, "save_file")
        return {**said, "scale": scale, "zero_point": zero_point}
    held = plugin.components(x)
    for part in ("scales", "zero_points"):
        said[part] = _added(held[part], f"{name}.{part}", tensors)
    if x.layout.name == layout.PER_GROUP:
        return {**said, "group_size": groups.group_size(x)}
    return {**said, "axis": layout.q_per_channel_axis(x)}


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Any]:
    """Read the state dict of a model that `save_file` wrote; a plain file as it is.

    Args:
        filename: the path.
        device: where the tensors go.

    Raises:
        SerializationError: the file is damaged, or its header describes what cannot be.
    """
    said = describe(filename).get("metadata") or {}
    tensors = plain.load_file(filename, device)
    if KEY not in said:
        return tensors
    try:
        tree = json.loads(said[KEY])
        made: Any = OrderedDict((key, _rebuilt(entry, tensors)) for key, entry in tree.items())
        made._metadata = OrderedDict(json.loads(said.get(VERSIONS, "{}")))
        return made  # type: ignore[no-any-return]
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise SerializationError(
            f"the header's '{KEY}' is damaged: {type(error).__name__}: {error}", file=str(filename)
        ) from error


def _rebuilt(entry: dict[str, Any], tensors: dict[str, Any]) -> Any:
    ((kind, said),) = entry.items()
    if kind == "tensor":
        return tensors[said]
    if kind == "tuple":
        return tuple(_rebuilt(part, tensors) for part in said)
    if kind == "dtype":
        return _dtype(said)
    if kind == "value":
        return said
    if kind != "quantized":
        raise ValueError(f"an entry is of unknown kind '{kind}'")
    dtype, values, shape = _dtype(said["dtype"]), tensors[said["values"]], tuple(said["shape"])
    if "group_size" in said:
        parts = (tensors[said["scales"]], tensors[said["zero_points"]])
        made = groups.per_group(values, *parts, said["group_size"], dtype)
        if tuple(made.shape) != shape:
            raise ValueError(f"groups of shape {list(made.shape)} are not those of {list(shape)}")
        return made
    layout.require_values(values, dtype, shape)
    if "scale" in said:
        return layout.per_tensor(values, said["scale"], said["zero_point"], dtype, shape)
    parts = (tensors[said["scales"]], tensors[said["zero_points"]])
    return layout.per_channel(values, *parts, said["axis"], dtype, shape)


def _dtype(name: Any) -> Any:
    found = getattr(tangrad, name, None) if isinstance(name, str) else None
    if not isinstance(found, tangrad.dtype):
        raise ValueError(f"there is no dtype '{name}'")
    return found

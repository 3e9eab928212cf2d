"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import _C

_ABSENT = object()


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers.

    Args:
        module: the module.
        parameter_and_buffer_dicts: {qualified name: tensor}, or a sequence of such dicts.
        args: argument(s) of the module's forward. kwargs: its keyword arguments.
        tie_weights: names that share a tensor in the module all get the value given for one.
        strict: names must be exactly those of the module; otherwise those that are neither
            parameters nor buffers are attributes for the time of the call.

    A dict gets what the module assigned meanwhile to the names in it.

    Raises:
        ValueError: a name is given twice, or names that are tied have unlike values.
        RuntimeError: with strict, names are missing or unknown.
        TypeError: a value is no tensor.
    """
    values = _merged(parameter_and_buffer_dicts)
    own = _own_tensors(module) if strict or tie_weights else {}
    if tie_weights:
        values = _tied(values, own)
    if strict and set(values) != set(own):
        raise RuntimeError(
            "Error in functional_call:"
            + _listed("Unexpected", set(values) - set(own))
            + _listed("Missing", set(own) - set(values))
        )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    replaced = []
    try:
        for name, value in values.items():
            replaced.append(_replace(module, name, value))
        return module(*args, **(kwargs or {}))
    finally:
        for name, (table, key, old) in reversed(list(zip(values, replaced, strict=False))):
            values[name] = table[key]
            if old is _ABSENT:
                del table[key]
            else:
                table[key] = old
        if isinstance(parameter_and_buffer_dicts, dict):
            _write_back(values, parameter_and_buffer_dicts)


def _own_tensors(module: Any) -> dict[str, Any]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _listed(kind: str, names: set[str]) -> str:
    return f" {kind} key(s): {', '.join(map(repr, sorted(names)))}." if names else ""


def _merged(dicts: Any) -> dict[str, Any]:
    if not isinstance(dicts, Sequence):
        return dict(dicts)
    merged: dict[str, Any] = {}
    for d in dicts:
        for name, value in d.items():
            if name in merged:
                raise ValueError(
                    f"['{name}'] appeared in multiple dictionaries; behavior of functional call "
                    "is ambiguous"
                )
            merged[name] = value
    return merged


def _tied(values: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Add the names that share a tensor in the module with one that has a value."""
    first: dict[int, str] = {}
    for name, value in values.items():
        if name in own and values[other := first.setdefault(id(own[name]), name)] is not value:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted((name, other))}, which are "
                "tied. Consider using tie_weights=False"
            )
    shared = {name: values[first[id(t)]] for name, t in own.items() if id(t) in first}
    return {**shared, **values}


def _write_back(values: dict[str, Any], given: dict[str, Any]) -> None:
    for name in given:
        if values[name] is not given[name]:
            given[name] = values[name]


def _replace(module: Any, name: str, value: Any) -> tuple[dict[str, Any], str, Any]:
    """Put a tensor in a module's table or among its attributes; return what undoes it.

    Raises:
        AttributeError: there is no submodule of that name.
        TypeError: the value is no tensor.
    """
    if value is not None and not isinstance(value, _C.Tensor):
        raise TypeError(f"functional_call: {value!r} is not an instance of torch.Tensor ('{name}')")
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path) if path else module
    for table in (owner._parameters, owner._buffers):
        if last in table:
            old = table[last]
            table[last] = value
            return table, last, old
    attributes = vars(owner)
    old = attributes.get(last, _ABSENT)
    if old is not _ABSENT and old is not None and not isinstance(old, _C.Tensor):
        raise TypeError(
            f"functional_call: attribute `{last}`: {old!r} is not an instance of torch.Tensor"
        )
    if old is _ABSENT and isinstance(value, _C.Parameter):  # as an assignment would register it
        attributes = owner._parameters
    attributes[last] = value
    return attributes, last, old


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Make all batch normalizations in a module use the statistics of the batch alone.

    `vmap` cannot write running statistics, which all samples would share.

    Args:
        root: the module, changed in place.

    Returns:
        The module.
    """
    for module in root.modules():
        if _is_batch_norm(module) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def _is_batch_norm(module: Any) -> bool:
    # By name: the classes are in a part above this one.
    return any(cls.__name__ == "_BatchNorm" for cls in type(module).__mro__)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stack parameters and buffers of modules of one kind, for vmap over `functional_call`.

    Args:
        models: modules of the same class, all in training or all in evaluation mode.

    Returns:
        (parameters, buffers), each {name: tensor with a leading dimension of len(models)}.

    Raises:
        RuntimeError: no module, or they differ in class or mode, or in what requires gradients.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([dict(m.named_parameters()) for m in models]),
        _stacked([dict(m.named_buffers()) for m in models]),
    )


def _stacked(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack the tensors of each name, as leaves that require gradients where they do."""
    stack, made = _C.lookup_op("stack"), {}
    for name in tables[0]:
        tensors = [table[name] for table in tables]
        wanted = tensors[0].requires_grad
        if any(t.requires_grad != wanted for t in tensors):
            raise RuntimeError(
                f"stack_module_state: Expected {name} of all models to have the same "
                f".requires_grad, got {[t.requires_grad for t in tensors]}"
            )
        made[name] = stack(tensors).detach().requires_grad_(wanted)
    return made

"""Which configuration each node of a graph has."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tangrad import fx, nn
from tangrad_quantization.backend_config import BackendConfig
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.observer import is_observer
from tangrad_quantization.qconfig import on_device_of, qconfig_equals, require_valid
from tangrad_quantization.qconfig_mapping import QConfigMapping

Scopes = dict[str, tuple[str, Any]]


def follow_fusion(model: fx.GraphModule, mapping: QConfigMapping) -> None:
    """Give fused modules the configuration that is set for the types they are of.

    Raises:
        LookupError: the types of one fused module have different ones.
    """
    table = mapping.object_type_qconfigs
    for node in model.graph.nodes:
        if node.op != "call_module":
            continue
        module = model.get_submodule(str(node.target))
        if not isinstance(module, _FusedModule):
            continue
        first, *others = (type(part) for part in module.children())
        wanted = table.get(first)
        for kind in others:
            if not qconfig_equals(table.get(kind), wanted):
                raise LookupError(
                    "During fusion, we need to specify the same qconfigs for all module types in "
                    f"{type(module).__name__}; {first.__name__} and {kind.__name__} of "
                    f"'{node.target}' differ"
                )
        if wanted is not None:
            table[type(module)] = wanted


def follow_training(mapping: QConfigMapping, backend: BackendConfig) -> None:
    """Give modules for training the configuration that is set for their float types."""
    table = mapping.object_type_qconfigs
    for kind, trained in swaps_for_training(backend).items():
        if kind in table:
            table[trained] = table[kind]


def swaps_for_training(backend: BackendConfig) -> dict[Any, Any]:
    """Return types of modules to those that stand for them in training."""
    return {
        config.pattern: config.qat_module
        for config in backend.configs
        if config.qat_module is not None
    }


def by_name(mapping: QConfigMapping, path: str, otherwise: Any) -> Any:
    """Return the configuration of a module's name, or of the nearest outer module's."""
    while path:
        if path in mapping.module_name_qconfigs:
            return mapping.module_name_qconfigs[path]
        path = path.rpartition(".")[0]
    return otherwise


def _of_place(mapping: QConfigMapping, kind: Any, path: str, otherwise: Any) -> Any:
    """Return the configuration by type, overruled by a regular expression, then by name."""
    found = mapping.object_type_qconfigs.get(kind, otherwise)
    for pattern, qconfig in mapping.module_name_regex_qconfigs.items():
        if re.match(pattern, path):
            found = qconfig
            break
    return by_name(mapping, path, found)


def configured(model: fx.GraphModule, mapping: QConfigMapping, scopes: Scopes) -> dict[str, Any]:
    """Return the configuration of each node by its name, None for none.

    Modules get theirs as an attribute, too.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, Any] = {}
    seen: Counter[tuple[str, Any]] = Counter()  # calls so far, by module and type
    for node in model.graph.nodes:
        if node.op == "call_module" and is_observer(modules[str(node.target)]):
            continue
        qconfig = _of_node(node, modules, mapping, scopes, seen)
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        require_valid(qconfig, module)
        found[node.name] = qconfig = on_device_of(qconfig, module)
        if module is not None:
            module.qconfig = qconfig
    return found


def _of_node(
    node: fx.Node,
    modules: dict[str, Any],
    mapping: QConfigMapping,
    scopes: Scopes,
    seen: Counter[tuple[str, Any]],
) -> Any:
    usual = mapping.global_qconfig
    if node.op == "get_attr":
        path = str(node.target).rpartition(".")[0]
        return _of_place(mapping, type(modules[path]), path, usual)
    path, kind = scopes.get(node.name, ("", None))
    if node.op == "call_method":
        usual = _of_place(mapping, node.target, path, usual)
        return _of_place(mapping, kind, path, usual)
    if node.op == "call_function":
        usual = mapping.object_type_qconfigs.get(node.target, usual)
        found = _of_place(mapping, kind, path, usual)
        return _of_order(mapping, path, node.target, seen, found)
    if node.op == "call_module":
        found = _of_place(mapping, type(modules[str(node.target)]), str(node.target), usual)
        return _of_order(mapping, path.rpartition(".")[0], kind, seen, found)
    return None


def of_layers(model: fx.GraphModule, mapping: QConfigMapping, scopes: Scopes) -> dict[str, Any]:
    """Return what any mapping says of each node; fused modules are as their first part."""
    modules = {
        path: module[0] if isinstance(module, _FusedModule) else module
        for path, module in model.named_modules(remove_duplicate=False)
    }
    seen: Counter[tuple[str, Any]] = Counter()
    return {
        node.name: _of_node(node, modules, mapping, scopes, seen)
        for node in model.graph.nodes
        if node.op != "call_module" or not is_observer(modules[str(node.target)])
    }


def _of_order(
    mapping: QConfigMapping,
    path: str,
    kind: Any,
    seen: Counter[tuple[str, Any]],
    otherwise: Any,
) -> Any:
    """Return the configuration of the n-th use of a type in a module."""
    count = seen[path, kind]
    seen[path, kind] += 1
    return mapping.module_name_object_type_order_qconfigs.get((path, kind, count), otherwise)


def swap_for_training(model: nn.Module, backend: BackendConfig) -> None:
    """Put modules with fake quantization in the place of configured float ones."""
    from tangrad_quantization.quantize import convert

    convert(model, mapping=swaps_for_training(backend), inplace=True, remove_qconfig=False)


def require_as_prepared(prepared: QConfigMapping, given: QConfigMapping) -> None:
    """Refuse a mapping for conversion that changes a configuration but to None.

    Raises:
        AssertionError: one is missing, or another.
    """
    if not qconfig_equals(prepared.global_qconfig, given.global_qconfig):
        raise AssertionError(
            "Expected global qconfigs to be the same in the prepare and convert quantization "
            "configs"
        )
    for style in ("object_type", "module_name", "module_name_regex"):
        before, after = (getattr(m, f"{style}_qconfigs") for m in (prepared, given))
        for key, qconfig in before.items():
            if key not in after:
                raise AssertionError(
                    f"Missing key {style} {key} in convert QConfigMapping when it was present in "
                    f"prepare"
                )
            if after[key] is not None and not qconfig_equals(qconfig, after[key]):
                raise AssertionError(
                    "Expected convert QConfigMapping to have the same qconfig as prepare for key "
                    f"{style} {key}; prepare: {qconfig}; convert: {after[key]}"
                )

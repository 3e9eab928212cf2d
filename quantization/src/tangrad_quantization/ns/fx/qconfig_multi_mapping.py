"""Several configurations for each module, to be tried beside each other."""

from __future__ import annotations

import copy
from typing import Any

from tangrad_quantization.qconfig import qconfig_equals
from tangrad_quantization.qconfig_mapping import QConfigMapping

__all__ = ["QConfigMultiMapping"]

# Attribute of a mapping, method that sets it.
_STYLES = {
    "object_type_qconfigs": "set_object_type",
    "module_name_regex_qconfigs": "set_module_name_regex",
    "module_name_qconfigs": "set_module_name",
    "module_name_object_type_order_qconfigs": "set_module_name_object_type_order",
}


def _distinct(qconfigs: list[Any]) -> list[Any]:
    """Return configurations without None and without those that are there already."""
    found: list[Any] = []
    for qconfig in qconfigs:
        known = any(qconfig_equals(qconfig, other) for other in found)
        if qconfig is not None and not known:
            found.append(qconfig)
    return found


class QConfigMultiMapping:
    """A list of `QConfigMapping`s that say of the same modules, functions and names.

    What one of them says of a key the others say, too, None where they have no configuration: a
    more general one would else stand in. Each `set_` method takes a list of configurations in the
    place of one, and returns the object, so that calls can be chained.
    """

    def __init__(self) -> None:
        self.qconfig_mappings_list: list[QConfigMapping] = [QConfigMapping()]

    def _lengthen(self, count: int) -> None:
        missing = QConfigMapping()
        for style in _STYLES:
            keys = getattr(self.qconfig_mappings_list[0], style)
            getattr(missing, style).update(dict.fromkeys(keys))
        while len(self.qconfig_mappings_list) < count:
            self.qconfig_mappings_list.append(copy.deepcopy(missing))

    def _set(self, method: str, place: tuple[Any, ...], qconfigs: list[Any]) -> QConfigMultiMapping:
        found = _distinct(qconfigs)
        self._lengthen(len(found))
        found += [None] * (len(self.qconfig_mappings_list) - len(found))
        for mapping, qconfig in zip(self.qconfig_mappings_list, found, strict=True):
            getattr(mapping, method)(*place, qconfig)
        return self

    def set_global(self, global_qconfig_list: list[Any]) -> QConfigMultiMapping:
        """Set the configurations of what has no others."""
        return self._set("set_global", (), global_qconfig_list)

    def set_object_type(self, object_type: Any, qconfig_list: list[Any]) -> QConfigMultiMapping:
        """Set the configurations of a type of module, a function, or a method by its name."""
        return self._set("set_object_type", (object_type,), qconfig_list)

    def set_module_name_regex(
        self, module_name_regex: str, qconfig_list: list[Any]
    ) -> QConfigMultiMapping:
        """Set the configurations of modules whose whole name matches."""
        return self._set("set_module_name_regex", (module_name_regex,), qconfig_list)

    def set_module_name(self, module_name: str, qconfig_list: list[Any]) -> QConfigMultiMapping:
        """Set the configurations of the module of that name and those within."""
        return self._set("set_module_name", (module_name,), qconfig_list)

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig_list: list[Any]
    ) -> QConfigMultiMapping:
        """Set the configurations of one use, counted from 0, of a type in a module."""
        place = (module_name, object_type, index)
        return self._set("set_module_name_object_type_order", place, qconfig_list)

    def __repr__(self) -> str:
        lines = "".join(f"\n{mapping!r}," for mapping in self.qconfig_mappings_list)
        return f"{type(self).__name__} [{lines}\n]"

    @classmethod
    def from_list_qconfig_mapping(
        cls, qconfig_mapping_list: list[QConfigMapping]
    ) -> QConfigMultiMapping:
        """Return the object that has these mappings, each with all keys of the others."""
        made = cls()
        made.qconfig_mappings_list = copy.deepcopy(qconfig_mapping_list)
        for style, method in _STYLES.items():
            tables = [getattr(mapping, style) for mapping in qconfig_mapping_list]
            for key in dict.fromkeys(key for table in tables for key in table):
                place = key if isinstance(key, tuple) else (key,)
                made._set(method, place, [table[key] for table in tables if key in table])
        return made

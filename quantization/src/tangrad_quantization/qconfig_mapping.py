"""Which configuration a module has: by its name, its type, or for all."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tangrad_quantization.qconfig import default_qat_qconfigs, default_qconfigs

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

# Attribute, key of the dict form, keys of an entry before the configuration.
_STYLES = (
    ("object_type_qconfigs", "object_type"),
    ("module_name_regex_qconfigs", "module_name_regex"),
    ("module_name_qconfigs", "module_name"),
    ("module_name_object_type_order_qconfigs", "module_name_object_type_order"),
)


class QConfigMapping:
    """Configurations by module; the later of these wins: for all, by type, by a regular
    expression of the name, by name, by the place among those of one type in a module.

    Each `set_` method returns the mapping, so that calls can be chained.
    """

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: OrderedDict[Any, Any] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[Any, Any] = OrderedDict()

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """Set the configuration of what has no other."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """Set the configuration of a type of module, a function, or a method by its name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """Set the configuration of modules whose whole name matches; the first match counts."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """Set the configuration of the module of that name and those within."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: Any
    ) -> QConfigMapping:
        """Set the configuration of one use, counted from 0, of a type in a module."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} (", f" global_qconfig\n  {self.global_qconfig}"]
        for attribute, _ in _STYLES:
            lines.append(f" {attribute}")
            lines += [f"  {key}: {value}" for key, value in getattr(self, attribute).items()]
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping as PyTorch's older dict."""
        made: dict[str, Any] = {"": self.global_qconfig}
        for attribute, key in _STYLES:
            entries = getattr(self, attribute).items()
            if key == "module_name_object_type_order":
                made[key] = [(*place, qconfig) for place, qconfig in entries]
            else:
                made[key] = list(entries)
        return made

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """Return the mapping that PyTorch's older dict says."""
        made = cls()
        if "" in qconfig_dict:
            made.set_global(qconfig_dict[""])
        for attribute, key in _STYLES:
            for *place, qconfig in qconfig_dict.get(key, ()):
                entries = getattr(made, attribute)
                entries[place[0] if len(place) == 1 else tuple(place)] = qconfig
        return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """Return the mapping for static quantization; see `get_default_qconfig`."""
    return QConfigMapping.from_dict(default_qconfigs(backend, version))


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """Return the mapping for training; see `get_default_qat_qconfig`."""
    return QConfigMapping.from_dict(default_qat_qconfigs(backend, version))

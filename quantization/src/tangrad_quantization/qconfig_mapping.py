"""Which configuration a module has: by its name, its type, or for all."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from tangrad_quantization.observer import (
    _PartialWrapper,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from tangrad_quantization.qconfig import (
    QConfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_FIXED: tuple[tuple[_PartialWrapper, tuple[Any, ...]], ...] = (
    (
        default_fixed_qparams_range_0to1_observer,
        (
            nn.Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            nn.Sigmoid,
            tangrad.sigmoid,
            "sigmoid",
            "sigmoid_",
            nn.Softmax,
        ),
    ),
    (
        default_fixed_qparams_range_neg1to1_observer,
        (nn.Tanh, tangrad.tanh, "tanh", "tanh_"),
    ),
)
_TRANSPOSED = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)
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
    qconfig = get_default_qconfig(backend, version)
    return _default(qconfig, default_weight_observer, backend, lambda observer: observer)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """Return the mapping for training; see `get_default_qat_qconfig`."""
    qconfig = get_default_qat_qconfig(backend, version)
    return _default(
        qconfig,
        default_weight_fake_quant,
        backend,
        lambda observer: FixedQParamsFakeQuantize.with_args(observer=observer),
    )


def _default(qconfig: QConfig, weight: Any, backend: str, fixed: Any) -> QConfigMapping:
    per_tensor = QConfig(qconfig.activation, weight)
    made = QConfigMapping().set_global(qconfig)
    made.set_object_type("reshape", default_reuse_input_qconfig)
    for kind in _TRANSPOSED:  # their channels do not stand in the first dimension
        made.set_object_type(kind, per_tensor if backend in ("fbgemm", "x86") else qconfig)
    float_weight = QConfig(qconfig.activation, default_placeholder_observer)
    for kind in (F.layer_norm, nn.LayerNorm):
        made.set_object_type(kind, float_weight)
    made.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    for observer, kinds in _FIXED:
        of_fixed = QConfig(fixed(observer), weight)
        for kind in kinds:
            made.set_object_type(kind, of_fixed)
    return made

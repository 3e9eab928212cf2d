"""What people may say beside configurations when they fuse, prepare and convert a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tangrad_quantization.backend_config import BackendConfig
from tangrad_quantization.qconfig_mapping import QConfigMapping
from tangrad_quantization.quant_type import QuantType

__all__ = [
    "ConvertCustomConfig",
    "FuseCustomConfig",
    "PrepareCustomConfig",
    "StandaloneModuleConfigEntry",
]

_QUANT_TYPES = {
    "static": QuantType.STATIC,
    "dynamic": QuantType.DYNAMIC,
    "weight_only": QuantType.WEIGHT_ONLY,
}
_NAMES = {kind: name for name, kind in _QUANT_TYPES.items()}


@dataclass
class StandaloneModuleConfigEntry:
    """How a module is quantized that is prepared and converted by itself.

    Attributes:
        qconfig_mapping: its configurations; None for the outer one.
        example_inputs: its inputs.
        prepare_custom_config: which inputs and outputs are quantized.
        backend_config: None for the outer one.
    """

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: BackendConfig | None


def _as(kind: Any, given: Any, key: str) -> Any:
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind.from_dict(given)
    raise ValueError(
        f'Expected {kind.__name__} in prepare_custom_config_dict["{key}"], got '
        f"{type(given).__name__}"
    )


def _require_known(given: dict[str, Any], known: set[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise ValueError(
                f"Expected {what} to have the following keys: {sorted(known)}. But found '{key}' "
                f"instead."
            )


# Attribute, key of the dict form.
_PREPARE_LISTS = (
    ("non_traceable_module_names", "non_traceable_module_name"),
    ("non_traceable_module_classes", "non_traceable_module_class"),
    ("input_quantized_indexes", "input_quantized_idxs"),
    ("output_quantized_indexes", "output_quantized_idxs"),
    ("preserved_attributes", "preserved_attributes"),
)
_STANDALONE = (
    ("standalone_module_names", "standalone_module_name"),
    ("standalone_module_classes", "standalone_module_class"),
)
_TO_OBSERVED = "float_to_observed_custom_module_class"
_TO_QUANTIZED = "observed_to_quantized_custom_module_class"


class PrepareCustomConfig:
    """What `prepare_fx` and `prepare_qat_fx` treat specially.

    Each `set_` method returns the object, so that calls can be chained.
    """

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[type, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: dict[QuantType, dict[type, type]] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        parts = ", ".join(f"'{key}': {value}" for key, value in self.to_dict().items())
        return f"PrepareCustomConfig({{{parts}}})"

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Let the module of a name be prepared and converted by itself."""
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self,
        module_class: type,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Let modules of a type be prepared and converted by themselves."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(
        self, float_class: type, observed_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> PrepareCustomConfig:
        """Let modules of a type become ones that observe themselves, by `from_float`.

        Raises:
            ValueError: the quantization is not static.
        """
        if quant_type != QuantType.STATIC:
            raise ValueError(
                "set_float_to_observed_mapping is currently only supported for static quantization"
            )
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Set names of modules that are called as they are, not looked into."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Set types of modules that are called as they are, not looked into."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set which inputs of the model are quantized already."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set which outputs of the model remain quantized."""
        self.output_quantized_indexes = indexes
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> PrepareCustomConfig:
        """Set attributes that the graph module takes over though `forward` does not use them."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, prepare_custom_config_dict: dict[str, Any]) -> PrepareCustomConfig:
        """Return what PyTorch's older dict says.

        Raises:
            ValueError: an entry has another type.
        """
        made = cls()
        for attribute, key in _STANDALONE:
            for place, mapping, inputs, inner, backend in prepare_custom_config_dict.get(key, ()):
                getattr(made, attribute)[place] = StandaloneModuleConfigEntry(
                    _as(QConfigMapping, mapping, key),
                    inputs,
                    _as(PrepareCustomConfig, inner, key),
                    _as(BackendConfig, backend, key),
                )
        for name, table in prepare_custom_config_dict.get(_TO_OBSERVED, {}).items():
            for float_class, observed_class in table.items():
                made.set_float_to_observed_mapping(float_class, observed_class, _kind(name))
        for attribute, key in _PREPARE_LISTS:
            setattr(made, attribute, prepare_custom_config_dict.get(key, []))
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return PyTorch's older dict; what is empty is left out."""
        made: dict[str, Any] = {}
        for attribute, key in _STANDALONE:
            entries = getattr(self, attribute)
            if entries:
                made[key] = [_standalone(place, entry) for place, entry in entries.items()]
        if self.float_to_observed_mapping:
            made[_TO_OBSERVED] = {
                _NAMES[kind]: table for kind, table in self.float_to_observed_mapping.items()
            }
        for attribute, key in _PREPARE_LISTS:
            if getattr(self, attribute):
                made[key] = getattr(self, attribute)
        return made


def _kind(name: str) -> QuantType:
    if name not in _QUANT_TYPES:
        raise ValueError(
            f"Unknown quantization type '{name}'; it is one of {', '.join(_QUANT_TYPES)}"
        )
    return _QUANT_TYPES[name]


def _standalone(place: Any, entry: StandaloneModuleConfigEntry) -> tuple[Any, ...]:
    mapping, inner = entry.qconfig_mapping, entry.prepare_custom_config
    return (
        place,
        mapping.to_dict() if mapping else None,
        entry.example_inputs,
        inner.to_dict() if inner else None,
        entry.backend_config,
    )


class ConvertCustomConfig:
    """What `convert_fx` treats specially; each `set_` method returns the object."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[QuantType, dict[type, type]] = {}
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        parts = ", ".join(f"'{key}': {value}" for key, value in self.to_dict().items())
        return f"ConvertCustomConfig({{{parts}}})"

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> ConvertCustomConfig:
        """Let modules that observe themselves become quantized ones, by `from_observed`."""
        table = self.observed_to_quantized_mapping.setdefault(quant_type, {})
        table[observed_class] = quantized_class
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> ConvertCustomConfig:
        """Set attributes that the graph module takes over though `forward` does not use them."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict: dict[str, Any]) -> ConvertCustomConfig:
        """Return what PyTorch's older dict says."""
        known = {_TO_QUANTIZED, "preserved_attributes"}
        _require_known(convert_custom_config_dict, known, "convert_custom_config_dict")
        made = cls()
        for name, table in convert_custom_config_dict.get(_TO_QUANTIZED, {}).items():
            for observed_class, quantized_class in table.items():
                made.set_observed_to_quantized_mapping(observed_class, quantized_class, _kind(name))
        kept = convert_custom_config_dict.get("preserved_attributes", [])
        return made.set_preserved_attributes(kept)

    def to_dict(self) -> dict[str, Any]:
        """Return PyTorch's older dict; what is empty is left out."""
        made: dict[str, Any] = {}
        if self.observed_to_quantized_mapping:
            made[_TO_QUANTIZED] = {
                _NAMES[kind]: table for kind, table in self.observed_to_quantized_mapping.items()
            }
        if self.preserved_attributes:
            made["preserved_attributes"] = self.preserved_attributes
        return made


class FuseCustomConfig:
    """What `fuse_fx` treats specially; each `set_` method returns the object."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        return f"FuseCustomConfig({self.to_dict()})"

    def set_preserved_attributes(self, attributes: list[str]) -> FuseCustomConfig:
        """Set attributes that the graph module takes over though `forward` does not use them."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, fuse_custom_config_dict: dict[str, Any]) -> FuseCustomConfig:
        """Return what PyTorch's older dict says."""
        _require_known(fuse_custom_config_dict, {"preserved_attributes"}, "fuse_custom_config_dict")
        return cls().set_preserved_attributes(
            fuse_custom_config_dict.get("preserved_attributes", [])
        )

    def to_dict(self) -> dict[str, Any]:
        """Return PyTorch's older dict; what is empty is left out."""
        if not self.preserved_attributes:
            return {}
        return {"preserved_attributes": self.preserved_attributes}

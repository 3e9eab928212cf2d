"""What a backend can quantize: patterns of modules and functions, and the dtypes of each.

Graph mode asks a `BackendConfig` three things: which modules are fused, where observers go, and
whether a configuration fits. The classes and the keys of their dict forms are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "BackendConfig",
    "BackendPatternConfig",
    "DTypeConfig",
    "DTypeWithConstraints",
    "ObservationType",
]


class ObservationType(Enum):
    """How the input and the output of a pattern are observed."""

    #: Each by an observer of its own, as of linear layers.
    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    #: By one observer, as of pooling, which has no new scale.
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    #: Neither, as of `x.size()`.
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype, and what an observer must keep to.

    Attributes:
        dtype: the dtype; None for any.
        quant_min_lower_bound: the lowest integer that may be used.
        quant_max_upper_bound: the highest.
        scale_min_lower_bound: what the smallest scale must reach.
        scale_max_upper_bound: not looked at, as in PyTorch.
        scale_exact_match: the scale that is required.
        zero_point_exact_match: the zero point that is required.
    """

    dtype: Any = None
    quant_min_lower_bound: float | None = None
    quant_max_upper_bound: float | None = None
    scale_min_lower_bound: float | None = None
    scale_max_upper_bound: float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _constrained(dtype: Any) -> DTypeWithConstraints:
    return dtype if isinstance(dtype, DTypeWithConstraints) else DTypeWithConstraints(dtype)


@dataclass
class DTypeConfig:
    """The dtypes of one way to quantize a pattern; a configuration is taken if it has them.

    Args:
        input_dtype: a dtype, or one with constraints; None for any.
        output_dtype: likewise.
        weight_dtype: likewise.
        bias_dtype: a dtype.
        is_dynamic: whether inputs are quantized in each call.
    """

    input_dtype_with_constraints: DTypeWithConstraints
    output_dtype_with_constraints: DTypeWithConstraints
    weight_dtype_with_constraints: DTypeWithConstraints
    bias_dtype: Any
    is_dynamic: bool | None

    def __init__(
        self,
        input_dtype: Any = None,
        output_dtype: Any = None,
        weight_dtype: Any = None,
        bias_dtype: Any = None,
        is_dynamic: bool | None = None,
    ) -> None:
        self.input_dtype_with_constraints = _constrained(input_dtype)
        self.output_dtype_with_constraints = _constrained(output_dtype)
        self.weight_dtype_with_constraints = _constrained(weight_dtype)
        self.bias_dtype = bias_dtype
        self.is_dynamic = is_dynamic

    @property
    def input_dtype(self) -> Any:
        """The dtype of inputs."""
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> Any:
        """The dtype of outputs."""
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> Any:
        """The dtype of weights."""
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        """Return what a dict says."""
        keys = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(*(dtype_config_dict.get(key) for key in keys))

    def to_dict(self) -> dict[str, Any]:
        """Return the dict form; what is not set is left out."""
        made: dict[str, Any] = {}
        for role in ("input", "output", "weight"):
            given = getattr(self, f"{role}_dtype_with_constraints")
            if given.dtype is not None:
                made[f"{role}_dtype"] = given
        for key in ("bias_dtype", "is_dynamic"):
            if getattr(self, key) is not None:
                made[key] = getattr(self, key)
        return made


# Attribute, key of the dict form.
_PARTS = (
    ("pattern", "pattern"),
    ("root_module", "root_module"),
    ("qat_module", "qat_module"),
    ("reference_quantized_module", "reference_quantized_module_for_root"),
    ("fused_module", "fused_module"),
    ("fuser_method", "fuser_method"),
    ("_root_node_getter", "root_node_getter"),
    ("_extra_inputs_getter", "extra_inputs_getter"),
    ("_num_tensor_args_to_observation_type", "num_tensor_args_to_observation_type"),
    ("_input_type_to_index", "input_type_to_index"),
    ("_pattern_complex_format", "pattern_complex_format"),
)


class BackendPatternConfig:
    """How one pattern is fused, observed and quantized.

    Each `set_` method returns the object, so that calls can be chained.

    Args:
        pattern: a type of module, a function, the name of a method, or a tuple of these in the
            order in which they are called.
    """

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: Any = None
        self.qat_module: Any = None
        self.reference_quantized_module: Any = None
        self.fused_module: Any = None
        self.fuser_method: Callable[..., Any] | None = None
        self._root_node_getter: Callable[..., Any] | None = None
        self._extra_inputs_getter: Callable[..., Any] | None = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        parts = ", ".join(f"'{key}': {value}" for key, value in self.to_dict().items())
        return f"BackendPatternConfig({{{parts}}})"

    def nested_pattern(self) -> Any:
        """Return the pattern from the last call to the first: (last, (..., first))."""
        if self._pattern_complex_format is not None:
            return self._pattern_complex_format
        if not isinstance(self.pattern, tuple):
            return self.pattern
        first, *later = self.pattern
        for part in later:
            first = (part, first)
        return first

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern, in the order of the calls.

        Raises:
            ValueError: the pattern stands in the nested form already.
        """
        if self._pattern_complex_format is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self.pattern = pattern
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """Set how input and output are observed."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """Add one way to quantize the pattern."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: Sequence[DTypeConfig]) -> BackendPatternConfig:
        """Replace the ways to quantize the pattern."""
        self.dtype_configs = list(dtype_configs)
        return self

    def set_root_module(self, root_module: Any) -> BackendPatternConfig:
        """Set the float module that holds the weight."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: Any) -> BackendPatternConfig:
        """Set the module that stands for the pattern in training."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(
        self, reference_quantized_module: Any
    ) -> BackendPatternConfig:
        """Set the reference module that replaces the root module."""
        self.reference_quantized_module = reference_quantized_module
        return self

    def set_fused_module(self, fused_module: Any) -> BackendPatternConfig:
        """Set the module that the pattern is fused to."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Callable[..., Any]) -> BackendPatternConfig:
        """Set the function `(is_qat, *modules)` that makes the fused module."""
        self.fuser_method = fuser_method
        return self

    def _set_root_node_getter(self, root_node_getter: Any) -> BackendPatternConfig:
        self._root_node_getter = root_node_getter
        return self

    def _set_extra_inputs_getter(self, extra_inputs_getter: Any) -> BackendPatternConfig:
        self._extra_inputs_getter = extra_inputs_getter
        return self

    def _set_num_tensor_args_to_observation_type(
        self, num_tensor_args_to_observation_type: dict[int, ObservationType]
    ) -> BackendPatternConfig:
        self._num_tensor_args_to_observation_type = num_tensor_args_to_observation_type
        return self

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        self._input_type_to_index = input_type_to_index
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        if self.pattern is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self._pattern_complex_format = pattern
        return self

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        """Return what a dict says.

        Raises:
            ValueError: an entry of "dtype_configs" is neither a `DTypeConfig` nor its dict form.
        """
        made = cls()
        for attribute, key in _PARTS:
            if key in backend_pattern_config_dict:
                setattr(made, attribute, backend_pattern_config_dict[key])
        if "observation_type" in backend_pattern_config_dict:
            made.observation_type = backend_pattern_config_dict["observation_type"]
        for given in backend_pattern_config_dict.get("dtype_configs", ()):
            if not isinstance(given, (dict, DTypeConfig)):
                raise ValueError(
                    "Expected a list of DTypeConfigs in "
                    f'backend_pattern_config_dict["dtype_configs"], got {type(given).__name__}'
                )
            made.add_dtype_config(
                DTypeConfig.from_dict(given) if isinstance(given, dict) else given
            )
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the dict form; what is not set is left out."""
        made: dict[str, Any] = {
            "observation_type": self.observation_type,
            "dtype_configs": [config.to_dict() for config in self.dtype_configs],
        }
        for attribute, key in _PARTS:
            value = getattr(self, attribute)
            if value is not None and value != {}:
                made[key] = value
        return made


class BackendConfig:
    """All patterns of a backend; of one pattern the last configuration counts.

    Args:
        name: what the backend is called.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._pattern_complex_format_to_config: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({self.__dict__})"

    def set_name(self, name: str) -> BackendConfig:
        """Set what the backend is called."""
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """Set the configuration of one pattern."""
        self._pattern_complex_format_to_config[config.nested_pattern()] = config
        return self

    def set_backend_pattern_configs(self, configs: Sequence[BackendPatternConfig]) -> BackendConfig:
        """Set the configurations of several patterns."""
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        """The configurations, one for each pattern."""
        return list(self._pattern_complex_format_to_config.values())

    def config_of(self, nested_pattern: Any) -> BackendPatternConfig | None:
        """Return the configuration of a pattern in the nested form."""
        return self._pattern_complex_format_to_config.get(nested_pattern)

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        """Return what a dict says.

        Raises:
            ValueError: an entry of "configs" is neither a `BackendPatternConfig` nor its dict form.
        """
        made = cls(backend_config_dict.get("name", ""))
        for given in backend_config_dict.get("configs", ()):
            if not isinstance(given, (dict, BackendPatternConfig)):
                raise ValueError(
                    'Expected backend_config_dict["configs"] to be a list of '
                    f"BackendPatternConfigs, got {type(given).__name__}"
                )
            whole = isinstance(given, BackendPatternConfig)
            made.set_backend_pattern_config(
                given if whole else BackendPatternConfig.from_dict(given)
            )
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the dict form."""
        return {"name": self.name, "configs": [config.to_dict() for config in self.configs]}

"""Compare a float model and its quantized form made by the eager workflow, layer by layer.

Weights, outputs where both models have a module of the same path, or outputs of float modules that
get the very inputs of quantized ones (`Shadow`). `compute_sqnr` says how far apart two are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tangrad import nn
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.quantized import dynamic as nnqd
from tangrad_quantization.qconfig import QConfig
from tangrad_quantization.quantization_mappings import get_default_compare_output_module_list
from tangrad_quantization.quantize import insert_observers, propagate_qconfig_

__all__ = [
    "Logger",
    "OutputLogger",
    "Shadow",
    "ShadowLogger",
    "compare_model_outputs",
    "compare_model_stub",
    "compare_weights",
    "get_logger_dict",
    "get_matching_activations",
    "prepare_model_outputs",
    "prepare_model_with_stubs",
]

NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST = {nnqd.Linear, nnq.Linear, nnqd.LSTM, nn.LSTM}
_WEIGHT, _PACKED = ".weight", "._packed_params._packed_params"


def compare_weights(
    float_dict: dict[str, Any], quantized_dict: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the weights that a float and a quantized model have at the same place.

    Args:
        float_dict: state of the float model.
        quantized_dict: state of the quantized model.

    Returns:
        Keys of `quantized_dict` to {"float": tensor, "quantized": quantized tensor}.
    """
    found = {}
    for key, value in quantized_dict.items():
        if key.endswith(_WEIGHT) or key == "weight":
            path, weight = key.removesuffix("weight").removesuffix("."), value
        elif key.endswith(_PACKED):
            path, weight = key.removesuffix(_PACKED), value[0]
        else:
            continue
        # A fused module holds the float weight in its first part.
        names = [f"{p}.weight".removeprefix(".") for p in (path, f"{path}.0")]
        match = next((name for name in names if name in float_dict), None)
        if match is not None:
            found[key] = {"float": float_dict[match], "quantized": weight}
    return found


class Logger(nn.Module):
    """Keep what passes.

    Attributes:
        stats: lists of what was seen, by kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, list[Any]] = {}

    def forward(self, x: Any) -> Any:
        """Keep nothing; classes below do."""


class ShadowLogger(Logger):
    """Keep the outputs of a quantized module and of its float one."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = {"float": [], "quantized": []}

    def forward(self, x: Any, y: Any) -> None:  # type: ignore[override]
        """Keep x, the quantized module's output, and y, the float one's; of tuples the first."""
        for kind, value in (("quantized", x), ("float", y)):
            value = value[0] if isinstance(value, tuple) else value
            self.stats[kind].append(value.detach())


class OutputLogger(Logger):
    """Keep outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = {"tensor_val": []}

    def forward(self, x: Any) -> Any:
        """Keep x and return it."""
        self.stats["tensor_val"].append(x)
        return x


def get_logger_dict(mod: Any, prefix: str = "") -> dict[str, dict[str, list[Any]]]:
    """Return what all loggers in a module saw, by "path.stats" of the module they stand in."""
    found = {}
    for path, module in mod.named_modules():
        logger = next((c for c in module.children() if isinstance(c, Logger)), None)
        if logger is not None:
            found[".".join(part for part in (prefix, path, "stats") if part)] = logger.stats
    return found


def _as_float(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_as_float(part) for part in value)
    return value.dequantize() if getattr(value, "is_quantized", False) else value


class Shadow(nn.Module):
    """A quantized module beside its float one, which gets the same inputs as numbers.

    Args:
        q_module: the quantized module; its output is returned.
        float_module: the float module.
        logger_cls: makes what keeps both outputs.
    """

    def __init__(self, q_module: Any, float_module: Any, logger_cls: Callable[[], Any]) -> None:
        super().__init__()
        self.orig_module, self.shadow_module = q_module, float_module
        self.dequant, self.logger = nnq.DeQuantize(), logger_cls()

    def _both(self, name: str, *args: Any) -> Any:
        output = getattr(self.orig_module, name)(*args)
        self.logger(output, getattr(self.shadow_module, name)(*_as_float(args)))
        return output

    def forward(self, *x: Any) -> Any:
        """Return the quantized module's output."""
        return self._both("__call__", *x)

    def add(self, x: Any, y: Any) -> Any:
        """Add by both modules."""
        return self._both("add", x, y)

    def add_scalar(self, x: Any, y: float) -> Any:
        """Add a number by both modules."""
        return self._both("add_scalar", x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """Multiply by both modules."""
        return self._both("mul", x, y)

    def mul_scalar(self, x: Any, y: float) -> Any:
        """Multiply by a number by both modules."""
        return self._both("mul_scalar", x, y)

    def cat(self, x: list[Any], dim: int = 0) -> Any:
        """Join by both modules."""
        return self._both("cat", x, dim)

    def add_relu(self, x: Any, y: Any) -> Any:
        """Add and clip by both modules."""
        return self._both("add_relu", x, y)


def _alike(one: Any, other: Any) -> bool:
    return [type(m) for m in one.modules()] == [type(m) for m in other.modules()]


def prepare_model_with_stubs(
    float_module: Any, q_module: Any, module_swap_list: Iterable[type], logger_cls: Any
) -> None:
    """Put `Shadow` modules into a quantized model, in place.

    Args:
        float_module: the float model.
        q_module: the quantized model.
        module_swap_list: types of float modules that become shadows.
        logger_cls: makes what keeps the outputs.
    """
    kinds = set(module_swap_list)
    beside = dict(float_module.named_children())
    for name, module in list(q_module.named_children()):
        if name not in beside:
            continue
        if type(beside[name]) not in kinds:
            prepare_model_with_stubs(beside[name], module, kinds, logger_cls)
        elif not _alike(module, beside[name]):
            q_module._modules[name] = Shadow(module, beside[name], logger_cls)


def compare_model_stub(
    float_model: Any,
    q_model: Any,
    module_swap_list: Iterable[type],
    *data: Any,
    logger_cls: Any = ShadowLogger,
) -> dict[str, dict[str, list[Any]]]:
    """Run a quantized model with float modules beside its own, and return what both gave.

    Args:
        float_model: the float model.
        q_model: the quantized model; it keeps the `Shadow` modules.
        module_swap_list: types of float modules that are compared.
        data: what the model is called with.
        logger_cls: makes what keeps the outputs.

    Returns:
        Paths to {"float": outputs, "quantized": outputs}.
    """
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


def prepare_model_outputs(
    float_module: Any, q_module: Any, logger_cls: Any = OutputLogger, allow_list: Any = None
) -> None:
    """Let the modules of both models keep their outputs, in place.

    Args:
        float_module: the float model.
        q_module: the quantized model.
        logger_cls: makes what keeps the outputs.
        allow_list: types of modules that do; those of both workflows by default.
    """
    kinds = get_default_compare_output_module_list() if allow_list is None else allow_list
    for model, whole in (
        (float_module, None),
        (q_module, NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST),
    ):
        model.qconfig = QConfig(activation=logger_cls, weight=None)
        propagate_qconfig_(model)
        insert_observers(model, kinds, whole, {})


def get_matching_activations(float_module: Any, q_module: Any) -> dict[str, dict[str, Any]]:
    """Return the outputs that both models kept, by the path in the quantized model.

    Args:
        float_module: the float model after `prepare_model_outputs` and a call.
        q_module: the quantized model, likewise.
    """
    by_float, found = get_logger_dict(float_module), {}
    for key, stats in get_logger_dict(q_module).items():
        path = key.removesuffix("stats")
        # What was fused keeps its name, and its float parts theirs below it: the last one counts.
        names = [key, *sorted((n for n in by_float if _within(n, path)), reverse=True)]
        match = next((name for name in names if name in by_float), None)
        if stats["tensor_val"] and match is not None:
            found[key] = {
                "float": by_float[match]["tensor_val"],
                "quantized": stats["tensor_val"],
            }
    return found


def _within(key: str, path: str) -> bool:
    """Return whether a key is that of a module directly below a path."""
    return key.startswith(path) and key.removeprefix(path).count(".") == 1


def compare_model_outputs(
    float_model: Any,
    q_model: Any,
    *data: Any,
    logger_cls: Any = OutputLogger,
    allow_list: Any = None,
) -> dict[str, dict[str, Any]]:
    """Run both models, and return their outputs where they have a module of the same path.

    Args:
        float_model: the float model; it keeps the loggers.
        q_model: the quantized model; it too.
        data: what the models are called with.
        logger_cls: makes what keeps the outputs.
        allow_list: types of modules that are compared.

    Returns:
        Paths to {"float": outputs, "quantized": outputs}.
    """
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)

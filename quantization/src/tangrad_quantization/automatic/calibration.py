"""Watch a model run: which layers run in which order, and what comes into and out of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from tangrad_quantization.layers.islands import can_be_quantized
from tangrad_quantization.observers.histogram import HistogramObserver

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_KEPT = 8  # inputs of each layer that are kept to try it alone


class Watched:
    """What passed at one place: its histogram."""

    def __init__(self, path: str) -> None:
        self.observer = HistogramObserver(bins=1024)
        self.observer.path = path

    def see(self, x: Any) -> None:
        """Take a tensor in."""
        self.observer(x.float())

    def range(self) -> tuple[float, float]:
        """Return the ends of the range with the least squared error."""
        low, high = self.observer.best_range()
        return min(low.item(), 0.0), max(high.item(), 0.0)

    def picture(self, bins: int = 64) -> tuple[list[float], float, float, float, float]:
        """Return counts, the range they span, and the range that is quantized."""
        counts = self.observer.histogram.reshape(bins, -1).sum(1).tolist()
        ends = self.observer.min_val.item(), self.observer.max_val.item()
        return (counts, *ends, *self.range())


class Seen:
    """What calibration saw of one layer.

    Attributes:
        input, output: what came in and out.
        samples: some of the inputs.
    """

    def __init__(self, path: str) -> None:
        self.input, self.output = Watched(path), Watched(path)
        self.samples: list[Any] = []


def call(model: Any, batch: Any) -> Any:
    """Call a model on a batch: a tensor, a tuple of arguments, or a dict of them."""
    if isinstance(batch, dict):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def tensors_of(output: Any) -> list[Any]:
    """Return the floating-point tensors of what a model returned."""
    if isinstance(output, tangrad.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return [t for part in output for t in tensors_of(part)]
    return []


def layers_in_order(model: Any, batch: Any) -> list[tuple[str, Any]]:
    """Return (path, module) of the layers that can be quantized, in the order in which they run."""
    order: list[tuple[str, Any]] = []
    handles = []
    for path, module in model.named_modules():
        if can_be_quantized(module):

            def note(module: Any, *rest: Any, path: str = path) -> None:
                if (path, module) not in order:
                    order.append((path, module))

            handles.append(module.register_forward_hook(note))
    _run(model, [batch], handles)
    return order


def _run(model: Any, batches: Iterable[Any], handles: list[Any]) -> int:
    count = 0
    try:
        with tangrad.no_grad():
            for batch in batches:
                call(model, batch)
                count += 1
    finally:
        for handle in handles:
            handle.remove()
    return count


def watch(model: Any, layers: list[tuple[str, Any]], batches: list[Any]) -> dict[str, Seen]:
    """Return {path: what was seen} of layers while a model runs over batches.

    Raises:
        ValueError: there are no batches, or a tensor holds NaN; the layer is named.
    """
    if not batches:
        raise ValueError("auto: the calibration data are empty; give at least one batch")
    found = {path: Seen(path) for path, _ in layers}
    handles = [module.register_forward_hook(_seeing(found[path])) for path, module in layers]
    _run(model, batches, handles)
    return found


def _seeing(seen: Seen) -> Callable[..., None]:
    def see(module: Any, inputs: Any, output: Any) -> None:
        seen.input.see(inputs[0])
        seen.output.see(output)
        if len(seen.samples) < _KEPT:
            seen.samples.append(inputs[0].detach())

    return see


def fold_batch_norms(model: Any, batch: Any) -> list[str]:
    """Fold batch norms into the layers whose output they get; return their paths.

    Which layer that is, is seen while the model runs. A fold after which the model gives other
    results, because its code uses the layer's output elsewhere too, is undone.
    """
    made: dict[int, Any] = {}
    pairs: list[tuple[str, str]] = []
    held: list[Any] = []
    handles = []
    for path, module in model.named_modules():
        if can_be_quantized(module):

            def out(module: Any, inputs: Any, output: Any, path: str = path) -> None:
                made[id(output)] = path
                held.append(output)  # so that no other tensor gets its number

            handles.append(module.register_forward_hook(out))
        elif isinstance(module, _NORMS) and module.track_running_stats:

            def norm(module: Any, inputs: Any, path: str = path) -> None:
                if id(inputs[0]) in made:
                    pairs.append((made[id(inputs[0])], path))

            handles.append(module.register_forward_pre_hook(norm))
    _run(model, [batch], handles)
    return [norm for layer, norm in dict.fromkeys(pairs) if _fold(model, layer, norm, batch)]


def _fold(model: Any, layer_path: str, norm_path: str, batch: Any) -> bool:
    layer, norm = model.get_submodule(layer_path), model.get_submodule(norm_path)
    with tangrad.no_grad():
        before = tensors_of(call(model, batch))
        fuse = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
        replace(model, layer_path, fuse(layer, norm))
        replace(model, norm_path, nn.Identity())
        after = tensors_of(call(model, batch))
    if outputs_agree(before, after):
        return True
    replace(model, layer_path, layer)
    replace(model, norm_path, norm)
    return False


def outputs_agree(before: list[Any], after: list[Any]) -> bool:
    """Return whether a model's outputs are the same up to rounding."""
    return all(
        bool((a - b).abs().max() <= 1e-3 * a.abs().max() + 1e-6)
        for a, b in zip(before, after, strict=True)
    )


def replace(model: Any, path: str, module: Any) -> None:
    """Put a module at a path of a model."""
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def signal_to_noise(expected: list[Any], found: list[Any]) -> float:
    """Return the power of tensors over that of their differences from others, in dB."""
    signal = sum((a.double() ** 2).sum().item() for a in expected)
    noise = sum(
        ((a.double() - b.double()) ** 2).sum().item() for a, b in zip(expected, found, strict=True)
    )
    if noise == 0:
        return 200.0
    return 10 * math.log10(max(signal, 1e-300) / noise)

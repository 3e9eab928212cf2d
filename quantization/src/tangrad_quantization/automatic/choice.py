"""Quantize a model in one call, and only where it pays."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tangrad
from tangrad_quantization.automatic import calibration as calibrating
from tangrad_quantization.automatic.equalization import equalize_found
from tangrad_quantization.automatic.report import LayerReport, Report
from tangrad_quantization.layers.islands import LinearIsland, quantized_layer
from tangrad_quantization.quantize import _refuse_quantized

__all__ = ["Automatic", "QuantizationRefused", "auto"]

_FASTEST = 1.0  # a quantized layer may take at most this part of the float layer's time


class QuantizationRefused(RuntimeError):
    """No layer could be quantized within the limits; `report` says why, layer by layer."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class Automatic(NamedTuple):
    """What `auto` returns.

    Attributes:
        model: the quantized model, for inference.
        report: why each layer is what it is.
    """

    model: Any
    report: Report


def auto(
    model: Any,
    calibration: Iterable[Any] | None = None,
    evaluate: Callable[[Any], float] | None = None,
    max_drop: float = 0.005,
    *,
    example: Any = None,
    timer: Callable[[Any, Any], float] | None = None,
) -> Automatic:
    """Quantize a model's linear and convolutional layers where that is fast and loses little.

    The model is copied, batch norms are folded, and its layers are watched while it runs over the
    calibration data, in the order in which they run; no graph is needed. Each layer is then
    quantized alone: one after which the score drops by more than `max_drop`, or which runs slower
    than in float, stays float. If all that are left drop the score too far together, those that
    lose most are given up, one by one. Where it helps, channels of layers that follow each other
    are given like ranges before, and the mean error of a layer's output is taken out of its bias
    (Nagel et al.: "Data-free quantization through weight equalization and bias correction", 2019).

    Args:
        model: the float model.
        calibration: batches, such as the model is called with: tensors, tuples or dicts.
            Without them random ones of `example`'s shape are used, and the report says so.
        evaluate: returns the score of a model; more is better. By default the part of the output's
            power that is not noise, over the calibration data.
        max_drop: how much of the score may be lost.
        example: a batch, where there are no calibration data.
        timer: (module, input) -> seconds of one call; measured by default.

    Returns:
        The model and the report.

    Raises:
        QuantizationRefused: nothing can be quantized within the limits.
        ValueError: there are neither calibration data nor an example, or the data are empty.
        RuntimeError: the model is quantized already.
    """
    _refuse_quantized(model, "auto")
    batches, synthetic = _batches(calibration, example)
    work = copy.deepcopy(model).eval()
    score, scored_by = _score(work, batches, evaluate)
    start = score(work)
    folded = calibrating.fold_batch_norms(work, batches[0])
    layers = calibrating.layers_in_order(work, batches[0])
    if not layers:
        raise ValueError(
            "auto: the model calls no nn.Linear and no convolution, so there is nothing to quantize"
        )
    work, equalized = _equalized(work, batches, score)
    layers = calibrating.layers_in_order(work, batches[0])
    seen = calibrating.watch(work, layers, batches)
    trial = _Trial(work, seen, score, start, max_drop, timer or measure)
    rows = [trial.of_layer(path, module) for path, module in layers]
    end = trial.together(rows)
    report = Report(
        [row.report for row in rows],
        folded,
        start,
        end,
        scored_by,
        synthetic,
        _size(model),
        _size(work),
        equalized=equalized,
    )
    if not any(row.report.quantized for row in rows):
        raise QuantizationRefused(
            "auto: no layer can be quantized within the limits, so the model stays float:\n"
            + "\n".join(f"  {row.report.name}: {row.report.reason}" for row in rows),
            report,
        )
    return Automatic(work, report)


def _equalized(
    model: Any, batches: list[Any], score: Callable[[Any], float]
) -> tuple[Any, list[tuple[str, str]]]:
    """Return the model with channels equalized, and which, if it is better so when quantized."""
    twin = copy.deepcopy(model)
    pairs = equalize_found(twin, batches[0])
    if not pairs or score(_all_quantized(twin, batches)) <= score(_all_quantized(model, batches)):
        return model, []
    return twin, pairs


def _all_quantized(model: Any, batches: list[Any]) -> Any:
    """Return a copy whose every layer is quantized."""
    made = copy.deepcopy(model)
    layers = calibrating.layers_in_order(made, batches[0])
    seen = calibrating.watch(made, layers, batches)
    for path, module in layers:
        calibrating.replace(made, path, quantized_layer(module, seen[path]))
    return made


def _batches(data: Any, example: Any) -> tuple[list[Any], bool]:
    if data is not None:
        batches = list(data)
        if not batches:
            raise ValueError("auto: the calibration data are empty; give at least one batch")
        return batches, False
    if example is None:
        raise ValueError(
            "auto: give calibration data, or example=, a batch whose shape synthetic inputs have"
        )
    return [_like(example) for _ in range(4)], True


def _like(example: Any) -> Any:
    """Return random numbers in the shape of a batch; what is not floating stays."""
    if isinstance(example, dict):
        return {key: _like(part) for key, part in example.items()}
    if isinstance(example, (tuple, list)):
        return tuple(_like(part) for part in example)
    if isinstance(example, tangrad.Tensor) and example.is_floating_point():
        return tangrad.randn(example.shape, dtype=example.dtype)
    return example


def _score(
    model: Any, batches: list[Any], evaluate: Callable[[Any], float] | None
) -> tuple[Callable[[Any], float], str]:
    if evaluate is not None:
        return (lambda candidate: float(evaluate(candidate))), "evaluate"
    expected = _outputs(model, batches)

    def by_noise(candidate: Any) -> float:
        decibel = calibrating.signal_to_noise(expected, _outputs(candidate, batches))
        return 1.0 - 10 ** (-decibel / 10)

    return by_noise, "signal to noise of the output, for want of evaluate"


def _outputs(model: Any, batches: list[Any]) -> list[Any]:
    with tangrad.no_grad():
        return [t for b in batches for t in calibrating.tensors_of(calibrating.call(model, b))]


def _size(model: Any) -> int:
    """Return the bytes of all parameters and buffers."""
    total = 0
    for tensor in [*model.parameters(), *model.buffers()]:
        total += tensor.numel() * tensor.itemsize
    return total


def measure(module: Any, input: Any) -> float:
    """Return the seconds of one call of a module, the median of several."""
    with tangrad.no_grad():
        module(input)
        taken = []
        for _ in range(9):
            begin = time.perf_counter()
            module(input)
            taken.append(time.perf_counter() - begin)
    return sorted(taken)[len(taken) // 2]


class _Row(NamedTuple):
    report: LayerReport
    module: Any
    made: Any


class _Trial:
    """Layers of a model, tried alone and together."""

    def __init__(
        self,
        model: Any,
        seen: dict[str, calibrating.Seen],
        score: Callable[[Any], float],
        start: float,
        max_drop: float,
        timer: Callable[[Any, Any], float],
    ) -> None:
        self.model, self.seen, self.score = model, seen, score
        self.start, self.max_drop, self.timer = start, max_drop, timer

    def of_layer(self, path: str, module: Any) -> _Row:
        """Quantize one layer alone, and say what that gives."""
        seen = self.seen[path]
        made = quantized_layer(module, seen)
        said = LayerReport(path, type(module).__name__)
        with tangrad.no_grad():
            expected = [module(x) for x in seen.samples]
            said.bias_corrected = _correct_bias(made, expected, seen.samples)
            said.signal_to_noise = calibrating.signal_to_noise(
                expected, [made(x) for x in seen.samples]
            )
        calibrating.replace(self.model, path, made)
        said.drop = self.start - self.score(self.model)
        calibrating.replace(self.model, path, module)
        said.float_seconds = self.timer(module, seen.samples[0])
        said.quantized_seconds = self.timer(made, seen.samples[0])
        said.bytes_saved = 3 * module.weight.numel()
        said.input_histogram = seen.input.picture()
        rows = module.weight.detach().float().flatten(1)
        said.channel_ranges = list(zip(rows.amin(1).tolist(), rows.amax(1).tolist(), strict=True))
        said.quantized, said.reason = self._verdict(said)
        return _Row(said, module, made)

    def _verdict(self, said: LayerReport) -> tuple[bool, str]:
        if not said.drop <= self.max_drop:
            return False, f"loses {said.drop:.4f} of the score alone, more than {self.max_drop}"
        if said.quantized_seconds > _FASTEST * said.float_seconds:
            ratio = said.quantized_seconds / said.float_seconds
            return False, f"{ratio:.2f} times the time of float on this machine"
        part = said.quantized_seconds / max(said.float_seconds, 1e-12)
        return True, f"{part:.2f} of the time of float on this machine"

    def together(self, rows: list[_Row]) -> float:
        """Quantize all layers that passed, give up what loses most until it is little enough."""
        for row in rows:
            if row.report.quantized:
                calibrating.replace(self.model, row.report.name, row.made)
        left = sorted((r for r in rows if r.report.quantized), key=lambda r: r.report.drop)
        end = self.score(self.model)
        while left and not self.start - end <= self.max_drop:
            row = left.pop()
            calibrating.replace(self.model, row.report.name, row.module)
            row.report.quantized = False
            row.report.reason = (
                f"given up: together the layers lost {self.start - end:.4f}, and this one most"
            )
            end = self.score(self.model)
        return end


def _correct_bias(made: Any, expected: list[Any], samples: list[Any]) -> bool:
    """Take the mean error of each channel out of the bias, if that makes the error smaller."""
    axis = -1 if isinstance(made, LinearIsland) else 1
    found = [made(x) for x in samples]
    before = calibrating.signal_to_noise(expected, found)
    errors = [
        (a - b).float().movedim(axis, 0).flatten(1) for a, b in zip(expected, found, strict=True)
    ]
    mean = tangrad.cat(errors, 1).mean(1)
    old = made.bias
    made.bias = mean if old is None else old + mean
    made._held = None
    if calibrating.signal_to_noise(expected, [made(x) for x in samples]) > before:
        return True
    made.bias, made._held = old, None
    return False

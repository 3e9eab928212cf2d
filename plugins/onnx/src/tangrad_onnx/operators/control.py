"""If, Loop and Scan, whose bodies are Python functions, and what runs until it is told to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.limits import current
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import to_number, to_tensor

Body = Callable[..., tuple[Any, ...]]


@operator("If", raw=True)
def If(condition: Any, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    if isinstance(condition, (Tensor, np.ndarray)):
        condition = condition.reshape(-1)[0]
    return then_branch() if bool(to_number(condition)) else else_branch()


@operator(raw=True)
def Loop(
    trips: Any, condition: Any, *carried: Any, body: Body, scanned: int = 0, empty: Any = ()
) -> tuple[Any, ...]:
    count = None if trips is None else int(to_number(trips.reshape(-1)[0]))
    going = True if condition is None else bool(to_number(condition.reshape(-1)[0]))
    collected: list[list[Any]] = [[] for _ in range(scanned)]
    step = 0
    values = carried
    limits = current()
    while going and (count is None or step < count):
        limits.step()
        more, *results = body(np.array(step, np.int64), np.array(going), *values)
        # A condition that the model does not have is not looked at.
        going = bool(to_number(more.reshape(-1)[0]))
        values = tuple(results[: len(carried)])
        for kept, value in zip(collected, results[len(carried) :], strict=True):
            kept.append(value)
        step += 1
    return (*values, *(_stacked(parts, like) for parts, like in zip(collected, empty, strict=True)))


def _stacked(parts: list[Any], like: Any) -> Any:
    if not parts:
        return to_tensor(like)
    if all(isinstance(part, np.ndarray) and part.dtype == object for part in parts):
        return np.stack(parts)
    return tangrad.stack([to_tensor(part) for part in parts])


@operator(raw=True)
def Scan(
    *operands: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
) -> tuple[Any, ...]:
    states = list(operands[: len(operands) - num_scan_inputs])
    inputs = [to_tensor(x) for x in operands[len(states) :]]
    axes = scan_input_axes or [0] * len(inputs)
    backward = scan_input_directions or [0] * len(inputs)
    rows = [x.movedim(axis, 0) for x, axis in zip(inputs, axes, strict=True)]
    steps = rows[0].shape[0]
    outputs: list[list[Any]] = []
    for t in range(steps):
        current().step()
        taken = [row[steps - 1 - t if b else t] for row, b in zip(rows, backward, strict=True)]
        results = body(*states, *taken)
        count = len(states)
        states = list(results[:count])
        outputs = outputs or [[] for _ in results[count:]]
        for kept, value in zip(outputs, results[count:], strict=True):
            kept.append(to_tensor(value))
    scanned = []
    for i, parts in enumerate(outputs):
        if scan_output_directions and scan_output_directions[i]:
            parts.reverse()
        scanned.append(tangrad.stack(parts, scan_output_axes[i] if scan_output_axes else 0))
    return (*states, *scanned)


@operator(raw=True)
def ScanOfBatch(
    lengths: Any, *operands: Any, body: Body, num_scan_inputs: int, directions: Any = None
) -> tuple[Any, ...]:
    """Run Scan as it was before opset 9: for each sample of a batch."""
    tensors = [to_tensor(x) for x in operands]
    states = len(tensors) - num_scan_inputs
    found: list[tuple[Any, ...]] = []
    for sample in range(tensors[0].shape[0]):
        rows = [x[sample] for x in tensors]
        full = rows[-1].shape[0]
        if lengths is not None:
            length = int(to_number(lengths[sample]))
            rows[states:] = [row[:length] for row in rows[states:]]
        results = list(
            Scan(
                *rows,
                body=body,
                num_scan_inputs=num_scan_inputs,
                scan_input_directions=directions,
            )
        )
        for i in range(states, len(results)):
            missing = full - results[i].shape[0]
            if missing:
                filler = tangrad.zeros((missing, *results[i].shape[1:]), dtype=results[i].dtype)
                results[i] = tangrad.cat([results[i], filler])
        found.append(tuple(results))
    return tuple(tangrad.stack(parts) for parts in zip(*found, strict=True))


@operator(raw=True)
def SequenceMap(*operands: Any, body: Body) -> tuple[Any, ...]:
    count = len(operands[0])
    rows = [body(*(x[i] if isinstance(x, list) else x for x in operands)) for i in range(count)]
    return tuple(list(parts) for parts in zip(*rows, strict=True))

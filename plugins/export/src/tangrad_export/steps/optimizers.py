"""Whole steps of optimizers: a function that updates a parameter and its state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tangrad.plugin.render import KINDS
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.base import Number, Step, ctype
from tangrad_export.target.dialect import as_text

__all__ = ["OptimizerStep", "optimizer_kernel"]

_SGD = """static void @(T *p, const T *d, T *m, float *begun, int n, double lr, double decay,
    double momentum, double dampening, int nesterov, int maximize) {
    for (int i = 0; i < n; ++i) {
        T grad = maximize ? -d[i] : d[i];
        if (decay != 0) grad += p[i] * (T)decay;
        if (momentum != 0) {
            const T more = begun && !*begun ? grad : grad * (T)(1 - dampening);
            m[i] = m[i] * (T)momentum + more;
            grad = nesterov ? grad + m[i] * (T)momentum : m[i];
        }
        p[i] -= grad * (T)lr;
    }
    if (begun) *begun = 1;
}
"""
_ADAM = """static void @(T *p, const T *d, T *m, T *v, T *most, const float *step, int n, double lr,
    double beta1, double beta2, double decay, double eps, int maximize, int decoupled) {
    const T rate = (T)(lr / (1 - pow(beta1, (double)*step)));
    const T root = (T)sqrt(1 - pow(beta2, (double)*step));
    for (int i = 0; i < n; ++i) {
        T grad = maximize ? -d[i] : d[i];
        if (decoupled) p[i] *= (T)(1 - lr * decay);
        else if (decay != 0) grad += p[i] * (T)decay;
        m[i] += (grad - m[i]) * (T)(1 - beta1);
        v[i] = v[i] * (T)beta2 + grad * grad * (T)(1 - beta2);
        T second = v[i];
        if (most) {
            if (second > most[i]) most[i] = second;
            second = most[i];
        }
        p[i] -= m[i] * rate / ((T)SQRT(second) / root + (T)eps);
    }
}
"""


class _Text:
    def __init__(self, title: str, text: str) -> None:
        self.title, self.text = title, text

    def key(self) -> str:
        """Return what equal functions have in common."""
        return self.text


class OptimizerStep(Step):
    """Update a parameter.

    Args:
        kind: "sgd" or "adam".
        dtype: of all tensors.
        refs: of the function's pointers.
        writes: which it writes.
        numbers: n and the options, in the order of the function's parameters.
    """

    def __init__(
        self,
        kind: str,
        dtype: str,
        refs: Sequence[Ref | None],
        writes: Sequence[int],
        numbers: Sequence[int | float],
    ) -> None:
        super().__init__(refs, writes, numbers)
        self.kind, self.dtype = kind, dtype
        self.work = int(numbers[0]) * 4

    def structure(self) -> Hashable:
        """Return which function it is, and which operands it has."""
        return self.kind, self.dtype, tuple(r is not None for r in self.refs)

    def functions(self) -> list[Any]:
        """Return the function."""
        text = _SGD if self.kind == "sgd" else _ADAM
        text = text.replace("SQRT", "sqrtf" if self.dtype == "float32" else "sqrt")
        return [_Text(self.kind, _typed(text, ctype(self.dtype)))]

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return the call."""
        numbers = [v if isinstance(v, str) else as_text(v) for v in n]
        return [f"{names[0]}({', '.join([*at, *numbers])});"]


def _typed(text: str, kind: str) -> str:
    import re

    return re.sub(r"\bT\b", kind, text)


def optimizer_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of a whole step, None of other ops."""
    if op.name not in ("_fused_sgd_", "_fused_adam_", "_fused_adamw_"):
        return None
    if KINDS[dtype] != "f" or dtype not in ("float32", "float64"):
        return None
    return _sgd(dtype) if op.name == "_fused_sgd_" else _adam(dtype, op.name == "_fused_adamw_")


def _sgd(dtype: str) -> Any:
    def kernel(outs: Any, args: Any) -> None:
        parameters, grads, momenta, decay, momentum, lr, dampening = args[:7]
        nesterov, maximize, _, scale, found = args[7:12]
        _refuse_scaling(scale, found)
        recording = current()
        given = [float(v) for v in (lr, decay, momentum, dampening)]
        flags = [int(v) for v in (nesterov, maximize)]
        for k, parameter in enumerate(parameters):
            if parameter.numel():
                kept = recording.ref(_plain(momenta[k])) if momentum != 0 else None
                refs = [
                    recording.ref(_plain(parameter)),
                    recording.ref(grads[k].contiguous()),
                    kept,
                    recording.begun.get(kept.buffer) if kept else None,
                ]
                numbers = [parameter.numel(), *given, *flags]
                step = OptimizerStep("sgd", dtype, refs, (0, 2), numbers)
                recording.add(step)
                step.writes += (3,) * (refs[3] is not None)  # a cell that is no result of the op

    return kernel


def _adam(dtype: str, decoupled: bool) -> Any:
    def kernel(outs: Any, args: Any) -> None:
        parameters, grads, first, second, largest, steps = args[:6]
        lr, beta1, beta2, decay, eps, amsgrad, maximize, scale, found = args[6:15]
        _refuse_scaling(scale, found)
        recording = current()
        given = [float(v) for v in (lr, beta1, beta2, decay, eps)]
        flags = [int(bool(maximize)), int(decoupled)]
        for k, parameter in enumerate(parameters):
            if parameter.numel():
                refs: list[Ref | None] = [recording.ref(_plain(parameter))]
                refs.append(recording.ref(grads[k].contiguous()))
                refs += [recording.ref(_plain(part[k])) for part in (first, second)]
                refs.append(recording.ref(_plain(largest[k])) if amsgrad else None)
                refs.append(recording.ref(steps[k]))
                numbers = [parameter.numel(), *given, *flags]
                recording.add(OptimizerStep("adam", dtype, refs, (0, 2, 3, 4), numbers))

    return kernel


def _plain(tensor: Any) -> Any:
    if not tensor.is_contiguous():
        raise current().refusal("the optimizer's step has a tensor that is not contiguous")
    return tensor


def _refuse_scaling(scale: Any, found: Any) -> None:
    if scale is not None or found is not None:
        raise current().refusal("the optimizer's step has scaled gradients")

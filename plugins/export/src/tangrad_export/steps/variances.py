"""Variances, of which a negative one is reported as an index out of bounds is."""

from __future__ import annotations

from typing import Any

from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.routines import Routine, Text

__all__ = ["variance_kernel"]

_CHECKED = """static void @(T *y, const T *x, int64_t *report, int n, double eps) {
    for (int i = 0; i < n; ++i) {
        if (x[i] < 0) report[0] = 1;
        y[i] = x[i] < (T)eps ? (T)eps : x[i];
    }
}
"""


def variance_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of `checked_variance`, None of other ops and dtypes."""
    if op.name != "checked_variance" or dtype not in ("float32", "float64"):
        return None

    def kernel(outs: Any, args: Any) -> None:
        (y,), (x, eps), recording = outs, args, current()
        if not y.numel():
            return
        refs = [
            recording.ref(y),
            recording.ref(x.contiguous()),
            Ref(recording.error_cell(), 0, "int64"),
        ]
        function = Text("checked_variance", _CHECKED, dtype)
        step = Routine(function, refs, (0,), [y.numel(), float(eps)], y.numel())
        recording.add(step)
        step.writes += (2,)

    return kernel

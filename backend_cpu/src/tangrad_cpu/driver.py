"""Drive the CPU: memory is the host's, kernels come from the compiled tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from types import MappingProxyType
from typing import Any

from tangrad.plugin import DeviceDriver, find_op, reference_kernel

API = 1

# Elements up to which one call is faster than vectorised sums along each dimension; also, for each
# dimension after the first, so many elements of windows.
_FEW, _TAKEN = 2048, 8192
_WIDE = frozenset(("float32", "float64"))

_op = cache(find_op)


def _window_average(input: Any, *window: Any) -> Any:
    """Average windows of a few elements in one call, with the bits of sums along each dimension."""
    sizes, kernel = window[0], window[1]
    few = input.numel() <= _FEW
    if not few and len(kernel) > 1:
        taken = prod(input.shape[: -len(sizes)]) * prod(sizes) * prod(kernel)
        few = taken <= _TAKEN * (len(kernel) - 1)
    if not few or input.dtype.name not in _WIDE:
        return None
    return _op("window_average")(input, *window)


def _takes_classes(scores: Any, target: Any) -> bool:
    """Tell whether a kernel takes the cross entropy of class numbers, and one its gradient."""
    return scores.ndim == 2 and scores.dtype.name in _WIDE and target.dtype.name == "int64"


def _adds_bias(input: Any) -> bool:
    """Tell whether the kernel of a convolution adds the bias: all but those of complex numbers."""
    real: bool = input.is_floating_point()
    return real


class Cpu(DeviceDriver):
    """Serve device `cpu`; what has no compiled kernel is left to the core's NumPy reference."""

    host = True
    amp_dtypes = ("bfloat16", "float16")
    composites = MappingProxyType(
        {
            "convolution_biased": _adds_bias,
            "cross_entropy": _takes_classes,
            "window_average": _window_average,
        }
    )

    def probe(self) -> bool | str:
        """Say whether the wheel was built for a processor like this one."""
        from tangrad_cpu import _kernels

        levels: dict[str, bool] = _kernels.levels()
        if any(levels.values()):
            return True
        return (
            f"its kernels are compiled for {' and '.join(levels)} only, which this processor does "
            "not run: install a wheel built here, or by build_wheelhouse.py --portable"
        )

    def open(self) -> None:
        """Load the kernels for this machine's instruction set.

        Raises:
            SettingError: `TANGRAD_CPU_ISA` names an unknown level, or one this machine lacks.
        """
        from tangrad_cpu import _kernels

        self._kernels = _kernels
        _kernels.open(self.name)

    def register_kernels(self, register: Any) -> None:
        """Register the copy kernels, which the core looks up without asking; the rest on demand."""
        self._kernels.register_copies()

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Enter the compiled kernel of an op and dtype into its table, else use the reference."""
        found: Callable[..., Any] | None = self._kernels.kernel_for(op, dtype)
        return found if found is not None else reference_kernel(op, dtype)

    def properties(self, index: int) -> dict[str, object]:
        """Return the instruction-set level in use and the number of threads."""
        return {
            "name": "cpu",
            "instruction_set": self._kernels.level(),
            "threads": self._kernels.get_num_threads(),
        }

    def get_num_threads(self) -> int:
        """Return how many threads a kernel uses, the caller's included."""
        threads: int = self._kernels.get_num_threads()
        return threads

    def set_num_threads(self, threads: int) -> None:
        """Set how many threads a kernel may use; results do not depend on it."""
        self._kernels.set_num_threads(threads)

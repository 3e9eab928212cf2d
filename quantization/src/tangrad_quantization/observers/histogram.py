"""The observer that keeps a histogram, and clips where that makes the error smallest."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tangrad
from tangrad_quantization.dtypes import RANGES
from tangrad_quantization.observers.base import EPS, UniformQuantizationObserverBase

__all__ = ["HistogramObserver", "default_histogram_observer"]

_FINER = 16  # a histogram is refined by this before it is laid into wider bins


class HistogramObserver(UniformQuantizationObserverBase):
    """Keep a histogram; the range is the one whose mean squared error is least.

    The search moves one end at a time inwards, the one that clips less, until the error grows
    (norm minimization of Caffe2's quantization server).

    Args:
        bins: number of bins.
        dtype: the quantized dtype.
        qscheme: per tensor, affine or symmetric.
        reduce_range: leave one bit unused.
        quant_min: the lowest integer.
        quant_max: the highest.
        factory_kwargs: device and dtype of the statistics.
        eps: the smallest scale.
        is_dynamic: must be False.
    """

    def __init__(
        self,
        bins: int = 2048,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if qscheme not in (tangrad.per_tensor_affine, tangrad.per_tensor_symmetric):
            raise NotImplementedError(
                f"HistogramObserver observes per tensor, and qscheme is {qscheme}"
            )
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        made = factory_kwargs or {}
        self.bins = bins
        self.register_buffer("histogram", tangrad.zeros(bins, **made))
        self.register_buffer("min_val", tangrad.tensor(math.inf, **made))
        self.register_buffer("max_val", tangrad.tensor(-math.inf, **made))
        span = RANGES.get(self.dtype.name)
        self.dst_nbins = 2 ** (span.bits if span else 8 * self.dtype.itemsize)
        self.upsample_rate = _FINER

    def forward(self, x: Any) -> Any:
        """Add the elements of a tensor, and return it.

        Raises:
            ValueError: an element is NaN.
        """
        if x.numel() == 0:
            return x
        seen = x.detach()
        low, high = tangrad.aminmax(seen)
        if bool(low == -math.inf) or bool(high == math.inf):
            where = f" of '{self.path}'" if self.path else ""
            warnings.warn(
                f"torch.inf detected in input tensor, ignoring input{where}", stacklevel=2
            )
            seen = seen[seen.abs() != math.inf]
            if seen.numel() == 0:
                return x
            low, high = tangrad.aminmax(seen)
        self.refuse_what_is_not_finite(low, high)
        self._add(seen.float(), low.float(), high.float())
        return x

    def _add(self, seen: Any, low: Any, high: Any) -> None:
        if not self._seen_something():
            self._store(self._counts(seen, low, high), low, high)
            return
        new_low = tangrad.minimum(self.min_val, low)
        new_high = tangrad.maximum(self.max_val, high)
        added = self._counts(seen, new_low, new_high)
        self._store(added + self._moved(new_low, new_high), new_low, new_high)

    def _seen_something(self) -> bool:
        return bool(self.min_val != math.inf) and bool(self.max_val != -math.inf)

    def _counts(self, seen: Any, low: Any, high: Any) -> Any:
        return tangrad.histc(seen, self.bins, min=low.item(), max=high.item())

    def _store(self, counts: Any, low: Any, high: Any) -> None:
        self.histogram.resize_(counts.shape).copy_(counts)
        self.min_val.copy_(low)
        self.max_val.copy_(high)

    def _moved(self, low: Any, high: Any) -> Any:
        """Return the histogram so far in the bins of a range that contains its own."""
        old_low, old_high = self.min_val, self.max_val
        if bool(low == old_low) and bool(high == old_high):
            return self.histogram
        if bool(old_low == old_high):
            return self._counts(old_low, low, high) * self.histogram.sum()
        fine = self.bins * _FINER
        size = (old_high - old_low) / fine
        middles = tangrad.linspace(old_low.item(), old_high.item(), fine + 1)[:-1] + 0.5 * size
        edges = tangrad.linspace(low.item(), high.item(), self.bins + 1)
        places = tangrad.bucketize(middles, edges, right=True) - 1
        weights = self.histogram.repeat_interleave(_FINER) / _FINER
        return tangrad.bincount(
            places.clamp(0, self.bins - 1), weights=weights, minlength=self.bins
        )

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return the scale and the zero point of the best range.

        Raises:
            AssertionError: the histogram has another number of bins than the observer.
        """
        if not self._seen_something():
            warnings.warn(
                "must run observer before calling calculate_qparams. Returning default scale "
                "and zero point",
                stacklevel=2,
            )
            device = self.min_val.device
            return tangrad.tensor([1.0], device=device), tangrad.tensor([0], device=device)
        if self.bins != len(self.histogram):
            raise AssertionError(
                f"the histogram has {len(self.histogram)} bins and the observer {self.bins}"
            )
        return self._calculate_qparams(*self.best_range())

    def best_range(self) -> tuple[Any, Any]:
        """Return the ends, tensors without dimensions, of the range with the least error."""
        # NumPy comes with it, which programs that only have this package installed need not load.
        from tangrad_quantization.observers.clipping import least_error

        counts = self.histogram.detach().cpu().float().numpy()
        low, high = self.min_val.item(), self.max_val.item()
        first, last = least_error(counts, (high - low) / self.bins, self.dst_nbins)
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        nothing = {"min_val": math.inf, "max_val": -math.inf}
        for name, value in nothing.items():
            kept = state_dict.get(prefix + name)
            if (version is None or version < 3) and kept is not None and kept.numel() == 0:
                state_dict[prefix + name] = tangrad.tensor(value)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)

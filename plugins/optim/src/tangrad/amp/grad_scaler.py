"""Scale losses up and gradients down again, so that small gradients survive float16."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tangrad
from tangrad.amp.state import USUAL_ACCELERATOR, driver_of

__all__ = ["GradScaler", "OptState", "of_device"]


class OptState(Enum):
    """How far an optimizer is between two calls of `GradScaler.update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Scale the loss, unscale gradients before the step, skip steps with infinities.

    The scale shrinks by `backoff_factor` whenever a gradient is not finite, and grows by
    `growth_factor` after `growth_interval` steps in a row without.

    Args:
        device: type of the device that holds the scale.
        init_scale: the first scale.
        growth_factor: above 1. backoff_factor: below 1.
        growth_interval: clean steps before the scale grows.
        enabled: if False, all methods pass their arguments through.
    """

    def __init__(
        self,
        device: str = USUAL_ACCELERATOR,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and driver_of(device) is None:
            warnings.warn(
                f"torch.{device}.amp.GradScaler is enabled, but {device.upper()} is not "
                "available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if not self._enabled:
            return
        # PyTorch's type for wrong factors, which programs may catch.
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Any = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Any = None
        self._optimizers: dict[int, dict[str, Any]] = {}

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or each tensor of an iterable, by the scale.

        Raises:
            ValueError: `outputs` is neither.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, tangrad.Tensor):
            if self._scale is None:
                self._make_scale(outputs.device)
            return outputs * self._scale.to(outputs.device, non_blocking=True)
        if isinstance(outputs, Iterable):
            scaled = [self.scale(x) for x in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else iter(scaled)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale.

        Raises:
            RuntimeError: it was done already, or the step was.
            AssertionError: nothing was scaled so far.
        """
        if not self._enabled:
            return
        self._check("unscale_")
        record = self._record(optimizer)
        if record["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if record["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = self._scale.double().reciprocal().float()
        found = tangrad.full((), 0.0, dtype=tangrad.float32, device=self._scale.device)
        record["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, found, False)
        record["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Step the optimizer unless a gradient is not finite; return what its step returns.

        An optimizer whose `_step_supports_amp_scaling` is true does both by itself: its step gets
        the scaler as `grad_scaler`, or finds `grad_scale` and `found_inf` as attributes.

        Raises:
            RuntimeError: a closure is given, or the step was done since the last update.
            AssertionError: nothing was scaled, or no gradient was there to look at.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check("step")
        record = self._record(optimizer)
        if record["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._hand_over(record, optimizer, args, kwargs)
        if record["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not record["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        clean = not any(found.item() for found in record["found_inf_per_device"].values())
        result = optimizer.step(*args, **kwargs) if clean else None
        record["stage"] = OptState.STEPPED
        return result

    def _hand_over(self, record: Any, optimizer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Step an optimizer that unscales gradients and skips steps by itself.

        It takes the scaler as `grad_scaler`, or finds scale and finding in attributes of its own.
        """
        import inspect

        takes_scaler = "grad_scaler" in inspect.signature(optimizer.step).parameters
        if takes_scaler:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer: let its step read `self.grad_scale` and `self.found_inf`, two tensors, "
                "in place of `grad_scaler`",
                FutureWarning,
                stacklevel=3,
            )
            kwargs = {**kwargs, "grad_scaler": self}
        else:
            given = getattr(optimizer, "grad_scale", None)
            if record["stage"] is OptState.READY:
                self._check_inf_per_device(optimizer)
                given = self._scale * (1 if given is None else given)
            found = record["found_inf_per_device"].values()
            optimizer.grad_scale = given
            optimizer.found_inf = sum(value.to(self._scale.device) for value in found)
        result = optimizer.step(*args, **kwargs)
        record["stage"] = OptState.STEPPED
        if not takes_scaler:
            del optimizer.grad_scale, optimizer.found_inf
        return result

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        """Look at gradients as they are; return per device whether one was not finite."""
        self._check("_check_inf_per_device")
        options = {"dtype": tangrad.float32, "device": self._scale.device}
        one, found = tangrad.ones((), **options), tangrad.zeros((), **options)
        record = self._record(optimizer)
        record["found_inf_per_device"] = self._unscale_grads_(optimizer, one, found, True)
        return self._found_inf_per_device(optimizer)

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = self._record(optimizer)["found_inf_per_device"]
        return found

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what the steps found, or set it; begin the next iteration.

        Args:
            new_scale: a number, or a float32 tensor of one element without gradient.
        """
        if not self._enabled:
            return
        self._check("update")
        if new_scale is not None:
            self._set_scale(new_scale)
        else:
            found = [
                value.to(self._scale.device, non_blocking=True)
                for record in self._optimizers.values()
                for value in record["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(any(value.item() for value in found))
        self._optimizers.clear()

    def get_scale(self) -> float:
        """Return the scale as a number; waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return after how many clean steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many clean steps the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a dictionary, which is empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state.

        Raises:
            RuntimeError: it is that of a disabled scaler.
        """
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__.copy()
        if self._enabled:
            if self._optimizers:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, "
                    "or at the end after scaler.update()."
                )
            kept["_init_scale"] = self.get_scale()
            kept["_init_growth_tracker"] = self._get_growth_tracker()
            kept["_scale"] = kept["_growth_tracker"] = None
        return kept

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker.item())

    def _make_scale(self, device: Any) -> None:
        self._scale = tangrad.full((), self._init_scale, dtype=tangrad.float32, device=device)
        self._growth_tracker = tangrad.full(
            (), self._init_growth_tracker, dtype=tangrad.int32, device=device
        )

    def _check(self, function: str) -> None:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {function} but _scale is None.  This may indicate your script did "
                "not use scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _record(self, optimizer: Any) -> dict[str, Any]:
        fresh = {"stage": OptState.READY, "found_inf_per_device": {}}
        return self._optimizers.setdefault(id(optimizer), fresh)

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool
    ) -> dict[Any, Any]:
        """Multiply gradients in place; return per device whether one was not finite."""
        found: dict[Any, Any] = {}
        with tangrad.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is None:
                        continue
                    if gradient.dtype is tangrad.float16 and not allow_fp16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    device = gradient.device
                    if device not in found:
                        found[device] = found_inf.to(device, copy=True)
                    # Sums of what is at one place may overflow.
                    held = gradient.coalesce().values() if gradient.is_sparse else gradient
                    broken = ~tangrad.isfinite(held).all()
                    found[device].copy_(tangrad.maximum(found[device], broken.float()))
                    gradient.mul_(inv_scale.to(device))
        return found

    def _set_scale(self, new_scale: Any) -> None:
        if not isinstance(new_scale, tangrad.Tensor):
            self._scale.fill_(new_scale)
            return
        right = (
            new_scale.dtype is tangrad.float32
            and new_scale.numel() == 1
            and not new_scale.requires_grad
        )
        if not right:
            raise AssertionError(
                "new_scale should be a float or a 1-element torch.FloatTensor with "
                "requires_grad=False."
            )
        self._scale.copy_(new_scale.reshape(()))

    def _adapt(self, broken: bool) -> None:
        if broken:
            self._scale.mul_(self._backoff_factor)
            self._growth_tracker.zero_()
            return
        if self._get_growth_tracker() + 1 < self._growth_interval:
            self._growth_tracker.add_(1)
            return
        grown = self._scale * self._growth_factor
        # A scale that overflowed would make every later gradient infinite.
        if tangrad.isfinite(grown).item():
            self._scale.copy_(grown)
        self._growth_tracker.zero_()


def of_device(device: str) -> type[GradScaler]:
    """Return the older form of the class, which `tangrad.cuda.amp` and its like show.

    Args:
        device: the device type that the class stands for.
    """

    class OlderGradScaler(GradScaler):
        """Scale losses for this device; the older form of `amp.GradScaler`."""

        def __init__(
            self,
            init_scale: float = 2.0**16,
            growth_factor: float = 2.0,
            backoff_factor: float = 0.5,
            growth_interval: int = 2000,
            enabled: bool = True,
        ) -> None:
            warnings.warn(
                f"`torch.{device}.amp.GradScaler(args...)` is deprecated. Please use "
                f"`torch.amp.GradScaler('{device}', args...)` instead.",
                FutureWarning,
                stacklevel=2,
            )
            super().__init__(
                device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
            )

    OlderGradScaler.__name__ = OlderGradScaler.__qualname__ = "GradScaler"
    return OlderGradScaler

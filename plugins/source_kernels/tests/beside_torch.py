"""The same values in PyTorch and on a device, and whether results are the same."""

from __future__ import annotations

from typing import Any

import torch

import tangrad


def both(device: str, *sizes: int, dtype: str = "float32", seed: int = 0) -> tuple[Any, Any]:
    """Return the same values in torch and on the device."""
    torch.manual_seed(seed)
    x = (torch.randn(*sizes) * 4).to(getattr(torch, dtype))
    return x, moved(x, device)


def moved(x: torch.Tensor, device: str) -> Any:
    """Return a tensor of torch as one on the device."""
    array = x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy()
    return tangrad.from_numpy(array.copy()).to(device, getattr(tangrad, str(x.dtype)[6:]))


def assert_same(found: Any, expected: torch.Tensor, **tolerance: float) -> None:
    """Compare a result with that of torch."""
    host = found.detach().cpu()
    array = host.float().numpy() if host.dtype is tangrad.bfloat16 else host.numpy()
    torch.testing.assert_close(
        torch.from_numpy(array.copy()).to(expected.dtype), expected.detach(), **tolerance
    )

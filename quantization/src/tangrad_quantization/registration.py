"""What the package tells tangrad: its dtypes, its ops, and its kernels for a device."""

from __future__ import annotations

from tangrad.plugin import hookimpl


@hookimpl
def tangrad_register_dtypes() -> None:
    """Register the integers that stand for real numbers."""
    from tangrad_quantization import dtypes

    dtypes.register()


@hookimpl
def tangrad_register_ops() -> None:
    """Define the quantized ops."""
    from tangrad_quantization import fake_quantize_ops, ops, public  # noqa: F401
    from tangrad_quantization.observers import range_search  # noqa: F401


@hookimpl
def tangrad_register_kernels(device: str) -> None:
    """Register the compiled kernels for the CPU."""
    if device != "cpu":
        return
    from tangrad_quantization import _kernels, ops  # noqa: F401

    _kernels.register(device)


@hookimpl
def tangrad_register_layouts() -> None:
    """Register quantized tensors, and what ops do with them."""
    from tangrad_quantization.layouts import kernels as layout_kernels
    from tangrad_quantization.layouts import layout
    from tangrad_quantization.weights import groups

    layout.register()
    groups.register()
    layout_kernels.register()

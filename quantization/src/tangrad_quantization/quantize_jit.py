"""Quantization of scripted models: refused, with what to use instead."""

from __future__ import annotations

from typing import Any

__all__ = [
    "convert_dynamic_jit",
    "convert_jit",
    "fuse_conv_bn_jit",
    "prepare_dynamic_jit",
    "prepare_jit",
    "quantize_dynamic_jit",
    "quantize_jit",
    "script_qconfig",
    "script_qconfig_dict",
]


def _refused(name: str, instead: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} works on scripted models, which are not quantized here: use {instead} on the "
            f"model itself, and script what it gives"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuse: scripted models are not quantized; script what {instead} gives."
    return refuse


convert_dynamic_jit = _refused("convert_dynamic_jit", "quantize_dynamic")
convert_jit = _refused("convert_jit", "convert")
fuse_conv_bn_jit = _refused("fuse_conv_bn_jit", "fuse_modules")
prepare_dynamic_jit = _refused("prepare_dynamic_jit", "quantize_dynamic")
prepare_jit = _refused("prepare_jit", "prepare")
quantize_dynamic_jit = _refused("quantize_dynamic_jit", "quantize_dynamic")
quantize_jit = _refused("quantize_jit", "quantize")
script_qconfig = _refused("script_qconfig", "a QConfig")
script_qconfig_dict = _refused("script_qconfig_dict", "a QConfigMapping")

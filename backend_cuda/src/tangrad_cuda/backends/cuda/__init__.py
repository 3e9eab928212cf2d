"""Settings of products and attention on GPUs: `tangrad.backends.cuda`.

Programs set them for the vendor's libraries. Of these cuBLASLt is called where a program chose it
by `preferred_blas_library`; the other settings are kept and told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tangrad.plugin import availability
from tangrad_cuda.backends.cuda import matmul as matmul

__all__ = [
    "allow_fp16_bf16_reduction_math_sdp",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "sdp_kernel",
]

# No GPU has shown yet that cuBLASLt's products are right here and faster.
_BLAS = ("default", "cublaslt")
_blas = "default"
# Attention has one kernel here, tiled, in memory linear in the length: PyTorch's "efficient" one.
_enabled = {"cudnn": False, "flash": False, "math": True, "mem_efficient": True}
_halves_added_up = False


def is_built() -> bool:
    """Return whether a GPU can be served here."""
    return availability("cuda")[1] == "available"


def flash_sdp_enabled() -> bool:
    """Return whether a choice of the flash kernel is on."""
    return _enabled["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Keep a choice; there is no kernel of that name."""
    _enabled["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """Return whether a choice of the efficient kernel is on."""
    return _enabled["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Keep a choice; the core chooses by shape."""
    _enabled["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """Return whether a choice of single ops is on."""
    return _enabled["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Keep a choice; the core chooses by shape."""
    _enabled["math"] = enabled


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Return whether a choice to add up halves in halves is on."""
    return _halves_added_up


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Keep a choice; halves are added up in float32."""
    global _halves_added_up
    _halves_added_up = enabled


def cudnn_sdp_enabled() -> bool:
    """Return whether a choice of cuDNN's kernel is on."""
    return _enabled["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Keep a choice; cuDNN is not called for attention."""
    _enabled["cudnn"] = enabled


def is_flash_attention_available() -> bool:
    """Return whether there is a kernel of that name: there is not."""
    return False


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """Return whether it would be used: it would not."""
    return False


def can_use_efficient_attention(params: Any, debug: bool = False) -> bool:
    """Return whether the efficient kernel may be used."""
    return _enabled["mem_efficient"]


def can_use_cudnn_attention(params: Any, debug: bool = False) -> bool:
    """Return whether cuDNN's would be used: it would not."""
    return False


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Keep choices for a `with` block."""
    before = dict(_enabled)
    _enabled.update(
        flash=enable_flash,
        math=enable_math,
        mem_efficient=enable_mem_efficient,
        cudnn=enable_cudnn,
    )
    try:
        yield
    finally:
        _enabled.update(before)


def preferred_linalg_library(backend: Any = None) -> str:
    """Return the library of linear algebra; there is no choice.

    Raises:
        NotImplementedError: one was asked for.
    """
    if backend not in (None, "default"):
        raise NotImplementedError(
            "backends.cuda.preferred_linalg_library: the vendor's are not called yet; there is no "
            f"'{backend}'"
        )
    return "default"


def preferred_blas_library(backend: Any = None) -> str:
    """Choose what computes products of matrices, and return what does.

    Args:
        backend: "default", kernels of this package; "cublaslt", NVIDIA's library, for products of
            float32, float64, float16 and bfloat16; None leaves what is chosen.

    Raises:
        NotImplementedError: another library was asked for.
        RuntimeError: cuBLASLt cannot be loaded here.
    """
    global _blas
    if backend not in (None, *_BLAS):
        raise NotImplementedError(
            f"backends.cuda.preferred_blas_library: '{backend}' is not called; there are "
            f"{' and '.join(map(repr, _BLAS))}"
        )
    if backend is not None and backend != _blas:
        from tangrad_cuda import cublaslt

        cublaslt.choose(backend == "cublaslt")
        _blas = backend
    return _blas


class cufft_plan_cache:
    """Facts of a cache of plans, which stays empty: transforms are not computed by cuFFT."""

    size, max_size = 0, 0

    @staticmethod
    def clear() -> None:
        """Do nothing: there is no plan."""

"""What products of matrices may give up for speed; kernels here give up nothing."""

from __future__ import annotations

allow_tf32: bool = False
allow_fp16_reduced_precision_reduction: bool = True
allow_bf16_reduced_precision_reduction: bool = True
allow_fp16_accumulation: bool = False
fp32_precision: str = "none"

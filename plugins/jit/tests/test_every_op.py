"""Every op of the core, compiled: forward and backward equal to eager to the bit."""

from __future__ import annotations

import os
import zlib

import pytest
from compiled_ops import differences, ops

from tangrad.plugin import Sampler

FULL = os.environ.get("TANGRAD_TESTS") == "full"
ALL = ("float32", "int64", "float16", "bool", "bfloat16", "float64", "complex64", "uint8")
DTYPES = ALL if FULL else ("float32",)
SHARE = 1 if FULL else 12

# Where compiled is not eager, and why that is; the full form tells when it is not so any more.
KNOWN = {
    "renorm": "backward is given its gradient in the result's layout: sums are in another order",
}
# Ops of which no sample is a graph, by the reason that the compiler gives.
REFUSED_ALWAYS = {
    name: reason
    for reason, names in {
        "the size of a result depends on values": "_distinct argwhere bincount linalg_lstsq "
        "masked_select nonzero nonzero_table unique unique_consecutive where_nonzero",
        "looks at values": "allclose multinomial repeat_interleave_places",
        "lazily conjugated or negated": "_conj _neg_view fft_hfft fft_hfft2 fft_hfftn fft_ihfft "
        "fft_ihfft2 fft_ihfftn",
        "gives its tensor another shape": "as_strided_ squeeze_ swapaxes_ swapdims_ t_ transpose_ "
        "unsqueeze_",
        "eager refuses the samples, whose order is another": "polygamma_",
    }.items()
    for name in names.split()
}
CHOSEN = [
    name for name in ops() if FULL or (zlib.crc32(name.encode()) % SHARE == 0 and name not in KNOWN)
]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_compiled_op_is_the_op(name):
    op = ops()[name]
    compared, found = differences(name, op, DTYPES)
    if name in KNOWN:
        assert found, f"strike {name} off KNOWN"
        return
    assert not found, "\n".join(found[:3])
    has_samples = any(op.definition.samples(Sampler(dtype)) for dtype in DTYPES)
    if FULL and has_samples:
        assert (compared == 0) == (name in REFUSED_ALWAYS), f"{compared} calls were compared"

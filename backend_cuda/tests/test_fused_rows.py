"""Folds of rows that tangrad-jit fuses for this device: eager's bits, one launch, no races."""

from __future__ import annotations

import pytest

PROGRAM = """
import tangrad
import tangrad_cuda_emulator as emulator

def filled(*shape):
    count = tangrad.Size(shape).numel()
    return ((tangrad.arange(float(count)) * 37 % 101) / 25 - 2).reshape(shape)

def softmax(x, w):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)

def layer_norm(x, w):
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt() * w

def several(x, w):
    y = tangrad.nn.functional.gelu(x + w)
    return y.sum(-1), y, y.argmax(-1), y.var(-1)

def check(rows, columns, dtype):
    x, w = filled(rows, columns).to(dtype).cuda(), filled(columns).to(dtype).cuda()
    for program in (softmax, layer_norm, several):
        wanted = program(x, w)
        fast = tangrad.compile(program, fullgraph=True, options={"measure": False})
        fast(x, w)
        before = emulator.calls("cuLaunchKernel")
        found = fast(x, w)
        assert emulator.calls("cuLaunchKernel") - before == 1, program
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True)
        assert all(a.equal(b) and a.dtype == b.dtype for a, b in pairs), (program, columns, dtype)
"""
# One lane for a row, a warp, a warp in two parts, a block.
SIZES = ((3, 5), (7, 33), (3, 1024), (2, 1500))
# Eager has as many lanes as the device, and parts for them, where rows are few and long.
LONG = """
x, w = filled(1, 65536).cuda(), filled(65536).cuda()
fast = tangrad.compile(several, fullgraph=True, options={"measure": False})
for _ in range(2):
    assert all(a.equal(b) for a, b in zip(fast(x, w), several(x, w), strict=True))
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_group_of_rows_has_eagers_bits(run, dtype):
    pytest.importorskip("tangrad_jit")
    calls = "".join(f"check({rows}, {columns}, tangrad.{dtype})\n" for rows, columns in SIZES)
    run(PROGRAM + calls + LONG)


def test_lanes_of_a_row_do_not_race(run):
    pytest.importorskip("tangrad_jit")
    calls = "check(3, 33, tangrad.float32)\ncheck(2, 1030, tangrad.float32)\n"
    run(PROGRAM + calls, engine="ptx", races=True)

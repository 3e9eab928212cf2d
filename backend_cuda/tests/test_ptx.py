"""NVRTC's own PTX computes what the CPU does, thread by thread, without a race or a lost sector."""

from __future__ import annotations

import hashlib
import os

import pytest

FULL = os.environ.get("TANGRAD_TESTS") == "full"
DTYPES = ("float32", "float16", "int64", "uint8", "complex64") if FULL else ("float32",)
PROGRAM = """
import tangrad
F = tangrad.nn.functional
x = tangrad.arange(60.0).reshape(6, 10) / 7 - 3
y = x.T.contiguous().T

def same(work, *args, exact=False):
    here, there = work(*args), work(*(a.cuda() for a in args)).cpu()
    close = here.equal(there) if exact else here.allclose(there, rtol=2e-6, atol=1e-7)
    assert close, (here, there)

"""
FAMILIES = {
    "integers and copies": """
same(lambda a: (a * 3 - 1) % 5, tangrad.arange(77), exact=True)
same(lambda a: a[:, ::2].contiguous(), x, exact=True)
same(lambda a: a.half().double(), x, exact=True)
""",
    "pointwise": "same(lambda a, b: (a.exp() + b.tanh()) * a.relu(), x, y)",
    "reductions": "same(lambda a: a.sum(0), x)\nsame(lambda a: a.sum(), x)\n"
    "same(lambda a: a.amax(1), x, exact=True)",
    "softmax": "same(lambda a: F.softmax(a, 1), x)",
    "products": "same(lambda a, b: a @ b.T, x, y)",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_results_of_the_cpu(run, family):
    assert run(PROGRAM + FAMILIES[family], engine="ptx", races=True) == ""


WATCH = """
import tangrad
from tangrad.plugin import get_driver
from tangrad_cuda_emulator import traffic

tangrad.zeros(1, device="cuda")
names = set()
F = tangrad.nn.functional

def watched(function):
    return lambda self, module, name: names.add(name) or function(self, module, name)

type(get_driver("cuda")).function = watched(type(get_driver("cuda")).function)

def wasted():
    '''Return the sectors that kernels touched beside what their bytes would have filled.'''
    tangrad.cuda.synchronize()
    found = {}
    for name in names:
        try:
            loads, stores = traffic(name)
        except KeyError:  # loaded beside another, and not launched
            continue
        found[name] = (loads.sectors - loads.ideal, stores.sectors - stores.ideal)
    return {name: extra for name, extra in found.items() if any(extra)}

"""
POINTWISE = """
from tangrad_testing.calls import REFUSALS, tangrad_arguments
from tangrad_testing.cases import Case
from tangrad_testing.levels.inputs import large_samples

def calls(case):
    for sample in large_samples(case.call, case.dtype):
        if sample.args[0].shape == (1025,):
            yield tangrad_arguments(sample, "cuda", case.definition)

checked = 0
for op in OPS:
    for dtype in DTYPES:
        case = Case(op, dtype, "cuda")
        for args, kwargs in calls(case):
            try:
                case.call(*args, **kwargs)
            except REFUSALS:
                continue
            assert not wasted(), (op, dtype, wasted())
            checked += 1
assert checked >= len(OPS) // 2 and names & {"wide", "dense"}, (checked, names)
"""


def pointwise_ops() -> list[str]:
    """Return the ops with an expression, or some of them: the same ones in every run."""
    from tangrad.plugin import all_ops

    defined = [op.definition for op in all_ops().values() if op.kind == "pointwise"]
    # Not what other tests have defined in this process: these run in another one.
    found = {d.name for d in defined if d.samples and d.module.startswith("tangrad.")}
    order = sorted(found, key=lambda name: hashlib.blake2b(name.encode()).digest())
    return order if FULL else order[:6]


def test_pointwise_ops_touch_no_sector_beside_their_operands(run):
    pytest.importorskip("torch")
    told = f"OPS, DTYPES = {pointwise_ops()!r}, {DTYPES!r}\n"
    assert run(WATCH + told + POINTWISE, engine="ptx", races=True) == ""


CONTIGUOUS = {
    "copies": "x.clone(); x.half().float(); tangrad.cat([x, x], 1); x.fill_(2.0)",
    "reductions": "x.sum(1); x.sum(0); x.sum(); x.amax(1); x.argmax(1); x.var(0)",
    "softmax": "F.softmax(x, 1); F.log_softmax(x, 1)",
    "normalization": "F.layer_norm(x, x.shape[1:], tangrad.ones(256, device='cuda'))",
    "products": "x @ y; F.linear(x, x, y[0])",
}


@pytest.mark.parametrize("family", CONTIGUOUS)
def test_kernels_over_contiguous_memory_touch_no_sector_for_nothing(run, family):
    made = "x = tangrad.ones(64, 256, device='cuda')\ny = tangrad.ones(256, 64, device='cuda')\n"
    program = WATCH + made + CONTIGUOUS[family] + "\nassert names and not wasted(), wasted()"
    assert run(program, engine="ptx", races=True) == ""

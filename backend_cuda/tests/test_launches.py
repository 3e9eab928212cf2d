"""Calls like one before are replayed in C, with the results that the kernel in Python has."""

from __future__ import annotations

import pytest

COMMON = """
import warnings
import tangrad
from tangrad.plugin import get_driver
from tangrad.plugin.compiled.unit import Unit
F = tangrad.nn.functional
in_python = []
launch = Unit.launch
Unit.launch = lambda self, name, *rest: (in_python.append(name), launch(self, name, *rest))[1]
x = (tangrad.arange(60.0).reshape(6, 10) % 7 - 3) / 2

def same(work, *args, again=()):
    '''Calls are recorded at first; those after them are not launched by Python.'''
    for _ in range(2):  # a device's first call that may report an error does more than others
        work(*(a.cuda() for a in args))
    in_python.clear()
    for args in ((args, args) if not again else again):
        here, there = work(*args), work(*(a.cuda() for a in args)).cpu()
        assert here.allclose(there, rtol=2e-6, atol=1e-6, equal_nan=True), (here, there)
    assert not in_python, in_python
"""

FAMILIES = {
    "elements": """
same(lambda a: (a * 2 + a.T.contiguous().T).exp() - a[0], x)
same(lambda a: a[:, ::2] + a[:, 1::2], x)
same(lambda a: a.half().clone().T.contiguous().double(), x)
same(lambda a: tangrad.cat([a, a.flip(0)], 1), x)
""",
    "sums": """
same(lambda a: a.sum(0) + a.amax() + a.var(), x)
same(lambda a: a.sum(), tangrad.ones(70_000))  # in parts
same(lambda a: a.cumsum(1) + a.sort(1).values, x)
same(lambda a: F.softmax(F.layer_norm(a, (10,)), 1), x)
""",
    "products": """
same(lambda a: F.linear(a, a, a[:, 0]) @ a, x)
same(lambda a: a @ a.T, tangrad.ones(3, 1500))  # in parts
same(lambda a: a.index_select(0, tangrad.arange(3, device=a.device)), x)
""",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_like_one_before_is_not_launched_by_python(run, family):
    run(COMMON + FAMILIES[family])


DRAWS = """
def draws(a, seed, p):
    tangrad.manual_seed(seed)
    fresh = lambda dtype=None: tangrad.empty_like(a, dtype=dtype)
    real = [fresh().uniform_(-p, 2 * p), fresh().normal_(p, 1 + p), fresh().exponential_(p),
            fresh().bernoulli_(p), tangrad.bernoulli(fresh().fill_(p)), F.dropout(a, p),
            tangrad.rand(a.shape, dtype=tangrad.float16, device=a.device),
            *tangrad.view_as_real(fresh(tangrad.complex64).normal_()).unbind(-1)]
    whole = [fresh(tangrad.int64).random_(), fresh(tangrad.int64).random_(-5, 2**62 + seed % 99),
             fresh(tangrad.uint8).random_(3, 200), fresh(tangrad.bool).random_(0, 2)]
    return tangrad.stack([t.float() for t in real]), tangrad.stack([t.long() for t in whole])

calls = [(3, 0.25), (2**63 + 5, 0.5), (2**64 - 1, 0.75)]
for call in 2 * calls:  # what fills with p does not write its number anew
    draws(x.cuda(), *call)
in_python.clear()
for call in calls:
    for here, there in zip(draws(x, *call), draws(x.cuda(), *call)):
        assert here.allclose(there.cpu(), rtol=2e-6, atol=1e-6), (call, here, there)
assert not in_python, in_python
for seed in (1, 5, 6):
    here, there = (tangrad.Generator(device).manual_seed(seed) for device in ("cpu", "cuda"))
    in_python.clear()
    for _ in range(2):
        expected = tangrad.randn(6, 10, generator=here)
        drawn = tangrad.empty(6, 10, device="cuda").normal_(generator=there)
        assert drawn.cpu().allclose(expected, rtol=2e-6, atol=1e-6)
assert not in_python, in_python
draws(x.cuda(), 3, 0.25)
place = tangrad.cuda.get_rng_state().tolist()
assert not x.cuda().normal_().equal(x.cuda().normal_())
assert place[8:] != tangrad.cuda.get_rng_state().tolist()[8:]
"""


def test_draws_continue_the_stream_when_they_are_replayed(run):
    run(COMMON + DRAWS)


NUMBERS = """
for dtype in (tangrad.float32, tangrad.int32, tangrad.uint8, tangrad.float16, tangrad.complex64):
    y = tangrad.arange(1, 6).to(dtype)
    y.cuda() * 2
    for number in (3, -1, True, 2**40 + 1) + ((0.1, 1e40) if dtype.is_floating_point else ()):
        assert (y * number).equal((y.cuda() * number).cpu()), (dtype, number)
z = tangrad.arange(4).to(tangrad.complex64)
for number in (1j, 2.5 - 1j, 3):
    assert (z * number).equal((z.cuda() * number).cpu())
for seed in range(4):  # a dropout's place in the stream is a number, too
    tangrad.manual_seed(seed)
    kept = F.dropout(tangrad.ones(50, device="cuda"), 0.5).cpu()
    tangrad.manual_seed(seed)
    assert kept.equal(F.dropout(tangrad.ones(50), 0.5)), seed
"""


def test_numbers_of_a_call_are_its_own(run):
    run(COMMON + NUMBERS)


SHARED = """
for _ in range(3):
    a, b = x.cuda(), x.cuda() + 1
    assert (a + b).cpu().equal(x + x + 1) and (a + a).cpu().equal(x + x)
    a.add_(a)
    assert a.cpu().equal(2 * x)
    a.copy_(a.flip(0))
    c = tangrad.arange(24.0, device="cuda")[::2]
    c[2:].copy_(c[:-2])  # overlaps what it reads
    assert c.tolist() == [0, 2, *range(0, 20, 2)]
    c = tangrad.arange(12.0, device="cuda")
    c[6:].copy_(c[:6])
    assert c.tolist() == [*range(6), *range(6)]
"""


def test_operands_that_share_memory_are_told_from_others(run):
    run(COMMON + SHARED)


OTHER = """
for k in range(4):
    mask = (tangrad.arange(9) % (k + 2) == 0)
    assert mask.cuda().nonzero().cpu().equal(mask.nonzero())
    values = tangrad.arange(9.0)
    assert values.cuda()[mask.cuda()].cpu().equal(values[mask])
    for index in ("cuda:0", "cuda:1"):
        assert (values.to(index) * 2).tolist() == (values * 2).tolist()
side = tangrad.cuda.Stream()
big = tangrad.ones(50_000, device="cuda")
tangrad.cuda.synchronize()
for _ in range(3):
    with tangrad.cuda.stream(side):
        for _ in range(5):
            made = big.cumsum(0) * 1.0
        event = side.record_event()
    tangrad.cuda.current_stream().wait_event(event)
    assert made[-1].item() == 50_000
held = tangrad.cuda.memory_allocated()
for _ in range(3):
    big.sort()
assert tangrad.cuda.memory_allocated() == held
for index in (3, 9, 9):  # an index out of bounds is reported by a replay as well
    try:
        big[:9].index_select(0, tangrad.tensor([index], device="cuda")).cpu()
    except IndexError as error:
        assert index == 9 and "index 9" in str(error), error
    else:
        assert index == 3
"""


def test_devices_streams_values_and_reports_are_those_of_the_call(run):
    run(COMMON + OTHER, devices=2)


FAILING = """
import tangrad_cuda_emulator
a = x.cuda()
for _ in range(3):
    a + 1
tangrad_cuda_emulator.fail("cuLaunchKernel:1:701")
try:
    a + 1  # to blame
except RuntimeError as error:
    assert "add (wide) at <string>:28" in str(error) and "cuLaunchKernel" in str(error), error
else:
    raise AssertionError("no error")
held = tangrad.cuda.memory_allocated()
tangrad_cuda_emulator.fail("")
y = tangrad.ones(70_000, device="cuda")
for _ in range(2):
    y.sum()
tangrad_cuda_emulator.fail("cuLaunchKernel:2:701")
try:
    y.sum()
except RuntimeError:
    pass
tangrad_cuda_emulator.fail("")
assert y.sum().item() == 70_000
del y
assert tangrad.cuda.memory_allocated() == held, "memory of a replay that failed was kept"
"""


def test_a_launch_that_fails_in_a_replay_names_its_line_and_keeps_no_memory(run):
    run(COMMON + FAILING)


EVENTS = """
driver = get_driver("cuda")
for _ in range(2):
    stream = driver.current_stream(0)
    first = driver.record_timed_event(stream)
    tangrad.ones(1000, device="cuda").exp()
    later = driver.record_timed_event(stream)
    driver.synchronize_event(later)
    assert driver.elapsed_time(first, later) >= 0
    for event in (first, later):
        driver.destroy_event(event)
"""


def test_events_of_profilers_tell_their_time(run):
    run(COMMON + EVENTS)

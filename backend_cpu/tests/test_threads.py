"""The thread pool: any number of threads, many callers at once, and processes that fork."""

from __future__ import annotations

import os
import threading

import pytest
from test_driver import printed, run

import tangrad


@pytest.fixture
def threads():
    """Set the number of threads for one test."""
    before = tangrad.get_num_threads()
    yield tangrad.set_num_threads
    tangrad.set_num_threads(before)


def work(seed):
    """Compute something of every kind that is cut into tasks."""
    generator = tangrad.Generator().manual_seed(seed)
    x = tangrad.randn(700, 500, generator=generator)
    y = (x @ x.t()).softmax(-1)
    return [(x * 2 + 1).exp().sum(), y, x.cumsum(0), x.t().contiguous(), x.argmax(1), x.std(0)]


def same(a, b):
    return all(p.tolist() == q.tolist() for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_results_are_the_same_bits_for_any_number_of_threads(threads, count):
    threads(1)
    alone = work(0)
    threads(count)
    assert tangrad.get_num_threads() == count
    assert same(work(0), alone)


def test_many_python_threads_at_once(threads):
    threads(1)
    expected = [work(seed) for seed in range(4)]
    threads(4)
    wrong = []

    def caller(seed):
        for _ in range(5):
            if not same(work(seed), expected[seed]):
                wrong.append(seed)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_a_pool_of_its_own(threads):
    program = """
import os, tangrad
tangrad.set_num_threads(4)
x = tangrad.ones(1_000_000)
before = (x + 1).sum().item()
child = os.fork()
if child == 0:
    os._exit(0 if (x + 1).sum().item() == before else 1)
_, status = os.waitpid(child, 0)
print(status, (x + 1).sum().item() == before)
"""
    assert printed(program) == "0 True"


# Tiles of AMX are state of a thread, which the system saves for signals and gives to processes on
# request.
TILES = """
import os, signal, threading, tangrad
tangrad.set_num_threads(4)

def work(seed):
    made = tangrad.Generator().manual_seed(seed)
    a = tangrad.randn(150 + seed, 300, generator=made).to(tangrad.bfloat16)
    i = tangrad.randint(-128, 128, (150 + seed, 320), generator=made, dtype=tangrad.int8)
    return [(a @ a.t()).tolist(), tangrad._int_mm(i, i.t()).tolist()]

expected, found = [work(seed) for seed in range(3)], []
signal.signal(signal.SIGALRM, lambda *_: found.append(work(2) == expected[2]))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.02)
threads = [
    threading.Thread(target=lambda seed=seed: found.append(work(seed) == expected[seed]))
    for seed in (0, 1, 0, 1)
]
for each in threads:
    each.start()
child = os.fork()
if child == 0:
    signal.setitimer(signal.ITIMER_REAL, 0)
    right = []
    own = threading.Thread(target=lambda: right.append(work(1) == expected[1]))
    own.start()
    own.join()
    os._exit(0 if right == [True] and work(0) == expected[0] else 1)
status = os.waitpid(child, 0)[1]
for each in threads:
    each.join()
signal.setitimer(signal.ITIMER_REAL, 0)
print(status, all(found), len(found) > len(threads))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_products_of_halves_and_bytes_among_signals_threads_and_children():
    assert printed(TILES) == "0 True True"


def test_the_environment_sets_the_number_of_threads():
    program = "import tangrad; print(tangrad.get_num_threads())"
    assert printed(program, TANGRAD_NUM_THREADS="3", OMP_NUM_THREADS="1") == "3"


# Two processors may be used. Kernels of up to three packages have run when threads are counted.
USED = """
import os, numpy, tangrad  # NumPy has threads of its own
from importlib.util import find_spec
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
asked = tangrad.get_num_threads()
others = {*os.listdir("/proc/self/task")}
x = tangrad.rand(2048, 2048)
(x + 1).sum(), x @ x
if find_spec("tangrad_quantization"):
    tangrad.quantize_per_tensor(x, 0.01, 0, tangrad.quint8)
if find_spec("tangrad_jit"):
    tangrad.compile(lambda x: (x * 2 + 1).exp().sum(-1))(x)
print(asked, tangrad.get_num_threads(), 1 + len({*os.listdir("/proc/self/task")} - others))
"""
UNSET = dict.fromkeys(["TANGRAD_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"], "")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/task") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one processor, or the system does not tell",
)
@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 2),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": " 1 , 4"}, 1),
        ({"OMP_NUM_THREADS": "2,1"}, 2),
        ({"OMP_NUM_THREADS": "64"}, 2),  # no more than may run at once, as in PyTorch
        ({"MKL_NUM_THREADS": "1"}, 1),
        ({"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}, 1),
        ({"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}, 2),
        ({"TANGRAD_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3),
    ],
    ids=str,
)
def test_the_variables_of_openmp_and_mkl_ask_for_fewer_threads(variables, count):
    assert printed(USED, **{**UNSET, **variables}) == f"{count} {count} {count}"


@pytest.mark.parametrize("text", ["0", "-1", "two", "2.5", "4,", "4,x", "4 4"])
@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "TANGRAD_NUM_THREADS"])
def test_what_is_no_number_of_threads_is_told_and_ignored(variable, text):
    program = "import os, tangrad; print(tangrad.get_num_threads() == len(os.sched_getaffinity(0)))"
    done = run(program, **{**UNSET, variable: text})
    assert done.stdout.strip() == "True"
    assert f"{variable}='{text}' is ignored: expected a positive integer" in done.stderr


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_that_is_not_positive_is_refused(count):
    with pytest.raises(RuntimeError, match="positive integer"):
        tangrad.set_num_threads(count)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux tells")
def test_idle_workers_sleep_until_there_is_work():
    # A thread that is never woken is never switched to, however slow or busy the machine is.
    program = """
import os, time, tangrad
tangrad.set_num_threads(4)
(tangrad.ones(4_000_000) + 1).sum()

def workers():
    found = {}
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
            switches = lines["voluntary_ctxt_switches"], lines["nonvoluntary_ctxt_switches"]
            found[task] = lines["State"].split()[0], *map(int, switches)
    return found

def asleep():
    before = workers()
    time.sleep(0.2)
    return before == workers() and all(state == "S" for state, *_ in before.values())

tries = 300  # they look for work a little longer, and the machine may be busy
while tries and not asleep():
    tries -= 1
print(len(workers()) >= 3, tries > 0)
"""
    done = run(program)
    assert done.stdout.strip() == "True True", done.stderr


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one processor, or the system does not tell",
)
def test_workers_that_are_woken_keep_off_the_processor_of_their_caller():
    program = """
import os, time, tangrad

def tasks():
    return {int(task) for task in os.listdir("/proc/self/task")}

processors = os.sched_getaffinity(0)
first, second = sorted(processors)[:2]
tangrad.set_num_threads(1)
x = tangrad.ones(4_000_000)
x + 1
others = tasks()
tangrad.set_num_threads(2)
x + 1
(worker,) = tasks() - others

def allowed_after(caller, wanted):
    os.sched_setaffinity(0, {caller})
    for _ in range(100):  # it is told when it is woken, and looks for work a little longer
        time.sleep(0.05)
        x + 1
        if os.sched_getaffinity(worker) == wanted:
            return True
    return False

print(allowed_after(first, processors - {first}), allowed_after(second, processors - {second}))
os.sched_setaffinity(worker, {second})  # somebody else's decision stands
print(allowed_after(first, {second}), allowed_after(second, {second}))
"""
    assert printed(program).split() == ["True"] * 4

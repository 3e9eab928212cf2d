"""The machine of scripts: what it computes, what it refuses, and what it leaves alone."""

import gc
import signal
import sys
import threading
import time

import pytest
import torch
from script_sides import close, load, outcome

import tangrad
from tangrad_jit.scripting.machine._machine import Program
from tangrad_jit.scripting.program.emit import program_of

WANTED = load(torch, "machine_cases_torch", "machine_cases.py")
OURS = load(tangrad, "machine_cases_tangrad", "machine_cases.py")
PAIRS = list(zip(WANTED.CASES, OURS.CASES, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("wanted", "ours"), PAIRS, ids=[f.__name__ for f, _ in WANTED.CASES])
def test_the_machine_does_what_pytorch_does(wanted, ours):
    theirs, mine = torch.jit.script(wanted[0]), tangrad.jit.script(ours[0])
    assert isinstance(mine.script_unit.machine, Program), mine.script_unit.machine
    for one, other in zip(wanted[1], ours[1], strict=True):
        expected, found = outcome(theirs, one), outcome(mine, other)
        assert close(expected, found), (expected, found)


@pytest.mark.parametrize("ours", OURS.CASES, ids=[f.__name__ for f, _ in OURS.CASES])
def test_the_machine_does_what_the_code_of_python_does(ours):
    mine = tangrad.jit.script(ours[0])
    for args in ours[1]:
        found, code = outcome(mine, args), outcome(program_of(mine.script_unit), args)
        # Errors of the code of Python are not told yet.
        assert close(found, code) or (found[0].endswith("Error") and code[0].endswith("Error"))


def test_an_error_names_each_call_and_its_line():
    with pytest.raises(RuntimeError) as caught:
        tangrad.jit.script(OURS.outer)([1], 0)
    told = str(caught.value)
    assert told.count("File") == 2
    assert told.index("in outer") < told.index("in inner")
    assert "total += 6 // xs[k]\n                      ~~~~~ <--- HERE" in told
    assert told.endswith("RuntimeError: list index out of range\n")


def test_arguments_that_do_not_fit_are_refused_and_others_converted():
    script = tangrad.jit.script
    assert script(OURS.shared)((3, 1)) == script(OURS.shared)([3, 1])
    for wrong in (True, 2.5, "3", 1 << 64):
        with pytest.raises(RuntimeError, match="Expected a value of type 'int'"):
            script(OURS.spin)(wrong)
    with pytest.raises(RuntimeError, match=r"Expected a value of type 'List\[int\]'"):
        script(OURS.shared)([1, "a"])


def test_a_list_that_python_shares_is_changed_and_others_are_not():
    plain, shared = [3, 1], tangrad.jit.script([3, 1])
    tangrad.jit.script(OURS.shared)(plain)
    tangrad.jit.script(OURS.shared)(shared)
    assert plain == [3, 1]
    assert list(shared) == [3, 3, 2, 1]


@pytest.fixture
def interruptible():
    """Python's handler of SIGINT, which a process in the background starts without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_loop_within_a_tenth_of_a_second():
    spin, xs, sent = tangrad.jit.script(OURS.spin), [1, 2], []
    spin(10)

    def interrupt():
        time.sleep(0.1)
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        spin(10**9)
    waited = time.monotonic() - sent[0]
    thread.join()
    assert waited < 0.5  # 0.2 ms alone; the neighbours of a test may take the processor
    assert spin(10) == OURS.spin(10)
    assert xs == [1, 2]


def test_other_threads_run_while_a_loop_does():
    spin, done, interval = tangrad.jit.script(OURS.spin), [], sys.getswitchinterval()
    assert spin.script_unit.machine.pure
    # No thread is made to give the lock up: who keeps it runs to its end.
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=lambda: done.append(spin(20_000_000)))
        thread.start()
        assert not done
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert done == [spin(20_000_000)]


@pytest.mark.filterwarnings("ignore")
def test_nothing_is_kept_of_calls_that_end_or_fail():
    word, tensor = "".join(["ab", "cd"]), tangrad.ones(2)
    counted, gathered = tangrad.jit.script(OURS.counted), tangrad.jit.script(OURS.gathered)
    looked_up = tangrad.jit.script(OURS.looked_up)

    def calls():
        counted([word, word, "gone"])
        gathered([tensor, tensor], word)
        for call in (
            lambda: looked_up({word: 1}, [word, "none"]),
            lambda: gathered([tensor, tangrad.ones(3)], word),
            lambda: counted([word, 3]),
        ):
            with pytest.raises(RuntimeError):
                call()

    calls()
    gc.collect()
    before = sys.getrefcount(word), sys.getrefcount(tensor)
    for _ in range(20):
        calls()
    gc.collect()
    assert (sys.getrefcount(word), sys.getrefcount(tensor)) == before

"""What goes wrong says what to do; the process neither hangs nor aborts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

STEP = """
import tangrad
x = tangrad.arange(6.0).cuda()
"""


def some_slow(values: list[str]) -> list[object]:
    """Leave all but the first to the full form: each starts an interpreter."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.slow) for value in values[1:])]


def failing(program: str, message: str, error: str = "RuntimeError") -> str:
    """Return a program that checks that another fails with a message."""
    body = "\n".join(f"    {line}" for line in program.strip().splitlines())
    return (
        f"import tangrad\ntry:\n{body}\nexcept {error} as error:\n"
        f"    assert {message!r} in str(error), error\nelse:\n    raise AssertionError('worked')\n"
    )


def test_without_a_driver_the_reason_is_told():
    program = """
import tangrad
from tangrad.plugin import availability
print(availability("cuda")[1])
try:
    tangrad.zeros(2, device="cuda")
except RuntimeError as error:
    print(error)
"""
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    if done.stdout[:10] == "available\n":
        pytest.skip("this machine has a driver")
    assert done.stdout.count("no NVIDIA driver: libcuda.so.1 not found") == 2, done


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("libraries.driver_version = lambda: 11040", "too old: it serves CUDA 11.4"),
        ("libraries.find = lambda name: []; ctypes.util.find_library = str", "NVRTC, which"),
        ("availability.find_spec = lambda name: None", "python -m tangrad_cuda install"),
        ("nvrtc._OLDEST = (99, 0)", "NVRTC"),
    ],
)
def test_what_is_missing_or_too_old_is_named(run, change, message):
    setup = "import ctypes.util; from tangrad_cuda import availability, libraries, nvrtc"
    if "find_library" in change:
        change = change.replace("= str", "= lambda name: None")
    run(failing(f"{setup}; {change}\ntangrad.zeros(2, device='cuda')", message))


def test_without_a_gpu_the_driver_s_reason_is_told(run):
    run(failing("tangrad.zeros(2, device='cuda')", "no CUDA-capable device"), devices=0)


def test_a_device_that_does_not_exist_is_refused(run):
    run(failing("tangrad.zeros(2, device='cuda:3')", "indices 0 to 0"))
    run(failing("tangrad.cuda.set_device(3)", "'cuda:3' does not exist"))


def test_a_folder_that_cannot_be_written_costs_only_the_cache(run):
    run(STEP + "assert (x + 1).sum().item() == 21", env={"TANGRAD_KERNEL_CACHE": "/dev/full/x"})


def test_a_full_disk_costs_only_the_cache(run, tmp_path):
    full = """
import errno, os, types
from tangrad.plugin.compiled import cache
def refuse(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
cache.os = types.SimpleNamespace(**{**vars(os), "fdopen": refuse})
"""
    env = {"TANGRAD_KERNEL_CACHE": str(tmp_path)}
    run(full + STEP + "assert x.cosh().sum().item() > 0", env=env)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_damaged_entry_of_the_cache_is_made_anew(run, tmp_path):
    env = {"TANGRAD_KERNEL_CACHE": str(tmp_path)}
    run(STEP + "assert x.sinh().sum().item() > 0", env=env)
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    run(STEP + "assert x.sinh().sum().item() > 0", env=env)


@pytest.mark.parametrize(
    "call", some_slow(["cuInit:1+:999", "cuDeviceGetCount:1+", "cuDriverGetVersion:1+"])
)
def test_a_driver_that_refuses_is_not_told_as_absent(run, call):
    out = run(failing("tangrad.zeros(2, device='cuda')", "driver"), fail=call)
    assert "there is no GPU" not in out


def test_an_error_of_pycuda_s_says_what_to_do(run):
    program = failing("tangrad.cuda.get_device_properties()", "nvidia-smi")
    run(program + "assert tangrad.cuda.get_device_properties().name", fail="cuDeviceGetName:1")


def test_devices_are_not_mixed(run):
    text = "x = tangrad.ones(2, device='cuda')\nx + tangrad.ones(2)"
    run(failing(text, "cuda:0"))
    run(failing(text, "cpu"))


def test_refused_pinned_memory_says_what_to_allow(run):
    run(
        failing("tangrad.cuda.init()\ntangrad.ones(3).pin_memory()", "ulimit -l"),
        fail="cuMemHostAlloc:1+:2",
    )


def test_out_of_memory_is_an_error_that_leaves_the_device_usable(run):
    run(
        failing("tangrad.empty(2**32, device='cuda')", "", "tangrad.OutOfMemoryError")
        + "assert (tangrad.ones(2, device='cuda') + 1).sum().item() == 4",
        memory=2**28,
    )


@pytest.mark.parametrize(
    "function",
    some_slow(
        "cuMemAlloc cuLaunchKernel cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuModuleLoadData "
        "cuStreamSynchronize cuDevicePrimaryCtxRetain cuModuleGetFunction".split()
    ),
)
def test_each_call_may_run_out_of_memory(run, function):
    program = (
        STEP.replace("x =", "try:\n    x =")
        + "    assert (x + 1).sum().item() == 21\n"
        + "except (MemoryError, RuntimeError) as error:\n    assert 'memory' in str(error), error\n"
        + "y = tangrad.ones(3, device='cuda')\nassert (y * 2).sum().item() == 6\n"
    )
    run(program, fail=f"{function}:1:2")


def test_a_failed_launch_names_the_line_and_what_still_works(run):
    out = run(
        "import tangrad\nx = tangrad.ones(10, device='cuda')\n"
        "try:\n    x.exp().cpu()\nexcept tangrad.AcceleratorError as error:\n"
        "    assert error.error_code == 719\n    print(error)\n"
        "try:\n    x + 1\nexcept tangrad.AcceleratorError as error:\n    pass\n"
        "assert (tangrad.ones(2) + 1).sum().item() == 4\n",
        fail="cuLaunchKernel:2:719",
    )
    assert "exp (wide) at <string>:4" in out
    assert "restart the process" in out
    assert "CUDA_LAUNCH_BLOCKING=1" in out


def test_a_launch_is_told_with_the_line_that_a_user_can_change(run):
    run(
        """
import gc, sys, threading, tangrad
from tangrad_cuda import launches
layer, x = tangrad.nn.Linear(4, 4).cuda(), tangrad.ones(4, 4, device="cuda")
def told(call):
    call()
    tangrad.cuda.synchronize()
    call()
    return launches.trail(0).splitlines()[1]
def line(function):
    return f":{function.__code__.co_firstlineno + 1}, in {function.__name__}"
def direct():
    return x + 1
def steps():
    yield layer(x)  # the launch is of a module's line, which is not to blame
assert line(direct) in told(direct)
assert line(steps) in told(lambda: next(steps()))
assert line(direct) in told(lambda: list(map(lambda _: direct(), range(2))))
thread = threading.Thread(target=told, args=(direct,))
thread.start(); thread.join()
assert line(direct) in launches.trail(0).splitlines()[1]
def fill():
    for _ in range(100):  # more than are kept
        x * 2
fill(); gc.collect()
held = sys.getrefcount(direct.__code__)
for _ in range(10):
    direct()
assert sys.getrefcount(direct.__code__) == held + 10
fill(); gc.collect()
assert sys.getrefcount(direct.__code__) == held
"""
    )


WRITE_NOWHERE = """
import tangrad
from tangrad.plugin import get_driver
from tangrad.plugin.compiled.dialect import Kernel
from tangrad.plugin.compiled.unit import Unit
x = tangrad.arange(6.0).cuda()
driver = get_driver("cuda")
wild = Unit(driver, [Kernel("wild", (("float32", "y"),), (), "    y[1ll << 40] = 1.0f;")])
wild.launch("wild", 1, [x])
said = []
uses = (x.cpu, lambda: (x + 1).cpu(), lambda: tangrad.ones(3, device="cuda").cpu(),
        tangrad.cuda.synchronize)
for use in uses:
    try:
        use()
    except tangrad.AcceleratorError as error:
        said.append(error)
print(said[0])
assert [error.error_code for error in said] == [700] * 4, said
assert all("restart the process" in str(error) for error in said)
assert (tangrad.ones(2) + 1).sum().item() == 4
"""


@pytest.mark.parametrize("engine", some_slow(["host", "ptx"]))
def test_after_a_fault_every_call_says_what_still_works(run, engine):
    out = run(WRITE_NOWHERE, engine=engine)
    assert "wild" in out
    assert "only what is on the host can still be used" in out


@pytest.mark.parametrize(
    ("status", "advice"), [(222, "driver is older than NVRTC"), (209, "TANGRAD_KERNEL_CACHE")]
)
def test_an_nvrtc_that_does_not_fit_the_driver_is_named(run, status, advice):
    run(
        failing("tangrad.ones(3, device='cuda')", advice),
        fail=f"cuModuleLoadData:1+:{status}",
    )


def test_a_lost_context_says_to_restart(run):
    run(
        failing("tangrad.ones(10, device='cuda').cpu()", "restart the process"),
        fail="cuStreamSynchronize:1+:709",
    )


def test_an_index_out_of_bounds_names_index_and_bound(run):
    run(
        failing(
            "x = tangrad.ones(4, 3, device='cuda')\n"
            "y = x.gather(0, tangrad.tensor([[7, 0, 0]], device='cuda'))\ny.cpu()",
            "7",
            "(RuntimeError, IndexError)",
        )
        + "assert tangrad.ones(2, device='cuda').sum().item() == 2",
    )


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(run):
    run(
        STEP
        + """
import os, sys
child = os.fork()
if child == 0:
    try:
        x + 1
    except RuntimeError as error:
        sys.exit(0 if "'spawn'" in str(error) else 3)
    sys.exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (x + 1).sum().item() == 21
"""
    )


@pytest.mark.parametrize(
    "end",
    some_slow(
        [
            "import atexit; atexit.register(lambda: (x + 1).cpu())",
            "keep = x; import sys; sys.exit(0)",
            "import threading; t = threading.Thread(target=lambda: (x + 1).cpu()); t.start()",
            "import threading; done = threading.Event()\n"
            "work = lambda: ((x + 1).cpu(), done.set(), threading.Event().wait())\n"
            "threading.Thread(target=work, daemon=True).start(); done.wait()",
            "stream = tangrad.cuda.Stream(); event = stream.record_event()\n"
            "y = x.cpu().pin_memory()",
            "x.self = x; del x",
        ]
    ),
)
def test_the_process_ends_in_any_order(run, end):
    assert run(STEP + end) == ""


def test_a_device_first_used_in_a_thread_that_ended_still_works(run):
    run(
        """
import threading, tangrad
made = []
thread = threading.Thread(target=lambda: made.append(tangrad.arange(5.0, device="cuda")))
thread.start(); thread.join()
assert (made[0] * 2).sum().item() == 20
made.clear()
tangrad.cuda.empty_cache()
assert tangrad.cuda.memory_allocated() == 0
"""
    )

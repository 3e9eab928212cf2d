"""Any program runs on the emulator, by one command, and nothing but the driver is replaced."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tangrad_cuda_emulator.settings import environment, library_folder

ASK = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
print(driver.cuInit(0), end=" ")
count = ctypes.c_int()
driver.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tangrad_cuda_emulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_program_finds_as_many_gpus_as_were_asked_for() -> None:
    assert run("--devices", "3", sys.executable, "-c", ASK).stdout == "0 3\n"


def test_a_machine_without_a_gpu_can_be_had() -> None:
    assert run("--devices", "0", sys.executable, "-c", ASK).stdout == "100 0\n"


def test_a_call_can_fail_from_the_start() -> None:
    assert run("--fail", "cuInit:1:999", sys.executable, "-c", ASK).stdout == "999 0\n"


def test_modules_of_python_run_with_their_own_options() -> None:
    assert run("-m", "platform", "--terse").returncode == 0
    assert "usage" in run("-m", "json.tool", "--help").stdout
    echo = ("-m", "timeit", "-n1", "-r1", "--", "import sys; print(sys.argv[1:])", "pass")
    assert run(*echo).stdout.startswith(str(list(echo[2:])))


def test_without_a_program_there_is_a_hint() -> None:
    done = run("--devices", "2")
    assert done.returncode == 2
    assert "there is no program to run" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail", "cuMemAllocc:1"), "no function 'cuMemAllocc'"),
        (("--fail", "cuMemAlloc:x"), "NAME:N+"),
        (("--fail", "cuMemAlloc:0"), "NAME:N+"),
        (("--memory", "lots"), "'lots' is no number of bytes"),
        (("--memory", "0"), "0 bytes of memory"),
        (("--devices", "-1"), "-1 GPUs"),
        (("--capability", "nine"), "no compute capability"),
        (("--races",), "engine 'ptx'"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 2
    assert words in done.stderr


def test_functions_that_can_fail_are_known_in_every_version() -> None:
    for name in ("cuMemAlloc", "cuMemAlloc_v2", "cuInit", "cuEventElapsedTime", "cuLaunchKernel"):
        assert environment(fail=f"{name}:2+:700,cuInit:1")


def test_a_program_that_is_not_there_is_named() -> None:
    assert "cannot run /nowhere" in run("/nowhere").stderr


def test_the_loader_finds_the_stand_in_first() -> None:
    assert environment()["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(library_folder())


def test_elsewhere_the_process_is_told_that_it_does_not_run_on_it() -> None:
    program = (
        "from tangrad_cuda_emulator import is_running, calls; print(is_running()); calls('cuInit')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"
    assert "does not run on the emulator" in done.stderr


PYCUDA = """
import numpy as np, pycuda.autoinit, pycuda.driver as cuda
from pycuda.compiler import SourceModule
double = SourceModule("__global__ void f(float *x) { x[threadIdx.x] *= 2; }").get_function("f")
x = np.arange(8, dtype="f4")
double(cuda.InOut(x), block=(8, 1, 1))
print(x.tolist())
print([line.split()[-1] for line in open("/proc/self/maps") if "libcuda" in line][0])
print(cuda.__file__)
"""


@pytest.mark.parametrize("engine", ["host", "ptx"])
def test_pycuda_runs_with_nothing_but_the_driver_replaced(engine: str) -> None:
    pytest.importorskip("pytools")
    done = run("--engine", engine, sys.executable, "-c", PYCUDA)
    if "No module named 'pycuda'" in done.stderr:
        pytest.skip("pycuda is not installed")
    values, driver, pycuda = done.stdout.split("\n")[:3]
    assert values == "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]"
    assert driver == str(library_folder() / "libcuda.so.1")
    assert "site-packages" in pycuda

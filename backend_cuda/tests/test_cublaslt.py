"""Products by cuBLASLt, where a program chose it; what it is called with is checked by a stand-in.

No GPU has run them: the stand-in does what the calls say, by the library's documentation.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
import tangrad
F, blas = tangrad.nn.functional, tangrad.backends.cuda.preferred_blas_library

def calls():
    return ctypes.CDLL(LIBRARY).paper_calls()

def filled(*shape):
    return (tangrad.arange(float(tangrad.Size(shape).numel())) % 7 - 3).reshape(shape)

def same(work, *args, by_library=True):
    before = calls()
    here, there = work(*args), work(*(a.cuda() for a in args)).cpu()
    assert here.allclose(there, rtol=1e-6, atol=1e-6), (here, there)
    assert (calls() > before) == by_library, (calls(), before)

"""
PRODUCTS = """
same(lambda a, b: a @ b, filled(5, 4), filled(4, 3), by_library=False)
assert blas() == "default" and blas("cublaslt") == "cublaslt" == blas()
a, b, c = filled(5, 4), filled(4, 3), filled(5, 3)
for dtype in (tangrad.float32, tangrad.float64):
    a, b, c = a.to(dtype), b.to(dtype), c.to(dtype)
    same(lambda a, b: a @ b, a, b)
    same(lambda a, b: a.T.contiguous().T @ b, a, b)
    same(lambda a, b: a @ b.T.contiguous().T, a, b)
    same(lambda a, c: a.T @ c, a, c)
    same(lambda a, b: a[1:, :3] @ b[:3], a, b)
    same(lambda a, b: a[:1] @ b[:, 1:2], a, b)
    same(lambda a, b: F.linear(a, b.T, b[0]), a, b)
    same(lambda a, b: F.linear(a.reshape(5, 1, 4), b.T.contiguous()), a, b)
same(lambda a, b: a @ b, filled(2, 5, 4), filled(2, 4, 3))
same(lambda a, b: a.transpose(1, 2) @ b, filled(2, 4, 5), filled(1, 4, 3).expand(2, 4, 3))
with tangrad.cuda.stream(tangrad.cuda.Stream()):
    same(lambda a, b: a @ b, a, b)
"""
REST = """
blas("cublaslt")
# Of other strides, without an element, of integers, and where the library has no algorithm.
same(lambda a, b: a[:, ::2] @ b[:2], filled(5, 4), filled(4, 3), by_library=False)
same(lambda a, b: a[:, :0] @ b[:0], filled(5, 4), filled(4, 3), by_library=False)
same(lambda a, b: a.long() @ b.long(), filled(5, 4), filled(4, 3), by_library=False)
same(lambda a, b: (a.half() @ b.half()).float(), filled(5, 4), filled(4, 3), by_library=False)
assert blas("default") == "default"
same(lambda a, b: a @ b, filled(5, 4), filled(4, 3), by_library=False)
"""
TRAINING = """
def losses(device):
    tangrad.manual_seed(1)
    nn = tangrad.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    optimizer = tangrad.optim.SGD(model.parameters(), 0.1)
    x, found = filled(6, 8).to(device), []
    for _ in range(3):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

blas("cublaslt")
here, there = losses("cpu"), losses("cuda")
assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(here, there)), (here, there)
# Both layers and the gradient of one input; a weight's and its bias's are one launch of ours.
assert calls() == 3 * 3
"""
MEMORY = """
from tangrad_cuda import planned

def described():
    return ctypes.CDLL(LIBRARY).paper_described()

blas("cublaslt")
planned.MOST_PLANS = 2
for _ in range(2):  # what was forgotten is found again
    for rows in (2, 3, 4):
        same(lambda a, b: a @ b, filled(rows, 4), filled(4, 3))
assert described() == 2 * 4, described()  # a product's own, and three layouts
for _ in range(2):  # what has no algorithm has no description either
    same(lambda a, b: (a.half() @ b.half()).float(), filled(5, 4), filled(4, 3), by_library=False)
assert described() <= 4, described()
"""
FAILURES = """
blas("cublaslt")
a = filled(5, 4).cuda()
try:
    a @ a.T
except RuntimeError as error:
    assert "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED" in str(error), error
else:
    raise AssertionError("worked")
blas("default")
assert (a @ a.T).cpu().equal(filled(5, 4) @ filled(5, 4).T)
"""


@pytest.fixture(scope="session")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a toolkit whose cuBLASLt is the stand-in."""
    emulator = pytest.importorskip("tangrad_cuda_emulator")
    root = tmp_path_factory.mktemp("toolkit")
    (root / "lib64").mkdir()
    made = root / "lib64" / "libcublasLt.so"
    source = Path(__file__).with_name("paper_cublaslt.cpp")
    driver = emulator.library_folder() / "libcuda.so.1"
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", made, source, driver]
    subprocess.run(command, check=True)
    return root


def call(run, toolkit: Path, program: str, **variables: str) -> str:
    told = f"LIBRARY = {str(toolkit / 'lib64' / 'libcublasLt.so')!r}\n"
    return run(told + PROGRAM + program, env={"CUDA_HOME": str(toolkit), **variables})


def test_products_are_those_of_the_cpu(run, toolkit):
    assert call(run, toolkit, PRODUCTS) == ""


def test_what_it_does_not_take_stays_with_the_own_kernels(run, toolkit):
    assert call(run, toolkit, REST) == ""


def test_plans_are_kept_up_to_a_number(run, toolkit):
    assert call(run, toolkit, MEMORY) == ""


def test_a_model_trains_by_it(run, toolkit):
    assert call(run, toolkit, TRAINING) == ""


def test_what_it_refuses_is_named_and_the_switch_goes_back(run, toolkit):
    assert call(run, toolkit, FAILURES, PAPER_CUBLASLT_FAILS="1") == ""


def test_without_the_library_the_choice_is_refused(run):
    program = """
import tangrad
for choice, error, words in (("cublaslt", RuntimeError, "pip install nvidia-cublas"),
                             ("cublas", NotImplementedError, "'default' and 'cublaslt'")):
    try:
        tangrad.backends.cuda.preferred_blas_library(choice)
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError(choice)
assert tangrad.backends.cuda.preferred_blas_library() == "default"
"""
    run(program, env={"CUDA_HOME": "", "CUDA_PATH": ""})

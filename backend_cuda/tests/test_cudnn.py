"""Convolutions by cuDNN, where a program chose it; what it is called with is checked by a stand-in.

No GPU has run them: the stand-in does what the calls say, by the library's documentation.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
import tangrad
F, cudnn = tangrad.nn.functional, tangrad.backends.cudnn

def told(name):
    return getattr(ctypes.CDLL(LIBRARY), "paper_" + name)()

def filled(*shape, dtype=tangrad.float32):
    return ((tangrad.arange(float(tangrad.Size(shape).numel())) % 7 - 3).reshape(shape)).to(dtype)

def run(work, device, args):
    there = [a.detach().to(device).requires_grad_() for a in args]
    result = work(*there)
    result.backward(filled(*result.shape, dtype=result.dtype).to(device))
    return [t.cpu() for t in (result.detach(), *(a.grad for a in there))]

def same(work, *args, calls=3):
    '''Values and gradients are those of the CPU, by so many calls of the library.'''
    before = told("calls")
    for here, there in zip(run(work, "cpu", args), run(work, "cuda", args), strict=True):
        assert here.allclose(there, rtol=1e-6, atol=1e-6), (here, there)
    assert told("calls") == before + calls, (told("calls"), before)

image, weight, bias = filled(2, 4, 5, 6), filled(6, 4, 3, 2), filled(6)
"""
CONVOLUTIONS = """
assert not cudnn.enabled and cudnn.is_available() and cudnn.version() == 91300
same(F.conv2d, image, weight, bias, calls=0)
assert not cudnn.is_acceptable(image.cuda())
cudnn.enabled = True
assert cudnn.is_acceptable(image.cuda()) and not cudnn.is_acceptable(image)
for dtype in (tangrad.float32, tangrad.float64):
    x, w, b = (t.to(dtype) for t in (image, weight, bias))
    same(F.conv2d, x, w)
    same(F.conv2d, x, w, b)
    same(lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 3)), x, w)
    same(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2), x, w[:, :2].contiguous(), b)
same(lambda x, w: F.conv1d(x, w, stride=2, padding=1), filled(2, 3, 9), filled(4, 3, 3))
same(F.conv3d, filled(1, 2, 3, 4, 3), filled(2, 2, 2, 3, 2), filled(2))
same(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1, groups=2),
     image, filled(4, 3, 2, 3), bias)
same(lambda x, w: F.conv2d(x.transpose(2, 3), w), image, weight)
same(F.conv2d, image.to(memory_format=tangrad.channels_last), weight)
same(F.conv2d, image[0], weight)
with tangrad.cuda.stream(tangrad.cuda.Stream()):
    same(F.conv2d, image, weight)
"""
REST = """
cudnn.enabled = True  # before a GPU is in use
# Without an element, of complex numbers, places that no window ends at, a dtype it has nothing for.
same(F.conv2d, image[:0], weight, calls=0)
same(F.conv2d, image.to(tangrad.complex64), weight.to(tangrad.complex64), calls=0)
same(lambda x, w: F.conv_transpose1d(x, w, output_padding=1, dilation=2),
     filled(1, 2, 4), filled(2, 2, 3), calls=1)
same(lambda x, w: F.conv2d(x.half(), w.half()).float(), image, weight, calls=0)
with cudnn.flags(enabled=False):
    same(F.conv2d, image, weight, calls=0)
same(F.conv2d, image, weight)
cudnn.enabled = False
same(F.conv2d, image, weight, calls=0)
"""
CHOICES = """
FAST, SAFE, DEFAULT, FMA = 1, 2, 0, 3
cudnn.enabled = True
same(F.conv2d, image, weight)
assert (told("algorithm"), told("math"), told("tried")) == (FAST, FMA, 0)
cudnn.deterministic = cudnn.allow_tf32 = True
same(F.conv2d, image, weight)
assert (told("algorithm"), told("math"), told("tried")) == (SAFE, DEFAULT, 0)
cudnn.benchmark = True
for _ in range(2):  # what was found once is kept
    same(F.conv2d, image, weight)
    assert (told("algorithm"), told("tried")) == (SAFE, 3)
cudnn.benchmark_limit = 1
same(F.conv2d, image[:1], weight, calls=0)  # the only one that was tried failed
"""
MEMORY = """
from tangrad_cuda import cudnn as calls, planned
cudnn.enabled = True
planned.MOST_PLANS = 2
for _ in range(2):  # what was forgotten is found again
    for images in (1, 2):
        same(F.conv2d, image[:images], weight, bias)
assert told("described") == 2 * 5, told("described")
same(lambda x, w: F.conv2d(x.half(), w.half()).float(), image, weight, calls=0)
assert told("described") == 0, told("described")

# Where there is no room for its workspace, the own kernels convolve.
planned.MOST_PLANS = 10
same(F.conv2d, image, weight, bias)
empty = tangrad.empty
def no_room(*size, dtype=None, **given):
    if dtype is tangrad.uint8:
        raise tangrad.OutOfMemoryError("no room")
    return empty(*size, dtype=dtype, **given)
tangrad.empty = no_room
same(F.conv2d, image, weight, bias, calls=0)
tangrad.empty = empty
cudnn.benchmark = True
calls.WORKSPACE = 1 << 40  # more than there is
same(F.conv2d, image, weight, bias)
"""
TRAINING = """
def losses(device):
    tangrad.manual_seed(1)
    nn = tangrad.nn
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 2, stride=2),
                          nn.Flatten(), nn.Linear(8, 1)).to(device)
    optimizer = tangrad.optim.SGD(model.parameters(), 0.05)
    x, found = filled(3, 2, 4, 4).to(device), []
    for _ in range(3):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

cudnn.enabled = True
here, there = losses("cpu"), losses("cuda")
assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(here, there)), (here, there)
# Both layers, their weights' gradients, and the gradient of the second's input.
assert told("calls") == 3 * 5
"""
FAILURES = """
cudnn.enabled = True
x, w = image.cuda(), weight.cuda()
try:
    F.conv2d(x, w)
except RuntimeError as error:
    assert "cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED" in str(error), error
    assert "tangrad.backends.cudnn.enabled = False" in str(error), error
else:
    raise AssertionError("worked")
cudnn.enabled = False
assert F.conv2d(x, w).cpu().allclose(F.conv2d(image, weight))
"""
ABSENT = """
import warnings
import tangrad
cudnn = tangrad.backends.cudnn
assert not cudnn.is_available() and cudnn.version() is None
cudnn.enabled = True
x, w = tangrad.ones(1, 2, 3, 3), tangrad.ones(1, 2, 2, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        for dtype in (tangrad.float32, tangrad.float64):
            got = tangrad.nn.functional.conv2d(x.cuda().to(dtype), w.cuda().to(dtype))
            assert got.cpu().eq(8).all()
(one,) = caught
assert WORDS in str(one.message), one.message
"""


@pytest.fixture(scope="session")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a toolkit whose cuDNN is the stand-in."""
    emulator = pytest.importorskip("tangrad_cuda_emulator")
    root = tmp_path_factory.mktemp("toolkit")
    (root / "lib64").mkdir()
    made = root / "lib64" / "libcudnn.so"
    source = Path(__file__).with_name("paper_cudnn.cpp")
    driver = emulator.library_folder() / "libcuda.so.1"
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", made, source, driver]
    subprocess.run(command, check=True)
    return root


def call(run, toolkit: Path, program: str, **variables: str) -> str:
    told = f"LIBRARY = {str(toolkit / 'lib64' / 'libcudnn.so')!r}\n"
    return run(told + PROGRAM + program, env={"CUDA_HOME": str(toolkit), **variables})


def test_convolutions_and_their_gradients_are_those_of_the_cpu(run, toolkit):
    assert call(run, toolkit, CONVOLUTIONS) == ""


def test_what_it_does_not_take_stays_with_the_own_kernels(run, toolkit):
    assert call(run, toolkit, REST) == ""


def test_settings_say_which_algorithm_is_taken(run, toolkit):
    assert call(run, toolkit, CHOICES) == ""


def test_it_keeps_little_and_needs_no_room(run, toolkit):
    assert call(run, toolkit, MEMORY) == ""


def test_a_model_trains_by_it(run, toolkit):
    assert call(run, toolkit, TRAINING) == ""


def test_what_it_refuses_is_named_and_the_switch_goes_back(run, toolkit):
    assert call(run, toolkit, FAILURES, PAPER_CUDNN_FAILS="run") == ""


def test_without_the_library_own_kernels_convolve_and_one_warning_says_so(run):
    words = "WORDS = 'pip install nvidia-cudnn-cu13'\n"
    assert run(words + ABSENT, env={"CUDA_HOME": "", "CUDA_PATH": ""}) == ""


def test_a_library_too_old_is_not_called(run, toolkit):
    words = "WORDS = 'cuDNN 7605 is too old'\n"
    told = {"CUDA_HOME": str(toolkit), "PAPER_CUDNN_FAILS": "version"}
    assert run(words + ABSENT, env=told) == ""

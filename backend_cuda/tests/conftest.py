"""Programs on the stand-in GPU: each runs in a process of its own, for a driver is loaded once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# pycuda has no wheel: one is built once, and kept beside the wheels of the repository.
PYCUDA = ROOT / "dist" / "pycuda"
Run = Callable[..., str]


def _need(condition: object, reason: str) -> None:
    if not condition:
        pytest.skip(reason)


def _build_pycuda() -> str:
    """Build pycuda's wheel where it is needed and lacking; return why that failed, or ""."""
    if find_spec("pycuda") is not None or list(PYCUDA.glob("pycuda-*.whl")):
        return ""
    if shutil.which("g++") is None:
        return "there is no g++, by which pycuda and the emulator compile"
    command = [sys.executable, "-m", "tangrad_cuda", "install", "--wheel-dir", str(PYCUDA)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"pycuda cannot be built here: {built.stderr[-400:]}" if built.returncode else ""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build pycuda once, before the tests' processes and outside of a test's limit of time."""
    of_a_worker = hasattr(session.config, "workerinput")
    options = session.config.option
    is_needed = not options.collectonly and "not own_factor" not in options.markexpr
    if not of_a_worker and is_needed and find_spec("tangrad_cuda"):
        _build_pycuda()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs pycuda, whose build takes minutes."""
    for item in items:
        if {"pycuda", "variables"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.own_factor)


@pytest.fixture(scope="session")
def pycuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder from which pycuda is imported; "" where it is installed."""
    if find_spec("pycuda") is not None:
        return ""
    failure = _build_pycuda()
    _need(not failure, failure)
    wheel = max(PYCUDA.glob("pycuda-*.whl"))
    folder = tmp_path_factory.mktemp("pycuda")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), str(wheel)], check=True)
    return str(folder)


@pytest.fixture(scope="session")
def variables(pycuda: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a process needs in its environment beside what the emulator says."""
    emulator = pytest.importorskip("tangrad_cuda_emulator")
    nvrtc = pytest.importorskip("tangrad_cuda.nvrtc")
    library = emulator.library_folder() / "libcuda.so.1"
    _need(library.exists(), "the stand-in for the driver is not built")
    _need(shutil.which("g++"), "there is no g++, by which the stand-in compiles kernels")
    try:
        nvrtc.library()
    except RuntimeError as error:
        pytest.skip(str(error))
    paths = [pycuda, os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TANGRAD_KERNEL_CACHE": str(tmp_path_factory.mktemp("kernels")),
    }


@pytest.fixture
def run(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs a program's text on the emulator and returns what it prints."""
    from tangrad_cuda_emulator import environment

    sources = tmp_path_factory.getbasetemp() / "sources"

    def call(
        program: str,
        *,
        status: int = 0,
        engine: str = "host",
        env: dict[str, str] | None = None,
        **options: object,
    ) -> str:
        told = environment(engine=engine, sources=sources if engine == "host" else None, **options)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={**os.environ, **variables, **told, **(env or {})},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call

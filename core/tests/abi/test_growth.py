"""The C function table grows at its end: old backends go on working, too new ones are refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tangrad.plugin import include_directory

CORE = Path(__file__).parents[2]
# All other C files are Cython's.
HANDWRITTEN = [
    path.relative_to(CORE)
    for path in (CORE / "src").rglob("*.c")
    if not path.with_suffix(".pyx").exists()
]
FULL = os.environ.get("TANGRAD_TESTS") == "full"


def edited(path, *replacements):
    """Replace texts that stand exactly once in a file."""
    text = path.read_text("utf-8")
    for old, new in replacements:
        assert text.count(old) == 1, f"{path.name}: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    path.write_text(text, "utf-8")


def grow_header(path):
    """Append a function to the table as a release would, and count its version up."""
    version = int(re.search(r"#define TG_ABI_VERSION (\d+)", path.read_text("utf-8"))[1])
    edited(
        path,
        (f"#define TG_ABI_VERSION {version}\n", f"#define TG_ABI_VERSION {version + 1}\n"),
        ("} tg_api;", "    int (*answer)(void);\n} tg_api;"),
    )
    return version


def test_backend_that_is_newer_than_the_core_is_refused(workshop, tmp_path):
    newer = Path(shutil.copytree(Path(include_directory()) / "native", tmp_path / "newer/native"))
    version = grow_header(newer / "tangrad_abi.h")
    folder = workshop.backend("noop_backend", TANGRAD_INCLUDE=str(newer.parent))
    done = workshop.run("import noop_backend", folder)
    assert done.returncode == 1
    assert f"ImportError: this backend needs version {version + 1} of tangrad's C function" in (
        done.stderr
    )
    assert f"the installed tangrad has version {version} (" in done.stderr


def test_wheel_that_was_built_for_an_older_table_still_loads(workshop, tmp_path):
    older = Path(shutil.copytree(Path(include_directory()) / "native", tmp_path / "older/native"))
    header = older / "tangrad_abi.h"
    text = header.read_text("utf-8").replace("TG_ABI_VERSION 3\n", "TG_ABI_VERSION 2\n")
    text = re.sub(r"/\* ---- since version 3.*(?=typedef struct tg_api)", "", text, flags=re.S)
    text = re.sub(r"    /\* since version 3.*(?=\} tg_api;)", "", text, flags=re.S)
    header.write_text(text, "utf-8")
    folder = workshop.backend("noop_backend", TANGRAD_INCLUDE=str(older.parent))
    done = workshop.run(
        "import noop_backend as noop, tangrad\n"
        "built, built_size, now, size = noop.versions()\n"
        "print(built, now > built, size > built_size, hasattr(noop, 'scratch'))\n"
        "noop.push(0); tangrad.ones(2) * 2; noop.pop(0)\n"
        "print(noop.counts(0)[0] >= 1)\n",
        folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 True True False", "True"]


@pytest.fixture
def grown_core(tmp_path):
    """Build this core with one more function in its table; returns the folder to import from."""
    pytest.importorskip("Cython", reason="the core is written in Cython")
    left_out = shutil.ignore_patterns("*.so", "build", "tests", "__pycache__", "*.egg-info", "*.c")
    core = Path(shutil.copytree(CORE, tmp_path / "core", ignore=left_out))
    package = core / "src" / "tangrad"
    for source in HANDWRITTEN:
        shutil.copy(CORE / source, core / source)
    grow_header(package / "native" / "tangrad_abi.h")
    edited(
        package / "api.pxd",
        (
            "    const tg_api* tg_import_api",
            "        int (*answer)() noexcept\n    const tg_api* tg_import_api",
        ),
    )
    edited(
        package / "native" / "abi.pxi",
        ("API.version =", "cdef int answer() noexcept:\n    return 42\n\n\nAPI.version ="),
        ("_API = PyCapsule_New", "API.answer = answer\n_API = PyCapsule_New"),
    )
    edited(core / "setup.py", ('"-O2"', '"-O0"'))
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=core,
        env={**os.environ, "CC": os.environ.get("CC", compiler)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return core / "src"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not FULL, reason="compiles the core again; runs with TANGRAD_TESTS=full")
def test_wheel_of_a_backend_loads_after_the_table_has_grown(workshop, noop_folder, grown_core):
    done = workshop.run(
        "import noop_backend as noop, tangrad\n"
        "built, built_size, now, size = noop.versions()\n"
        "print(tangrad.__file__)\n"
        "print(now - built, size - built_size)\n"
        "noop.install_looking('add', 'cpu', 'float32')\n"
        "x = tangrad.ones(4, requires_grad=True)\n"
        "z = x + tangrad.ones(4)\n"
        "z.backward(tangrad.ones(4))\n"
        "print(noop.last_loop()['calls'], tuple(z.shape), x.grad.tolist())\n"
        "noop.push(0); z * z; noop.pop(0)\n"
        "print(noop.counts(0))\n",
        grown_core,
        noop_folder,
    )
    assert done.returncode == 0, done.stderr
    place, growth, kernel, counted = done.stdout.splitlines()
    assert place.startswith(str(grown_core))
    assert growth == "1 8"
    assert kernel == "1 (4,) [1.0, 1.0, 1.0, 1.0]"
    assert counted == "(1, 1, 1)"

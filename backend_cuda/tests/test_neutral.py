"""Without a GPU, `tangrad.cuda` answers what it answers without the package."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import json, tangrad
from pathlib import Path
if tangrad.cuda.is_available():
    print("skip")
    raise SystemExit
table = json.loads((Path(tangrad.__file__).parent / "discovery" / "neutral.json").read_text())
given = {"manual_seed": [0], "manual_seed_all": [0], "set_rng_state_all": [[]]}
cuda = table["cuda"]
for name, value in cuda["returns"].items():
    assert getattr(tangrad.cuda, name)(*given.get(name, [])) == value, name
for name in (*" ".join(cuda["refused"]).split(), *cuda["contexts"], *cuda["same"]):
    assert hasattr(tangrad.cuda, name), name
assert not list(tangrad.cuda.default_generators)
assert tangrad.cuda.OutOfMemoryError is tangrad.OutOfMemoryError
for namespace in ("backends.cuda.matmul", "backends.cudnn"):
    module = tangrad
    for part in namespace.split("."):
        module = getattr(module, part)
    for name, value in table[namespace]["values"].items():
        assert getattr(module, name) == value, name
for use in (tangrad.cuda.synchronize, tangrad.cuda.current_device, tangrad.cuda.mem_get_info,
            tangrad.cuda.Stream, tangrad.cuda.get_device_name):
    try:
        use()
    except RuntimeError as error:
        assert "tangrad.cuda: " in str(error), error
    else:
        raise AssertionError(use)
assert not tangrad.accelerator.is_available() and tangrad.accelerator.device_count() == 0
import sys
assert not any(name.startswith("pycuda") for name in sys.modules)
"""


def test_answers_are_those_of_the_absent_package():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_driver_s_module_imports_nothing_native():
    program = (
        "import sys, tangrad_cuda.driver\n"
        "assert not {'pycuda', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Two devices that compile C: blocks of one lane, and blocks of several lanes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangrad.devices import registry
from tangrad.plugin.compiled.cache import FOLDER_VARIABLE

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[2] / "examples" / "compiled_c_device" / "src"
sys.path[:0] = [str(HERE), str(EXAMPLE)]  # what the tests share, and the example's device
DEVICES = {"plain_c": "tangrad_plain_c:Driver", "threaded": "threaded:ThreadedDriver"}


@pytest.fixture(scope="module", autouse=True)  # tests elsewhere count the devices
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make both devices known without installing a package; their kernels are compiled anew."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    os.environ.setdefault(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("kernels")))
    registry.BUILTIN.update(DEVICES)
    yield
    for name in DEVICES:
        registry.BUILTIN.pop(name, None)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Name each of the devices in turn."""
    name: str = request.param
    return name

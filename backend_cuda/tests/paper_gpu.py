"""A device whose kernels are written and compiled as those of `cuda`, and never run.

What programs launch on it is what has to compile for every architecture: the sources are collected
by running the samples of all ops. Its memory is the host's, and what kernels would have written
there stays zero.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import Any

from tangrad.plugin.compiled import CompilingDriver
from tangrad_cuda.dialect import DIALECT

API = 1


class PaperGpu(CompilingDriver):
    """Collect sources."""

    dialect = DIALECT
    immediate = True

    def open(self) -> None:
        self.sources: dict[str, str] = {}
        self.missing: set[tuple[str, str]] = set()
        self._memory: dict[int, Any] = {}

    def kernel_for(self, op: Any, dtype: Any) -> Any:
        found = super().kernel_for(op, dtype)
        if found is None:
            self.missing.add((op.name, dtype.name))
        return found

    def allocate(self, nbytes: int, index: int) -> int:
        memory = (ctypes.c_char * (nbytes + 64))()
        address = -(-ctypes.addressof(memory) // 64) * 64
        self._memory[address] = memory
        return address

    def release(self, handle: int, nbytes: int) -> None:
        del self._memory[handle]

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        ctypes.memmove(handle + offset, bytes(source), len(source))

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        target[:] = ctypes.string_at(handle + offset, len(target))

    def architecture(self, index: int) -> str:
        return "paper"

    def compiler_version(self) -> str:
        return "none"

    def module_of(self, source: str, index: int) -> str:
        import hashlib

        self.sources.setdefault(hashlib.sha256(source.encode()).hexdigest(), source)
        return source

    def function(self, module: str, name: str) -> str:
        assert f" {name}(" in module
        return name

    def launch(self, function: Any, blocks: int, buffers: Any, numbers: bytes, index: int) -> None:
        assert blocks >= 1


def install() -> None:
    """Make it known as device `paper` to this process, as if it were an installed package."""
    folder = Path(tempfile.mkdtemp())
    info = folder / "paper_gpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-gpu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tangrad.devices]\npaper = paper_gpu:PaperGpu\n")
    sys.path[:0] = [str(folder), str(Path(__file__).parent)]


def collected(dtypes: tuple[str, ...]) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Run all ops' samples, forward and backward.

    Returns:
        The sources; and which ops have no kernel, with the dtype asked for.
    """
    import warnings

    import tangrad
    from tangrad.plugin import get_driver
    from tangrad_testing import calls, cases

    warnings.simplefilter("ignore")
    tangrad.zeros(1, device="paper")
    driver: Any = get_driver("paper")
    for case in cases.matrix(cases.op_names(), dtypes, ("paper",)):
        for sample in case.samples()[:6]:
            _run(calls, case, sample)
    return driver.sources, driver.missing


def _run(calls: Any, case: Any, sample: Any) -> None:
    """Call an op on the device; what it makes of zeros, errors too, is of no interest."""
    try:
        args, kwargs = calls.tangrad_arguments(sample, "paper", case.definition)
        for tensor in calls.tensors_in((args, kwargs)):
            if calls.is_differentiable_dtype(tensor):
                tensor.requires_grad_()
        result = case.call(*args, **kwargs)
        for tensor in calls.tensors_in(result):
            if tensor.requires_grad:
                tensor.sum().backward(retain_graph=True)
    except calls.REFUSALS:
        pass

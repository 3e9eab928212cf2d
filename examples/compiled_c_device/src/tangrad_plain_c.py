"""Device "plain_c": memory of the host, and kernels that the system's C compiler makes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tangrad.plugin.compiled import CompilingDriver, Kernel, KernelDialect
from tangrad.plugin.render import DIALECTS

API = 1

COMMAND = ("cc", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv", "-w")


class PlainC(KernelDialect):
    """C, in which a kernel is called with (blocks, buffers, numbers) and runs block after block."""

    def kernel(self, kernel: Kernel) -> str:
        """Return the function of one block, and the one that calls it for each."""
        typed = [(f"{self.type(dtype)} *", name) for dtype, name in kernel.buffers]
        params = [kind + name for kind, name in typed]
        args = [f"({kind})buffers[{k}]" for k, (kind, _) in enumerate(typed)]
        structure = ""
        if kernel.numbers:
            structure = self.structure(kernel)
            params.append(f"const {kernel.name}_numbers g")
            args.append(f"*(const {kernel.name}_numbers *)numbers")
        head = self.kernel_head.format(name=kernel.name, params=", ".join(params))
        return f"""{structure}
{head} {{
{kernel.body}
}}
void {kernel.name}(int64_t blocks, void **buffers, const void *numbers) {{
    for (int64_t block = 0; block < blocks; block++)
        {kernel.name}_block(block, blocks, {", ".join(args)});
}}
"""


DIALECT = PlainC(
    "plain C",
    function="static inline",
    types=DIALECTS["c"].types,
    header=DIALECTS["c"].header,
    c99_complex=True,
    lanes=1,
    max_blocks=1,
    kernel="static void {name}_block(int64_t tk_block, int64_t tk_blocks, {params})",
    block="tk_block",
    blocks="tk_blocks",
)


class Driver(CompilingDriver):
    """Compile by `cc`, and call what was compiled."""

    dialect = DIALECT
    immediate = True

    def probe(self) -> bool | str:
        """Ask for a compiler."""
        return shutil.which(COMMAND[0]) is not None or f"there is no C compiler '{COMMAND[0]}'"

    def open(self) -> None:
        """Start without memory."""
        said = subprocess.run([COMMAND[0], "--version"], capture_output=True, text=True, check=True)
        self._version = " ".join([said.stdout.partition("\n")[0], *COMMAND])
        self._blocks: dict[int, Any] = {}

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the address of new memory, a multiple of 64."""
        try:
            block = (ctypes.c_char * (nbytes + 64))()
        except (OverflowError, ValueError) as error:
            raise MemoryError(f"plain_c: {nbytes} bytes") from error
        address = -(-ctypes.addressof(block) // 64) * 64
        self._blocks[address] = block
        return address

    def release(self, handle: int, nbytes: int) -> None:
        """Give memory back."""
        del self._blocks[handle]

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy bytes to the device."""
        ctypes.memmove(handle + offset, bytes(source), len(source))

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes from the device."""
        target[:] = ctypes.string_at(handle + offset, len(target))

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes that may overlap."""
        ctypes.memmove(handle + offset, source + source_offset, nbytes)

    def architecture(self, index: int) -> str:
        """Return the machine's name: the compiler makes code for all of its kind."""
        return os.uname().machine

    def compiler_version(self) -> str:
        """Return the compiler's first line about itself, and how it is called."""
        return self._version

    def compile(self, source: str, architecture: str) -> bytes:
        """Return a shared library."""
        with tempfile.TemporaryDirectory() as folder:
            file, made = Path(folder, "kernels.c"), Path(folder, "kernels.so")
            file.write_text(source)
            command = [*COMMAND, str(file), "-o", str(made), "-lm"]
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            if said.returncode:
                raise RuntimeError(f"{COMMAND[0]} refused kernels of tangrad:\n{said.stderr}")
            return made.read_bytes()

    def load(self, binary: bytes, index: int) -> Any:
        """Return the library, loaded from a file that is gone afterwards."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(binary)
            file.flush()
            try:
                return ctypes.CDLL(file.name)
            except OSError as error:
                raise RuntimeError(f"no library of kernels: {error}") from error

    def function(self, module: Any, name: str) -> Any:
        """Return a kernel."""
        return module[name]

    def launch(
        self, function: Any, blocks: int, buffers: Sequence[int], numbers: bytes, index: int
    ) -> None:
        """Call a kernel, which has done its work when it returns."""
        addresses = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        function(ctypes.c_int64(blocks), addresses, numbers)

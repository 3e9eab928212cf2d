"""Device "plain_c": the host's memory, and kernels that the system's C compiler makes on demand.

A block has one lane here, so barriers and shared memory cost nothing: what the kernels of
`tangrad.plugin.compiled` are for other devices follows from the page that is `DIALECT`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tangrad.plugin.compiled import CompilingDriver, Kernel, KernelDialect
from tangrad.plugin.render import DIALECTS

API = 1

COMMAND = ("cc", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w")


class PlainC(KernelDialect):
    """C whose kernels are functions of (blocks, buffers, numbers)."""

    def kernel(self, kernel: Kernel) -> str:
        """Return the function of one block, and the one that calls it for each."""
        of_block = self.kernel_head
        params = [f"{self.type(dtype)} *{name}" for dtype, name in kernel.buffers]
        args = [
            f"({self.type(dtype)} *)buffers[{k}]" for k, (dtype, _) in enumerate(kernel.buffers)
        ]
        structure = ""
        if kernel.numbers:
            structure = self.structure(kernel)
            params.append(f"const {kernel.name}_numbers g")
            args.append(f"*(const {kernel.name}_numbers *)numbers")
        head = of_block.format(name=kernel.name, params=", ".join(params))
        return f"""{structure}
{head} {{
{kernel.body}
}}
void {kernel.name}(int64_t blocks, void **buffers, const void *numbers) {{
    for (int64_t block = 0; block < blocks; block++)
        {kernel.name}_block(block, blocks, {", ".join(args)});
}}
"""


C = DIALECTS["c"]
DIALECT = PlainC(
    "plain C",
    function="static inline",
    types=C.types,
    header=C.header,
    c99_complex=True,
    lanes=1,
    max_blocks=1,
    kernel="static void {name}_block(int64_t tk_block, int64_t tk_blocks, {params})",
    block="tk_block",
    blocks="tk_blocks",
)


class Driver(CompilingDriver):
    """Compile by `cc`; memory is the host's, addressed as on any other device."""

    dialect = DIALECT
    immediate = True

    def probe(self) -> bool | str:
        """Ask for a compiler."""
        return True if shutil.which(COMMAND[0]) else f"there is no C compiler '{COMMAND[0]}'"

    def open(self) -> None:
        """Start without memory."""
        self._blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the address of new memory, a multiple of 64."""
        block = (ctypes.c_char * (nbytes + 64))()
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
        """Copy bytes from the device; what kernels reported is raised."""
        target[:] = ctypes.string_at(handle + offset, len(target))
        self.raise_reported(0)

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
        said = subprocess.run([COMMAND[0], "--version"], capture_output=True, text=True, check=True)
        return said.stdout.splitlines()[0] + " ".join(COMMAND)

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

    def load(self, binary: bytes, index: int) -> ctypes.CDLL:
        """Return the library, loaded from a file that is gone afterwards."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(binary)
            file.flush()
            try:
                return ctypes.CDLL(file.name)
            except OSError as error:
                raise RuntimeError(f"not a library of kernels: {error}") from error

    def function(self, module: ctypes.CDLL, name: str) -> ctypes._CFuncPtr:
        """Return a kernel."""
        return module[name]

    def launch(self, function, blocks, buffers, numbers, index) -> None:  # type: ignore[no-untyped-def]
        """Call a kernel."""
        addresses = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        function(ctypes.c_int64(blocks), addresses, numbers)

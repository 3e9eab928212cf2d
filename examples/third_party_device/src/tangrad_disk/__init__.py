"""Device "disk": every allocation is a file without a name, so tensors may exceed the memory."""

import mmap
import os
import tempfile

from tangrad.plugin import DeviceDriver

API = 1


class Disk(DeviceDriver):
    """Keep each piece of memory in a temporary file, whose descriptor is the handle."""

    accelerator = False  # it is slower than the host, and meant by those who name it

    def probe(self):
        """Return True, or what keeps this machine from having the device."""
        if not hasattr(os, "posix_fallocate"):
            return "this system cannot reserve space in files (no posix_fallocate)"
        return True

    def allocate(self, nbytes, index):
        """Return the descriptor of a new file of that size."""
        with tempfile.TemporaryFile() as file:
            try:
                os.posix_fallocate(file.fileno(), 0, nbytes)
            except OSError as error:
                raise MemoryError(f"{nbytes} bytes in {tempfile.gettempdir()}: {error}") from error
            return os.dup(file.fileno())

    def release(self, handle, nbytes):
        """Close the file, which takes it away."""
        os.close(handle)

    def copy_from_host(self, handle, offset, source):
        """Write bytes; the system may take them in several parts."""
        while source:
            written = os.pwrite(handle, source, offset)
            source, offset = source[written:], offset + written

    def copy_to_host(self, handle, offset, target):
        """Read bytes; the system may give them in several parts."""
        while target:
            read = os.preadv(handle, [target], offset)
            target, offset = target[read:], offset + read

    def copy_within(self, handle, offset, source, source_offset, nbytes):
        """Copy bytes between files, or within one, where they may overlap."""
        part = mmap.mmap(source, 0)[source_offset : source_offset + nbytes]
        mmap.mmap(handle, 0)[offset : offset + nbytes] = part

    def register_kernels(self, register):
        """Compute two ops, and copy, without the host; all others decompose or fall back."""
        from tangrad_disk import kernels

        register("copy_", kernels.copy, dtypes=["bool", "int32", "int64", "float32", "float64"])
        register("add_plain", kernels.add, dtypes=["float32", "float64"])
        register("mm", kernels.mm, dtypes=["float32", "float64"])

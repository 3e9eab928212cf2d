"""Changes of a driver's source that leave it a right driver, and why."""

from __future__ import annotations

LOOPBACK = "tangrad_testing.loopback"
DISK = "tangrad_disk"  # examples/third_party_device
WITHOUT_KERNEL = "an op without a kernel runs on the host"
HANDLES = "any distinct numbers are handles"
UNASKED = "whether programs may take a device unasked is its author's choice"

# (module, what is changed): why it is no fault.
EQUIVALENT: dict[tuple[str, str], str] = {
    (LOOPBACK, "the opposite in `True` of `strict = True`"): "a driver may be less strict",
    (LOOPBACK, "the opposite in `False` of `accelerator = False`"): UNASKED,
    (LOOPBACK, "another operator in `self._next += 2`"): HANDLES,
    (LOOPBACK, "one more in `4097` of `self._next = 4097`"): HANDLES,
    (LOOPBACK, "one more in `2` of `self._next += 2`"): HANDLES,
    (LOOPBACK, "one more in `2` of `return 2`"): "there may be three devices",
    (
        LOOPBACK,
        "without `raise ValueError(f'loopback: {handle:#x} is no handle of thi` "
        "in `if handle not in self._blocks:`",
    ): "the next line raises KeyError",
    (DISK, "the opposite in `False` of `accelerator = False`"): UNASKED,
    (
        DISK,
        "without `register('copy_', kernels.copy, dtypes=['bool', 'int32', 'in` "
        "in `def register_kernels(self, register):`",
    ): WITHOUT_KERNEL,
    (
        DISK,
        "without `register('add_plain', kernels.add, dtypes=['float32', 'float` "
        "in `def register_kernels(self, register):`",
    ): WITHOUT_KERNEL,
    (
        DISK,
        "without `register('mm', kernels.mm, dtypes=['float32', 'float64'])` "
        "in `def register_kernels(self, register):`",
    ): WITHOUT_KERNEL,
    (
        DISK,
        "None returned in `return 'this system cannot reserve space in files (no posix_`",
    ): "this system can",
    (
        DISK,
        "one more in `0` of `os.posix_fallocate(file.fileno(), 0, nbytes)`",
    ): "a file one byte longer serves as well",
}

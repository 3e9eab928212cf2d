"""Device "loopback": memory of its own behind handles that are no pointers, and no kernels.

It stands for every device that is not the host: what runs here needs nothing but allocation and
copies. Handles count up from an odd number, so code that takes one for an address crashes.
"""

from __future__ import annotations

from tangrad.plugin import DeviceDriver


class Loopback(DeviceDriver):
    """Keep each allocation as a bytearray in a table."""

    strict = True
    accelerator = False  # nobody who has the kit installed trains here unasked

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._blocks: dict[int, bytearray] = {}
        self._next = 0x1001

    def device_count(self) -> int:
        """Return how many devices there are."""
        return 2

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the handle of new memory."""
        handle = self._next
        self._next += 2
        self._blocks[handle] = bytearray(b"\xa5" * nbytes)
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        """Give memory back.

        Raises:
            ValueError: it is not ours, or of another size.
        """
        block = self._block(handle)
        if len(block) != nbytes:
            raise ValueError(f"loopback: block {handle:#x} has {len(block)} bytes, not {nbytes}")
        del self._blocks[handle]

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes from the device into a buffer."""
        target[:] = self._range(handle, offset, len(target))

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy a buffer's bytes onto the device."""
        self._range(handle, offset, len(source))[:] = source

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes from one place to another, through a copy should they overlap."""
        copied = bytes(self._range(source, source_offset, nbytes))
        self._range(handle, offset, nbytes)[:] = copied

    def _block(self, handle: int) -> bytearray:
        if handle not in self._blocks:
            raise ValueError(
                f"loopback: {handle:#x} is no handle of this device (a foreign pointer?)"
            )
        return self._blocks[handle]

    def _range(self, handle: int, offset: int, nbytes: int) -> memoryview:
        block = memoryview(self._block(handle))
        if offset < 0 or offset + nbytes > len(block):
            raise ValueError(
                f"loopback: bytes {offset}..{offset + nbytes} lie outside block {handle:#x} "
                f"of {len(block)}"
            )
        return block[offset : offset + nbytes]

# cython: language_level=3
"""Checksums of zip members at the memory's speed."""

from libc.stdint cimport uint32_t

cdef extern from "crc32.h":
    void tg_crc32_prepare()
    uint32_t tg_crc32(uint32_t crc, const unsigned char* data, size_t count) nogil

tg_crc32_prepare()


def crc32(data, uint32_t value=0):
    """Return the CRC-32 of bytes, as `zlib.crc32` does.

    Args:
        data: an object with the buffer protocol, contiguous.
        value: checksum of the bytes before.
    """
    cdef const unsigned char[::1] view
    if not memoryview(data).nbytes:
        return value
    view = memoryview(data).cast("B")
    with nogil:
        value = tg_crc32(value, &view[0], view.shape[0])
    return value

# cython: language_level=3
"""Checksums: of zip members at the memory's speed, and of TensorBoard's records."""

from libc.stdint cimport uint32_t

cdef extern from "crc32.h":
    void tg_crc32_prepare()
    uint32_t tg_crc32(uint32_t crc, const unsigned char* data, size_t count) nogil
    uint32_t tg_crc32c(const unsigned char* data, size_t count) nogil

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


def crc32c(const unsigned char[::1] data not None):
    """Return the CRC-32C (Castagnoli's polynomial) of bytes."""
    cdef uint32_t value = 0
    if data.shape[0]:
        with nogil:
            value = tg_crc32c(&data[0], data.shape[0])
    return value

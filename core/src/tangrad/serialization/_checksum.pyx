# cython: language_level=3
"""Checksums: of zip members at the memory's speed, and of TensorBoard's records."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from "crc32.h":
    void tg_crc32_prepare()
    uint32_t tg_crc32(uint32_t crc, const unsigned char* data, size_t count) nogil
    uint32_t tg_crc32c(const unsigned char* data, size_t count) nogil

tg_crc32_prepare()


# Typed memoryviews would make these two functions five times as large as a module.
def crc32(data, uint32_t value=0):
    """Return the CRC-32 of bytes, as `zlib.crc32` does.

    Args:
        data: an object with the buffer protocol, contiguous.
        value: checksum of the bytes before.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        value = tg_crc32(value, <const unsigned char*>view.buf, view.len)
    PyBuffer_Release(&view)
    return value


def crc32c(data):
    """Return the CRC-32C (Castagnoli's polynomial) of bytes.

    Args:
        data: an object with the buffer protocol, contiguous.
    """
    cdef Py_buffer view
    cdef uint32_t value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        value = tg_crc32c(<const unsigned char*>view.buf, view.len)
    PyBuffer_Release(&view)
    return value

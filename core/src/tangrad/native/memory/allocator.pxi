# The caching allocator for Python. Text of an extension module, which includes it and links
# native/allocator.c, allocator_host.c and allocator_report.c.

cimport cython
from cpython.exc cimport PyErr_Fetch, PyErr_Restore, PyErr_SetObject, PyErr_WriteUnraisable
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport SIZE_MAX, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

cdef extern from "native/memory/allocator.h" nogil:
    enum:
        TG_OK
        TG_ENOMEM
        TG_EDRIVER
        TG_EINVAL
        TG_ERELEASED
        TG_EFOREIGN

    enum:
        TG_POOL_ALL
        TG_POOL_SMALL
        TG_POOL_LARGE
        TG_POOL_COUNT

    enum:
        TG_BLOCK_FREE
        TG_BLOCK_PARKED
        TG_BLOCK_LIVE
        TG_BLOCK_PENDING

    ctypedef uint64_t tg_handle
    ctypedef struct tg_allocator:
        pass

    ctypedef struct tg_driver:
        void *ctx
        int (*allocate)(void *ctx, size_t nbytes, tg_handle *out) noexcept
        void (*release)(void *ctx, tg_handle handle, size_t nbytes) noexcept
        int (*record_event)(void *ctx, uint64_t stream, uint64_t *event) noexcept
        int (*query_event)(void *ctx, uint64_t event) noexcept
        int (*synchronize_event)(void *ctx, uint64_t event) noexcept
        void (*destroy_event)(void *ctx, uint64_t event) noexcept
        void (*close)(void *ctx) noexcept

    ctypedef struct tg_block:
        tg_handle handle
        size_t offset
        size_t size
        size_t requested
        const char *holder
        tg_allocator *owner

    void tg_set_holder(tg_block *, const char *) noexcept

    ctypedef struct tg_allocator_options:
        size_t alignment
        size_t small_segment
        size_t large_segment
        size_t limit
        size_t max_cached
        size_t max_split

    ctypedef struct tg_statistic:
        int64_t current
        int64_t peak
        int64_t allocated
        int64_t freed

    ctypedef struct tg_pool_statistics:
        tg_statistic allocation
        tg_statistic allocated_bytes
        tg_statistic requested_bytes
        tg_statistic active
        tg_statistic active_bytes
        tg_statistic segment
        tg_statistic reserved_bytes
        int64_t inactive_split
        int64_t inactive_split_bytes

    ctypedef struct tg_statistics:
        tg_pool_statistics *pool
        int64_t num_alloc_retries
        int64_t num_ooms
        int64_t num_device_alloc
        int64_t num_device_free
        size_t limit
        size_t max_cached
        size_t max_split

    ctypedef struct tg_snapshot_row:
        tg_handle handle
        size_t segment_size
        size_t offset
        size_t size
        size_t requested
        uint64_t segment
        uint64_t stream
        const char *holder
        int state
        int kind

    tg_driver tg_host_driver() noexcept
    size_t tg_host_cache_bytes() noexcept
    tg_allocator_options tg_allocator_default_options() noexcept
    tg_allocator *tg_allocator_new(const tg_driver *, const tg_allocator_options *) noexcept
    void tg_allocator_destroy(tg_allocator *) noexcept
    int tg_allocate(tg_allocator *, size_t nbytes, uint64_t stream, tg_block **out) noexcept
    int tg_release(tg_allocator *, tg_block *) noexcept
    int tg_use_on_stream(tg_allocator *, tg_block *, uint64_t stream) noexcept
    int tg_empty_cache(tg_allocator *) noexcept
    int tg_set_limit(tg_allocator *, size_t nbytes) noexcept
    int tg_set_max_cached(tg_allocator *, size_t nbytes) noexcept
    int64_t tg_allocator_number(const tg_allocator *) noexcept
    ctypedef void (*tg_changed)(void *, const tg_allocator *, int, const tg_block *, int64_t) noexcept nogil
    int tg_watch(tg_changed, void *) noexcept
    int tg_unwatch(tg_changed, void *) noexcept
    void tg_allocator_stats(tg_allocator *, tg_statistics *) noexcept
    void tg_reset_peak(tg_allocator *) noexcept
    int tg_allocator_snapshot(tg_allocator *, tg_snapshot_row **, size_t *) noexcept
    size_t tg_allocator_account(tg_allocator *, char *, size_t) noexcept


# What an allocation that cannot be met raises; the including module sets its own type.
_out_of_memory_error = MemoryError
_tell_of_tensors = None         # Python callable: (allocator's number, bytes asked for) -> text for that error


def set_teller_of_tensors(tell):
    """Install the function that says, where memory is short, which tensors hold it."""
    global _tell_of_tensors
    _tell_of_tensors = tell


include "native/memory/driver.pxi"


_STATISTIC_PARTS = ("current", "peak", "allocated", "freed")
_POOL_NAMES = ("all", "small_pool", "large_pool")
_BLOCK_STATES = {
    TG_BLOCK_FREE: "inactive",
    TG_BLOCK_PARKED: "inactive",
    TG_BLOCK_LIVE: "active_allocated",
    TG_BLOCK_PENDING: "active_awaiting_free",
}


cdef dict _pool_dict(const tg_pool_statistics *pool):
    return {
        "allocation": pool.allocation,
        "allocated_bytes": pool.allocated_bytes,
        "requested_bytes": pool.requested_bytes,
        "active": pool.active,
        "active_bytes": pool.active_bytes,
        "segment": pool.segment,
        "reserved_bytes": pool.reserved_bytes,
        "inactive_split": {"current": pool.inactive_split},
        "inactive_split_bytes": {"current": pool.inactive_split_bytes},
    }


cdef dict _block_dict(const tg_snapshot_row *row):
    return {
        "address": row.handle + row.offset,
        "offset": row.offset,
        "size": row.size,
        "requested_size": row.requested,
        "state": _BLOCK_STATES[row.state],
        "holder": row.holder.decode() if row.holder != NULL else None,
    }


cdef dict _segment_dict(const tg_snapshot_row *row):
    return {
        "segment_id": row.segment,
        "address": row.handle,
        "total_size": row.segment_size,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": row.stream,
        "segment_type": "small" if row.kind == TG_POOL_SMALL else "large",
        "blocks": [],
    }


def _readable_bytes(nbytes):
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.2f} {unit}" if unit != "bytes" else f"{nbytes} bytes"
        size /= 1024
    return f"{size:.2f} TiB"


cdef size_t _bytes_or(object nbytes, size_t default, str name) except? 1:
    if nbytes is None:
        return default
    if nbytes < 0 or nbytes > SIZE_MAX:
        raise ValueError(f"CachingAllocator: {name} must be a number of bytes, got {nbytes}")
    return nbytes


cdef class CachingAllocator


@cython.no_gc_clear
cdef class Block:
    """A piece of a device's memory, held until it is released or collected.

    Attributes:
        handle: the driver's handle of the segment; on the host its address.
        offset: where the block starts in the segment, in bytes.
        nbytes: usable bytes, at least what was asked for.
    """

    cdef tg_block *ptr
    cdef CachingAllocator allocator
    cdef readonly uint64_t handle
    cdef readonly size_t offset
    cdef readonly size_t nbytes

    def __init__(self):
        raise TypeError("Block: blocks are made by CachingAllocator.allocate")

    def __dealloc__(self):
        cdef tg_block *block = self.ptr
        self.ptr = NULL
        if block != NULL and tg_release(block.owner, block) == TG_EDRIVER:
            _report_unraisable(self.allocator.driver_error("release"), self.allocator)

    cdef tg_block *live(self, str what) except NULL:
        if self.ptr == NULL:
            raise RuntimeError(f"Block.{what}: the block was released before")
        return self.ptr

    def release(self):
        """Return the memory to the allocator.

        Raises:
            RuntimeError: if the block was released before, or the driver could not record an
                event. In the latter case the block is released, and reused once an attempt at
                recording succeeds.
        """
        cdef tg_block *block = self.live("release")
        cdef CachingAllocator allocator = self.allocator
        cdef int rc
        self.ptr = NULL
        self.allocator = None
        with nogil:
            rc = tg_release(block.owner, block)
        allocator.check(rc, "release")

    def record_stream(self, uint64_t stream):
        """Keep the memory, after its release, until what `stream` has been given is done.

        Raises:
            RuntimeError: if the block was released, or the driver has no streams.
        """
        cdef tg_block *block = self.live("record_stream")
        self.allocator.check(
            tg_use_on_stream(self.allocator.ptr, block, stream), "record_stream"
        )

    def __repr__(self):
        state = "" if self.ptr != NULL else ", released"
        return f"Block(handle={self.handle:#x}, offset={self.offset}, nbytes={self.nbytes}{state})"


cdef class CachingAllocator:
    """Hand out a device's memory, and keep what is released for the next request.

    Released blocks stay reserved up to `max_cached` bytes; they are given back to the driver by
    `empty_cache`, when `limit` demands it, and before an allocation fails.

    Args:
        driver: an object with `allocate(nbytes) -> handle`, which raises MemoryError if there is
            no memory, and `release(handle, nbytes)`. A device with streams also has
            `record_event(stream) -> event`, `query_event(event) -> bool`,
            `synchronize_event(event)` and, if events are to be freed, `destroy_event(event)`.
            Handles and events are integers of 64 bits. `None` is the memory of this process.
        alignment: of every block's offset, a power of two from 64 to 32768.
        limit: of the bytes reserved from the driver; `None` for no limit.
        max_cached: bytes above which cached segments are given back. The default is a quarter of
            the memory available to this process for the host, and no bound for other drivers.
        small_segment: bytes asked of the driver at once for blocks up to 1 MiB (default 2 MiB).
        large_segment: the most asked for larger ones (default 32 MiB); it is an eighth of what is
            reserved, 4 MiB or more. A block of more than half of that has a segment to itself.
        max_split: blocks larger than this are not split; `None` for no such bound.

    Raises:
        ValueError: if an option is out of range.
        TypeError: if the driver lacks a method.
    """

    cdef tg_allocator *ptr
    cdef _PythonDriver bridge
    cdef object __weakref__

    def __cinit__(self, driver=None, *, alignment=64, limit=None, max_cached=None,
                  small_segment=None, large_segment=None, max_split=None):
        cdef tg_allocator_options options = tg_allocator_default_options()
        cdef tg_driver table = tg_host_driver()
        cdef size_t cached = tg_host_cache_bytes() if driver is None else SIZE_MAX
        options.alignment = _bytes_or(alignment, 64, "alignment")
        options.limit = _bytes_or(limit, SIZE_MAX, "limit")
        options.max_cached = _bytes_or(max_cached, cached, "max_cached")
        options.small_segment = _bytes_or(small_segment, options.small_segment, "small_segment")
        options.large_segment = _bytes_or(large_segment, options.large_segment, "large_segment")
        options.max_split = _bytes_or(max_split, SIZE_MAX, "max_split")
        if driver is not None:
            self.bridge = _PythonDriver(driver)
            table = self.bridge.table()
        self.ptr = tg_allocator_new(&table, &options)
        if self.ptr == NULL:
            raise ValueError(
                f"CachingAllocator: alignment={alignment} must be a power of two from 64 to 32768, "
                f"small_segment={small_segment} and large_segment={large_segment} positive, and "
                f"max_split={max_split} no smaller than both"
            )
        if self.bridge is not None:
            Py_INCREF(self.bridge)  # _driver_close takes it back, after the last block

    def __dealloc__(self):
        tg_allocator_destroy(self.ptr)

    cdef object driver_error(self, str what):
        """Return the exception for a driver call that failed inside `what`."""
        raised = self.bridge.take() if self.bridge is not None else None
        if raised is not None and not isinstance(raised, Exception):
            return raised
        error = RuntimeError(f"CachingAllocator.{what}: the memory driver failed: {raised!r}")
        error.__cause__ = raised
        return error

    cdef object memory_error(self, size_t nbytes):
        """Return the exception for an allocation of `nbytes` that could not be met."""
        raised = self.bridge.take() if self.bridge is not None else None
        told = "" if _tell_of_tensors is None else _tell_of_tensors(self.number, nbytes)
        error = _out_of_memory_error(
            f"Out of memory: tried to allocate {_readable_bytes(nbytes)}. {self.account()} "
            f"Release tensors that are no longer needed, raise the limit, or use smaller batches.{told}"
        )
        error.__cause__ = raised
        return error

    cdef int check(self, int rc, str what, size_t nbytes=0) except -1:
        """Raise what a return code of the C functions means."""
        if rc == TG_OK:
            return 0
        if rc == TG_ENOMEM:
            raise self.memory_error(nbytes)
        if rc == TG_EDRIVER:
            raise self.driver_error(what)
        if rc == TG_ERELEASED:
            raise RuntimeError(f"CachingAllocator.{what}: the block was released before")
        if rc == TG_EFOREIGN:
            raise RuntimeError(f"CachingAllocator.{what}: the block is of another allocator")
        raise RuntimeError(f"CachingAllocator.{what}: the memory driver has no streams")

    cdef str account(self):
        cdef size_t size = 4096
        cdef char buffer[4096]
        tg_allocator_account(self.ptr, buffer, size)
        return buffer.decode("utf-8", "replace")

    def allocate(self, nbytes, uint64_t stream=0):
        """Return a `Block` of at least `nbytes`, to be used in the order of `stream`.

        Raises:
            MemoryError: (as the type that stands for it) if there is no memory even after cached
                memory was given back.
            RuntimeError: if the driver failed otherwise; its exception is the cause.
        """
        cdef size_t size = _bytes_or(nbytes, 0, "nbytes")
        cdef tg_block *ptr = NULL
        cdef int rc
        with nogil:
            rc = tg_allocate(self.ptr, size, stream, &ptr)
        self.check(rc, "allocate", size)
        cdef Block block = Block.__new__(Block)
        block.ptr = ptr
        block.allocator = self
        block.handle = ptr.handle
        block.offset = ptr.offset
        block.nbytes = ptr.size
        return block

    @property
    def number(self):
        """The number by which watchers of memory know this allocator."""
        return tg_allocator_number(self.ptr)

    def memory_stats(self):
        """Return PyTorch's allocator statistics, a dict such as `{"allocation.all.peak": 3}`.

        The keys are `{statistic}.{pool}.{part}` with the pools `all`, `small_pool`, `large_pool`
        and the parts `current`, `peak`, `allocated`, `freed`. `inactive_split` and
        `inactive_split_bytes` have the part `current` only. Bounds that are not set are -1.
        """
        cdef tg_statistics stats
        with nogil:
            tg_allocator_stats(self.ptr, &stats)
        found = {
            "num_alloc_retries": stats.num_alloc_retries,
            "num_ooms": stats.num_ooms,
            "num_device_alloc": stats.num_device_alloc,
            "num_device_free": stats.num_device_free,
            "limit": -1 if stats.limit == SIZE_MAX else stats.limit,
            "max_cached": -1 if stats.max_cached == SIZE_MAX else stats.max_cached,
            "max_split_size": -1 if stats.max_split == SIZE_MAX else stats.max_split,
        }
        for index, pool in enumerate(_POOL_NAMES):
            for name, parts in _pool_dict(&stats.pool[<int>index]).items():
                for part, value in parts.items():
                    found[f"{name}.{pool}.{part}"] = value
        return dict(sorted(found.items()))

    def memory_summary(self):
        """Return the statistics as a table, followed by an account of the largest holders."""
        stats = self.memory_stats()
        rows = [f"{'':<18}" + "".join(f"{part:>14}" for part in _STATISTIC_PARTS)]
        for name in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
            values = (_readable_bytes(stats[f"{name}.all.{part}"]) for part in _STATISTIC_PARTS)
            rows.append(f"{name:<18}" + "".join(f"{value:>14}" for value in values))
        for name in ("allocation", "active", "segment"):
            values = (stats[f"{name}.all.{part}"] for part in _STATISTIC_PARTS)
            rows.append(f"{name:<18}" + "".join(f"{value:>14}" for value in values))
        rows.append(f"retries {stats['num_alloc_retries']}, out of memory {stats['num_ooms']}")
        rows.append(self.account())
        return "\n".join(rows)

    def snapshot(self):
        """Return a list of segments, each a dict with its blocks in the order of addresses."""
        cdef tg_snapshot_row *rows = NULL
        cdef size_t count = 0
        cdef size_t i
        self.check(tg_allocator_snapshot(self.ptr, &rows, &count), "snapshot")
        segments = []
        try:
            for i in range(count):
                if not segments or segments[-1]["segment_id"] != rows[i].segment:
                    segments.append(_segment_dict(&rows[i]))
                block = _block_dict(&rows[i])
                segments[-1]["blocks"].append(block)
                segments[-1]["requested_size"] += rows[i].requested
                if block["state"] == "active_allocated":
                    segments[-1]["allocated_size"] += rows[i].size
                if block["state"] != "inactive":
                    segments[-1]["active_size"] += rows[i].size
        finally:
            free(rows)
        return segments

    def empty_cache(self):
        """Give all cached memory back to the driver, after waiting for events it depends on.

        Raises:
            RuntimeError: if the driver failed; what does not depend on the failure is given back.
        """
        cdef int rc
        with nogil:
            rc = tg_empty_cache(self.ptr)
        self.check(rc, "empty_cache")

    def set_limit(self, limit):
        """Bound the bytes reserved from the driver; `None` removes the bound."""
        cdef size_t nbytes = _bytes_or(limit, SIZE_MAX, "limit")
        with nogil:
            tg_set_limit(self.ptr, nbytes)

    def set_max_cached(self, max_cached):
        """Set the bytes above which cached segments are given back; `None` removes the bound."""
        cdef size_t nbytes = _bytes_or(max_cached, SIZE_MAX, "max_cached")
        with nogil:
            tg_set_max_cached(self.ptr, nbytes)

    def reset_peak_memory_stats(self):
        """Set every peak of `memory_stats` to the current value."""
        tg_reset_peak(self.ptr)

# The core's loops and what tangrad-cpu says of itself, for those who write plans.

def find_loop(op, str dtype):
    """Return (address, context) of the compiled loop of an op on the CPU, None where there is none."""
    cdef tg_found_kernel found
    try:
        core.find_kernel(<PyObject*>op, b"cpu", b"strided", dtype.encode(), &found)
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    if found.kind != TG_KERNEL_LOOP or found.loop == NULL:
        return None
    return <size_t>found.loop, <size_t>found.context


def find_copy(str dtype):
    """Return (address, context) of the loop that copies into a dtype and converts what it reads."""
    return find_loop(<object>core.op(b"copy_"), dtype)


def dtype_index(str dtype):
    """Return the core's number of a dtype."""
    return core.dtype_by_name(dtype.encode())


def instruction_set():
    """Return the level of the CPU backend's kernels, "" where there are none."""
    core.device(b"cpu", 0)
    return "" if core.pool().instruction_set == NULL else core.pool().instruction_set.decode()

# What is asked of the backward walk that runs in this thread.

cdef inline Tensor added(Tensor a, Tensor b):
    """The sum of two gradients: one whose elements are in memory comes first, of sparse ones the later."""
    return OP_ADD(b, a) if holds_other(a) else OP_ADD(a, b)


def gradients_to_come(tensors):
    """Return the number of the walk that runs, and of how many of the tensors it has yet to reach the gradient."""
    cdef Run run = <Run>tg_tls.walk
    cdef uint32_t nr = 0
    cdef int found = 0
    cdef Node node
    for t in tensors:
        node = end_of(t, &nr)
        found += node is not None and (node is run.current or run.visited(node) and (
            not run.selective or run.state_of(node).needed))
    return run.number, found


def walks():
    """Return the numbers of the walks that run, the innermost first."""
    found = []
    cdef Run run = None if tg_tls.walk == NULL else <Run>tg_tls.walk
    while run is not None:
        found.append(run.number)
        run = run.outer
    return found


def walk_is_selective():
    """Return whether the walk that runs was asked for the gradients of some inputs alone."""
    return tg_tls.walk != NULL and (<Run>tg_tls.walk).selective


def queue_callback(callback):
    """Call `callback()` when the outermost backward walk of this thread has ended without an error.

    Raises:
        RuntimeError: none runs.
    """
    if tg_tls.walk == NULL:
        raise RuntimeError("queue_callback: Final callbacks can only be installed during backward pass")
    cdef Run run = <Run>tg_tls.walk
    while run.outer is not None:
        run = run.outer
    if run.callbacks is None:
        run.callbacks = []
    run.callbacks.append(callback)

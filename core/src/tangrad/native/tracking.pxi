# What the garbage collector is told of graphs.
#
# It walks all that it tracks again and again, and a graph in the making grows by several objects per
# op. What a node saves by itself is never part of a cycle: those objects are not tracked at all. A
# node is loose, that is not tracked, while no hook and no step in Python is right below it. So young
# collections see only what cycles usually are made of; a full one sees every node, for the loose ones
# are tracked while it lasts.

cdef extern from "Python.h":
    void PyObject_GC_Track(void*)
    void PyObject_GC_UnTrack(void*)
    int PyObject_GC_IsTracked(object)
    int PyObject_IS_GC(object)

cdef void* loose_nodes = NULL            # the newest; the others by Node.older


cdef inline void loosen(Node node) noexcept:
    """Hide a new node from young collections."""
    global loose_nodes
    PyObject_GC_UnTrack(<void*>node)
    if node.loose:
        return
    node.loose = True
    node.newer, node.older = NULL, loose_nodes
    if loose_nodes != NULL:
        (<Node>loose_nodes).newer = <void*>node
    loose_nodes = <void*>node


cdef inline void unlink_loose(Node node) noexcept:
    global loose_nodes
    if node.newer != NULL:
        (<Node>node.newer).older = node.older
    else:
        loose_nodes = node.older
    if node.older != NULL:
        (<Node>node.older).newer = node.newer
    node.loose = False


cdef void tighten(Node node) noexcept:
    """Show a node to every collection: something foreign hangs on it from now on."""
    if node.loose:
        unlink_loose(node)
        if not PyObject_GC_IsTracked(node):
            PyObject_GC_Track(<void*>node)


cdef inline bint reaches_foreign(Node source) noexcept:
    """Whether a cycle may run through what is right below an edge."""
    cdef Tensor leaf
    if type(source) is AccumulateGrad:
        leaf = (<AccumulateGrad>source).variable_
        return leaf.hooks_ is not None or leaf.attributes != NULL
    return not source.loose


cdef void track_lightly(Node node) noexcept:
    """Hide a recorded node, and what it owns, from collections that they would only slow down."""
    cdef Py_ssize_t i
    cdef PyObject* source
    if node.hooks is not None or node.list_length >= 0:
        return
    PyObject_GC_UnTrack(<void*>node.next_)
    for i in range(PyTuple_GET_SIZE(node.next_)):
        source = PyTuple_GET_ITEM(node.next_, i)
        if source != Py_None_ptr and reaches_foreign(<Node>source):
            return
    if node.saved is None or not PyObject_GC_IsTracked(node.saved):
        loosen(node)


cdef inline void hide_saved(Saved s) noexcept:
    """What a node saves of a plain tensor refers to memory and nothing else."""
    if exact_tensor(<PyObject*>s.data) and s.data.level_ is None:
        PyObject_GC_UnTrack(<void*>s.data)
        PyObject_GC_UnTrack(<void*>s)


cdef inline Tensor handed_out(Tensor t):
    """A saved tensor that programs may hang something on from now on."""
    if not PyObject_GC_IsTracked(t):
        PyObject_GC_Track(<void*>t)
    return t


cdef bint is_plain(object x) noexcept:
    """Whether a saved value refers to nothing that could refer to the graph."""
    if type(x) is Saved:
        return (<Saved>x).packed is None
    if not PyObject_IS_GC(x) or type(x) is TensorMeta:
        return True
    if type(x) is tuple:
        for member in <tuple>x:
            if not is_plain(member):
                return False
        return True
    if type(x) is list:
        for member in <list>x:
            if not is_plain(member):
                return False
        return True
    return False


cdef PyObject* edges_of_node(PyObject* node) noexcept:
    return <PyObject*>(<Node>node).next_


def _around_collection(str phase, dict info):
    """Let full collections see all nodes (one of gc.callbacks)."""
    cdef void* at = loose_nodes
    cdef bint starts = phase == "start"
    if info["generation"] != 2:
        return
    while at != NULL:
        if not starts:
            PyObject_GC_UnTrack(at)
        elif not PyObject_GC_IsTracked(<object>at):
            PyObject_GC_Track(at)
        at = (<Node>at).older


import gc as _gc

_gc.callbacks.append(_around_collection)

cdef void leave_loose(PyObject* node) noexcept:
    if (<Node>node).loose:
        unlink_loose(<Node>node)


cdef void leave_variable(PyObject* node) noexcept:
    cdef Tensor variable = (<AccumulateGrad>node).variable_
    if variable is not None and variable.accumulator_ == <void*>node:
        variable.accumulator_ = NULL


tg_install_edges(<PyTypeObject*>Node, edges_of_node)
tg_install_leaving(<PyTypeObject*>Node, leave_loose, <PyTypeObject*>AccumulateGrad, leave_variable)

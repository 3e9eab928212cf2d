# cython: language_level=3, boundscheck=False, wraparound=False
"""The machine that runs scripts: programs of instructions on registers without boxes.

`lower.py` writes the programs; `loop.h` walks them. A program that touches no object of Python
runs without the lock of the interpreter.
"""

import threading

cimport cython

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free

cdef extern from "loop.h":
    ctypedef struct c_object "object":
        pass
    ctypedef union word:
        long long i
        double f
        c_object *o
        PyObject *p
    ctypedef enum kind_tag:
        pass
    ctypedef enum keeping:
        KEEP_PLAIN
    ctypedef struct kind:
        kind_tag tag
        int optional
        int count
        kind **parts
        PyObject *cls
    ctypedef struct instruction:
        uint16_t op, a, b, c
        int32_t d, e
    ctypedef struct call_site:
        PyObject *callee
        int count, results
        int *registers
        int *targets
        kind **kinds
        kind **result_kinds
    ctypedef struct program:
        instruction *code
        int registers, parameters, constant_count, owned_count
        word *constants
        int *owned
        uint8_t *keeps
        kind **kinds
        kind **parameter_kinds
        kind *result_kind
        int *operands
        call_site *sites
        program **callees
        void *owner
    ctypedef struct lock:
        pass
    ctypedef struct trace_entry:
        const program *program
        int place
    ctypedef struct machine:
        lock lock
        long long steps
        int traced, may_leave
        trace_entry *trace
    const char *const *OPCODE_NAMES
    const char *const *UNARY_NAMES
    const char *const *BINARY_NAMES
    keeping keeping_of(const kind *k) nogil
    void word_release(keeping how, word w)
    int word_from_python(lock *l, const kind *k, PyObject *value, word *made) except -1
    PyObject *word_to_python(const kind *k, word w)
    int program_run(const program *p, const word *args, word *result, machine *m) nogil
    void machine_start(machine *m)
    unsigned long main_thread
    void lock_take(lock *l) nogil


cdef list _names(const char *const *names):
    found = []
    while names[len(found)] != NULL:
        found.append(names[len(found)].decode())
    return found


#: name -> number, of instructions and of functions on floats.
OPCODES = {name: k for k, name in enumerate(_names(OPCODE_NAMES))}
UNARY = {name: k for k, name in enumerate(_names(UNARY_NAMES))}
BINARY = {name: k for k, name in enumerate(_names(BINARY_NAMES))}
_TAGS = {name: k for k, name in enumerate("int bool float none python list dict tuple box".split())}


main_thread = threading.main_thread().ident


class Misfit(TypeError):
    """An argument is of another type than the program takes."""


cdef void *_space(size_t count, size_t size) except NULL:
    cdef void *made = calloc(count + 1, size)
    if made == NULL:
        raise MemoryError
    return made


@cython.no_gc_clear
cdef class Kind:
    """How words of a type are kept.

    Args:
        tag: "int", "bool", "float", "none", "python", "list", "dict", "tuple" or "box".
        parts: of what it consists.
        optional: whether None is one, of a list, dict or tuple.
        cls: the class of a named tuple, or that objects of Python must be of.
    """

    cdef kind data
    cdef readonly str tag
    cdef readonly tuple parts
    cdef readonly bint optional
    cdef readonly object cls

    def __init__(self, str tag, tuple parts=(), bint optional=False, cls=None):
        cdef Kind part
        self.tag, self.parts, self.optional, self.cls = tag, parts, optional, cls
        self.data.tag = <kind_tag><int>_TAGS[tag]
        self.data.optional = optional
        self.data.count = len(parts)
        self.data.cls = NULL if cls is None else <PyObject *>cls
        free(self.data.parts)
        self.data.parts = <kind **>_space(len(parts), sizeof(kind *))
        for k, part in enumerate(parts):
            self.data.parts[k] = &part.data

    def __dealloc__(self):
        free(self.data.parts)


cdef int *_integers(values) except NULL:
    cdef int *made = <int *>_space(len(values), sizeof(int))
    for k, value in enumerate(values):
        made[k] = value
    return made


cdef kind **_kinds(values) except NULL:
    cdef kind **made = <kind **>_space(len(values), sizeof(kind *))
    cdef Kind value
    for k, value in enumerate(values):
        made[k] = &value.data
    return made


# What the collector clears, C would still name.
@cython.no_gc_clear
cdef class Program:
    """A function as the machine runs it.

    Args:
        code: instructions, `(op, a, b, c, d, e)`.
        registers: kinds of the registers, those of the parameters first.
        parameters: how many parameters there are.
        constants: `(kind, value)` of the registers behind.
        kinds: those that instructions name.
        operands: registers that instructions name.
        sites: `(callee, registers, kinds, targets, kinds of results)` of calls of Python.
        callees: the programs that it calls.
        result: the kind of its result.
        places: where each instruction comes from.
        pure: whether it touches no object of Python.
        told: gives an exception another entry of its traceback: (exception, place) -> None.
    """

    cdef program data
    cdef tuple kept
    cdef readonly tuple places
    cdef readonly bint pure
    cdef object told

    def __init__(
        self, code, registers, int parameters, constants, kinds, operands, sites, callees,
        Kind result, places, bint pure, told,
    ):
        cdef Program callee
        cdef Kind kind_
        cdef program *p = &self.data
        cdef lock held
        cdef call_site *site
        # Tuples, which the collector does not empty before this is freed.
        registers, kinds, callees = tuple(registers), tuple(kinds), tuple(callees)
        constants = tuple(constants)
        sites = tuple([
            (function, tuple(given), tuple(given_kinds), tuple(targets), tuple(result_kinds))
            for function, given, given_kinds, targets, result_kinds in sites
        ])
        self.kept = (registers, constants, kinds, sites, callees, result)
        self.places, self.pure, self.told = tuple(places), pure, told
        p.owner = <void *>self
        p.code = <instruction *>_space(len(code), sizeof(instruction))
        for k, (op, a, b, c, d, e) in enumerate(code):
            p.code[k] = instruction(op, a, b, c, d, e)
        p.registers, p.parameters = len(registers), parameters
        p.parameter_kinds = _kinds(registers[:parameters])
        p.kinds, p.operands = _kinds(kinds), _integers(operands)
        p.result_kind = &result.data
        owned = [k for k, kind_ in enumerate(registers) if keeping_of(&kind_.data) != KEEP_PLAIN]
        p.owned_count, p.owned = len(owned), _integers(owned)
        p.keeps = <uint8_t *>_space(len(owned), 1)
        for k, register in enumerate(owned):
            kind_ = registers[register]
            p.keeps[k] = keeping_of(&kind_.data)
        p.constants = <word *>_space(len(constants), sizeof(word))
        for kind_, value in constants:
            word_from_python(&held, &kind_.data, <PyObject *>value, &p.constants[p.constant_count])
            p.constant_count += 1
        p.callees = <program **>_space(len(callees), sizeof(program *))
        for k, callee in enumerate(callees):
            p.callees[k] = &callee.data
        p.sites = <call_site *>_space(len(sites), sizeof(call_site))
        for k, (function, given, given_kinds, targets, result_kinds) in enumerate(sites):
            site = &p.sites[k]
            site.callee = <PyObject *>function
            site.count, site.results = len(given), len(targets)
            site.registers, site.targets = _integers(given), _integers(targets)
            site.kinds, site.result_kinds = _kinds(given_kinds), _kinds(result_kinds)

    def __dealloc__(self):
        cdef program *p = &self.data
        cdef Kind kind_
        if p.sites != NULL and self.kept is not None:
            for k in range(len(self.kept[3])):
                free(p.sites[k].registers)
                free(p.sites[k].targets)
                free(p.sites[k].kinds)
                free(p.sites[k].result_kinds)
        if p.constants != NULL and self.kept is not None:
            for k in range(p.constant_count):
                kind_ = self.kept[1][k][0]
                word_release(keeping_of(&kind_.data), p.constants[k])
        free(p.code)
        free(p.constants)
        free(p.owned)
        free(p.keeps)
        free(p.kinds)
        free(p.parameter_kinds)
        free(p.operands)
        free(p.sites)
        free(p.callees)

    def __call__(self, *args):
        """Run the program.

        Raises:
            Misfit: an argument is of another type; nothing has run.
        """
        cdef program *p = &self.data
        cdef word few[16]
        cdef word *given = few
        cdef word result
        cdef machine m
        cdef int k, found
        cdef int count = len(args)
        if count != p.parameters:
            raise TypeError(f"{count} arguments for {p.parameters} parameters")
        machine_start(&m)
        if count > 16:
            given = <word *>_space(count, sizeof(word))
        try:
            k = 0
            try:
                while k < count:
                    word_from_python(
                        &m.lock, p.parameter_kinds[k], <PyObject *>(<object>args[k]), &given[k]
                    )
                    k += 1
            except (TypeError, OverflowError) as error:
                while k > 0:
                    k -= 1
                    word_release(keeping_of(p.parameter_kinds[k]), given[k])
                raise Misfit(str(error)) from None
            m.may_leave = self.pure
            found = program_run(p, given, &result, &m)
            lock_take(&m.lock)
        finally:
            if given != few:
                free(given)
        if found < 0:
            raise self.traced(&m)
        return taken(p.result_kind, result)

    cdef object traced(self, machine *m):
        """Return the exception that is set, with a traceback of the programs that it passed."""
        error = pending()
        cdef Program passed
        for k in range(m.traced):
            passed = <Program>m.trace[k].program.owner
            place = passed.places[m.trace[k].place]
            if place is not None and isinstance(error, Exception):
                self.told(error, place)
        return error


cdef extern from "Python.h":
    void PyErr_Fetch(PyObject **, PyObject **, PyObject **)
    void PyErr_NormalizeException(PyObject **, PyObject **, PyObject **)
    int PyException_SetTraceback(PyObject *, PyObject *)


cdef object pending():
    """Return the exception that is set, which is cleared."""
    cdef PyObject *cls = NULL
    cdef PyObject *value = NULL
    cdef PyObject *traceback = NULL
    PyErr_Fetch(&cls, &value, &traceback)
    PyErr_NormalizeException(&cls, &value, &traceback)
    if traceback != NULL:
        PyException_SetTraceback(value, traceback)
    error = <object>value
    Py_XDECREF(cls)
    Py_XDECREF(value)
    Py_XDECREF(traceback)
    return error


cdef object taken(const kind *k, word w):
    """Return a word as an object of Python; its reference is given up."""
    cdef PyObject *made = word_to_python(k, w)
    word_release(keeping_of(k), w)
    if made == NULL:
        raise pending()
    found = <object>made
    Py_XDECREF(made)
    return found

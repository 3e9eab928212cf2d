/* Programs of the machine: instructions on registers, and what they name. */

#ifndef TANGRAD_SCRIPT_PROGRAM_H
#define TANGRAD_SCRIPT_PROGRAM_H

#include "arithmetic.h"
#include "containers.h"
#include "conversion.h"
#include <stdio.h>
#include <time.h>

/* a, b and c are registers; d and e too, or places, numbers of kinds, or of operands. The letters
 * at the end say how words are kept: W plain, O objects, P objects of Python. */
#define OPCODES(X)                                                                                 \
    X(MOVE_W) X(MOVE_O) X(MOVE_P) X(TAKE_O) X(TAKE_P) X(CLEAR_O) X(CLEAR_P)                        \
    X(JUMP) X(BACK) X(JUMP_IF) X(JUMP_UNLESS)                                                      \
    X(JUMP_EQ) X(JUMP_NE) X(JUMP_LT) X(JUMP_LE)                                                    \
    X(JUMP_FEQ) X(JUMP_FNE) X(JUMP_FLT) X(JUMP_FLE) X(JUMP_NOT_FLT) X(JUMP_NOT_FLE) X(NEXT)        \
    X(EQ) X(NE) X(LT) X(LE) X(FEQ) X(FNE) X(FLT) X(FLE) X(NOT)                                     \
    X(ADD) X(SUB) X(MUL) X(FLOORDIV) X(REMAINDER) X(NEG) X(ABS) X(AND) X(OR) X(XOR) X(SHL) X(SHR)  \
    X(MIN) X(MAX) X(FADD) X(FSUB) X(FMUL) X(FDIV) X(FNEG) X(FMIN) X(FMAX)                          \
    X(TO_FLOAT) X(TO_INT) X(UNARY) X(BINARY) X(IS_NAN) X(IS_INF) X(IS_FINITE) X(CEIL) X(FLOOR)     \
    X(RANGE_LENGTH)                                                                                \
    X(LIST_NEW) X(LIST_GET_W) X(LIST_GET_O) X(LIST_GET_P) X(LIST_GET2) X(LIST_SET_W) X(LIST_SET)   \
    X(LIST_LENGTH) X(APPEND_W) X(APPEND) X(EXTEND) X(INSERT) X(POP) X(LIST_DELETE)                 \
    X(LIST_CONTAINS) X(LIST_INDEX) X(LIST_COUNT) X(LIST_REMOVE) X(LIST_REVERSE) X(LIST_CLEAR)      \
    X(SORT) X(CONCAT) X(REPEAT) X(SLICE) X(LIST_SUM) X(LIST_FSUM) X(LIST_LEAST) X(LIST_ANY)        \
    X(COMPARE)                                                                                     \
    X(DICT_NEW) X(DICT_GET) X(DICT_SET) X(DICT_CONTAINS) X(DICT_LENGTH) X(DICT_DELETE)             \
    X(DICT_POP) X(DICT_POP_OR) X(DICT_GET_OR) X(DICT_GET_MAYBE) X(DICT_SETDEFAULT)                 \
    X(DICT_UPDATE) X(DICT_CLEAR) X(DICT_COPY) X(DICT_LIST) X(DICT_POPITEM) X(DICT_EQUAL)           \
    X(TUPLE_NEW) X(TUPLE_GET_W) X(TUPLE_GET_O) X(TUPLE_GET_P)                                      \
    X(BOX) X(UNBOX) X(IS_NONE) X(IS_NONE_P) X(CHECK)                                               \
    X(TEXT_CONCAT) X(TEXT_LENGTH) X(TEXT_GET)                                                      \
    X(TO_PYTHON) X(FROM_PYTHON) X(CALL_PYTHON) X(CALL) X(RETURN) X(LEAVE_LOCK) X(TAKE_LOCK)

#define MEMBER(name) OP_##name,
enum opcode { OPCODES(MEMBER) OPCODE_COUNT };
#undef MEMBER
#define NAME(name) #name,
static const char *const OPCODE_NAMES[] = {OPCODES(NAME) NULL};
#undef NAME

typedef struct instruction {
    uint16_t op, a, b, c;
    int32_t d, e;
} instruction;

/* A call of Python: arguments by register, and where results go. */
typedef struct call_site {
    PyObject *callee;
    int count, results; /* more results than one are those of a tuple */
    int *registers, *targets;
    kind **kinds, **result_kinds;
} call_site;

typedef struct program {
    instruction *code;
    int registers, parameters, constant_count, owned_count;
    word *constants; /* in the registers behind the others; nobody writes there */
    int *owned;      /* registers that hold references */
    uint8_t *keeps;  /* how each of these is kept */
    kind **kinds;    /* those that instructions name */
    kind **parameter_kinds, *result_kind;
    int *operands;
    call_site *sites;
    struct program **callees;
    void *owner;
} program;

enum { MOST_TRACED = 64, STEPS_BETWEEN_POLLS = 5000, NANOSECONDS_BETWEEN_POLLS = 5000000 };

/* The thread that signals come to. */
static unsigned long main_thread;

/* A call from Python, and those within. */
typedef struct machine {
    lock lock;
    int64_t steps;   /* left until signals are looked for */
    int64_t polled;  /* when they last were, in nanoseconds */
    int may_leave;   /* whether the loop that runs needs no lock */
    int is_main;
    int traced;
    struct {
        const program *program;
        int place;
    } trace[MOST_TRACED]; /* where an exception passed, the innermost first */
} machine;

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Look for signals, and let other threads run; a loop of some length leaves the lock here, so that
 * short ones do not wait for it afterwards. */
static int machine_poll(machine *m)
{
    m->steps = STEPS_BETWEEN_POLLS;
    int held = m->lock.saved == NULL;
    if (!held && !m->is_main)
        return 0;
    int64_t now = nanoseconds();
    if (now - m->polled >= NANOSECONDS_BETWEEN_POLLS) {
        m->polled = now;
        if (held)
            lock_leave(&m->lock);
        lock_take(&m->lock);
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    if (m->may_leave || !held)
        lock_leave(&m->lock);
    return 0;
}

static void machine_start(machine *m)
{
    m->lock.saved = NULL;
    m->steps = STEPS_BETWEEN_POLLS;
    m->polled = nanoseconds();
    m->may_leave = 0;
    m->is_main = PyThread_get_thread_ident() == main_thread;
    m->traced = 0;
}

static int site_call(machine *m, const call_site *site, word *r)
{
    PyObject *few[16] = {NULL}, **args = few;
    if (site->count > 15) {
        args = malloc((size_t)(site->count + 1) * sizeof(PyObject *));
        if (args == NULL)
            return fail_memory(&m->lock);
    }
    int made = 0, found = -1;
    PyObject *result = NULL;
    for (; made < site->count; made++) {
        args[made + 1] = word_to_python(site->kinds[made], r[site->registers[made]]);
        if (args[made + 1] == NULL)
            break;
    }
    if (made == site->count)
        result = PyObject_Vectorcall(site->callee, args + 1, (size_t)made | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    for (int n = 0; n < made; n++)
        Py_DECREF(args[n + 1]);
    if (args != few)
        free(args);
    if (result == NULL)
        return -1;
    if (site->results != 1 && (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != site->results)) {
        PyErr_SetString(PyExc_TypeError, "a call of Python gives another number of results");
        goto done;
    }
    for (int n = 0; n < site->results; n++) {
        PyObject *value = site->results == 1 ? result : PyTuple_GET_ITEM(result, n);
        word w;
        if (word_from_python(&m->lock, site->result_kinds[n], value, &w) < 0)
            goto done;
        word *target = &r[site->targets[n]], old = *target;
        *target = w;
        word_release(keeping_of(site->result_kinds[n]), old);
    }
    found = 0;
done:
    Py_DECREF(result);
    return found;
}

static int fail_key(machine *m, const kind *k, word key)
{
    lock_take(&m->lock);
    PyObject *shown = word_to_python(k, key);
    if (shown != NULL) {
        PyErr_SetObject(PyExc_KeyError, shown);
        Py_DECREF(shown);
    }
    return -1;
}

/* Tell that a list has no such element. */
static int fail_missing(machine *m, const kind *k, word w)
{
    lock_take(&m->lock);
    PyObject *value = word_to_python(k, w);
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    if (text != NULL)
        PyErr_Format(PyExc_RuntimeError, "'%U' is not in list", text);
    Py_XDECREF(text);
    Py_XDECREF(value);
    return -1;
}

static int fail_whole(machine *m, double a)
{
    char text[400];
    snprintf(text, sizeof text, "Cannot convert float %f to integer", a);
    return fail(&m->lock, PyExc_RuntimeError, text);
}

#endif

/* The loop that walks a program. */

#ifndef TANGRAD_SCRIPT_LOOP_H
#define TANGRAD_SCRIPT_LOOP_H

#include "program.h"

#define A (r[at->a])
#define B (r[at->b])
#define C (r[at->c])
#define D (r[at->d])
#define LIST(x) ((list *)(x).o)
#define DICT(x) ((dict *)(x).o)
#define TUPLE(x) ((tuple *)(x).o)

#define CASE(name) do_##name:
#define GO goto *steps[at->op]
#define DONE                                                                                       \
    do {                                                                                           \
        at++;                                                                                      \
        GO;                                                                                        \
    } while (0)
#define JUMP_WHERE(condition)                                                                      \
    do {                                                                                           \
        if (condition)                                                                             \
            at = code + at->d;                                                                     \
        else                                                                                       \
            at++;                                                                                  \
        GO;                                                                                        \
    } while (0)
#define FAIL(cls, message)                                                                         \
    do {                                                                                           \
        fail(&m->lock, cls, message);                                                              \
        goto failed;                                                                               \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            goto failed;                                                                           \
    } while (0)
/* Keep a new object, whose reference the register takes. */
#define KEEP(reg, made)                                                                            \
    do {                                                                                           \
        object *kept_ = (object *)(made), *old_ = (reg).o;                                         \
        if (kept_ == NULL)                                                                         \
            goto failed;                                                                           \
        (reg).o = kept_;                                                                           \
        object_release(old_);                                                                      \
    } while (0)
/* Keep a word, whose reference the register takes. */
#define KEEP_WORD(how, reg, made)                                                                  \
    do {                                                                                           \
        word kept_ = (made), old_ = (reg);                                                         \
        (reg) = kept_;                                                                             \
        word_release(how, old_);                                                                   \
    } while (0)
#define SIMPLE(name, field, expression)                                                            \
    CASE(name)                                                                                     \
    A.field = expression;                                                                          \
    DONE;

static inline int64_t place_in(const list *x, int64_t at)
{
    int64_t found = at < 0 ? at + x->length : at;
    return found >= 0 && found < x->length ? found : -1;
}

static int relation_holds(int relation, int compared)
{
    switch (relation) {
    case 0:
        return compared == 0;
    case 1:
        return compared != 0;
    case 2:
        return compared == -1;
    case 3:
        return compared == -1 || compared == 0;
    case 4:
        return compared == 1;
    default:
        return compared == 1 || compared == 0;
    }
}

static object *boxed(machine *m, const kind *k, word w)
{
    if (k->tag != KIND_BOX)
        return object_retain(w.o);
    box *made = object_new(k, sizeof(box));
    if (made == NULL) {
        fail_memory(&m->lock);
        return NULL;
    }
    made->value = w;
    return &made->head;
}

static tuple *tuple_of(machine *m, const kind *k)
{
    tuple *made = object_new(k, sizeof(tuple) + (size_t)k->count * sizeof(word));
    if (made == NULL)
        fail_memory(&m->lock);
    return made;
}

static keeping item_keeping(const list *x) { return keeping_of(x->head.kind->parts[0]); }
static keeping value_keeping(const dict *d) { return keeping_of(d->head.kind->parts[1]); }

/* Run a program on its arguments, whose references it takes.
 *
 * Returns 0, and a result whose reference goes to the caller; or -1 with an exception. */
static int program_run(const program *p, const word *args, word *result, machine *m)
{
#define LABEL(name) &&do_##name,
    static const void *const steps[] = {OPCODES(LABEL)};
#undef LABEL
    word few[64], *r = few;
    const size_t all = (size_t)(p->registers + p->constant_count);
    const instruction *const code = p->code, *at = code;
    if (all > 64) {
        r = malloc(all * sizeof(word));
        if (r == NULL) {
            for (int n = 0; n < p->parameters; n++)
                word_release(keeping_of(p->parameter_kinds[n]), args[n]);
            return fail_memory(&m->lock);
        }
    }
    memcpy(r, args, (size_t)p->parameters * sizeof(word));
    memset(r + p->parameters, 0, (size_t)(p->registers - p->parameters) * sizeof(word));
    memcpy(r + p->registers, p->constants, (size_t)p->constant_count * sizeof(word));
    GO;

    SIMPLE(MOVE_W, i, B.i)
    CASE(MOVE_O) {
        object *moved = object_retain(B.o), *old = A.o;
        A.o = moved;
        object_release(old);
        DONE;
    }
    CASE(MOVE_P) {
        PyObject *moved = Py_XNewRef(B.p), *old = A.p;
        A.p = moved;
        Py_XDECREF(old);
        DONE;
    }
    CASE(TAKE_O) {
        object *moved = B.o, *old = A.o;
        B.o = NULL;
        A.o = moved;
        object_release(old);
        DONE;
    }
    CASE(TAKE_P) {
        PyObject *moved = B.p, *old = A.p;
        B.p = NULL;
        A.p = moved;
        Py_XDECREF(old);
        DONE;
    }
    CASE(CLEAR_O) {
        object *old = A.o;
        A.o = NULL;
        object_release(old);
        DONE;
    }
    CASE(CLEAR_P) {
        PyObject *old = A.p;
        A.p = NULL;
        Py_XDECREF(old);
        DONE;
    }

    CASE(JUMP) JUMP_WHERE(1);
    CASE(BACK)
    if (--m->steps < 0)
        TRY(machine_poll(m));
    JUMP_WHERE(1);
    CASE(JUMP_IF) JUMP_WHERE(A.i);
    CASE(JUMP_UNLESS) JUMP_WHERE(!A.i);
    CASE(JUMP_EQ) JUMP_WHERE(A.i == B.i);
    CASE(JUMP_NE) JUMP_WHERE(A.i != B.i);
    CASE(JUMP_LT) JUMP_WHERE(A.i < B.i);
    CASE(JUMP_LE) JUMP_WHERE(A.i <= B.i);
    CASE(JUMP_FEQ) JUMP_WHERE(A.f == B.f);
    CASE(JUMP_FNE) JUMP_WHERE(A.f != B.f);
    CASE(JUMP_FLT) JUMP_WHERE(A.f < B.f);
    CASE(JUMP_FLE) JUMP_WHERE(A.f <= B.f);
    CASE(JUMP_NOT_FLT) JUMP_WHERE(!(A.f < B.f));
    CASE(JUMP_NOT_FLE) JUMP_WHERE(!(A.f <= B.f));
    CASE(NEXT)
    if (--m->steps < 0)
        TRY(machine_poll(m));
    A.i = int_add(A.i, 1);
    JUMP_WHERE(A.i < B.i);

    SIMPLE(EQ, i, B.i == C.i)
    SIMPLE(NE, i, B.i != C.i)
    SIMPLE(LT, i, B.i < C.i)
    SIMPLE(LE, i, B.i <= C.i)
    SIMPLE(FEQ, i, B.f == C.f)
    SIMPLE(FNE, i, B.f != C.f)
    SIMPLE(FLT, i, B.f < C.f)
    SIMPLE(FLE, i, B.f <= C.f)
    SIMPLE(NOT, i, !B.i)
    SIMPLE(ADD, i, int_add(B.i, C.i))
    SIMPLE(SUB, i, int_sub(B.i, C.i))
    SIMPLE(MUL, i, int_mul(B.i, C.i))
    CASE(FLOORDIV)
    if (C.i == 0)
        FAIL(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    A.i = int_floordiv(B.i, C.i);
    DONE;
    CASE(REMAINDER)
    if (C.i == 0)
        FAIL(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    A.i = int_remainder(B.i, C.i);
    DONE;
    SIMPLE(NEG, i, int_sub(0, B.i))
    SIMPLE(ABS, i, B.i < 0 ? int_sub(0, B.i) : B.i)
    SIMPLE(AND, i, B.i & C.i)
    SIMPLE(OR, i, B.i | C.i)
    SIMPLE(XOR, i, B.i ^ C.i)
    SIMPLE(SHL, i, int_shift_left(B.i, C.i))
    SIMPLE(SHR, i, int_shift_right(B.i, C.i))
    SIMPLE(MIN, i, C.i < B.i ? C.i : B.i)
    SIMPLE(MAX, i, C.i > B.i ? C.i : B.i)
    SIMPLE(FADD, f, B.f + C.f)
    SIMPLE(FSUB, f, B.f - C.f)
    SIMPLE(FMUL, f, B.f * C.f)
    SIMPLE(FDIV, f, B.f / C.f)
    SIMPLE(FNEG, f, -B.f)
    SIMPLE(FMIN, f, least_of(B.f, C.f))
    SIMPLE(FMAX, f, greatest_of(B.f, C.f))
    SIMPLE(TO_FLOAT, f, (double)B.i)
    SIMPLE(TO_INT, i, int_of_float(B.f))
    SIMPLE(UNARY, f, UNARY[at->d](B.f))
    SIMPLE(BINARY, f, BINARY[at->d](B.f, C.f))
    SIMPLE(IS_NAN, i, isnan(B.f) != 0)
    SIMPLE(IS_INF, i, isinf(B.f) != 0)
    SIMPLE(IS_FINITE, i, isfinite(B.f) != 0)
    CASE(CEIL) {
        double whole = ceil(B.f);
        if (!(whole >= -9223372036854775808.0 && whole < 9223372036854775808.0))
            TRY(fail_whole(m, B.f));
        A.i = (int64_t)whole;
        DONE;
    }
    CASE(FLOOR) {
        double whole = floor(B.f);
        if (!(whole >= -9223372036854775808.0 && whole < 9223372036854775808.0))
            TRY(fail_whole(m, B.f));
        A.i = (int64_t)whole;
        DONE;
    }
    CASE(RANGE_LENGTH)
    if (D.i == 0)
        FAIL(PyExc_ValueError, "range() arg 3 must not be zero");
    A.i = range_length(B.i, C.i, D.i);
    DONE;

#include "container_steps.h"

    CASE(BOX) KEEP(A, boxed(m, p->kinds[at->d], B));
    DONE;
    CASE(UNBOX)
    if (B.o == NULL)
        FAIL(PyExc_RuntimeError, "Unwrapping null optional");
    A = ((box *)B.o)->value;
    DONE;
    SIMPLE(IS_NONE, i, B.o == NULL)
    SIMPLE(IS_NONE_P, i, B.p == NULL || B.p == Py_None)
    CASE(CHECK)
    if (A.o == NULL)
        FAIL(PyExc_RuntimeError, "Unwrapping null optional");
    DONE;
    CASE(TEXT_CONCAT) {
        word made = {.p = PyUnicode_Concat(B.p, C.p)};
        if (made.p == NULL)
            goto failed;
        KEEP_WORD(KEEP_PYTHON, A, made);
        DONE;
    }
    SIMPLE(TEXT_LENGTH, i, PyUnicode_GET_LENGTH(B.p))
    CASE(TEXT_GET) {
        int64_t length = PyUnicode_GET_LENGTH(B.p), place = C.i < 0 ? C.i + length : C.i;
        if (place < 0 || place >= length)
            FAIL(PyExc_IndexError, "string index out of range");
        word made = {.p = PyUnicode_Substring(B.p, place, place + 1)};
        if (made.p == NULL)
            goto failed;
        KEEP_WORD(KEEP_PYTHON, A, made);
        DONE;
    }
    CASE(TO_PYTHON) {
        word made = {.p = word_to_python(p->kinds[at->d], B)};
        if (made.p == NULL)
            goto failed;
        KEEP_WORD(KEEP_PYTHON, A, made);
        DONE;
    }
    CASE(FROM_PYTHON) {
        word made;
        const kind *k = p->kinds[at->d];
        TRY(word_from_python(&m->lock, k, B.p, &made));
        KEEP_WORD(keeping_of(k), A, made);
        DONE;
    }
    CASE(CALL_PYTHON)
    TRY(site_call(m, &p->sites[at->d], r));
    DONE;
    CASE(CALL) {
        const program *called = p->callees[at->d];
        word given[64], *passed = given, made;
        const int *from = p->operands + at->e;
        if (called->parameters > 64)
            FAIL(PyExc_RuntimeError, "a function of more than 64 parameters");
        for (int n = 0; n < called->parameters; n++)
            passed[n] = word_retain(keeping_of(called->parameter_kinds[n]), r[from[n]]);
        TRY(program_run(called, passed, &made, m));
        KEEP_WORD(keeping_of(called->result_kind), A, made);
        DONE;
    }
    CASE(LEAVE_LOCK)
    m->may_leave = 1;
    DONE;
    CASE(TAKE_LOCK)
    m->may_leave = 0;
    lock_take(&m->lock);
    DONE;

    int found;
    CASE(RETURN)
    *result = word_retain(keeping_of(p->result_kind), A);
    found = 0;
    goto leave;
failed:
    found = -1;
    if (m->traced < MOST_TRACED) {
        m->trace[m->traced].program = p;
        m->trace[m->traced++].place = (int)(at - code);
    }
leave:
    for (int n = 0; n < p->owned_count; n++)
        word_release(p->keeps[n], r[p->owned[n]]);
    if (r != few)
        free(r);
    return found;
}

#endif

/* Lists and dicts of the machine. Functions that may fail return -1 or NULL with an exception of
 * Python, for which they take the lock of the interpreter where nobody holds it. */

#ifndef TANGRAD_SCRIPT_CONTAINERS_H
#define TANGRAD_SCRIPT_CONTAINERS_H

#include "values.h"

/* Raise an exception; the thread holds the lock afterwards, if `state` is where it is kept. */
typedef struct lock {
    PyThreadState *saved; /* NULL while the thread holds the lock of the interpreter */
} lock;

static inline void lock_take(lock *l)
{
    if (l->saved != NULL) {
        PyEval_RestoreThread(l->saved);
        l->saved = NULL;
    }
}

static inline void lock_leave(lock *l)
{
    if (l->saved == NULL)
        l->saved = PyEval_SaveThread();
}

static int fail(lock *l, PyObject *cls, const char *message)
{
    lock_take(l);
    PyErr_SetString(cls, message);
    return -1;
}

static int fail_memory(lock *l)
{
    lock_take(l);
    PyErr_NoMemory();
    return -1;
}

/* --- comparing and hashing */

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15ull;
    return x ^ x >> 29;
}

static uint64_t word_hash(const kind *k, word w)
{
    if (k->tag == KIND_PYTHON)
        return (uint64_t)PyObject_Hash(w.p);
    if (k->tag == KIND_FLOAT && w.f == 0)
        return 0; /* of both zeros */
    return mixed((uint64_t)w.i);
}

/* -1, 0 or 1: numbers, texts, and lists and tuples of them. NaN is equal to nothing: 2. */
static int word_compare(const kind *k, word a, word b)
{
    switch (k->tag) {
    case KIND_INT:
    case KIND_BOOL:
        return (a.i > b.i) - (a.i < b.i);
    case KIND_FLOAT:
        return a.f == b.f ? 0 : a.f < b.f ? -1 : a.f > b.f ? 1 : 2;
    case KIND_NONE:
        return 0;
    case KIND_PYTHON:
        return PyUnicode_Compare(a.p, b.p);
    default:
        break;
    }
    if (a.o == b.o && (a.o == NULL || k->tag == KIND_BOX) && (a.o == NULL || k->parts[0]->tag != KIND_FLOAT))
        return 0;
    if (a.o == NULL || b.o == NULL)
        return a.o == NULL ? (b.o == NULL ? 0 : -1) : 1;
    if (k->tag == KIND_BOX)
        return word_compare(k->parts[0], ((box *)a.o)->value, ((box *)b.o)->value);
    if (k->tag == KIND_TUPLE) {
        for (int n = 0; n < k->count; n++) {
            int found = word_compare(k->parts[n], ((tuple *)a.o)->items[n], ((tuple *)b.o)->items[n]);
            if (found)
                return found;
        }
        return 0;
    }
    list *x = (list *)a.o, *y = (list *)b.o;
    for (int64_t n = 0; n < x->length && n < y->length; n++) {
        int found = word_compare(k->parts[0], x->items[n], y->items[n]);
        if (found)
            return found;
    }
    return (x->length > y->length) - (x->length < y->length);
}

/* --- lists */

static list *list_new(lock *l, const kind *k, int64_t capacity)
{
    list *made = object_new(k, sizeof(list));
    if (made != NULL && capacity > 0) {
        made->items = capacity < INT64_MAX / 16 ? malloc((size_t)capacity * sizeof(word)) : NULL;
        made->capacity = capacity;
        if (made->items == NULL) {
            free(made);
            made = NULL;
        }
    }
    if (made == NULL)
        fail_memory(l);
    return made;
}

static int list_reserve(lock *l, list *x, int64_t capacity)
{
    if (capacity <= x->capacity)
        return 0;
    int64_t wanted = x->capacity + (x->capacity >> 1) + 4;
    wanted = wanted < capacity ? capacity : wanted;
    word *items = wanted < INT64_MAX / 16 ? realloc(x->items, (size_t)wanted * sizeof(word)) : NULL;
    if (items == NULL)
        return fail_memory(l);
    x->items = items;
    x->capacity = wanted;
    return 0;
}

static inline int list_append(lock *l, list *x, word w)
{
    if (x->length == x->capacity && list_reserve(l, x, x->length + 1) < 0)
        return -1;
    x->items[x->length++] = word_retain(keeping_of(x->head.kind->parts[0]), w);
    return 0;
}

static int list_extend(lock *l, list *x, const list *y)
{
    int64_t count = y->length;
    keeping how = keeping_of(x->head.kind->parts[0]);
    if (list_reserve(l, x, x->length + count) < 0)
        return -1;
    for (int64_t n = 0; n < count; n++)
        x->items[x->length + n] = word_retain(how, y->items[n]);
    x->length += count;
    return 0;
}

static int list_insert(lock *l, list *x, int64_t at, word w)
{
    if (list_reserve(l, x, x->length + 1) < 0)
        return -1;
    at = at < 0 ? at + x->length : at;
    at = at < 0 ? 0 : at > x->length ? x->length : at;
    memmove(x->items + at + 1, x->items + at, (size_t)(x->length - at) * sizeof(word));
    x->items[at] = word_retain(keeping_of(x->head.kind->parts[0]), w);
    x->length++;
    return 0;
}

/* Remove an element, whose reference goes to the caller. */
static word list_cut(list *x, int64_t at)
{
    word found = x->items[at];
    x->length--;
    memmove(x->items + at, x->items + at + 1, (size_t)(x->length - at) * sizeof(word));
    return found;
}

static list *list_sliced(lock *l, const list *x, int64_t start, int64_t stop, int64_t step)
{
    if (step == 0) {
        fail(l, PyExc_ValueError, "slice step cannot be zero");
        return NULL;
    }
    Py_ssize_t first = start, last = stop;
    int64_t count = PySlice_AdjustIndices(x->length, &first, &last, step);
    list *made = list_new(l, x->head.kind, count);
    if (made == NULL)
        return NULL;
    keeping how = keeping_of(x->head.kind->parts[0]);
    for (int64_t n = 0; n < count; n++)
        made->items[n] = word_retain(how, x->items[first + n * step]);
    made->length = count;
    return made;
}

static list *list_repeated(lock *l, const list *x, int64_t times)
{
    times = times < 0 || x->length == 0 ? 0 : times;
    if (times && x->length > INT64_MAX / 32 / times) {
        fail_memory(l);
        return NULL;
    }
    list *made = list_new(l, x->head.kind, x->length * times);
    for (int64_t n = 0; made != NULL && n < times; n++)
        if (list_extend(l, made, x) < 0) {
            object_release(&made->head);
            return NULL;
        }
    return made;
}

static int64_t list_find(const list *x, word w)
{
    const kind *k = x->head.kind->parts[0];
    for (int64_t n = 0; n < x->length; n++)
        if (word_compare(k, x->items[n], w) == 0)
            return n;
    return -1;
}

static int64_t list_count(const list *x, word w)
{
    int64_t found = 0;
    const kind *k = x->head.kind->parts[0];
    for (int64_t n = 0; n < x->length; n++)
        found += word_compare(k, x->items[n], w) == 0;
    return found;
}

static void list_clear(list *x)
{
    words_release(keeping_of(x->head.kind->parts[0]), x->items, x->length);
    x->length = 0;
}

static void list_reverse(list *x)
{
    for (int64_t a = 0, b = x->length - 1; a < b; a++, b--) {
        word w = x->items[a];
        x->items[a] = x->items[b];
        x->items[b] = w;
    }
}

/* Merge sort, stable also backwards; NaN stands before nothing. */
static void merge_sort(const kind *k, word *items, word *space, int64_t count, int reverse)
{
    if (count < 2)
        return;
    int64_t half = count / 2, a = 0, b = half;
    merge_sort(k, items, space, half, reverse);
    merge_sort(k, items + half, space, count - half, reverse);
    memcpy(space, items, (size_t)count * sizeof(word));
    for (int64_t n = 0; n < count; n++) {
        int second = a == half;
        if (a < half && b < count) {
            int found = word_compare(k, space[b], space[a]);
            second = found == (reverse ? 1 : -1);
        }
        items[n] = second ? space[b++] : space[a++];
    }
}

static int list_sort(lock *l, list *x, int reverse)
{
    if (x->length < 2)
        return 0;
    word *space = malloc((size_t)x->length * sizeof(word));
    if (space == NULL)
        return fail_memory(l);
    merge_sort(x->head.kind->parts[0], x->items, space, x->length, reverse);
    free(space);
    return 0;
}

/* --- dicts */

static dict *dict_new(lock *l, const kind *k)
{
    dict *made = object_new(k, sizeof(dict));
    if (made == NULL)
        fail_memory(l);
    return made;
}

static int64_t *dict_slot(const dict *d, uint64_t hash, word key)
{
    const kind *k = d->head.kind->parts[0];
    uint64_t mask = (uint64_t)d->slots - 1;
    const int is_int = k->tag <= KIND_BOOL;
    int64_t *kept = NULL; /* a slot whose entry is gone */
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
        int64_t place = d->table[at];
        if (place == -1)
            return kept != NULL ? kept : &d->table[at];
        if (place == -2) {
            kept = kept != NULL ? kept : &d->table[at];
            continue;
        }
        const entry *e = &d->entries[place];
        if (is_int ? e->key.i == key.i : e->hash == hash && word_compare(k, e->key, key) == 0)
            return &d->table[at];
    }
}

static entry *dict_find(const dict *d, word key)
{
    if (d->length == 0)
        return NULL;
    int64_t *slot = dict_slot(d, word_hash(d->head.kind->parts[0], key), key);
    return *slot < 0 ? NULL : &d->entries[*slot];
}

/* Make room for one more entry, and leave out those that are gone. */
static int dict_grow(lock *l, dict *d)
{
    int64_t capacity = d->length < 8 ? 16 : d->length * 2, slots = 8;
    while (slots < capacity * 2)
        slots *= 2;
    entry *entries = malloc((size_t)capacity * sizeof(entry));
    int64_t *table = malloc((size_t)slots * sizeof(int64_t));
    if (entries == NULL || table == NULL) {
        free(entries);
        free(table);
        return fail_memory(l);
    }
    memset(table, 0xff, (size_t)slots * sizeof(int64_t));
    int64_t used = 0;
    for (int64_t n = 0; n < d->used; n++)
        if (d->entries[n].alive) {
            uint64_t mask = (uint64_t)slots - 1, at = d->entries[n].hash & mask;
            while (table[at] != -1)
                at = (at + 1) & mask;
            table[at] = used;
            entries[used++] = d->entries[n];
        }
    free(d->entries);
    free(d->table);
    d->entries = entries;
    d->table = table;
    d->used = used;
    d->capacity = capacity;
    d->slots = slots;
    return 0;
}

/* Store an entry; references are taken. */
static int dict_set(lock *l, dict *d, word key, word value)
{
    if (d->used == d->capacity && dict_grow(l, d) < 0)
        return -1;
    keeping keys = keeping_of(d->head.kind->parts[0]), values = keeping_of(d->head.kind->parts[1]);
    uint64_t hash = word_hash(d->head.kind->parts[0], key);
    int64_t *slot = dict_slot(d, hash, key);
    word_retain(values, value);
    if (*slot >= 0) {
        word old = d->entries[*slot].value;
        d->entries[*slot].value = value;
        word_release(values, old);
        return 0;
    }
    *slot = d->used;
    d->entries[d->used++] = (entry){hash, word_retain(keys, key), value, 1};
    d->length++;
    return 0;
}

/* Remove an entry that is there; the reference of its value goes to the caller. */
static word dict_cut(dict *d, entry *e)
{
    int64_t *slot = dict_slot(d, e->hash, e->key);
    word value = e->value, key = e->key;
    *slot = -2;
    e->alive = 0;
    d->length--;
    word_release(keeping_of(d->head.kind->parts[0]), key);
    return value;
}

static void dict_clear(dict *d)
{
    dict_drop_entries(d);
    d->length = d->used = 0;
    if (d->slots)
        memset(d->table, 0xff, (size_t)d->slots * sizeof(int64_t));
}

static int dict_update(lock *l, dict *d, const dict *from)
{
    for (int64_t n = 0; n < from->used; n++)
        if (from->entries[n].alive && d != from)
            if (dict_set(l, d, from->entries[n].key, from->entries[n].value) < 0)
                return -1;
    return 0;
}

/* Dicts are equal that have equal values for the same keys. */
static int dict_equal(const dict *a, const dict *b)
{
    if (a->length != b->length)
        return 0;
    for (int64_t n = 0; n < a->used; n++) {
        if (!a->entries[n].alive)
            continue;
        const entry *other = dict_find(b, a->entries[n].key);
        if (other == NULL || word_compare(a->head.kind->parts[1], a->entries[n].value, other->value))
            return 0;
    }
    return 1;
}

/* The keys (1), the values (2), or both as tuples (3). */
static list *dict_listed(lock *l, const dict *d, const kind *k, int what)
{
    list *made = list_new(l, k, d->length);
    for (int64_t n = 0; made != NULL && n < d->used; n++) {
        const entry *e = &d->entries[n];
        if (!e->alive)
            continue;
        if (what < 3) {
            made->items[made->length] = what == 1 ? e->key : e->value;
            word_retain(keeping_of(k->parts[0]), made->items[made->length++]);
            continue;
        }
        tuple *pair = object_new(k->parts[0], sizeof(tuple) + 2 * sizeof(word));
        if (pair == NULL) {
            fail_memory(l);
            object_release(&made->head);
            return NULL;
        }
        pair->items[0] = word_retain(keeping_of(d->head.kind->parts[0]), e->key);
        pair->items[1] = word_retain(keeping_of(d->head.kind->parts[1]), e->value);
        made->items[made->length++].o = &pair->head;
    }
    return made;
}

#endif

/* Steps on lists, dicts and tuples: a part of the loop. */

    CASE(LIST_NEW) {
        const int *from = p->operands + at->e;
        list *made = list_new(&m->lock, p->kinds[at->d], at->b);
        if (made == NULL)
            goto failed;
        for (int n = 0; n < at->b; n++)
            made->items[n] = word_retain(item_keeping(made), r[from[n]]);
        made->length = at->b;
        KEEP(A, made);
        DONE;
    }
    CASE(LIST_GET_W) {
        int64_t place = place_in(LIST(B), C.i);
        if (place < 0)
            goto no_item;
        A = LIST(B)->items[place];
        DONE;
    }
    CASE(LIST_GET_O) {
        int64_t place = place_in(LIST(B), C.i);
        if (place < 0)
            goto no_item;
        object *found_item = object_retain(LIST(B)->items[place].o), *old = A.o;
        A.o = found_item;
        object_release(old);
        DONE;
    }
    CASE(LIST_GET_P) {
        int64_t place = place_in(LIST(B), C.i);
        if (place < 0)
            goto no_item;
        KEEP_WORD(KEEP_PYTHON, A, word_retain(KEEP_PYTHON, LIST(B)->items[place]));
        DONE;
    }
    CASE(LIST_GET2) {
        int64_t place = place_in(LIST(B), C.i);
        if (place < 0)
            goto no_item;
        const list *inner = (const list *)LIST(B)->items[place].o;
        place = place_in(inner, D.i);
        if (place < 0)
            goto no_item;
        A = inner->items[place];
        DONE;
    }
    CASE(LIST_SET_W) {
        int64_t place = place_in(LIST(A), B.i);
        if (place < 0)
            goto no_item;
        LIST(A)->items[place] = C;
        DONE;
    }
    CASE(LIST_SET) {
        int64_t place = place_in(LIST(A), B.i);
        if (place < 0)
            goto no_item;
        keeping how = item_keeping(LIST(A));
        KEEP_WORD(how, LIST(A)->items[place], word_retain(how, C));
        DONE;
    }
    SIMPLE(LIST_LENGTH, i, LIST(B)->length)
    CASE(APPEND_W) {
        list *x = LIST(A);
        if (x->length == x->capacity)
            TRY(list_reserve(&m->lock, x, x->length + 1));
        x->items[x->length++] = B;
        DONE;
    }
    CASE(APPEND) TRY(list_append(&m->lock, LIST(A), B));
    DONE;
    CASE(EXTEND) TRY(list_extend(&m->lock, LIST(A), LIST(B)));
    DONE;
    CASE(INSERT) TRY(list_insert(&m->lock, LIST(A), B.i, C));
    DONE;
    CASE(POP) {
        if (LIST(B)->length == 0)
            FAIL(PyExc_RuntimeError, "pop from empty list");
        int64_t place = place_in(LIST(B), C.i);
        if (place < 0)
            goto no_item;
        keeping how = item_keeping(LIST(B));
        KEEP_WORD(how, A, list_cut(LIST(B), place));
        DONE;
    }
    CASE(LIST_DELETE) {
        int64_t place = place_in(LIST(A), B.i);
        if (place < 0)
            goto no_item;
        word_release(item_keeping(LIST(A)), list_cut(LIST(A), place));
        DONE;
    }
    SIMPLE(LIST_CONTAINS, i, list_find(LIST(B), C) >= 0)
    CASE(LIST_INDEX) {
        int64_t place = list_find(LIST(B), C);
        if (place < 0)
            TRY(fail_missing(m, LIST(B)->head.kind->parts[0], C));
        A.i = place;
        DONE;
    }
    SIMPLE(LIST_COUNT, i, list_count(LIST(B), C))
    CASE(LIST_REMOVE) {
        int64_t place = list_find(LIST(A), B);
        if (place < 0)
            FAIL(PyExc_RuntimeError, "list.remove(x): x not in list");
        word_release(item_keeping(LIST(A)), list_cut(LIST(A), place));
        DONE;
    }
    CASE(LIST_REVERSE) list_reverse(LIST(A));
    DONE;
    CASE(LIST_CLEAR) list_clear(LIST(A));
    DONE;
    CASE(SORT) TRY(list_sort(&m->lock, LIST(A), B.i != 0));
    DONE;
    CASE(CONCAT) {
        list *made = list_new(&m->lock, LIST(B)->head.kind, LIST(B)->length + LIST(C)->length);
        if (made == NULL)
            goto failed;
        list_extend(&m->lock, made, LIST(B));
        list_extend(&m->lock, made, LIST(C));
        KEEP(A, made);
        DONE;
    }
    CASE(REPEAT) KEEP(A, list_repeated(&m->lock, LIST(B), C.i));
    DONE;
    CASE(SLICE) KEEP(A, list_sliced(&m->lock, LIST(B), C.i, D.i, r[at->e].i));
    DONE;
    CASE(LIST_SUM) {
        int64_t sum = 0;
        for (int64_t n = 0; n < LIST(B)->length; n++)
            sum = int_add(sum, LIST(B)->items[n].i);
        A.i = sum;
        DONE;
    }
    CASE(LIST_FSUM) {
        double sum = 0;
        for (int64_t n = 0; n < LIST(B)->length; n++)
            sum += LIST(B)->items[n].f;
        A.f = sum;
        DONE;
    }
    CASE(LIST_LEAST) { /* with e, the greatest */
        const list *x = LIST(B);
        if (x->length == 0)
            FAIL(PyExc_RuntimeError, at->e ? "max() arg is an empty sequence" : "min() arg is an empty sequence");
        word least = x->items[0];
        for (int64_t n = 1; n < x->length; n++)
            if (word_compare(x->head.kind->parts[0], x->items[n], least) == (at->e ? 1 : -1))
                least = x->items[n];
        A = least;
        DONE;
    }
    CASE(LIST_ANY) { /* with e, whether all are */
        const list *x = LIST(B);
        const int is_float = x->head.kind->parts[0]->tag == KIND_FLOAT;
        int64_t n = 0;
        while (n < x->length && (is_float ? x->items[n].f != 0 : x->items[n].i != 0) == at->e)
            n++;
        A.i = at->e ? n == x->length : n < x->length;
        DONE;
    }
    SIMPLE(COMPARE, i, relation_holds(at->e, word_compare(p->kinds[at->d], B, C)))

    CASE(DICT_NEW) {
        const int *from = p->operands + at->e;
        dict *made = dict_new(&m->lock, p->kinds[at->d]);
        if (made == NULL)
            goto failed;
        for (int n = 0; n < at->b; n++)
            if (dict_set(&m->lock, made, r[from[2 * n]], r[from[2 * n + 1]]) < 0) {
                object_release(&made->head);
                goto failed;
            }
        KEEP(A, made);
        DONE;
    }
    CASE(DICT_GET) {
        const entry *e = dict_find(DICT(B), C);
        if (e == NULL)
            TRY(fail_key(m, DICT(B)->head.kind->parts[0], C));
        keeping how = value_keeping(DICT(B));
        KEEP_WORD(how, A, word_retain(how, e->value));
        DONE;
    }
    CASE(DICT_SET) TRY(dict_set(&m->lock, DICT(A), B, C));
    DONE;
    SIMPLE(DICT_CONTAINS, i, dict_find(DICT(B), C) != NULL)
    SIMPLE(DICT_LENGTH, i, DICT(B)->length)
    CASE(DICT_DELETE) {
        entry *e = dict_find(DICT(A), B);
        if (e == NULL)
            TRY(fail_key(m, DICT(A)->head.kind->parts[0], B));
        keeping how = value_keeping(DICT(A));
        word_release(how, dict_cut(DICT(A), e));
        DONE;
    }
    CASE(DICT_POP) {
        entry *e = dict_find(DICT(B), C);
        if (e == NULL)
            TRY(fail_key(m, DICT(B)->head.kind->parts[0], C));
        keeping how = value_keeping(DICT(B));
        KEEP_WORD(how, A, dict_cut(DICT(B), e));
        DONE;
    }
    CASE(DICT_POP_OR) {
        entry *e = dict_find(DICT(B), C);
        keeping how = value_keeping(DICT(B));
        KEEP_WORD(how, A, e == NULL ? word_retain(how, D) : dict_cut(DICT(B), e));
        DONE;
    }
    CASE(DICT_GET_OR) {
        const entry *e = dict_find(DICT(B), C);
        keeping how = value_keeping(DICT(B));
        KEEP_WORD(how, A, word_retain(how, e == NULL ? D : e->value));
        DONE;
    }
    CASE(DICT_GET_MAYBE) {
        const entry *e = dict_find(DICT(B), C);
        const kind *k = p->kinds[at->d];
        if (k->tag == KIND_PYTHON)
            KEEP_WORD(KEEP_PYTHON, A, word_retain(KEEP_PYTHON, e == NULL ? (word){.p = Py_None} : e->value));
        else if (e != NULL)
            KEEP(A, boxed(m, k, e->value));
        else
            KEEP_WORD(KEEP_OBJECT, A, (word){.o = NULL});
        DONE;
    }
    CASE(DICT_SETDEFAULT) {
        keeping how = value_keeping(DICT(B));
        if (dict_find(DICT(B), C) == NULL)
            TRY(dict_set(&m->lock, DICT(B), C, D));
        KEEP_WORD(how, A, word_retain(how, dict_find(DICT(B), C)->value));
        DONE;
    }
    CASE(DICT_UPDATE) TRY(dict_update(&m->lock, DICT(A), DICT(B)));
    DONE;
    CASE(DICT_CLEAR) dict_clear(DICT(A));
    DONE;
    CASE(DICT_COPY) {
        dict *made = dict_new(&m->lock, DICT(B)->head.kind);
        if (made == NULL)
            goto failed;
        if (dict_update(&m->lock, made, DICT(B)) < 0) {
            object_release(&made->head);
            goto failed;
        }
        KEEP(A, made);
        DONE;
    }
    CASE(DICT_LIST) KEEP(A, dict_listed(&m->lock, DICT(B), p->kinds[at->d], at->e));
    DONE;
    CASE(DICT_POPITEM) {
        dict *d = DICT(B);
        if (d->length == 0)
            FAIL(PyExc_RuntimeError, "popitem(): dictionary is empty");
        int64_t last = d->used - 1;
        while (!d->entries[last].alive)
            last--;
        tuple *made = tuple_of(m, p->kinds[at->d]);
        if (made == NULL)
            goto failed;
        made->items[0] = word_retain(keeping_of(d->head.kind->parts[0]), d->entries[last].key);
        made->items[1] = dict_cut(d, &d->entries[last]);
        KEEP(A, made);
        DONE;
    }
    SIMPLE(DICT_EQUAL, i, dict_equal(DICT(B), DICT(C)) != at->e)

    CASE(TUPLE_NEW) {
        const int *from = p->operands + at->e;
        const kind *k = p->kinds[at->d];
        tuple *made = tuple_of(m, k);
        if (made == NULL)
            goto failed;
        for (int n = 0; n < k->count; n++)
            made->items[n] = word_retain(keeping_of(k->parts[n]), r[from[n]]);
        KEEP(A, made);
        DONE;
    }
    CASE(TUPLE_GET_W) A = TUPLE(B)->items[at->d];
    DONE;
    CASE(TUPLE_GET_O) KEEP_WORD(KEEP_OBJECT, A, word_retain(KEEP_OBJECT, TUPLE(B)->items[at->d]));
    DONE;
    CASE(TUPLE_GET_P) KEEP_WORD(KEEP_PYTHON, A, word_retain(KEEP_PYTHON, TUPLE(B)->items[at->d]));
    DONE;
no_item:
    FAIL(PyExc_IndexError, "list index out of range");

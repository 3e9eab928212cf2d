/* The running fold of one element type: SC_NAME, SC_ITEM (in memory), SC_STATE (what is carried),
 * SC_LOAD, SC_STORE, SC_COMBINE(state, element). SC_INDEX: positions are written too. */
#define SC_JOIN_(a, b) a##_##b
#define SC_JOIN(a, b) SC_JOIN_(a, b)
#define SC(suffix) SC_JOIN(SC_NAME, suffix)

/* A running fold waits for the last step, so WAYS independent pieces go side by side. */
static void SC(pieces)(const scan *s, const piece *p, int count)
{
    const SC_ITEM *x[WAYS];
    SC_ITEM *out[WAYS];
    int64_t *where[WAYS];
    SC_STATE state[WAYS];
    int64_t n = p[0].n;
    const int64_t sx = s->step_in, so = s->step_out, sw = s->step_where;
    (void)sw, (void)where;
    for (int w = 0; w < WAYS; w++) {
        const piece *q = &p[w < count ? w : 0];
        x[w] = (const SC_ITEM *)q->x;
        out[w] = (SC_ITEM *)q->out;
        where[w] = q->where;
        memcpy(&state[w], q->state, sizeof(SC_STATE));
    }
    int64_t i = 0;
    if (!p[0].carried) {
        for (int w = 0; w < count; w++) {
            state[w] = SC_FIRST(SC_LOAD(x[w][0]));
            SC_WRITE(w, 0)
        }
        i = 1;
    }
    if (count == WAYS)
        for (; i < n; i++)
            for (int w = 0; w < WAYS; w++) {
                state[w] = SC_COMBINE(state[w], SC_LOAD(x[w][i * sx]), i);
                SC_WRITE(w, i)
            }
    else
        for (; i < n; i++)
            for (int w = 0; w < count; w++) {
                state[w] = SC_COMBINE(state[w], SC_LOAD(x[w][i * sx]), i);
                SC_WRITE(w, i)
            }
}

/* The fold of a whole piece, for what follows it. */
static void SC(total)(const scan *s, piece *p)
{
    const SC_ITEM *x = (const SC_ITEM *)p->x;
    SC_STATE lane[WAYS];
    int64_t i = 0, sx = s->step_in;
    for (; i < WAYS; i++)
        lane[i] = SC_FIRST(SC_LOAD(x[i * sx]));
    for (; i + WAYS <= p->n; i += WAYS)
        for (int w = 0; w < WAYS; w++)
            lane[w] = SC_COMBINE(lane[w], SC_LOAD(x[(i + w) * sx]), 0);
    for (int w = 1; w < WAYS; w++)
        lane[0] = SC_JOINED(lane[0], lane[w]);
    for (; i < p->n; i++)
        lane[0] = SC_COMBINE(lane[0], SC_LOAD(x[i * sx]), 0);
    memcpy(p->state, &lane[0], sizeof(SC_STATE));
}

static void SC(join)(void *state, const void *other)
{
    SC_STATE a, b;
    memcpy(&a, state, sizeof a);
    memcpy(&b, other, sizeof b);
    a = SC_JOINED(a, b);
    memcpy(state, &a, sizeof a);
}

/* Lanes beside each other, each its own scan. */
static void SC(lanes)(const scan *s, const char *data, char *target, int64_t *where, int64_t cols)
{
    SC_STATE state[MOST_LANES];
    (void)where;
    for (int64_t i = 0; i < s->n; i++) {
        const SC_ITEM *x = (const SC_ITEM *)data + i * s->step_in;
        SC_ITEM *out = (SC_ITEM *)target + i * s->step_out;
#if SC_INDEX
        int64_t *at = where + i * s->step_where;
#endif
        if (i == 0)
            for (int64_t k = 0; k < cols; k++)
                state[k] = SC_FIRST(SC_LOAD(x[k * s->lane_in]));
        else if (s->lane_in == 1)
#pragma GCC ivdep
            for (int64_t k = 0; k < cols; k++)
                state[k] = SC_COMBINE(state[k], SC_LOAD(x[k]), i);
        else
            for (int64_t k = 0; k < cols; k++)
                state[k] = SC_COMBINE(state[k], SC_LOAD(x[k * s->lane_in]), i);
        if (s->lane_out == 1)
#pragma GCC ivdep
            for (int64_t k = 0; k < cols; k++)
                out[k] = SC_STORE(SC_VALUE(state[k]));
        else
            for (int64_t k = 0; k < cols; k++)
                out[k * s->lane_out] = SC_STORE(SC_VALUE(state[k]));
#if SC_INDEX
        for (int64_t k = 0; k < cols; k++)
            at[k * s->lane_where] = state[k].at;
#endif
    }
}

static const scanner SC(scanner) = {sizeof(SC_ITEM), SC_CUTS, SC(pieces), SC(total), SC(join), SC(lanes)};

#undef SC
#undef SC_JOIN
#undef SC_JOIN_
#undef SC_NAME
#undef SC_ITEM
#undef SC_STATE
#undef SC_LOAD
#undef SC_STORE

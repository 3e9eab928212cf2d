"""Attention tiled through shared memory: its weights are never in memory as a whole.

Forward, each group of lanes has a query and goes through the keys tile by tile; the softmax is
corrected as greater scores are met (Milakov and Gimelshein: "Online normalizer calculation for
softmax", 2018; Dao et al.: "FlashAttention", 2022). Backward makes the weights again from the
logarithms of their sums: once for each query, going through the keys, and once for each key, going
through the queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import tangrad
from tangrad.plugin.render import BITS, KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel, KernelDialect
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


class Plan(NamedTuple):
    """Lanes of a query, rows of a tile in shared memory, and the sizes of key and value."""

    group: int
    tile: int
    size: int
    value_size: int


# `row` is the row of a group: of queries forward, `other` those of the tile. All lanes of a block
# work on one batch, and rows past the end take part in barriers.
_BLOCK = """
    TG_SHARED x_r shared[TG_LANES];
    const int lane = TG_LANE % GROUP, member = TG_LANE / GROUP;
    const tk_int blocks = (OWN_ROWS + MEMBERS - 1) / MEMBERS;
    for (tk_int block = TG_BLOCK; block < g.batches * blocks; block += TG_BLOCKS) {
        const tk_int batch = block / blocks, top = (block - batch * blocks) * MEMBERS;
        const int active = top + member < OWN_ROWS;
        const tk_int row = active ? top + member : 0;
@BODY
    }"""

_FORWARD_SHARED = """    TG_SHARED x_r keys[TILE][SIZE], values[TILE][VALUE_SIZE];
    TG_SHARED x_r queries[MEMBERS][SIZE], scores[MEMBERS][TILE];
"""

_SCORE = """                    x_r score = 0;
                    for (int e = 0; e < SIZE; ++e) score = x_muladd(mine[e], theirs[e], score);
                    score = score * (x_r)g.scale;
"""

_FORWARD = """        for (int e = lane; e < SIZE; e += GROUP)
            queries[member][e] = x_load(q[QUERY(batch, row) + e]);
        x_r most = -(x_r)TG_INF, total = 0, kept[(VALUE_SIZE + GROUP - 1) / GROUP];
        for (int e = 0; e < (VALUE_SIZE + GROUP - 1) / GROUP; ++e) kept[e] = 0;
        const tk_int last = top + MEMBERS < g.queries ? top + MEMBERS : g.queries;
        const tk_int seen = g.causal && last < g.keys ? last : g.keys;
        for (tk_int start = 0; start < seen; start += TILE) {
            TG_BARRIER;
            for (int e = TG_LANE; e < TILE * SIZE; e += TG_LANES) {
                const tk_int j = start + e / SIZE;
                keys[e / SIZE][e % SIZE] = j < seen ? x_load(k[KEY(batch, j) + e % SIZE]) : 0;
            }
            for (int e = TG_LANE; e < TILE * VALUE_SIZE; e += TG_LANES) {
                const tk_int j = start + e / VALUE_SIZE;
                values[e / VALUE_SIZE][e % VALUE_SIZE] =
                    j < seen ? x_load(v[VALUE(batch, j) + e % VALUE_SIZE]) : 0;
            }
            TG_BARRIER;
            x_r highest = most;
            for (int t = lane; t < TILE; t += GROUP) {
                const tk_int j = start + t;
                x_r found = -(x_r)TG_INF;
                if (active && j < seen && (!g.causal || j <= row)) {
                    const TG_SHARED_POINTER x_r *mine = queries[member], *theirs = keys[t];
@SCORE                    HIDE(score, batch, row, j)
                    found = score;
                }
                scores[member][t] = found;
                if (found > highest || found != found) highest = found;
            }
            highest = tk_max(highest, shared);
            /* Where all is hidden yet, nothing is added. */
            const x_r base = highest == -(x_r)TG_INF ? 0 : highest;
            const x_r correction = x_exp(most - base);
            x_r part = 0;
            for (int t = lane; t < TILE; t += GROUP) {
                const x_r weight = x_exp(scores[member][t] - base);
                scores[member][t] = weight;
                part += weight;
            }
            total = total * correction + tk_sum(part, shared);
            most = highest;
            TG_BARRIER;
            for (int e = lane, n = 0; e < VALUE_SIZE; e += GROUP, ++n) {
                x_r sum = kept[n] * correction;
                for (int t = 0; t < TILE; ++t)
                    sum = x_muladd(scores[member][t], values[t][e], sum);
                kept[n] = sum;
            }
        }
        if (active) {
            const tk_int at = batch * g.queries + row;
            for (int e = lane, n = 0; e < VALUE_SIZE; e += GROUP, ++n)
                y[at * VALUE_SIZE + e] = x_store(total == 0 ? 0 : kept[n] / total);
            if (lane == 0)
                sums[at] = total == 0 ? -(x_r)TG_INF : x_log(total) + most;
        }
"""

# For each query: its own row is (query, gradient), those of the tile are (key, value).
_BY_QUERY_SHARED = """    TG_SHARED x_r keys[TILE][SIZE], values[TILE][VALUE_SIZE];
    TG_SHARED x_r queries[MEMBERS][SIZE], grads[MEMBERS][VALUE_SIZE], slopes[MEMBERS][TILE];
"""

_BY_QUERY = """        const tk_int at = batch * g.queries + row;
        const x_r logarithm = sums[at];
        x_r owed = 0, kept[(SIZE + GROUP - 1) / GROUP];
        for (int e = 0; e < (SIZE + GROUP - 1) / GROUP; ++e) kept[e] = 0;
        for (int e = lane; e < SIZE; e += GROUP)
            queries[member][e] = x_load(q[QUERY(batch, row) + e]);
        for (int e = lane; e < VALUE_SIZE; e += GROUP) {
            grads[member][e] = x_load(d[at * VALUE_SIZE + e]);
            owed += grads[member][e] * x_load(y[at * VALUE_SIZE + e]);
        }
        owed = tk_sum(owed, shared);
        const tk_int last = top + MEMBERS < g.queries ? top + MEMBERS : g.queries;
        const tk_int seen = g.causal && last < g.keys ? last : g.keys;
        for (tk_int start = 0; start < seen; start += TILE) {
            TG_BARRIER;
            for (int e = TG_LANE; e < TILE * SIZE; e += TG_LANES) {
                const tk_int j = start + e / SIZE;
                keys[e / SIZE][e % SIZE] = j < seen ? x_load(k[KEY(batch, j) + e % SIZE]) : 0;
            }
            for (int e = TG_LANE; e < TILE * VALUE_SIZE; e += TG_LANES) {
                const tk_int j = start + e / VALUE_SIZE;
                values[e / VALUE_SIZE][e % VALUE_SIZE] =
                    j < seen ? x_load(v[VALUE(batch, j) + e % VALUE_SIZE]) : 0;
            }
            TG_BARRIER;
            for (int t = lane; t < TILE; t += GROUP) {
                const tk_int j = start + t;
                x_r slope = 0;
                if (active && j < seen && (!g.causal || j <= row)) {
                    const TG_SHARED_POINTER x_r *mine = queries[member], *theirs = keys[t];
@SCORE                    HIDE(score, batch, row, j)
                    const x_r weight = score == -(x_r)TG_INF ? 0 : x_exp(score - logarithm);
                    for (int e = 0; e < VALUE_SIZE; ++e)
                        slope = x_muladd(grads[member][e], values[t][e], slope);
                    slope = weight * (slope - owed) * (x_r)g.scale;
                }
                slopes[member][t] = slope;
            }
            TG_BARRIER;
            for (int e = lane, n = 0; e < SIZE; e += GROUP, ++n)
                for (int t = 0; t < TILE; ++t)
                    kept[n] = x_muladd(slopes[member][t], keys[t][e], kept[n]);
        }
        if (active) {
            for (int e = lane, n = 0; e < SIZE; e += GROUP, ++n)
                by_q[at * SIZE + e] = x_store(kept[n]);
            if (lane == 0) owes[at] = owed;
        }
        TG_BARRIER;
"""

# For each key: its own row is (key, value), those of the tile are (query, gradient).
_BY_KEY_SHARED = """    TG_SHARED x_r queries[TILE][SIZE], grads[TILE][VALUE_SIZE];
    TG_SHARED x_r keys[MEMBERS][SIZE], values[MEMBERS][VALUE_SIZE];
    TG_SHARED x_r weights[MEMBERS][TILE], slopes[MEMBERS][TILE];
"""

_BY_KEY = """        x_r of_key[(SIZE + GROUP - 1) / GROUP];
        x_r of_value[(VALUE_SIZE + GROUP - 1) / GROUP];
        for (int e = 0; e < (SIZE + GROUP - 1) / GROUP; ++e) of_key[e] = 0;
        for (int e = 0; e < (VALUE_SIZE + GROUP - 1) / GROUP; ++e) of_value[e] = 0;
        for (int e = lane; e < SIZE; e += GROUP) keys[member][e] = x_load(k[KEY(batch, row) + e]);
        for (int e = lane; e < VALUE_SIZE; e += GROUP)
            values[member][e] = x_load(v[VALUE(batch, row) + e]);
        for (tk_int start = g.causal ? top / TILE * TILE : 0; start < g.queries; start += TILE) {
            TG_BARRIER;
            for (int e = TG_LANE; e < TILE * SIZE; e += TG_LANES) {
                const tk_int i = start + e / SIZE;
                queries[e / SIZE][e % SIZE] =
                    i < g.queries ? x_load(q[QUERY(batch, i) + e % SIZE]) : 0;
            }
            for (int e = TG_LANE; e < TILE * VALUE_SIZE; e += TG_LANES) {
                const tk_int i = start + e / VALUE_SIZE;
                grads[e / VALUE_SIZE][e % VALUE_SIZE] = i < g.queries
                    ? x_load(d[(batch * g.queries + i) * VALUE_SIZE + e % VALUE_SIZE]) : 0;
            }
            TG_BARRIER;
            for (int t = lane; t < TILE; t += GROUP) {
                const tk_int i = start + t;
                x_r weight = 0, slope = 0;
                if (active && i < g.queries && (!g.causal || row <= i)) {
                    const TG_SHARED_POINTER x_r *mine = queries[t], *theirs = keys[member];
@SCORE                    HIDE(score, batch, i, row)
                    const tk_int at = batch * g.queries + i;
                    weight = score == -(x_r)TG_INF ? 0 : x_exp(score - sums[at]);
                    for (int e = 0; e < VALUE_SIZE; ++e)
                        slope = x_muladd(grads[t][e], values[member][e], slope);
                    slope = weight * (slope - owes[at]) * (x_r)g.scale;
                }
                weights[member][t] = weight;
                slopes[member][t] = slope;
            }
            TG_BARRIER;
            for (int e = lane, n = 0; e < SIZE; e += GROUP, ++n)
                for (int t = 0; t < TILE; ++t)
                    of_key[n] = x_muladd(slopes[member][t], queries[t][e], of_key[n]);
            for (int e = lane, n = 0; e < VALUE_SIZE; e += GROUP, ++n)
                for (int t = 0; t < TILE; ++t)
                    of_value[n] = x_muladd(weights[member][t], grads[t][e], of_value[n]);
        }
        if (active) {
            const tk_int at = batch * g.keys + row;
            for (int e = lane, n = 0; e < SIZE; e += GROUP, ++n)
                by_k[at * SIZE + e] = x_store(of_key[n]);
            for (int e = lane, n = 0; e < VALUE_SIZE; e += GROUP, ++n)
                by_v[at * VALUE_SIZE + e] = x_store(of_value[n]);
        }
        TG_BARRIER;
"""

_MACROS = """
#define BATCH(of, batch) ((batch) / g.heads * g.of[0] + (batch) % g.heads * g.of[1])
#define QUERY(batch, i) (BATCH(of_q, batch) + (i) * g.of_q[2])
#define KEY(batch, j) (BATCH(of_k, batch) + (j) * g.of_k[2])
#define VALUE(batch, j) (BATCH(of_v, batch) + (j) * g.of_v[2])
#define MASK(batch, i, j) mask[BATCH(of_mask, batch) + (i) * g.of_mask[2] + (j) * g.of_mask[3]]
"""

_HIDES = {
    "none": "",
    "bool": "if (!MASK(batch, i, j)) score = -(x_r)TG_INF;",
    "number": "score += (x_r)m_load(MASK(batch, i, j));",
}

_FIELDS = (
    *(("int64", name, 0) for name in ("batches", "heads", "queries", "keys", "causal")),
    *(("int64", name, 3) for name in ("of_q", "of_k", "of_v")),
    ("int64", "of_mask", 4),
    ("float64", "scale", 0),
)

# A query's elements past this size no longer fit beside a tile: the op is then decomposed.
_LARGEST = 512


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of `_attention` or `_attention_backward`."""
    if KINDS[dtype] != "f":
        return None
    from tangrad.plugin import decomposition

    decomposed = decomposition(op)
    run = _forward if op.name == "_attention" else _backward
    first = 0 if op.name == "_attention" else 1

    def kernel(outs: Any, args: Any) -> None:
        query, key, value = args[first : first + 3]
        sizes = (query.shape[-1], value.shape[-1])
        usual = 0 not in (*query.shape, *key.shape, *value.shape)
        if not usual or max(sizes) > _LARGEST:
            decomposed(outs, args)
            return
        run(driver, dtype, plan_for(driver.dialect, dtype, *sizes), outs, args)

    return kernel


def plan_for(dialect: KernelDialect, dtype: str, size: int, value_size: int) -> Plan:
    """Return how a block's lanes and its shared memory are shared out."""
    group = min(dialect.lanes, 16)
    members = dialect.lanes // group
    item = BITS[compute_type(dtype)] // 8
    places = dialect.shared_bytes // item - dialect.lanes
    while group < dialect.lanes and members * (size + value_size) * 2 > places:
        group *= 2
        members = dialect.lanes // group
    tile = 32
    room = places - members * (size + value_size)
    while tile > 1 and tile * (size + value_size + 2 * members) > room:
        tile //= 2
    return Plan(group, tile, size, value_size)


def _batched(x: Any) -> Any:
    """Return (batch, heads, rows, size), with the last dimension contiguous."""
    if x.ndim > 4:
        x = x.reshape((-1, *x.shape[-3:]))
    while x.ndim < 4:
        x = x.unsqueeze(0)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _mask_kind(mask: Any) -> str:
    if mask is None:
        return "none"
    return "bool" if mask.dtype is tangrad.bool else "number"


def _numbers(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> list[Any]:
    given: list[Any] = [q.shape[0] * q.shape[1], q.shape[1], q.shape[2], k.shape[2], int(causal)]
    for tensor in (q, k, v):
        given += tensor.stride()[:3]
    given += [0] * 4 if mask is None else mask.stride()
    return [*given, float(scale)]


def _unit(driver: Compiler, dtype: str, plan: Plan, mask: Any, backward: bool) -> Unit:
    kind = _mask_kind(mask)
    masked = dtype if mask is None else mask.dtype.name
    key = ("attention", dtype, plan, kind, masked, backward)
    return driver.unit(key, lambda: _made(driver, dtype, plan, kind, masked, backward))


def _made(driver: Compiler, dtype: str, plan: Plan, kind: str, masked: str, backward: bool) -> Unit:
    dialect, kept = driver.dialect, compute_type(dtype)
    frame = text.names(dialect, x=dtype, m=masked) + text.fold_functions(dialect, plan.group, kept)
    values = {
        "GROUP": plan.group,
        "MEMBERS": dialect.lanes // plan.group,
        "TILE": plan.tile,
        "SIZE": plan.size,
        "VALUE_SIZE": plan.value_size,
    }
    frame += "".join(f"#define {name} {value}\n" for name, value in values.items()) + _MACROS
    frame += f"#define HIDE(score, batch, i, j) {_HIDES[kind]}\n"
    read = (*((dtype, n) for n in "qkv"), (masked, "mask"))
    if not backward:
        buffers = ((dtype, "y"), (kept, "sums"), *read)
        kernels = [_kernel("forward", buffers, _FORWARD_SHARED, _FORWARD, "g.queries")]
        return Unit(driver, kernels, frame)
    read = (*read, (dtype, "d"), (kept, "sums"), (kept, "owes"))
    by_query = ((dtype, "by_q"), *read, (dtype, "y"))
    by_key = ((dtype, "by_k"), (dtype, "by_v"), *read)
    kernels = [
        _kernel("by_query", by_query, _BY_QUERY_SHARED, _BY_QUERY, "g.queries"),
        _kernel("by_key", by_key, _BY_KEY_SHARED, _BY_KEY, "g.keys"),
    ]
    return Unit(driver, kernels, frame)


def _kernel(name: str, buffers: Any, shared: str, body: str, rows: str) -> Kernel:
    text_ = shared + _BLOCK.replace("@BODY", body.replace("@SCORE", _SCORE))
    return Kernel(name, buffers, _FIELDS, text_.replace("OWN_ROWS", rows))


def _forward(driver: Compiler, dtype: str, plan: Plan, outs: Any, args: Any) -> None:
    query, key, value, mask, causal, scale = args
    q, k, v = (_batched(x) for x in (query, key, value))
    mask = None if mask is None else _batched(mask)
    unit = _unit(driver, dtype, plan, mask, False)
    blocks = _blocks(driver, plan, q)
    with text.Result(*outs) as (y, sums):
        given = _numbers(q, k, v, mask, causal, scale)
        unit.launch("forward", blocks, [y, sums, q, k, v, mask], given, query.device.index)


def _backward(driver: Compiler, dtype: str, plan: Plan, outs: Any, args: Any) -> None:
    grad, query, key, value, mask, output, sums, causal, scale = args
    q, k, v = (_batched(x) for x in (query, key, value))
    mask = None if mask is None else _batched(mask)
    grad, output, sums = text.contiguous(grad, output, sums)
    unit, index = _unit(driver, dtype, plan, mask, True), query.device.index
    owes = tangrad.empty_like(sums)
    given = _numbers(q, k, v, mask, causal, scale)
    with text.Result(*outs) as (by_q, by_k, by_v):
        read = [q, k, v, mask, grad, sums, owes]
        unit.launch("by_query", _blocks(driver, plan, q), [by_q, *read, output], given, index)
        unit.launch("by_key", _blocks(driver, plan, k), [by_k, by_v, *read], given, index)


def _blocks(driver: Compiler, plan: Plan, rows: Any) -> int:
    members = driver.dialect.lanes // plan.group
    count = rows.shape[0] * rows.shape[1] * -(-rows.shape[2] // members)
    return max(1, min(count, driver.dialect.max_blocks))

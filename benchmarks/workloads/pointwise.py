"""Pointwise ops, reductions, sorting, random numbers: what memory and vector units decide.

A result of 16M floats is allocated anew in every run and dropped, as in a program.
"""

from __future__ import annotations

from typing import Any

from workloads.workload import Cost, Prepare, Workload, inputs, integers

LARGE, MEDIUM, SMALL = 1 << 24, 1 << 20, 1 << 16
SIZES = {"16M": LARGE, "1M": MEDIUM, "64k": SMALL}
ROWS = (4096, 4096)
MEGA = (1024, 1024)
CLASSES = (16384, 1024)
FLOAT, LONG, BFLOAT16 = 4, 8, 2

ON_AMD: dict[str, tuple[float, float, float]] = {
    "add": (0.25, 1.0, 0.8),
    "mul": (0.25, 1.0, 0.8),
    "a*b+c": (0.25, 1.0, 0.9),
    "square": (0.25, 1.0, 0.8),
    "exp": (0.25, 0.35, 0.35),
    "log": (0.25, 0.35, 0.35),
    "tanh": (0.15, 0.1, 0.1),
    "gelu": (0.3, 0.7, 0.8),
    "silu": (0.3, 0.7, 0.8),
    "sigmoid": (0.3, 0.7, 0.8),
}
ON_INTEL = dict.fromkeys(("add", "mul", "a*b+c", "square", "exp", "log", "tanh"), (0.25, 0.9, 0.9))
STATEMENTS = {
    # name: statement, NumPy's statement, operands, whether they are positive
    "add": ("a + b", "a + b", "ab", False),
    "mul": ("a * b", "a * b", "ab", False),
    "a*b+c": ("a * b + c", "a * b + c", "abc", False),
    "exp": ("fw.exp(a)", "fw.exp(a)", "a", False),
    "log": ("fw.log(a)", "fw.log(a)", "a", True),
    "square": ("a ** 2", "a ** 2", "a", False),
    "tanh": ("fw.tanh(a)", "fw.tanh(a)", "a", False),
    "gelu": ("fw.nn.functional.gelu(a)", "", "a", False),
    "silu": ("fw.nn.functional.silu(a)", "a / (1 + fw.exp(-a))", "a", False),
    "sigmoid": ("fw.sigmoid(a)", "1 / (1 + fw.exp(-a))", "a", False),
}


def by_size() -> list[Workload]:
    """Return the ops that are measured at three sizes."""
    made = []
    for op, (statement, numpy_statement, operands, positive) in STATEMENTS.items():
        intels = ON_INTEL.get(op, ON_AMD[op])
        for (label, size), amd, intel in zip(SIZES.items(), ON_AMD[op], intels, strict=True):
            prepare = inputs(positive=positive, **dict.fromkeys(operands, (size,)))
            cost = Cost((len(operands) + 1) * FLOAT * size)
            made.append(
                Workload(f"{op} {label}", statement, prepare, amd, intel, cost,
                         numpy_statement, xla=True)
            )  # fmt: skip
    return made


def choosing() -> list[Workload]:
    """Return `where` and comparison at three sizes."""
    made = []
    where = {"16M": (0.15, None), "1M": (0.15, 0.1), "64k": (0.15, None)}
    compare = {"16M": (0.5, None), "1M": (0.5, 0.4), "64k": (0.5, None)}
    for label, size in SIZES.items():
        made.append(
            Workload(f"where {label}", "fw.where(m, a, b)", masked(size), *where[label],
                     Cost((3 * FLOAT + 1) * size), "fw.where(m, a, b)", xla=True)
        )  # fmt: skip
    for label, size in SIZES.items():
        made.append(
            Workload(f"compare {label}", "a > b", inputs(a=(size,), b=(size,)), *compare[label],
                     Cost((2 * FLOAT + 1) * size), "a > b", xla=True)
        )  # fmt: skip
    return made


def masked(size: int) -> Prepare:
    def prepare(fw: Any) -> dict[str, Any]:
        made = inputs(a=(size,), b=(size,))(fw)
        return {**made, "m": made["a"] > 0}

    return prepare


def chain(fw: Any) -> Any:
    """Return eight ops as they stand in a transformer: bias, gelu, dropout, residual."""
    functional = fw.nn.functional

    def run(x: Any, bias: Any, residual: Any) -> Any:
        hidden = functional.gelu(x + bias)
        hidden = functional.dropout(hidden, 0.1, training=True)
        mixed = hidden * 0.5 + residual
        return fw.relu(mixed - 0.1) * 2.0

    return run


def chained(rows: int, fused: bool = False) -> Prepare:
    """Prepare the chain; fused, our side is compiled while PyTorch's stays eager."""

    def prepare(fw: Any) -> dict[str, Any]:
        made = inputs(x=(rows, 1024), bias=(1024,), residual=(rows, 1024))(fw)
        run = chain(fw)
        if fused and fw.__name__ != "torch":
            run = fw.jit.trace(run, tuple(made.values()))
        return {"run": run, **made}

    return prepare


def indexed(fw: Any) -> dict[str, Any]:
    made = inputs(x=(256, 256), table=(1000, 64))(fw)
    return {
        **made,
        "columns": fw.tensor(integers(256, (256, 256))),
        "tokens": fw.tensor(integers(1000, (1024,))),
    }


def labelled(fw: Any) -> dict[str, Any]:
    return {**inputs(x=CLASSES)(fw), "labels": fw.tensor(integers(CLASSES[1], CLASSES[:1]))}


def whole(fw: Any) -> dict[str, Any]:
    return {name: fw.tensor(integers(1000, (MEDIUM,))) for name in "ab"}


def reductions() -> list[Workload]:
    """Return reductions and normalisations of 16M floats."""
    rows = inputs(x=ROWS)
    read, copied = Cost(FLOAT * LARGE), Cost(2 * FLOAT * LARGE)
    both = Cost(4 * FLOAT * LARGE)
    leaf = inputs(leaves="x", x=ROWS, g=ROWS)
    functional = "fw.nn.functional"
    return [
        Workload("sum 16M", "x.sum()", rows, 1.0, cost=read, numpy="x.sum()", xla=True),
        Workload("mean last 16M", "x.mean(1)", rows, 0.7, cost=read, numpy="x.mean(1)", xla=True),
        Workload("sum first 16M", "x.sum(0)", rows, 0.4, cost=read, numpy="x.sum(0)", xla=True),
        Workload("max 16M", "x.max()", rows, 0.7, cost=read, numpy="x.max()", xla=True),
        Workload("argmax last 16M", "x.argmax(1)", rows, 0.2, cost=read, numpy="x.argmax(1)",
                 xla=True),
        Workload("argmax 1M", "x.argmax()", inputs(x=(MEDIUM,)), 0.2, 0.15,
                 Cost(FLOAT * MEDIUM), "x.argmax()", xla=True),
        Workload("cumsum 16M", "x.cumsum(1)", rows, 0.3, cost=copied, numpy="x.cumsum(1)"),
        Workload("softmax 16M", "fw.softmax(x, 1)", rows, 0.25, cost=copied),
        Workload("log_softmax + nll 16M",
                 f"{functional}.nll_loss({functional}.log_softmax(x, 1), labels)", labelled, 0.25,
                 cost=copied),
        Workload("layer_norm 16M", f"{functional}.layer_norm(x, (4096,))", rows, 0.25,
                 cost=copied),
        Workload("gelu 16M fwd + bwd", f"x.grad = None; {functional}.gelu(x).backward(g)", leaf,
                 0.3, cost=both),
        Workload("softmax 16M fwd + bwd", "x.grad = None; fw.softmax(x, 1).backward(g)", leaf,
                 0.3, cost=both),
    ]  # fmt: skip


def movement() -> list[Workload]:
    """Return copies, look-ups and sorting."""
    square, mega = inputs(x=(256, 256)), inputs(x=MEGA)
    return [
        Workload("transpose copy 64k", "x.t().contiguous()", square, 0.4,
                 cost=Cost(2 * FLOAT * SMALL), numpy="x.T.copy()"),
        Workload("transpose copy 1M", "x.t().contiguous()", mega, 0.4, 0.3,
                 Cost(2 * FLOAT * MEDIUM), "x.T.copy()"),
        Workload("gather 64k", "fw.gather(x, 1, columns)", indexed, 0.8,
                 cost=Cost((2 * FLOAT + LONG) * SMALL),
                 numpy="fw.take_along_axis(x, columns, 1)", xla=True),
        Workload("embedding 1024 of 64", "fw.nn.functional.embedding(tokens, table)", indexed,
                 0.9, cost=Cost(2 * FLOAT * SMALL), numpy="table[tokens]", xla=True),
        Workload("sort last 1M", "fw.sort(x, -1)", mega, 0.3,
                 cost=Cost((2 * FLOAT + LONG) * MEDIUM), numpy="fw.sort(x, -1)"),
        Workload("topk 8 1M", "fw.topk(x, 8)", mega, 0.4, cost=Cost(FLOAT * MEDIUM)),
    ]  # fmt: skip


def others() -> list[Workload]:
    """Return random numbers and the other dtypes."""
    dropout = "fw.nn.functional.dropout(x, 0.5, training=True)"
    halves = inputs(dtype="bfloat16", a=(MEDIUM,), b=(MEDIUM,))
    return [
        Workload("randn 1M", "fw.randn(1 << 20)", lambda fw: {}, 0.15,
                 cost=Cost(FLOAT * MEDIUM),
                 numpy="fw.random.default_rng(0).standard_normal(1 << 20, 'float32')",
                 checked=False),
        Workload("dropout 1M", dropout, inputs(x=(MEDIUM,)), 0.1,
                 cost=Cost(2 * FLOAT * MEDIUM), checked=False),
        Workload("bf16 add 1M", "a + b", halves, 0.8, cost=Cost(3 * BFLOAT16 * MEDIUM)),
        Workload("bf16 cast 1M", "x.to(fw.bfloat16)", inputs(x=(MEDIUM,)), 0.8,
                 cost=Cost((FLOAT + BFLOAT16) * MEDIUM)),
        Workload("int64 add 1M", "a + b", whole, 1.0, cost=Cost(3 * LONG * MEDIUM),
                 numpy="a + b"),
    ]  # fmt: skip


def chains() -> list[Workload]:
    """Return the chain of eight ops, eager and fused."""
    run = "run(x, bias, residual)"
    return [
        Workload("8-op chain 16M", run, chained(16384), 0.3, cost=Cost(3 * FLOAT * LARGE),
                 checked=False),
        Workload("8-op chain 64k", run, chained(64), 0.3, cost=Cost(3 * FLOAT * SMALL),
                 checked=False),
        Workload("8-op chain 16M, fused", run, chained(16384, fused=True), 0.1,
                 cost=Cost(3 * FLOAT * LARGE), checked=False),
        Workload("8-op chain 64k, fused", run, chained(64, fused=True), 0.1,
                 cost=Cost(3 * FLOAT * SMALL), checked=False),
    ]  # fmt: skip


WORKLOADS = [*by_size(), *choosing(), *chains(), *reductions(), *movement(), *others()]

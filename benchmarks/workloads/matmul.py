"""Matrix products, attention and linear algebra."""

from __future__ import annotations

from typing import Any

from workloads.workload import Cost, Prepare, Workload, inputs

FLOAT = 4
SQUARES = {  # size: goals on AMD and Intel
    64: (0.45, 1.0),
    128: (0.5, 1.0),
    256: (0.5, 1.0),
    512: (0.47, 1.0),
    1024: (0.46, 1.0),
    2048: (0.46, 1.0),
}
LINEARS = {  # rows, from, to: goals on AMD and Intel
    (512, 1024, 1024): (0.47, 1.0),
    (128, 768, 3072): (0.48, 1.0),
    (8, 1024, 4096): (0.6, 0.7),
    (1, 1024, 1024): (0.45, 0.6),
}
FACTORISATIONS = {  # name: statement, NumPy's, multiples of n³ flops, whether signs are free
    "solve": ("fw.linalg.solve(p, b)", "fw.linalg.solve(p, b)", 2 / 3, False),
    "cholesky": ("fw.linalg.cholesky(p)", "fw.linalg.cholesky(p)", 1 / 3, False),
    "inv": ("fw.linalg.inv(p)", "fw.linalg.inv(p)", 2, False),
    "svd": ("fw.linalg.svd(b)", "fw.linalg.svd(b)", 20, True),
    "qr": ("fw.linalg.qr(b)", "fw.linalg.qr(b)", 8 / 3, True),
    "eigh": ("fw.linalg.eigh(p)", "fw.linalg.eigh(p)", 9, False),
}
HEADS = (8, 8, 256, 64)


def product(m: int, n: int, k: int, batch: int = 1, size: int = FLOAT) -> Cost:
    """Return the cost of batched products of m×k and k×n."""
    kind = {2: "bfloat16", 4: "float32", 8: "float64"}[size]
    return Cost(size * batch * (m * k + k * n + m * n), 2.0 * batch * m * n * k, kind)


def products() -> list[Workload]:
    """Return products of matrices."""
    made = []
    for n, goals in SQUARES.items():
        made.append(Workload(f"sgemm {n}", "a @ b", inputs(a=(n, n), b=(n, n)), *goals,
                             product(n, n, n), "a @ b", xla=True))  # fmt: skip
    for batch, n, amd in ((64, 128, 0.55), (512, 16, 0.6)):
        shape = (batch, n, n)
        made.append(Workload(f"batched {batch} of {n}³", "a @ b", inputs(a=shape, b=shape), amd,
                             1.0, product(n, n, n, batch), "a @ b", xla=True))  # fmt: skip
    made.append(Workload("tall-skinny 4096×64×64", "a @ b", inputs(a=(4096, 64), b=(64, 64)),
                         0.55, 1.0, product(4096, 64, 64), "a @ b", xla=True))  # fmt: skip
    for (rows, inside, outside), goals in LINEARS.items():
        prepare = inputs(x=(rows, inside), w=(outside, inside), b=(outside,))
        made.append(Workload(f"linear {rows}×{inside}×{outside}",
                             "fw.nn.functional.linear(x, w, b)", prepare, *goals,
                             product(rows, outside, inside), "x @ w.T + b", xla=True))  # fmt: skip
    return made


def other_products() -> list[Workload]:
    """Return products with vectors and in other dtypes."""
    n, mega = 2048, 1 << 20

    def halves(size: int) -> Prepare:
        return inputs(dtype="bfloat16", a=(size, size), b=(size, size))

    doubles = inputs(dtype="float64", a=(512, 512), b=(512, 512))
    return [
        Workload("mv 2048", "fw.mv(a, x)", inputs(a=(n, n), x=(n,)), 0.4, 0.5,
                 product(n, 1, n), "a @ x", xla=True),
        Workload("dot 1M", "fw.dot(x, y)", inputs(x=(mega,), y=(mega,)), 0.9, 0.4,
                 product(1, 1, mega), "x @ y", xla=True),
        Workload("dgemm 512", "a @ b", doubles, 0.5, 1.0, product(512, 512, 512, size=8),
                 "a @ b"),
        Workload("bf16 gemm 512", "a @ b", halves(512), 1.0, cost=product(512, 512, 512, size=2)),
        Workload("bf16 gemm 1024", "a @ b", halves(1024), 1.0, 0.95,
                 product(1024, 1024, 1024, size=2)),
    ]  # fmt: skip


def attention() -> list[Workload]:
    """Return causal attention; its products are counted for the half that is not masked."""
    batch, heads, length, depth = HEADS
    call = "fw.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)"
    shapes = {"q": HEADS, "k": HEADS, "v": HEADS}
    nbytes, flops = 4 * FLOAT * batch * heads * length * depth, batch * heads * length**2 * depth
    name = f"attention {batch}×{heads}×{length}×{depth} causal"

    def leaves(fw: Any) -> dict[str, Any]:
        made = inputs(leaves="q k v", q=HEADS, k=HEADS, v=HEADS, g=HEADS)(fw)
        ours = [made[key] for key in "qkv"]

        def run() -> None:
            for tensor in ours:
                tensor.grad = None
            attend = fw.nn.functional.scaled_dot_product_attention
            attend(*ours, is_causal=True).backward(made["g"])

        return {"run": run}

    return [
        Workload(name, call, inputs(**shapes), 0.45, 0.7, Cost(nbytes, 2.0 * flops)),
        Workload(f"{name}, fwd + bwd", "run()", leaves, 0.5, 0.7, Cost(2 * nbytes, 7.0 * flops)),
    ]


def symmetric(n: int) -> Prepare:
    """Prepare a positive definite matrix and a full one."""

    def prepare(fw: Any) -> dict[str, Any]:
        b = inputs(b=(n, n))(fw)["b"]
        return {"b": b, "p": b @ b.t() / n + fw.eye(n)}

    return prepare


def factorisations() -> list[Workload]:
    """Return what LAPACK does."""
    n = 256
    return [
        Workload(f"{name} {n}", statement, symmetric(n), 1.0,
                 cost=Cost(2 * FLOAT * n * n, multiple * n**3), numpy=numpy_statement,
                 checked=not free)
        for name, (statement, numpy_statement, multiple, free) in FACTORISATIONS.items()
    ]  # fmt: skip


WORKLOADS = [*products(), *other_products(), *attention(), *factorisations()]

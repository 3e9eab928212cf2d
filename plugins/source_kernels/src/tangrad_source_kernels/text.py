"""The texts that templates of kernels are made of: types, loops, folds among lanes."""

from __future__ import annotations

from typing import Any

from tangrad.plugin.render import KINDS, compute_type, suffix
from tangrad_source_kernels.dialect import KernelDialect

_MATHEMATICS = ("exp", "log", "sqrt", "fabs")


def names(dialect: KernelDialect, **dtypes: str) -> str:
    """Return macros for operands: of x, `x_t` as it is stored, `x_r` as it is computed.

    `x_load(v)` and `x_store(v)` convert between both; `x_mul`, `x_add` compute with elements;
    real operands have `x_exp(v)`, `x_log(v)`, `x_sqrt(v)`, `x_fabs(v)`, too.
    """
    lines = []
    for name, dtype in dtypes.items():
        compute = compute_type(dtype)
        lines += [
            f"#define {name}_t {dialect.type(dtype)}",
            f"#define {name}_r {dialect.type(compute)}",
            f"#define {name}_load(v) {dialect.load('(v)', dtype)}",
            f"#define {name}_store(v) {dialect.store('(v)', dtype)}",
            f"#define {name}_zero {dialect.literal(0, compute)}",
            f"#define {name}_muladd(a, b, c) {_muladd(dialect, compute)}",
        ]
        for operation in ("add", "mul"):
            lines.append(f"#define {name}_{operation}(a, b) {_binary(operation, compute)}")
        if KINDS[dtype] == "f":
            lines += [
                f"#define {name}_{f}(v) {dialect.library(f, compute)}(v)" for f in _MATHEMATICS
            ]
    return "\n".join(lines) + "\n"


def _binary(operation: str, compute: str) -> str:
    return f"tg_{operation}_{suffix(compute)}(a, b)"


def _muladd(dialect: KernelDialect, compute: str) -> str:
    if KINDS[compute] == "f" and dialect.fma:
        return f"{dialect.library('fma', compute)}(a, b, c)"
    if KINDS[compute] == "f":
        return "((a) * (b) + (c))"
    kind = suffix(compute)
    return f"tg_add_{kind}(tg_mul_{kind}(a, b), c)"


ELEMENTS = """    for (tk_int i = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; i < {count};
         i += (tk_int)TG_BLOCKS * TG_LANES) {{
{body}
    }}"""


def elements(body: str, count: str = "g.n") -> str:
    """Return a loop over `i`, the elements of all blocks and lanes."""
    return ELEMENTS.format(count=count, body=body)


def rows(group: int, body: str, *, count: str = "g.rows", length: str = "g.length") -> str:
    """Return a loop over `row`, a group of lanes each; `lane` counts in the group.

    `length` is that of the row, 0 for a group without one, whose `active` is false: what has
    barriers is reached by all.
    """
    return f"""    const int lane = TG_LANE % {group};
    for (tk_int first = (tk_int)TG_BLOCK * (TG_LANES / {group}); first < {count};
         first += (tk_int)TG_BLOCKS * (TG_LANES / {group})) {{
        const int active = first + TG_LANE / {group} < {count};
        const tk_int row = active ? first + TG_LANE / {group} : 0;
        const tk_int length = active ? {length} : 0;
{body}
    }}"""


def fold_functions(dialect: KernelDialect, group: int, dtype: str) -> str:
    """Return `tk_sum(v, shared)` and `tk_max(v, shared)` over a group of lanes, for all of them.

    `shared` has a place for each lane of the block. All lanes of a block call them together.
    """
    return fold_function(dialect, group, dtype, "tk_sum", "v + w") + fold_function(
        dialect, group, dtype, "tk_max", "w > v ? w : v"
    )


def fold_function(dialect: KernelDialect, group: int, dtype: str, name: str, combined: str) -> str:
    """Return the function of one fold, by what `v` and `w` are combined to."""
    kind = dialect.type(dtype)
    exchanged = dtype in dialect.shuffle and dialect.warp > 1
    least = dialect.warp if exchanged else 1
    by_lanes = ""
    if exchanged:
        by_lanes = f"""
    for (int half = {min(group, dialect.warp) // 2}; half > 0; half >>= 1) {{
        const {kind} w = TG_SHUFFLE_{dtype}(v, half);
        v = {combined};
    }}"""
    return f"""{dialect.function} {kind} {name}({kind} v, TG_SHARED_POINTER {kind} *shared) {{
    for (int half = {group // 2}; half >= {least}; half >>= 1) {{
        TG_BARRIER;
        shared[TG_LANE] = v;
        TG_BARRIER;
        {{ const {kind} w = shared[TG_LANE ^ half]; v = {combined}; }}
    }}{by_lanes}
    return v;
}}
"""


def shared_places(group: int, dtype: str, dialect: KernelDialect) -> str:
    """Return the declaration of `shared`, a place for each lane."""
    return f"    TG_SHARED {dialect.type(dtype)} shared[TG_LANES];\n"


def contiguous(*tensors: Any) -> list[Any]:
    """Return tensors whose elements lie in their order; None stays None."""
    return [None if t is None else t.contiguous() for t in tensors]


def count_of(shape: Any) -> int:
    """Multiply sizes."""
    count = 1
    for size in shape:
        count *= int(size)
    return count


class Result:
    """A contiguous place for a result, copied to where it belongs when all is done."""

    def __init__(self, *outs: Any) -> None:
        import tangrad

        self._outs = outs
        self.places = tuple(
            out
            if out.is_contiguous()
            else tangrad.empty(tuple(out.shape), dtype=out.dtype, device=out.device)
            for out in outs
        )

    def __enter__(self) -> Any:
        return self.places[0] if len(self.places) == 1 else self.places

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            for out, place in zip(self._outs, self.places, strict=True):
                if place is not out:
                    out.copy_(place)

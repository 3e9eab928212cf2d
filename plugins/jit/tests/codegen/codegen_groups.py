"""Groups for tests: made from names of ops, run compiled and op by op, compared bit by bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin.render import Fold, folds, pointwise_ops
from tangrad_jit.codegen import Const, Group, GroupInput, Number, Step, compile_group
from tangrad_jit.codegen.tiles import values_of


@cache
def ops() -> dict[str, Any]:
    """Return {key: what the op computes} of all pointwise ops, their derivatives and folds."""
    return {d.key: d for d in (*pointwise_ops(), *folds())}


def step(key: str, dtype: str, *args: int | Const, **params: Any) -> Step:
    return Step(ops()[key], dtype, args, params)


def full(*dtypes: str) -> tuple[GroupInput, ...]:
    return tuple(GroupInput(dtype, "full") for dtype in dtypes)


def sample(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Return a tensor of numbers of all sizes, some of them special."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return tangrad.tensor(rng.integers(0, 2, shape).astype(bool))
    if dtype.startswith(("int", "uint")):
        low = 0 if dtype[0] == "u" else -50
        return tangrad.tensor(rng.integers(low, 100, shape).astype(dtype))
    numbers = (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)).astype("float64")
    flat = numbers.reshape(-1)
    if flat.size > 8:
        places = rng.integers(0, flat.size, max(1, flat.size // 40))
        flat[places] = rng.choice(
            [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 200.0, -200.0], len(places)
        )
    return tangrad.tensor(numbers).to(getattr(tangrad, dtype))


def inputs_of(group: Group, rows: int, columns: int, seed: int = 0) -> list[Any]:
    shapes = {"full": (rows, columns), "row": (rows, 1), "column": (columns,), "scalar": ()}
    found: list[Any] = []
    for k, given in enumerate(group.inputs):
        if given.pattern == "number":
            found.append({"float64": 0.75, "int64": 3, "bool": True}[given.dtype])
        else:
            found.append(sample(given.dtype, shapes[given.pattern], seed + k))
    return found


def eager(group: Group, ins: list[Any]) -> list[Any]:
    """Run a group op by op."""
    values = list(ins)
    for one in group.steps:
        args = [a.value if isinstance(a, Const) else values[a] for a in one.args]
        params = {n: ins[v.input] if isinstance(v, Number) else v for n, v in one.params.items()}
        declared = one.described.op.definition.schema.params
        if isinstance(one.described, Fold):
            dim = next(
                -1 if p.type.startswith("dim?") or p.type == "dim" else (-1,)
                for p in declared
                if p.name == "dim"
            )
            made = one.described.op(args[0], dim=dim, **(params | {"keepdim": True}))
        else:
            named = dict(zip(one.described.inputs, args, strict=True)) | params
            named = {p.name: named[p.name] for p in declared if p.name in named}
            keywords = {
                p.name: named.pop(p.name) for p in declared if p.keyword_only and p.name in named
            }
            made = one.described.op(*named.values(), **keywords)
        values += list(made) if isinstance(made, (tuple, list)) else [made]
    return [values[o] for o in group.outputs]


def empty_outputs(group: Group, rows: int, columns: int) -> list[Any]:
    values = values_of(group)
    return [
        tangrad.empty((rows if values[o].row else 1, columns if values[o].column else 1),
        dtype=getattr(tangrad, values[o].dtype))
        for o in group.outputs
    ]  # fmt: skip


def bits(tensor: Any) -> np.ndarray:
    """Return the bits of a tensor, all NaN as one."""
    if tensor.dtype in (tangrad.bfloat16, tangrad.float16):
        tensor = tensor.to(tangrad.float32)
    array = np.ascontiguousarray(tensor.numpy())
    if array.dtype.kind == "c":
        array = array.view(f"f{array.itemsize // 2}")
    if array.dtype.kind != "f":
        return array
    raw = array.view(f"u{array.itemsize}").copy()
    raw[np.isnan(array)] = 0x7FC00000
    return raw


def compare(group: Group, rows: int, columns: int, level: str | None = None, seed: int = 0) -> None:
    """Assert that a group's results are those of its ops, to the bit."""
    ins = inputs_of(group, rows, columns, seed)
    wanted = eager(group, ins)
    outs = empty_outputs(group, rows, columns)
    compile_group(group, level).run(outs, ins, rows, columns)
    for k, (found, expected) in enumerate(zip(outs, wanted, strict=True)):
        a, b = bits(found), bits(expected)
        assert found.dtype == expected.dtype, (k, found.dtype, expected.dtype)
        different = np.flatnonzero(a.reshape(-1) != b.reshape(-1))
        assert different.size == 0, (
            f"result {k} of {rows} x {columns}: {different.size} differ, first at {different[0]}: "
            f"{found.reshape(-1)[int(different[0])]} for {expected.reshape(-1)[int(different[0])]}"
        )

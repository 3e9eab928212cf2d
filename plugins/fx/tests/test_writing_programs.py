"""What a program writes, it writes after every way to trace it and every pass over its graph."""

from __future__ import annotations

import copy
import io
import operator
import os
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from writing_programs import Program, arguments, behaviour, module

import tangrad
from tangrad import fx
from tangrad.export import Dim, export, load, save, unflatten
from tangrad.fx.experimental.const_fold import split_const_subgraphs
from tangrad.fx.experimental.proxy_tensor import make_fx
from tangrad.fx.passes.dialect.common.cse_pass import CSEPass
from tangrad.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from tangrad.fx.passes.operator_support import create_op_support
from tangrad.fx.passes.split_module import split_module

SEEDS = range(200 if os.environ.get("TANGRAD_TESTS") == "full" else 4)
ROWS = (4, 4)
SIZES = (4, 5, 3)


def without_dead_code(graph_module: Any) -> Any:
    """Return a module whose graph was rid of what nobody uses."""
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return graph_module


def split(graph_module: Any) -> Any:
    """Return a module in parts of three calls."""
    places = {n: i // 3 for i, n in enumerate(graph_module.graph.nodes)}
    return split_module(graph_module, graph_module, places.__getitem__)


def fused(graph_module: Any) -> Any:
    """Return a module in which what can run as one part does, without one op in three."""
    names = {n.name for i, n in enumerate(graph_module.graph.nodes) if i % 3}
    support = create_op_support(lambda modules, node: node.name in names)
    partitioner = CapabilityBasedPartitioner(
        graph_module, support, allows_single_node_partition=True
    )
    return partitioner.partition_and_fuse()


def turned(graph_module: Any) -> Any:
    """Return a module in which sums are written the other way round."""
    fx.replace_pattern(graph_module, lambda a, b: operator.add(a, b), lambda a, b: b + a)
    fx.replace_pattern(graph_module, lambda a, b: tangrad.add(a, b), lambda a, b: tangrad.add(b, a))
    return graph_module


PASSES: dict[str, Callable[[Any], Any]] = {
    "none": lambda g: g,
    "eliminate_dead_code": without_dead_code,
    "cse": lambda g: CSEPass()(g)[0],
    "cse and dead code": lambda g: without_dead_code(CSEPass()(g)[0]),
    "const_fold": split_const_subgraphs,
    "retrace": fx.symbolic_trace,
    "transformer": lambda g: fx.Transformer(g).transform(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda g: pickle.loads(pickle.dumps(g)),
    "split": split,
    "split and dead code": lambda g: without_dead_code(split(g)),
    "fused": fused,
    "fused and dead code": lambda g: without_dead_code(fused(g)),
    "replace_pattern": turned,
}


def read(program: Any) -> Any:
    """Return a program as it is read from its file."""
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "exported": lambda p: p,
    "decomposed": lambda p: p.run_decompositions(),
    "decomposed by no table": lambda p: p.run_decompositions({}),
    "read": read,
    "decomposed and read": lambda p: read(p.run_decompositions()),
    "read and decomposed": lambda p: read(p).run_decompositions(),
}


def random_program(seed: int, plain: bool = False) -> tuple[Any, Any]:
    """Return a program that runs, and a function that makes its module; others are passed over."""
    while True:
        program = Program(seed, plain)
        try:
            behaviour(tangrad, module(tangrad, program), SIZES)
        except (RuntimeError, IndexError):
            seed += 1_000_000
            continue
        return program, partial(module, tangrad, program)


def assert_same(program: Any, made: Callable[[], Any], found: Any, rows: Any, what: str) -> None:
    """Assert that a module and its traced form give, and write, the same."""
    expected = behaviour(tangrad, made(), rows)
    got = behaviour(tangrad, found, rows)
    assert repr(got) == repr(expected), f"{what}:\n{program.source}\n{found}"


def passes_of(program: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the passes; a program that draws numbers is not traced again, which draws once."""
    left_out = ("retrace", "pickle") if "T.rand" in program.source else ()
    return {name: change for name, change in PASSES.items() if name not in left_out}


def check_traced(seed: int) -> None:
    """Check a program traced by symbolic_trace, and by make_fx, through every pass."""
    program, made = random_program(seed, plain=True)
    for name, change in PASSES.items():
        assert_same(program, made, change(fx.symbolic_trace(made())), SIZES, f"symbolic, {name}")
    program, made = random_program(seed)
    for name, change in passes_of(program).items():
        original = made()
        traced = make_fx(original)(*arguments(tangrad, ROWS[0]))
        original.restore()
        assert_same(program, made, change(traced), ROWS, f"make_fx, {name}")


def check_exported(seed: int) -> None:
    """Check an exported program, at one size and at several, through every pass."""
    program, made = random_program(seed)
    given = arguments(tangrad, ROWS[0])
    rows = Dim("rows", min=2)
    for sizes, shapes in ((ROWS, None), (SIZES, ({0: rows}, None, {0: rows}))):
        for name, change in PROGRAMS.items():
            exported = change(export(made(), given, dynamic_shapes=shapes))
            assert_same(program, made, exported.module(), sizes, f"{name}, {sizes}")
        exported = export(made(), given, dynamic_shapes=shapes)
        assert_same(program, made, unflatten(exported), sizes, "unflatten")
    for lowered in (False, True):
        for name, change in passes_of(program).items():
            exported = export(made(), given)
            exported = exported.run_decompositions() if lowered else exported
            changed = change(exported.module(check_guards=False))
            assert_same(program, made, changed, ROWS, f"lowered {lowered}, {name}")
    for left, before in zip(given, arguments(tangrad, ROWS[0]), strict=True):
        assert tangrad.equal(left, before)


@pytest.mark.parametrize("seed", SEEDS)
def test_traced_programs_write_what_they_wrote(seed: int) -> None:
    check_traced(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_exported_programs_write_what_they_wrote(seed: int) -> None:
    check_exported(seed)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_those_of_pytorch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    program, made = random_program(seed)
    if "rand" not in program.source:  # which are other numbers
        theirs = behaviour(torch, module(torch, program), SIZES)
        assert repr(behaviour(tangrad, made(), SIZES)) == repr(theirs)

"""Random programs of views and writes in place: compiled in both forms, none silently different."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_jit.compiling.difference import same_bits
from tangrad_jit.graph import parse, text_of, verify
from tangrad_jit.run.interpreter import interpret
from tangrad_jit.run.plan import Plan

random_graphs = pytest.importorskip("random_graphs", reason="needs tests/random_programs.py")


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_is_what_it_was(seed, fullgraph):
    said = random_graphs.compared(seed, fullgraph)
    assert said in ("same", "refused", "error", "as it is"), said


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**31))
def test_the_graph_of_a_random_program_reads_back_and_runs_as_it_did(seed):
    program = random_graphs.random_programs.write(seed, tangrad)
    leaves, function = random_graphs.function_of(program.lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = tangrad.compile(function, options={"measure": False})
            compiled(*leaves())
            given_again = leaves()
        except Exception:  # what a program may raise is another test's business
            assume(False)
    assume(compiled.compiled.executables)
    graph = compiled.compiled.executables[0].recorded
    text = text_of(graph)
    read = verify(parse(text))
    assert text_of(read) == text
    for mine, other in zip(graph.inputs, read.inputs, strict=True):
        other.tensor = mine.tensor
    if any(entry.kind not in ("argument", "constant") for entry in graph.inputs):
        return
    ways = []
    for one in (graph, read):
        for run in (interpret, lambda g, inputs: Plan(g).run(inputs)):
            tangrad.manual_seed(1)
            given = [t.detach().clone() for t in given_again]
            inputs = iter(given)
            made = run(
                one, [next(inputs) if e.kind == "argument" else e.tensor for e in one.inputs]
            )
            ways.append([*made, *given])
    for found in ways[1:]:
        assert all(map(same_bits, found, ways[0]))

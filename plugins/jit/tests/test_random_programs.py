"""Random programs of views and writes in place: compiled in both forms, none silently different."""

from __future__ import annotations

import pytest

random_graphs = pytest.importorskip("random_graphs", reason="needs tests/random_programs.py")


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_is_what_it_was(seed, fullgraph):
    said = random_graphs.compared(seed, fullgraph)
    assert said in ("same", "refused", "error", "as it is"), said

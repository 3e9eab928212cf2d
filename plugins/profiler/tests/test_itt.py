"""profiler.itt says that Intel's tools see nothing."""

import pytest

import tangrad


def test_marks_for_tools_that_are_not_there_are_refused():
    itt = tangrad.profiler.itt
    assert not itt.is_available()
    for call in (lambda: itt.range_push("a"), itt.range_pop, lambda: itt.mark("a")):
        with pytest.raises(RuntimeError, match="ITT functions are not installed"):
            call()
    with pytest.raises(RuntimeError, match="record_function"), itt.range("a {}", 1):
        pass

"""Loaded models compute what the suite of the onnx package expects."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

onnx = pytest.importorskip("onnx")
suite: Any = pytest.importorskip("suite")

import tangrad  # noqa: E402

ONE_IN = 1 if suite.is_full() else 12
NEWEST = onnx.defs.onnx_opset_version() >= 28
CHOSEN = [case for case in suite.cases() if crc32(case.name.encode()) % ONE_IN == 0]
DEVICES = ("cpu", "reference") if suite.is_full() else ("cpu",)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CHOSEN, ids=[f"{case.kind}-{case.name}" for case in CHOSEN])
def test_a_loaded_model_computes_what_the_suite_expects(
    case: Any, device: str, request: pytest.FixtureRequest
) -> None:
    if reason := suite.miss(case.name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=case.name in suite.MISSES))
    model = case.model()
    module = tangrad.onnx.load(model).to(device)
    for inputs, expected in case.data(model):
        with tangrad.no_grad():
            results = module(*(suite.given(value, device) for value in inputs))
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == len(expected)
        for one, other in zip(expected, results, strict=True):
            suite.check(case.name, one, other, case.test.rtol, case.test.atol)


def test_the_suite_has_the_cases_that_are_meant() -> None:
    assert len(suite.cases()) >= 1900
    assert set(suite.MISSES) <= {case.name for case in suite.cases()} or not NEWEST

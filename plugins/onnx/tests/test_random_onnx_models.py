"""Random small models compute what the reference evaluator computes; 3,000 in the full form."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("onnx")
random_onnx_models: Any = pytest.importorskip("random_onnx_models")

COUNT = 3000 if os.environ.get("TANGRAD_TESTS") == "full" else 60


def test_random_onnx_models_compute_what_the_reference_evaluator_does() -> None:
    wrong = {seed: text for seed in range(COUNT) if (text := random_onnx_models.told(seed))}
    assert not wrong

"""Run an op's own samples on tangrad and on PyTorch, and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.ops import registry
from tangrad.ops.samples import ALL, Sample, Sampler, materialise

torch = pytest.importorskip("torch")

# Relative and absolute tolerance by the result's dtype.
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 3e-5}
FAMILIES = (
    "pointwise pointwise_order pointwise_bitwise pointwise_transcendental activation comparison"
    " complex_numbers reduction reduction_moments scan_sort loss_regression"
).split()


def definitions() -> Iterator[Any]:
    """Yield the definitions of the families, once each, that have samples."""
    for name, op in registry.load_all().items():
        definition = op.definition
        known = definition.module.rpartition(".")[2] in FAMILIES
        if known and name == definition.name and definition.samples is not None:
            yield definition


DEFINITIONS = {definition.name: definition for definition in definitions()}
DTYPES = ALL


def counterpart(definition: Any) -> Callable[..., Any]:
    """Return PyTorch's function of the same meaning."""
    if callable(definition.oracle):
        return lambda *args, **kwargs: definition.oracle(torch, *args, **kwargs)
    found = torch
    for part in (definition.oracle or definition.name).split("."):
        found = getattr(found, part)
    return found


def samples(definition: Any, dtype: str) -> list[Sample]:
    """Return the definition's samples of a dtype."""
    return definition.samples(Sampler(dtype))


def torch_arguments(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make a sample's arguments for PyTorch."""
    return materialise(sample, torch_tensor, lambda name: getattr(torch, name))


def arguments(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make a sample's arguments for tangrad."""
    return materialise(sample, own_tensor, lambda name: getattr(tangrad, name))


def torch_tensor(array: np.ndarray, dtype: str) -> Any:
    """Make PyTorch's tensor of an array."""
    return torch.from_numpy(np.array(array)).to(getattr(torch, dtype))


def own_tensor(array: np.ndarray, dtype: str) -> Any:
    """Make tangrad's tensor of an array."""
    return tangrad.from_numpy(np.array(array)).to(getattr(tangrad, dtype))


def as_torch(value: Any) -> Any:
    """Convert tangrad's tensors in a result to PyTorch's."""
    if isinstance(value, (tuple, list)):
        return tuple(as_torch(item) for item in value)
    if not isinstance(value, tangrad.Tensor):
        return value
    value = value.detach()
    if value.dtype == tangrad.bfloat16:
        return as_torch(value.to(tangrad.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(value.resolve_conj().numpy()))


def differentiable(value: Any) -> bool:
    """Tell whether a value is a tensor of a dtype that has gradients."""
    tensor = isinstance(value, (torch.Tensor, tangrad.Tensor))
    return tensor and (value.dtype.is_floating_point or value.dtype.is_complex)


def finite(values: Any) -> bool:
    """Tell whether all of PyTorch's tensors among arguments are finite."""
    return all(bool(torch.isfinite(v).all()) for v in values if differentiable(v))


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Compare results: dtype, shape, values; NaN equals NaN."""
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), what
        for k, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{what}, result {k}")
        return
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, what
        return
    expected = expected.detach()
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    tolerance = TOLERANCE.get(str(expected.dtype).rpartition(".")[2], 1e-9)
    same = torch.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not bool(same.all()):
        wrong = ~same
        pytest.fail(f"{what}: {actual[wrong][:4].tolist()}, PyTorch {expected[wrong][:4].tolist()}")


def refuses(definition: Any, dtype: str, error: Exception) -> bool:
    """Tell whether an op raised because its definition leaves a dtype out."""
    return isinstance(error, RuntimeError) and "not implemented for" in str(error)

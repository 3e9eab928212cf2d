"""Every op with a number beside its tensors, that number beyond what the dtype holds: as PyTorch.

What PyTorch refuses "without overflow" is refused; what it takes has its values. Comparisons and
divisions are right as numbers are instead (docs/deviations.md), which the core's tests state.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

import tangrad
from tangrad.plugin import Sample, Sampler, find_op, materialise
from tangrad_testing.cases import op_names
from tangrad_testing.closeness import agrees, as_array, dtype_name
from tangrad_testing.oracle import NoOracle, counterpart, tensors_in, torch_arguments

FULL = os.environ.get("TANGRAD_TESTS") == "full"
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32")
NUMBERS = (
    *(200, 300, -1, -300, 70000, 2**40, 2**63 - 1, -(2**63), 2**63, 2**64 - 1),
    *(1.5, 300.5, -1.5, 7e4, 3e9, 1e20, 1e39, math.inf, math.nan, 1j),
)
BESIDE = {"Operand", "Scalar", "Scalar?"}
# Compared and divided by as numbers, on purpose.
AS_NUMBERS = {"eq", "ne", "lt", "le", "gt", "ge", "floor_divide", "remainder", "fmod"}
# Ops whose numbers PyTorch takes otherwise, whatever they are; and what draws.
OTHERWISE = {
    "_bool_power": "PyTorch has one power for all dtypes",
    "_foreach_norm": "an order is no element",
    "_sequence": "writes modulo the range, for arange",
    **dict.fromkeys(("arange_step", "arange_end", "range"), "sizes follow from their numbers"),
    "huber_difference": "PyTorch's limit may be infinite beside each dtype",
    "addmm": "beside halves PyTorch's limit for factors is another in each of these",
    "addmv": "as addmm",
    "addbmm": "as addmm",
    "baddbmm": "as addmm",
    "fake_quantize_elements": "no op of PyTorch's",
    "nan_to_number": "no op of PyTorch's",
    "range_": "PyTorch's rounds each step",
    "sub_scaled": "PyTorch negates the factor modulo 2**64 before it looks at it",
}


def changed(definition: Any, sample: Sample) -> list[tuple[str, Any]]:
    """Return the places of a call where a number stands or may stand, with what makes the call."""
    places = []
    for k, param in enumerate(definition.schema.params):
        if param.type not in BESIDE:
            continue
        if k < len(sample.args) and not hasattr(sample.args[k], "array"):
            places.append((param.name, k))
        elif param.name in sample.kwargs or param.keyword_only:
            places.append((param.name, None))
    return places


def with_number(sample: Sample, name: str, place: int | None, number: Any) -> Sample:
    """Return the call with a number at a place."""
    if place is None:
        return Sample(sample.args, {**sample.kwargs, name: number})
    return Sample((*sample.args[:place], number, *sample.args[place + 1 :]), sample.kwargs)


def outcome(call: Any, args: Any, kwargs: Any) -> Any:
    """Return what a call gives, or its error."""
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error


def device_tensor(device: str) -> Any:
    """Return what makes tensors on a device."""
    return lambda array, dtype: tangrad.tensor(array, device=device).to(getattr(tangrad, dtype))


def fault(ours: Any, theirs: Any) -> str | None:
    """Return what is wrong with an outcome, beside PyTorch's; None where nothing is."""
    if isinstance(theirs, Exception):
        refused = "without overflow" in str(theirs)
        return f"PyTorch refuses it, we gave {ours}" if refused and tensors_in(ours) else None
    if isinstance(ours, Exception):
        return f"we refuse what PyTorch takes: {type(ours).__name__}: {ours}"
    for a, e in zip(tensors_in(ours), tensors_in(theirs), strict=True):
        if dtype_name(a) != dtype_name(e):
            return None  # another kind of number, of which PyTorch's half has none
        # Of numbers as large as these, sums and products cancel as they are rounded.
        good = agrees(as_array(a), as_array(e), dtype_name(a), 8.0)
        if not good.all() and not dtype_name(a).startswith(("complex", "float", "bfloat")):
            return f"{a.tolist()}, PyTorch gives {e.tolist()}"
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", [n for n in op_names() if n not in {*AS_NUMBERS, *OTHERWISE}])
def test_a_number_beyond_a_dtype_is_what_pytorch_makes_of_it(name, device):
    op = find_op(name)
    definition, faults = op.definition, []
    if not any(p.type in BESIDE for p in definition.schema.params):
        pytest.skip("no number stands beside its tensors")
    try:
        theirs = counterpart(definition)
    except NoOracle:
        pytest.skip("PyTorch has no such op")
    for dtype in DTYPES:
        for sample in list(definition.samples(Sampler(dtype)))[: 3 if FULL else 1]:
            for param, place in changed(definition, sample):
                for number in NUMBERS:
                    call = with_number(sample, param, place, number)
                    args, kwargs = materialise(
                        call, device_tensor(device), lambda n: getattr(tangrad, n)
                    )
                    found = fault(
                        outcome(op, args, kwargs), outcome(theirs, *torch_arguments(call))
                    )
                    if found:
                        faults.append(f"{dtype} {param}={number}: {found}")
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:12])

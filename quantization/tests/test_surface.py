"""The names that PyTorch has are here, under all their paths."""

import importlib

import pytest
import torch
from quantized_pairs import ours, theirs

import tangrad

GRAPH_MODE = {"Pattern", "get_combined_dict"}  # helpers of graph mode, which is not offered yet


@pytest.mark.parametrize("path", ["quantization", "ao.quantization"])
def test_every_name_of_pytorchs_module_exists(path):
    module = importlib.import_module(f"tangrad.{path}")
    their_module = importlib.import_module(f"torch.{path}")
    # PyTorch lists some names that it does not have.
    names = {name for name in their_module.__all__ if hasattr(their_module, name)} - GRAPH_MODE
    assert len(names) > 40
    assert sorted(name for name in names if not hasattr(module, name)) == []


PATHS = [
    "ao.nn.intrinsic",
    "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.quantized",
    "ao.nn.qat",
    "ao.nn.qat.dynamic",
    "ao.nn.quantized",
    "ao.nn.quantized.dynamic",
]
ABSENT = {"MultiheadAttention", "LSTM"}  # of nn.quantized: they come with nn.quantizable


@pytest.mark.parametrize("path", PATHS)
def test_every_module_of_pytorch_exists(path):
    module = importlib.import_module(f"tangrad.{path}")
    names = set(importlib.import_module(f"torch.{path}.modules").__all__)
    missing = {name for name in names if not hasattr(module, name)}
    assert missing - (ABSENT if path == "ao.nn.quantized" else set()) == set()


def test_older_paths_show_the_same_modules():
    assert tangrad.nn.quantized is tangrad.ao.nn.quantized
    assert tangrad.nn.qat is tangrad.ao.nn.qat
    assert tangrad.nn.intrinsic is tangrad.ao.nn.intrinsic
    assert tangrad.quantization.prepare is tangrad.ao.quantization.prepare


def test_mappings_have_pytorchs_entries():
    for name in (
        "get_default_static_quant_module_mappings",
        "get_default_dynamic_quant_module_mappings",
        "get_default_qat_module_mappings",
    ):
        expected = {kind.__name__: made.__name__ for kind, made in getattr(theirs, name)().items()}
        found = {kind.__name__: made.__name__ for kind, made in getattr(ours, name)().items()}
        assert found == expected


def test_default_configurations_make_the_same_observers():
    assert torch.quint8 is not None
    for backend in ("x86", "fbgemm", "qnnpack", "onednn"):
        for maker in ("get_default_qconfig", "get_default_qat_qconfig"):
            sides = [getattr(side, maker)(backend) for side in (theirs, ours)]
            for part in ("activation", "weight"):
                a, b = (getattr(side, part) for side in sides)
                assert getattr(a, "p", a).func.__name__ == getattr(b, "p", b).func.__name__

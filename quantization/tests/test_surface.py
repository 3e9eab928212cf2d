"""The names that PyTorch has are here, under all their paths."""

import importlib
import inspect
import subprocess
import sys
from collections import Counter

import pytest
import torch
import torch.ao.quantization.quantize_fx
from quantized_pairs import ours, quiet, theirs

import tangrad
import tangrad.ao.quantization.quantize_fx


@pytest.mark.parametrize("path", ["quantization", "ao.quantization"])
def test_every_name_of_pytorchs_module_exists(path):
    module = importlib.import_module(f"tangrad.{path}")
    their_module = importlib.import_module(f"torch.{path}")
    # PyTorch lists some names that it does not have.
    names = {name for name in their_module.__all__ if hasattr(their_module, name)}
    assert len(names) > 40
    assert sorted(name for name in names if not hasattr(module, name)) == []


PATHS = [
    "ao.nn.intrinsic",
    "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.quantized",
    "ao.nn.qat",
    "ao.nn.qat.dynamic",
    "ao.nn.quantizable",
    "ao.nn.quantized",
    "ao.nn.quantized.dynamic",
    "ao.nn.quantized.reference",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_module_of_pytorch_exists(path):
    module = importlib.import_module(f"tangrad.{path}")
    names = set(importlib.import_module(f"torch.{path}.modules").__all__)
    assert {name for name in names if not hasattr(module, name)} == set()


def test_tables_are_shown_by_the_package():
    tables = [name for name in vars(theirs) if name.startswith("DEFAULT_") and "MAPP" in name]
    assert len(tables) == 7
    for name in tables:
        expected, found = (getattr(side, name) for side in (theirs, ours))
        assert {called(kind) for kind in found} == {called(kind) for kind in expected}


def test_graph_modes_functions_are_pytorchs():
    for name in (
        "prepare_fx",
        "prepare_qat_fx",
        "convert_fx",
        "convert_to_reference_fx",
        "fuse_fx",
    ):
        expected = inspect.signature(getattr(torch.ao.quantization.quantize_fx, name))
        found = inspect.signature(getattr(tangrad.ao.quantization.quantize_fx, name))
        assert list(found.parameters) == list(expected.parameters)


def plain(pattern):
    """Return a pattern with types by name; functions have other names on each side."""
    if isinstance(pattern, tuple):
        return tuple(map(plain, pattern))
    if isinstance(pattern, str):
        return pattern
    return pattern.__name__ if isinstance(pattern, type) else "a function"


@pytest.mark.parametrize(
    "backend", ["native", "fbgemm", "qnnpack", "onednn", "tensorrt", "executorch"]
)
def test_backends_have_pytorchs_patterns(backend):
    maker = f"get_{backend}_backend_config"
    expected, found = (
        Counter(plain(config.pattern) for config in getattr(side.backend_config, maker)().configs)
        for side in (theirs, ours)
    )
    if backend == "executorch":  # concat and concatenate are cat here, and functions in PyTorch
        expected["a function"] -= 2
    assert found == expected


def test_backends_go_through_their_dict_form():
    config = ours.backend_config.get_native_backend_config()
    again = ours.backend_config.BackendConfig.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()


@pytest.mark.parametrize(
    "path",
    [
        *("ao.nn.quantized.dynamic", "ao.nn.quantized.functional", "ao.nn.quantized.reference"),
        *("ao.nn.intrinsic.qat", "ao.nn.intrinsic.quantized.dynamic", "ao.nn.qat.dynamic"),
        *("ao.nn.sparse.quantized.dynamic", "nn.quantized.dynamic", "nn.intrinsic.qat"),
        "ops.quantized",
    ],
)
def test_modules_are_there_without_an_import_of_their_own(path):
    # In a process of its own: another test may have imported them.
    program = f"import tangrad; print(tangrad.{path}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("tangrad_quantization."), done.stderr


def test_older_paths_show_the_same_modules():
    assert tangrad.nn.quantized is tangrad.ao.nn.quantized
    assert tangrad.nn.qat is tangrad.ao.nn.qat
    assert tangrad.nn.intrinsic is tangrad.ao.nn.intrinsic
    assert tangrad.quantization.prepare is tangrad.ao.quantization.prepare


def called(made):
    """Return the name of a class, or of an op of `torch.ops`."""
    return made.__name__.rpartition(".")[2]


def test_mappings_have_pytorchs_entries():
    for name in (
        "get_default_static_quant_module_mappings",
        "get_default_dynamic_quant_module_mappings",
        "get_default_qat_module_mappings",
        "get_default_static_quant_reference_module_mappings",
        "get_default_static_sparse_quant_module_mappings",
        "get_default_dynamic_sparse_quant_module_mappings",
        "get_default_float_to_quantized_operator_mappings",
    ):
        expected, found = (
            {kind.__name__: called(made) for kind, made in getattr(side, name)().items()}
            for side in (theirs, ours)
        )
        assert found == expected


@pytest.mark.parametrize("what", ["compare_output_module", "qconfig_propagation"])
def test_lists_have_pytorchs_entries(what):
    expected, found = (
        {kind.__name__ for kind in getattr(side, f"get_default_{what}_list")()}
        for side in (theirs, ours)
    )
    assert found == expected


def test_default_configurations_make_the_same_observers():
    for backend in ("x86", "fbgemm", "qnnpack", "onednn"):
        for maker in ("get_default_qconfig", "get_default_qat_qconfig"):
            sides = [quiet(getattr(side, maker), backend) for side in (theirs, ours)]
            for part in ("activation", "weight"):
                a, b = (getattr(side, part) for side in sides)
                assert getattr(a, "p", a).func.__name__ == getattr(b, "p", b).func.__name__

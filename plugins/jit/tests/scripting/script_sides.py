"""The cases of scripts on both sides, and how what they give is compared."""

import copy
import importlib.util
import sys
import warnings
from pathlib import Path

import torch

import tangrad

HERE = Path(__file__).parent


def load(side, name, file="script_cases.py"):
    """Return a module of cases for a side."""
    sys.modules["scripted_side"] = side
    spec = importlib.util.spec_from_file_location(name, HERE / file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of its decorators
        spec.loader.exec_module(module)
    return module


WANTED, OURS = load(torch, "script_cases_torch"), load(tangrad, "script_cases_tangrad")
for cases, further in (
    (WANTED, load(torch, "further_cases_torch", "further_cases.py")),
    (OURS, load(tangrad, "further_cases_tangrad", "further_cases.py")),
    (WANTED, load(torch, "reported_cases_torch", "reported_cases.py")),
    (OURS, load(tangrad, "reported_cases_tangrad", "reported_cases.py")),
):
    cases.CASES += further.CASES
    cases.MODULES += further.MODULES


def plain(value):
    """Return a value without what tells the sides apart."""
    if isinstance(value, (torch.Tensor, tangrad.Tensor)):
        return "tensor", value.detach().tolist(), str(value.dtype).partition(".")[2]
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value).__name__, repr(value)


def outcome(function, args):
    """Return what a call gives, or the last line of what it raises."""
    try:
        return plain(function(*copy.deepcopy(args)))
    except Exception as error:
        return type(error).__name__, str(error).strip().split("\n")[-1]


def close(one, other):
    """Return whether two outcomes are the same but for the rounding of tensors."""
    if isinstance(one, tuple) and one[:1] == ("tensor",) and other[:1] == ("tensor",):
        same = torch.allclose(torch.tensor(one[1]), torch.tensor(other[1]), rtol=1e-4, atol=1e-5)
        return same and one[2] == other[2]
    if isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        return all(map(close, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    return one == other

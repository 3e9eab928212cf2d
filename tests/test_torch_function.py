"""`__torch_function__` gets what it gets from PyTorch, of everything that can be overridden."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("torch_function_calls.py")

# Calls of which something else arrives, or nothing, and why.
LEFT = {
    "operators are slots of a compiled type, which take no keywords": (
        r"\.__\w+__\((other|exponent|proto|format_spec)="
    ),
    "between two tensors, a slot cannot tell the reflected operator from the plain one": (
        r"torch\.Tensor\.__r\w+__\(s, t\)|with mode: x\.__r\w+__\(y\)"
    ),
    "PyTorch asks an object in the place of a number one call deeper": (
        r"^torch\.(nn\.functional|nn\.init|functional)\.\w+\(x, a(, y)?\)"
        r"|functional\.unique_consecutive\(s, t\)|functional\.einsum\((s, t|a, b|input)"
    ),
    "PyTorch's function begins with other calls, which a mode sees first": (
        r"with mode: (torch\.lobpcg|x\.__reduce_ex__"
        r"|torch\.functional\.(pca_lowrank|svd_lowrank|einsum|unique_consecutive))\("
    ),
    "the function and the method are one op, and PyTorch fills in other defaults of each": (
        r"functional\.(lu|norm)\(|s\.istft\(|Tensor\.istft\(|x\.istft\("
    ),
    "an overload chosen by a keyword": r"functional\.split\(tensor=|s\.split\(split_size=",
    "a list is handed over as it was written": r"sym_sum\(",
    "a function that PyTorch chooses by a bool": r"max_pool2d\(a, .*return_indices=True\)",
    "an attribute without a value here": r"\.(volatile|_cdata|__cuda_array_interface__)\b",
    "iteration is one op here, and PyTorch's asks for the rank first": r"^(iter|list)\(s\)",
    "a number has no matrix product": r"^1 @ s",
    "PyTorch's sizes of symbols": r"_sym_int\(",
}
# Names that tangrad does not have: of backends that it does not have, inner ones of PyTorch's, and
# names of tangrad-sparse and tangrad-quantization, where they are not installed.
MISSING = (
    r"torch\.(batch_norm_\w+|fbgemm_\w+|miopen_\w+|quantized_\w+|choose_qparams_optimized"
    r"|fused_moving_avg_obs_fake_quant|h?spmm|quantize_per_\w+|native_norm"
    r"|nn\.functional\._sym_int"
    r"|Tensor\.(index|_cdata|volatile|_autocast_to_\w+|_clear_non_serializable_cached_data|_coalesced_"
    r"|_dimI|_dimV|_indices|_nnz|_values|_nested_tensor_\w+|_sparse_mask_projection|_to_dense)\b.*)$"
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    kept = tmp_path_factory.mktemp("calls") / "kept.json"
    subprocess.run([sys.executable, PROGRAM, "write", kept], check=True)
    command = [sys.executable, "-m", "tangrad", "run", PROGRAM, "compare", kept]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_thousands_of_calls_are_compared(outcome):
    assert outcome["calls"] > 6000


def test_handlers_get_function_and_arguments_as_from_pytorch(outcome):
    unexplained = {
        call: what
        for call, what in outcome["differing"].items()
        if not re.fullmatch(f"there is no {MISSING}", what)
        and not any(re.search(pattern, call) for pattern in LEFT.values())
    }
    assert not unexplained


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_is_still_so(outcome, reason):
    assert any(re.search(LEFT[reason], call) for call in outcome["differing"])

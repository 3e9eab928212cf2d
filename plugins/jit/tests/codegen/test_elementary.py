"""Elementary functions over all of float32: the bits of tangrad-cpu's kernels."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_groups import bits, full, ops

import tangrad
from tangrad_jit.codegen import Group, Step, compile_group
from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here")

# Ops whose functions are emitted, alone and inside of other expressions.
FUNCTIONS = {
    "exp": {}, "expm1": {}, "log": {}, "log1p": {}, "sigmoid": {}, "tanh": {}, "erf": {},
    "silu": {}, "gelu_none": {},
    "gelu_tanh": {}, "mish": {}, "log_sigmoid": {}, "softplus": {"beta": 1.0, "threshold": 20.0},
    "elu": {"alpha": 1.0,
    "scale": 1.0, "input_scale": 1.0}, "rsqrt": {}, "logit": {}, "selu": {}, "celu": {"alpha": 0.5},
}  # fmt: skip
EVERY = 3331  # of the 2^32 patterns, a prime


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in ops()])
def test_a_function_has_the_bits_of_its_kernel_for_all_float32(name: str) -> None:
    described = ops()[name]
    params = {p: v for p, v in FUNCTIONS[name].items() if p in described.params}
    patterns = np.arange(0, 2**32, EVERY, dtype=np.uint64).astype(np.uint32)
    x = tangrad.tensor(patterns.view(np.float32)).reshape(1, -1)
    group = Group(full("float32"), (Step(described, "float32", (0,), params),), (1,))
    out = tangrad.empty(tuple(x.shape))
    compile_group(group).run([out], [x], 1, x.shape[1])
    declared = [p.name for p in described.op.definition.schema.params[1:] if p.name in params]
    wanted = described.op(x, *[params[n] for n in declared])
    different = np.flatnonzero(bits(out) != bits(wanted))
    assert different.size == 0, x.reshape(-1)[int(different[0])]

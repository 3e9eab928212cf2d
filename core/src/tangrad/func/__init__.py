"""Function transforms: derivatives and batching of functions of tensors, nested in any order."""

from __future__ import annotations

from tangrad.func.calls import functional_call, replace_all_batch_norm_modules_, stack_module_state
from tangrad.func.functionalization import functionalize
from tangrad.func.jacobians import hessian, jacfwd, jacrev
from tangrad.func.linearization import linearize
from tangrad.func.mapping import vmap
from tangrad.func.transforms import grad, grad_and_value, jvp, vjp

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

"""What `tangrad.sparse` shows: functions of sparse tensors.

coo          the layout of indices and values
compressed   the layouts of compressed rows and columns, CSR, CSC, BSR and BSC
conversions  to them from any other, and from files of PyTorch
kernels      ops on them: arithmetic, sums
movement     movement and indexing
products     products of matrices
functions    the constructors and what PyTorch has in `torch.sparse`
gradients    the check of gradients of functions of sparse tensors
legacy       `sparse.FloatTensor` and its like
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_sparse.functions import addmm as addmm
    from tangrad_sparse.functions import check_sparse_tensor_invariants
    from tangrad_sparse.functions import log_softmax as log_softmax
    from tangrad_sparse.functions import mm as mm
    from tangrad_sparse.functions import sampled_addmm as sampled_addmm
    from tangrad_sparse.functions import softmax as softmax
    from tangrad_sparse.functions import spdiags as spdiags
    from tangrad_sparse.functions import sum as sum
    from tangrad_sparse.gradients import as_sparse_gradcheck as as_sparse_gradcheck

__all__ = [
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]

API = 1


def __getattr__(name: str) -> Any:
    # The first op of a program loads the hooks beside this; the functions can wait.
    if name.endswith("Tensor"):
        from tangrad_sparse import legacy

        if name in legacy.TYPES:
            return legacy.TYPES[name]
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from tangrad_sparse import functions, gradients

    owner = gradients if name == "as_sparse_gradcheck" else functions
    value = globals()[name] = getattr(owner, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

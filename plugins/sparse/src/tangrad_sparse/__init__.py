"""What `tangrad.sparse` shows: functions of sparse tensors.

coo        the layout of indices and values
csr        the layout of compressed rows
kernels    ops on them: arithmetic, sums, movement, indexing
products   products of matrices
functions  the constructors and what PyTorch has in `torch.sparse`
"""

from __future__ import annotations

from tangrad_sparse.functions import addmm as addmm
from tangrad_sparse.functions import check_sparse_tensor_invariants
from tangrad_sparse.functions import log_softmax as log_softmax
from tangrad_sparse.functions import mm as mm
from tangrad_sparse.functions import sampled_addmm as sampled_addmm
from tangrad_sparse.functions import softmax as softmax
from tangrad_sparse.functions import spdiags as spdiags
from tangrad_sparse.functions import sum as sum

__all__ = [
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]

API = 1

"""Scripts that ask for the parts of sparse matrices and multiply them, beside PyTorch's."""

import io

import pytest
import torch

import tangrad

pytest.importorskip("tangrad_sparse")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore::DeprecationWarning")


def scripted(library, source):
    unit = library.jit.CompilationUnit(source + "\n")
    return unit.f


SOURCES = {
    "rows": "def f(x):\n    c = x.to_sparse_csr()\n    return c.crow_indices(), c.col_indices()",
    "columns": "def f(x):\n    c = x.to_sparse_csc()\n    return c.ccol_indices(), c.row_indices()",
    "values": "def f(x):\n    return x.to_sparse_csr().values(), x.to_sparse_csr()._nnz()",
    "blocks": "def f(x):\n    return x.to_sparse_bsr([1, 3]).values()",
    "coordinates": "def f(x):\n    return x.to_sparse(1)._values(), x.to_sparse()._indices()",
    "mask": "def f(x):\n    return (x * 2).sparse_mask(x.to_sparse()).to_dense()",
    "coalesced": "def f(x):\n    return x.to_sparse()._coalesced_(False).is_coalesced()",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_script_sees_what_a_sparse_matrix_has(name):
    found = []
    for library in (torch, tangrad):
        result = scripted(library, SOURCES[name])(library.tensor([[1.0, 0, 2], [0, 3, 0]]))
        results = result if isinstance(result, tuple) else (result,)
        found.append([r.tolist() if hasattr(r, "tolist") else r for r in results])
    assert found[0] == found[1]


class OfTorch(torch.nn.Module):
    def forward(self, x: torch.Tensor, reduce: str) -> torch.Tensor:
        if reduce == "sum":
            return torch.sparse.mm(x.to_sparse(), x.t())
        return torch.sparse.mm(x.to_sparse_csr(), x.t(), reduce)


class OfTangrad(tangrad.nn.Module):
    def forward(self, x: tangrad.Tensor, reduce: str) -> tangrad.Tensor:
        if reduce == "sum":
            return tangrad.sparse.mm(x.to_sparse(), x.t())
        return tangrad.sparse.mm(x.to_sparse_csr(), x.t(), reduce)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_module_multiplies_sparse_matrices_and_is_exchanged(reduce):
    found = []
    for library, kind in ((torch, OfTorch), (tangrad, OfTangrad)):
        x = library.tensor([[1.0, 0, 2], [0, 3, 0]])
        made, file = library.jit.script(kind()), io.BytesIO()
        library.jit.save(made, file)
        found.append(made(x, reduce).tolist())
        for reader in (torch, tangrad):
            file.seek(0)
            again = reader.jit.load(file)
            found.append(again(reader.tensor(x.tolist()), reduce).tolist())
    assert all(f == found[0] for f in found)

"""Products of matrices of which one at least is sparse."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import components
from tangrad_sparse.compressed import CSR, from_coo, is_compressed, to_indices
from tangrad_sparse.coo import COO, coalesce, make, parts


def _check(name: str, a: Any, b: Any) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied "
            f"({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}: expected mat1 and mat2 of one dtype, got {a.dtype}, {b.dtype}")


def places(a: Any) -> tuple[Any, Any, Any]:
    """Return (rows, columns, values) of a sparse matrix, the values with their derivative."""
    if is_compressed(a):
        a = to_indices(a)
    indices, values = parts(a)
    if indices.shape[0] != 2:
        raise RuntimeError(f"a matrix of two sparse dimensions is expected, got {indices.shape[0]}")
    return indices[0], indices[1], values


def ranges(starts: Any, lengths: Any) -> tuple[Any, Any]:
    """Return the numbers of all ranges one after the other, and the range each is of."""
    count = int(lengths.sum())
    owner = tangrad.repeat_interleave(
        tangrad.arange(lengths.shape[0], device=lengths.device), lengths, output_size=count
    )
    before = lengths.cumsum(0) - lengths
    return tangrad.arange(count, device=lengths.device) - (before - starts)[owner], owner


def with_dense(a: Any, b: Any) -> Any:
    """Multiply a sparse matrix (n, k) and a dense one (k, m): dense (n, m)."""
    rows, columns, values = places(a)
    product = tangrad.zeros(a.shape[0], b.shape[1], dtype=b.dtype, device=b.device)
    if b.shape[1] == 0:
        return product
    return product.index_add(0, rows, values.unsqueeze(1) * b.index_select(0, columns))


_REDUCTIONS = {"mean": "mean", "max": "amax", "amax": "amax", "min": "amin", "amin": "amin"}


def reduced(a: Any, b: Any, reduce: str) -> Any:
    """Multiply a CSR matrix and a dense one, reducing the products that a sum would add up.

    A row without elements gives zeros. The derivative of an extreme goes to the first of equals.

    Raises:
        NotImplementedError: the first matrix is not CSR.
        RuntimeError: the second is not dense, shapes or dtypes differ, or no such reduction.
    """
    if a.layout is not CSR:
        raise NotImplementedError(f"sparse.mm: reduce='{reduce}' of {a.layout} is not implemented")
    if b.layout is not tangrad.strided:
        raise RuntimeError(f"sparse.mm: expected a strided mat2, but got layout {b.layout}")
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    _check("sparse.mm", a, b)
    rows, columns, values = places(a)
    count, shape = values.shape[0], (a.shape[0], b.shape[1])
    base = tangrad.zeros(shape, dtype=b.dtype, device=b.device)
    if reduce == "mean":
        lengths = base.new_zeros(shape[0]).index_add(0, rows, base.new_ones(count))
        return with_dense(a, b) / lengths.clamp(min=1).unsqueeze(1)
    terms = values.unsqueeze(1) * b.index_select(0, columns)
    index = rows.unsqueeze(1).expand(terms.shape)
    with tangrad.no_grad():
        kind = _REDUCTIONS[reduce]
        extreme = base.scatter_reduce(0, index, terms, kind, include_self=False)
        chosen = (terms == extreme.index_select(0, rows)) | terms.isnan()
        place = tangrad.arange(count, device=b.device).unsqueeze(1).expand(terms.shape)
        first = index.new_full(shape, count).scatter_reduce(
            0, index, place.masked_fill(~chosen, count), "amin"
        )
    return tangrad.cat((terms, terms.new_zeros(1, shape[1]))).gather(0, first)


def of_sparse(a: Any, b: Any) -> Any:
    """Multiply two sparse matrices: COO if the first is, else CSR; coalesced."""
    b_rows = b if b.layout is CSR else from_coo(b if b.layout is COO else to_indices(b))
    rows, columns, left = places(coalesce(a) if a.layout is COO else a)
    crow = components(b_rows)["crow_indices"]
    _, b_columns, right = places(b_rows)
    starts = crow[columns]
    place, owner = ranges(starts, crow[columns + 1] - starts)
    indices = tangrad.stack((rows[owner], b_columns[place]))
    product = make(indices, left[owner] * right[place], (a.shape[0], b.shape[1]), False)
    product = coalesce(product)
    return product if a.layout is COO else from_coo(product)


def product(a: Any, b: Any) -> Any:
    """Multiply two matrices of any layouts; recorded by what it is made of."""
    _check("mm", a, b)
    if a.layout is tangrad.strided:
        return with_dense(b.t(), a.t()).t()
    return with_dense(a, b) if b.layout is tangrad.strided else of_sparse(a, b)


mm = product


def mv(a: Any, x: Any) -> Any:
    """Multiply a matrix and a vector."""
    if a.ndim != 2 or x.ndim != 1 or a.shape[1] != x.shape[0]:
        raise RuntimeError(
            f"mv: expected self.size(-1) == vec.size(-1), got {list(a.shape)} and {list(x.shape)}"
        )
    if a.layout is tangrad.strided or x.layout is not tangrad.strided:
        return mm(a, x.to_dense().unsqueeze(1)).squeeze(1)
    return with_dense(a, x.unsqueeze(1)).squeeze(1)


def addmm(c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute beta c + alpha a b, where a or b is sparse."""
    found = product(a, b)
    if alpha != 1:
        found = found * alpha
    if found.layout is not tangrad.strided and c.layout is tangrad.strided:
        found = found.to_dense()
    if beta == 0:
        return found
    return (c if beta == 1 else c * beta) + found


def smm(a: Any, b: Any) -> Any:
    """Multiply a COO matrix and a dense one into a COO matrix."""
    return product(a, b).to_sparse()


def sspaddmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute beta c + alpha a b of COO matrices c and a and a dense one, as a COO matrix.

    Raises:
        RuntimeError: c or a is not of this layout, or the shapes do not fit.
    """
    for matrix in (c, a):
        if matrix.layout is not COO:
            raise RuntimeError(f"sspaddmm: expected a sparse_coo matrix, got {matrix.layout}")
    found = smm(a, b)
    found = found if alpha == 1 else found * alpha
    return found + (c if beta == 1 else c * beta)


COO.definition.methods.update(smm=smm, sspaddmm=sspaddmm)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Compute x weight^T + bias for a sparse weight or a sparse x."""
    if x.layout is not tangrad.strided and x.ndim != 2:
        raise RuntimeError(f"linear: a sparse input is a matrix, got shape {list(x.shape)}")
    rows = x if x.ndim == 2 else x.reshape((-1, x.shape[-1]))
    found = product(rows, weight.t())
    found = found if x.ndim == 2 else found.reshape((*x.shape[:-1], weight.shape[0]))
    return found if bias is None else bias + found.to_dense()


def bmm(a: Any, b: Any) -> Any:
    """Multiply batches of matrices, the first sparse and the second dense: dense."""
    if a.layout is tangrad.strided or b.layout is not tangrad.strided:
        raise RuntimeError("bmm: a sparse batch times a dense one is expected")
    indices, values = parts(a)
    batch, n, k = a.shape
    if b.ndim != 3 or tuple(b.shape[:2]) != (batch, k):
        raise RuntimeError(f"bmm: batches {list(a.shape)} and {list(b.shape)} do not fit")
    flat = make(
        tangrad.stack((indices[0] * n + indices[1], indices[0] * k + indices[2])),
        values,
        (batch * n, batch * k),
        False,
    )
    return with_dense(flat, b.reshape((batch * k, b.shape[2]))).reshape((batch, n, b.shape[2]))


def hspmm(a: Any, b: Any) -> Any:
    """Multiply a sparse matrix and a dense one: sparse rows of dense values.

    Returns:
        A COO tensor (n, m) of one sparse and one dense dimension: the rows that a has.
    """
    _check("hspmm", a, b)
    if a.layout is not COO:
        a = to_indices(a)
    rows, columns, values = places(coalesce(a))
    present, group = tangrad.unique(rows, return_inverse=True)
    total = tangrad.zeros(present.shape[0], b.shape[1], dtype=b.dtype, device=b.device)
    total = total.index_add(0, group, values.unsqueeze(1) * b.index_select(0, columns))
    return make(present.unsqueeze(0), total, (a.shape[0], b.shape[1]), True)


def sampled(a: Any, b: Any, mask: Any) -> Any:
    """Return the elements of a b at the places of a sparse matrix: (n,)."""
    rows, columns = components(to_indices(mask) if is_compressed(mask) else mask)["indices"]
    return (a.index_select(0, rows) * b.index_select(1, columns).t()).sum(1)

"""The constructors, and what PyTorch has in `torch.sparse`."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.autograd import Function
from tangrad.plugin import Device, DType, Ints, Scalar, Tensor, TensorLayout, component, composite
from tangrad_sparse import compressed, conversions, coo, kernels, products


def _numbers(given: Any, dtype: Any, device: Any) -> Any:
    if isinstance(given, tangrad.Tensor):
        return given.to(device=device, dtype=dtype)
    return tangrad.tensor(given, dtype=dtype, device=device)


def _finished(made: Any, requires_grad: bool) -> Any:
    if requires_grad:
        made = made.detach()
        made.requires_grad = True
    return made


@composite(method=False, samples=lambda s: [])
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: Any = None,
    is_coalesced: Any = None,
) -> Tensor:
    """Make a sparse tensor of indices and values; `sparse_coo_tensor(size)` makes an empty one.

    Args:
        indices: integers (sparse dimensions, nnz), a tensor or nested lists.
        values: (nnz, *dense dimensions).
        size: of the tensor; by default the smallest that holds the indices.
        dtype: of the values. device: where they are. pin_memory: ignored.
        requires_grad: make a leaf that records.
        check_invariants: ignored: indices are always checked.
        is_coalesced: the indices are sorted and different, which is not checked.

    Raises:
        RuntimeError: indices, values and size do not fit each other.
        TypeError: nothing is given.
    """
    if values is None:
        if size is None and indices is None:
            raise TypeError("sparse_coo_tensor: give indices and values, or a size alone")
        size = tuple(size if size is not None else indices)
        sparse = len(size)
        held = tangrad.zeros(sparse, 0, dtype=tangrad.int64, device=device)
        empty = tangrad.zeros(0, dtype=dtype, device=device)
        return _finished(coo.make(held, empty, size, True), requires_grad)
    values = _numbers(values, dtype, device)
    indices = _numbers(indices, None, values.device)
    if indices.dtype.is_complex:
        raise RuntimeError(f"sparse_coo_tensor: indices must be integers, got {indices.dtype}")
    indices = indices.to(tangrad.int64)
    if values.ndim == 0:
        values = values.reshape((1,))
    if size is None:
        if indices.ndim != 2:
            raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
        most = indices.amax(1).tolist() if indices.shape[1] else [-1] * indices.shape[0]
        size = (*(m + 1 for m in most), *values.shape[1:])
    coo.check_range(indices, size)
    made = coo.make(indices, values, size, bool(is_coalesced))
    return _finished(made, requires_grad)


def _compressed(
    layout: Any, starts: Any, others: Any, values: Any, size: Any, dtype: Any, device: Any
) -> Any:
    values = _numbers(values, dtype, device)
    starts, others = (_numbers(i, None, values.device) for i in (starts, others))
    definition = layout.definition
    batch = starts.ndim - 1
    if size is None and batch >= 0 and values.ndim > batch + 2 * definition.blocked:
        sizes = [starts.shape[-1] - 1, int(others.max()) + 1 if others.numel() else 0]
        sizes = sizes if definition.by_rows else sizes[::-1]
        blocks = 2 * definition.blocked
        if blocks:
            block = values.shape[batch + 1 : batch + 3]
            sizes = [n * b for n, b in zip(sizes, block, strict=True)]
        size = (*starts.shape[:-1], *sizes, *values.shape[batch + 1 + blocks :])
    size = tuple(size) if size is not None else ()
    compressed.check_range(starts, others, values, size, layout)
    return compressed.make(starts, others, values, size, layout)


def _constructor(layout: Any) -> Any:
    starts, others, _ = layout.definition.components

    def make(*given: Any) -> Any:
        *parts, dtype, device, _, requires_grad, _ = given
        return _finished(_compressed(layout, *parts, dtype, device), requires_grad)

    groups = "rows" if layout.definition.by_rows else "columns"
    make.__doc__ = f"""Make a tensor of layout `{layout.name}`.

    Args:
        {starts}: where each of the {groups} begins, and the number of elements.
        {others}: of each element; its other index.
        values: of the elements{", blocks" if layout.definition.blocked else ""}.
        size: by default the smallest that holds the indices.
        dtype: of the values. device: where they are. pin_memory: ignored.
        requires_grad: make a leaf that records.
        check_invariants: ignored: what is given is always checked.

    Raises:
        RuntimeError: the parts do not fit each other.
    """
    make.__name__ = make.__qualname__ = f"{layout.name}_tensor"
    # The names of its parameters are the layout's.
    schema = (
        f"{layout.name}_tensor(any {starts}, any {others}, any values, any size=None, *,"
        " dtype? dtype=None, device? device=None, bool pin_memory=False,"
        " bool requires_grad=False, any check_invariants=None) -> Tensor"
    )
    return composite(schema, method=False, samples=lambda s: [])(make)


sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor, sparse_bsc_tensor = map(
    _constructor, compressed.LAYOUTS.values()
)


@composite(method=False, samples=lambda s: [])
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    layout: TensorLayout | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: Any = None,
) -> Tensor:
    """Make a tensor of the layout that is given, as `sparse_csr_tensor` and its like do.

    Raises:
        RuntimeError: it is none of the four, or the parts do not fit each other.
    """
    if layout not in compressed.LAYOUTS.values():
        raise RuntimeError(
            "sparse_compressed_tensor expected sparse compressed tensor layout (sparse_csr, "
            f"sparse_csc, sparse_bsr or sparse_bsc) but got {layout}"
        )
    made = _compressed(layout, compressed_indices, plain_indices, values, size, dtype, device)
    return _finished(made, requires_grad)


@composite(method=False, samples=lambda s: [])
def _validate_sparse_coo_tensor_args(
    indices: Tensor, values: Tensor, size: Ints, is_coalesced: bool | None = None
) -> None:
    """Raise unless these make a COO tensor."""
    sparse_coo_tensor(indices, values, size)


@composite(method=False, samples=lambda s: [])
def _validate_sparse_compressed_tensor_args(
    compressed_indices: Tensor,
    plain_indices: Tensor,
    values: Tensor,
    size: Ints,
    layout: TensorLayout | None,
) -> None:
    """Raise unless these make a tensor of a compressed layout."""
    sparse_compressed_tensor(compressed_indices, plain_indices, values, size, layout=layout)


@composite(method=False, samples=lambda s: [])
def _sparse_broadcast_to(self: Tensor, size: Ints) -> Tensor:
    """Repeat a COO tensor along dimensions of size 1 and along new ones."""
    return kernels.broadcast_to(self, size)


class _SparseRows(Function):
    """Look rows up; the gradient of the table is sparse: the rows that were looked up."""

    @staticmethod
    def forward(table: Any, index: Any, padding: Any) -> Any:
        return table.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        table, index, ctx.padding = inputs
        ctx.shape = tuple(table.shape)
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (index,) = ctx.saved_tensors
        if ctx.padding is not None:
            kept = index != ctx.padding
            index, g = index[kept], g[kept]
        return coo.make(index.to(tangrad.int64).unsqueeze(0), g, ctx.shape), None, None


@composite(method=False, samples=lambda s: [])
def _sparse_rows(table: Tensor, index: Tensor, padding: int | None = None) -> Tensor:
    """Look rows up in a table whose gradient is sparse (`Embedding(sparse=True)`)."""
    return _SparseRows.apply(table, index, padding)


@composite(method=False, samples=lambda s: [])
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Multiply a sparse matrix and a dense one into sparse rows of dense values."""
    if mat1.layout is tangrad.strided:
        raise RuntimeError("hspmm: Expected mat1 to be a sparse tensor")
    return products.hspmm(mat1, mat2)


@composite(method=False, samples=lambda s: [])
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply a sparse matrix and a dense one: the older name of `mm`."""
    return tangrad.mm(input, mat2)


@composite(method=False, samples=lambda s: [])
def dsmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply a sparse matrix and a dense one into a dense one: an older name of `mm`."""
    return tangrad.mm(input, mat2)


@composite(method=False, samples=lambda s: [])
def hsmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply a sparse matrix and a dense one into sparse rows: an older name of `hspmm`."""
    return hspmm(input, mat2)


@composite(method=False, samples=lambda s: [])
def saddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """Compute beta input + alpha mat1 mat2 as a COO matrix: an older name of `sspaddmm`."""
    return products.sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha)


def mm(mat1: Any, mat2: Any, reduce: str = "sum") -> Any:
    """Multiply two matrices, one sparse at least; the gradient of a sparse one has its places.

    Args:
        mat1: matrix (n, k).
        mat2: matrix (k, m).
        reduce: "sum"; of a CSR matrix and a dense one also "mean", "amax" or "amin" of the
            products in the place of their sum.

    Raises:
        NotImplementedError: another `reduce` than "sum" of a matrix that is not CSR.
        RuntimeError: there is no such reduction, or the matrices do not fit.
    """
    if reduce != "sum":
        return products.reduced(mat1, mat2, reduce)
    if mat1.layout is tangrad.strided and mat2.layout is tangrad.strided:
        return tangrad.mm(mat1, mat2)  # a class of tensors may stand for a sparse matrix
    return products.product(mat1, mat2)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """Compute beta mat + alpha mat1 mat2; the gradient of a sparse mat1 has its places."""
    return products.addmm(mat, mat1, mat2, beta, alpha)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """Compute beta input + alpha (mat1 mat2) at the places of a CSR matrix `input`."""
    if input.layout is not compressed.CSR:
        raise RuntimeError("sampled_addmm: Expected self to have sparse csr layout")
    values = products.sampled(mat1, mat2, input) * alpha
    values = values if beta == 0 else component(input, "values") * beta + values
    return compressed.with_values(input, values)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """Add the elements of a sparse tensor: all of them, or along dimensions."""
    return kernels.total(input, dim, False, dtype)


def _by_row(name: str, input: Any, dim: int, dtype: Any) -> Any:
    if input.layout is not coo.COO:
        raise NotImplementedError(
            f"sparse.{name}: not of a tensor of layout {input.layout}; convert it by to_sparse()"
        )
    dim = coo.place_of(f"sparse.{name}", dim, input.ndim)
    t = coo.coalesce(input)
    indices, values = coo.parts(t)
    values = values if dtype is None else values.to(dtype)
    count = indices.shape[0]
    if dim >= count:
        found = getattr(tangrad, name)(values, dim - count + 1)
        return coo.make(indices, found, t.shape, True)
    others = [d for d in range(count) if d != dim]
    group = coo.flat_numbers(indices[others], [t.shape[d] for d in others])
    _, group = tangrad.unique(group, return_inverse=True)
    kinds = int(group.max()) + 1 if group.numel() else 0
    place = group.reshape((-1, *(1,) * (values.ndim - 1))).expand(values.shape)
    greatest = values.detach().new_full((kinds, *values.shape[1:]), float("-inf"))
    greatest = greatest.scatter_reduce(0, place, values.detach(), "amax")
    shifted = values - greatest[group]
    total = values.new_zeros((kinds, *values.shape[1:])).index_add(0, group, shifted.exp())
    found = shifted.exp() / total[group] if name == "softmax" else shifted - total.log()[group]
    return coo.make(indices, found, t.shape, True)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Compute the softmax along a dimension of a COO tensor, what is not stored being -inf."""
    return _by_row("softmax", input, dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Compute the logarithm of `softmax`."""
    return _by_row("log_softmax", input, dim, dtype)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """Make a sparse matrix of the numbers on its diagonals, as SciPy does.

    Args:
        diagonals: (d, n) or (n,). offsets: (d,), or a number: above the main one if positive.
        shape: of the matrix. layout: `sparse_coo` (the default), `sparse_csr` or `sparse_csc`.

    Raises:
        RuntimeError: diagonals, offsets and shape do not fit, or there is no such layout.
    """
    wrong = None
    if len(shape) != 2:
        wrong = f"Output shape must be 2d, got {list(shape)}"
    elif diagonals.ndim not in (1, 2):
        wrong = f"Diagonals must be vector or matrix, got shape {list(diagonals.shape)}"
    elif offsets.ndim > 1:
        wrong = f"Offsets must be scalar or vector, got shape {list(offsets.shape)}"
    elif offsets.dtype is not tangrad.int64:
        wrong = f"Offset Tensor must have dtype Long but got {offsets.dtype}"
    elif layout not in (None, coo.COO, compressed.CSR, compressed.LAYOUTS["sparse_csc"]):
        wrong = f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}"
    elif (diagonals.shape[0] if diagonals.ndim == 2 else 1) != offsets.numel():
        wrong = (
            f"Number of diagonals ({diagonals.shape[0] if diagonals.ndim == 2 else 1}) does not "
            f"match the number of offsets ({offsets.numel()})"
        )
    elif len(set(offsets.reshape((-1,)).tolist())) < offsets.numel():
        wrong = "Offset tensor contains duplicate values"
    if wrong is not None:
        raise RuntimeError(f"spdiags: {wrong}")
    rows = diagonals.reshape((1, -1)) if diagonals.ndim == 1 else diagonals
    found = [rows.reshape((-1,))[:0]]
    places = [tangrad.zeros((2, 0), dtype=tangrad.int64, device=rows.device)]
    for line, offset in zip(rows, offsets.reshape((-1,)).tolist(), strict=True):
        columns = tangrad.arange(min(line.shape[0], shape[1]), device=line.device)
        kept = (columns - offset >= 0) & (columns - offset < shape[0])
        places.append(tangrad.stack((columns[kept] - offset, columns[kept])))
        found.append(line[: columns.shape[0]][kept])
    made = coo.make(tangrad.cat(places, 1), tangrad.cat(found), shape)
    return conversions.to_coo(made, layout=layout)


class check_sparse_tensor_invariants:
    """Switch or ask whether constructors check what they are given: here they always do."""

    def __init__(self, enable: bool = True) -> None:
        del enable

    @staticmethod
    def is_enabled() -> bool:
        """Return True."""
        return True

    @staticmethod
    def enable() -> None:
        """Do nothing: the checks are on."""

    @staticmethod
    def disable() -> None:
        """Do nothing: the checks stay on."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        """Return the decorated function as it is."""
        return function

"""The layout `tangrad.sparse_coo`: indices of the elements that are stored, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad.autograd import Function
from tangrad.plugin import (
    Layout,
    component,
    components,
    layout_tensor,
    metadata,
    register_layout,
    replace_components,
)

COALESCED = "is_coalesced"


def make(indices: Any, values: Any, shape: Any, coalesced: bool = False) -> Any:
    """Make a COO tensor of components that fit; `values` keep their history."""
    return layout_tensor(
        COO,
        {"indices": indices, "values": values},
        shape,
        metadata={COALESCED: bool(coalesced) or (values.ndim > 0 and values.shape[0] < 2)},
        dtype=values.dtype,
    )


def place_of(name: str, dim: int, rank: int) -> int:
    """Return a dimension counted from the first one.

    Raises:
        IndexError: there is no such dimension.
    """
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})"
        )
    return dim % rank


def parts(t: Any) -> tuple[Any, Any]:
    """Return (indices, values) of a COO tensor; the values with their derivative."""
    t = settled(t)
    return components(t)["indices"], component(t, "values")


class _Settle(Function):
    """Coalesce; the gradient of the sum at a place is that of the tensor at the place."""

    @staticmethod
    def forward(t: Any) -> Any:
        return coalesce(t)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent


def settled(t: Any) -> Any:
    """Return the tensor, coalesced where its values are to have derivatives.

    Each of equal indices would get the gradient of their place, and a gradient of these indices
    would be the sum of them: as many times too large.
    """
    if t.layout is not COO or is_coalesced(t):
        return t
    return _Settle.apply(t) if t.requires_grad and tangrad.is_grad_enabled() else t


def is_coalesced(t: Any) -> bool:
    """Return whether the indices are sorted and each of them is there once."""
    return bool(metadata(t)[COALESCED])


def flat_numbers(indices: Any, shape: Any) -> Any:
    """Number the places of indices (d, n) in a dense tensor of the shape, row by row: (n,)."""
    numbers = tangrad.zeros(indices.shape[1], dtype=tangrad.int64, device=indices.device)
    for k, size in enumerate(shape[: indices.shape[0]]):
        numbers = numbers * size + indices[k]
    return numbers


def from_numbers(numbers: Any, shape: Any) -> Any:
    """Return the indices (d, n) of places that `flat_numbers` numbered."""
    rows = []
    for size in reversed(shape):
        rows.append(numbers % max(size, 1))
        numbers = numbers // max(size, 1)
    if not rows:
        return numbers.new_zeros((0, numbers.shape[0]))
    return tangrad.stack(rows[::-1])


def coalesce(t: Any) -> Any:
    """Return the tensor with sorted indices and the values of equal ones added; itself if it is.

    Args:
        t: a COO tensor with any number of equal indices.
    """
    t = settled(t)
    if is_coalesced(t):
        return t
    indices, values = parts(t)
    sparse = tuple(t.shape[: indices.shape[0]])
    if values.shape[0] < 2:
        return make(indices, values, t.shape, True)
    numbers, order = flat_numbers(indices, sparse).sort(stable=True)
    new = tangrad.ones_like(numbers, dtype=tangrad.bool)
    new[1:] = numbers[1:] != numbers[:-1]
    if bool(new.all()):
        return make(indices[:, order], values.index_select(0, order), t.shape, True)
    group = new.to(tangrad.int64).cumsum(0) - 1
    kept = int(group[-1]) + 1
    total = values.new_zeros((kept, *values.shape[1:]))
    total = total.index_add(0, group, values.index_select(0, order))
    return make(from_numbers(numbers[new], sparse), total, t.shape, True)


def _of_coalesced(name: str) -> Any:
    def get(t: Any) -> Any:
        if not is_coalesced(t):
            raise RuntimeError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
            )
        return component(t, name)

    get.__doc__ = f"Return the {name} of a coalesced tensor."
    return get


class Coo(Layout):
    """Tensors of indices (d, n) and values (n, *dense): d dimensions are sparse, the rest dense."""

    components = ("indices", "values")
    elements = ("values",)
    remarks_below = True

    def check(
        self, components: Mapping[str, Any], metadata: Mapping[str, Any], shape: tuple[int, ...]
    ) -> None:
        """Raise unless indices, values and shape fit each other."""
        indices, values = components["indices"], components["values"]
        if indices.ndim != 2:
            raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
        if indices.dtype is not tangrad.int64:
            raise TypeError(f"expected indices to be int64 tensor, but got {indices.dtype}")
        if values.ndim < 1 or indices.shape[1] != values.shape[0]:
            raise RuntimeError(
                "indices and values must have same nnz, but got nnz from indices: "
                f"{indices.shape[1]}, nnz from values: {values.shape[0] if values.ndim else 0}"
            )
        dims = indices.shape[0] + values.ndim - 1
        if len(shape) != dims:
            raise RuntimeError(
                f"number of dimensions must be sparse_dim ({indices.shape[0]}) + dense_dim "
                f"({values.ndim - 1}), but got {len(shape)}"
            )
        if tuple(values.shape[1:]) != tuple(shape[indices.shape[0] :]):
            raise RuntimeError(
                f"values has incorrect size, expected [nnz, {list(shape[indices.shape[0] :])}], "
                f"got {list(values.shape)}"
            )

    def to_dense(self, t: Any) -> Any:
        """Return the strided tensor, values of equal indices added."""
        indices, values = parts(t)
        sparse = tuple(t.shape[: indices.shape[0]])
        count = 1
        for size in sparse:
            count *= size
        flat = values.new_zeros((count, *values.shape[1:]))
        if values.dtype is tangrad.bool:
            flat[flat_numbers(indices, sparse)] = values
        else:
            flat = flat.index_add(0, flat_numbers(indices, sparse), values)
        return flat.reshape(tuple(t.shape))

    def from_dense(self, dense: Any, *, sparse_dim: int | None = None) -> Any:
        """Return the elements that are not zero; of the first `sparse_dim` dimensions if given."""
        dims = dense.ndim if sparse_dim is None else sparse_dim
        if not 0 <= dims <= dense.ndim:
            raise RuntimeError(f"sparse_dim {dims} is not within 0 and {dense.ndim}")
        present = dense != 0
        if dims < dense.ndim:
            present = present.flatten(dims).any(-1) if dims else present.any().reshape((1,))
        if not dims:
            return make(
                tangrad.zeros(0, 1, dtype=tangrad.int64), dense.unsqueeze(0), dense.shape, True
            )
        indices = present.nonzero().T.contiguous()
        return make(indices, dense[tuple(indices)], dense.shape, True)

    def options(self, t: Any) -> dict[str, Any]:
        """Return how many dimensions are sparse."""
        return {"sparse_dim": _sparse_dim(t)}

    def picked(self, t: Any, dense: Any) -> Mapping[str, Any]:
        """Return the elements of a dense tensor at the indices."""
        indices = components(t)["indices"]
        if indices.shape[0] == 0:
            return {"values": dense.unsqueeze(0).expand(components(t)["values"].shape)}
        return {"values": dense[tuple(indices)]}

    def empty(self, size: tuple[int, ...], dtype: Any, device: Any) -> Any:
        """Return a tensor of sparse dimensions that holds no element."""
        indices = tangrad.zeros((len(size), 0), dtype=tangrad.int64, device=device)
        return make(indices, tangrad.zeros(0, dtype=dtype, device=device), size, True)

    def converted(self, t: Any, dtype: Any, device: Any) -> Any:
        """Return a copy of another dtype or device; on "meta" it holds no element."""
        if device is None or tangrad.device(device).type != "meta":
            return super().converted(t, dtype, device)
        indices, values = components(t)["indices"], components(t)["values"]
        values = values[:0].to(device=device, dtype=dtype)
        return make(indices[:, :0].to(device), values, t.shape, is_coalesced(t))

    def remarks(self, t: Any) -> list[str]:
        """Return what PyTorch prints behind the components."""
        return [f"size={tuple(t.shape)}", f"nnz={_nnz(t)}"]

    def file_form(self, t: Any) -> tuple[str, tuple[Any, ...]]:
        """Return what rebuilds it in PyTorch's files."""
        held = components(t)
        data = (held["indices"], held["values"], t.shape, is_coalesced(t))
        return "torch._utils._rebuild_sparse_tensor", (t.layout, data)


def _nnz(t: Any) -> int:
    return int(components(t)["values"].shape[0])


def resize_(t: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Give an empty or growing tensor another size, in place (PyTorch's `sparse_resize_`)."""
    held, size = components(t), tuple(size)
    if _nnz(t):
        if (sparse_dim, dense_dim) != (_sparse_dim(t), _dense_dim(t)):
            raise RuntimeError(
                "changing the number of dense or sparse dimensions of a non-empty sparse tensor is "
                "not supported"
            )
        if any(new < old for new, old in zip(size[:sparse_dim], t.shape, strict=False)):
            raise RuntimeError(
                "shrinking the size of sparse dimensions on a non-empty sparse tensor is not "
                "supported"
            )
        return replace_components(t, held, shape=size, writer="sparse_resize_")
    given = {
        "indices": held["indices"].new_zeros((sparse_dim, 0)),
        "values": held["values"].new_zeros((0, *size[sparse_dim:])),
    }
    return replace_components(t, given, shape=size, writer="sparse_resize_")


def resize_as_sparse_(t: Any, the_template: Any) -> Any:
    """Give a tensor the size of another sparse one, in place.

    Raises:
        NotImplementedError: the template is not of this layout.
        RuntimeError: the elements of the tensor do not fit the size.
    """
    if the_template.layout is not COO:
        raise NotImplementedError(
            f"resize_as_: a tensor of layout {t.layout} takes the size of another one, got "
            f"{the_template.layout}"
        )
    return resize_(t, the_template.shape, _sparse_dim(the_template), _dense_dim(the_template))


def resize_and_clear_(t: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Empty a tensor and give it another size, in place."""
    held = components(t)
    given = {
        "indices": held["indices"].new_zeros((sparse_dim, 0)),
        "values": held["values"].new_zeros((0, *tuple(size)[sparse_dim:])),
    }
    return replace_components(
        t, given, shape=size, metadata={COALESCED: True}, writer="sparse_resize_and_clear_"
    )


def _sparse_dim(t: Any) -> int:
    return int(components(t)["indices"].shape[0])


def _dense_dim(t: Any) -> int:
    return int(components(t)["values"].ndim - 1)


def _set_coalesced(t: Any, value: bool) -> Any:
    held = components(t)
    return replace_components(t, held, metadata={COALESCED: bool(value)}, writer="_coalesced_")


def to_dense(t: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
    """Return the strided tensor of the same values.

    Its gradient has the layout and the places of `t`, as PyTorch's.

    Args:
        t: a tensor of a sparse layout, of any shape.
        dtype: of the result. Default: that of `t`.
        masked_grad: False gives a strided gradient, of the places that `t` has not, too.
    """
    definition = t.layout.definition
    masked = tangrad.is_grad_enabled() and t.requires_grad and masked_grad is not False
    made = definition.to_dense(t) if masked else definition.dense(t)
    return made if dtype is None else made.to(dtype)


def new(t: Any, *args: Any, device: Any = None, size: Any = None) -> Any:
    """Make a tensor of t's dtype of indices, values and a size, or an empty one (old programs).

    Raises:
        RuntimeError: the device is of another type.
        TypeError: there are other arguments.
    """
    from tangrad_sparse.legacy import made

    if device is not None and tangrad.device(device).type != t.device.type:
        raise RuntimeError(f"new: expected a device of type {t.device.type}, got {device}")
    device = t.device if device is None else device
    return made("Tensor.new", t.dtype, args if size is None else tuple(size), device)


Coo.methods = {
    "is_sparse": True,
    "to_dense": to_dense,
    "new": new,
    "coalesce": coalesce,
    "is_coalesced": is_coalesced,
    "indices": _of_coalesced("indices"),
    "values": _of_coalesced("values"),
    "_indices": lambda t: components(t)["indices"],
    "_values": lambda t: components(t)["values"],
    "_nnz": _nnz,
    "_coalesced_": _set_coalesced,
    "sparse_dim": _sparse_dim,
    "dense_dim": _dense_dim,
    "_dimI": _sparse_dim,
    "_dimV": _dense_dim,
    "sparse_resize_": resize_,
    "resize_as_sparse_": resize_as_sparse_,
    "sparse_resize_and_clear_": resize_and_clear_,
}


def check_range(indices: Any, size: Any) -> None:
    """Raise unless every index lies within the size.

    Raises:
        RuntimeError: one does not.
    """
    if indices.ndim != 2 or indices.shape[1] == 0 or indices.device.type == "meta":
        return
    for dim, (least, most) in enumerate(
        zip(indices.amin(1).tolist(), indices.amax(1).tolist(), strict=True)
    ):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
        if dim < len(size) and most >= size[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found "
                f"index {most}"
            )


COO = register_layout("sparse_coo", Coo())

"""What tensors have beside ops: questions, conversions, attributes."""

from __future__ import annotations

from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ListType, Type, optional_of

__all__ = ["ATTRIBUTES", "SPARSE_PARTS", "TENSOR_TABLE"]

# As in `builtin_table`.
TENSOR_TABLE = """
size(Tensor self) -> int[] :: list(_0.shape)
size(Tensor self, int dim) -> int :: _0.size(_1)
stride(Tensor self) -> int[] :: list(_0.stride())
stride(Tensor self, int dim) -> int :: _0.stride(_1)
dim(Tensor self) -> int :: _0.dim()
ndimension(Tensor self) -> int :: _0.dim()
numel(Tensor self) -> int :: _0.numel()
nelement(Tensor self) -> int :: _0.numel()
element_size(Tensor self) -> int :: _0.element_size()
storage_offset(Tensor self) -> int :: _0.storage_offset()
get_device(Tensor self) -> int :: _0.get_device()
item(Tensor self) -> Scalar :: _0.item()
is_contiguous(Tensor self) -> bool :: _0.is_contiguous()
is_contiguous(Tensor self, memory_format memory_format) -> bool :: \
_0.is_contiguous(memory_format=_1)
is_distributed(Tensor self) -> bool :: False
is_floating_point(Tensor self) -> bool :: _0.is_floating_point()
is_complex(Tensor self) -> bool :: _0.is_complex()
is_signed(Tensor self) -> bool :: _0.is_signed()
is_conj(Tensor self) -> bool :: _0.is_conj()
is_neg(Tensor self) -> bool :: _0.is_neg()
is_nonzero(Tensor self) -> bool :: _0.is_nonzero()
is_inference(Tensor self) -> bool :: _0.is_inference()
is_pinned(Tensor self) -> bool :: _0.is_pinned()
is_same_size(Tensor self, Tensor other) -> bool :: _0.is_same_size(_1)
is_set_to(Tensor self, Tensor tensor) -> bool :: _0.is_set_to(_1)
is_coalesced(Tensor self) -> bool :: _0.is_coalesced()
sparse_dim(Tensor self) -> int :: _0.sparse_dim()
dense_dim(Tensor self) -> int :: _0.dense_dim()
__contains__(Tensor self, scalar el) -> bool :: _1 in _0
float(Tensor self) -> Tensor :: _0.float()
double(Tensor self) -> Tensor :: _0.double()
half(Tensor self) -> Tensor :: _0.half()
bfloat16(Tensor self) -> Tensor :: _0.bfloat16()
int(Tensor self) -> Tensor :: _0.int()
long(Tensor self) -> Tensor :: _0.long()
short(Tensor self) -> Tensor :: _0.short()
char(Tensor self) -> Tensor :: _0.char()
byte(Tensor self) -> Tensor :: _0.byte()
bool(Tensor self) -> Tensor :: _0.bool()
cfloat(Tensor self) -> Tensor :: _0.cfloat()
cdouble(Tensor self) -> Tensor :: _0.cdouble()
chalf(Tensor self) -> Tensor :: _0.chalf()
type_as(Tensor self, Tensor other) -> Tensor :: _0.type_as(_1)
cpu(Tensor self) -> Tensor :: _0.cpu()
cuda(Tensor self) -> Tensor :: _0.cuda()
!detach_(Tensor self) -> Tensor :: _0.detach_()
!requires_grad_(Tensor self, bool requires_grad=True) -> Tensor :: _0.requires_grad_(_1)
!retain_grad(Tensor self) -> None :: _0.retain_grad()
output_nr(Tensor self) -> int :: _0.output_nr
!resize_(Tensor self, int[] size, *, memory_format? memory_format=None) -> Tensor \
:: _0.resize_(_1, memory_format=_2)
!resize_as_(Tensor self, Tensor the_template, *, memory_format? memory_format=None) -> Tensor \
:: _0.resize_as_(_1, memory_format=_2)
!set_(Tensor self) -> Tensor :: _0.set_()
!set_(Tensor self, Tensor source) -> Tensor :: _0.set_(_1)
!set_(Tensor self, Tensor source, int storage_offset, int[] size, int[] stride=()) -> Tensor \
:: _0.set_(_1, _2, _3, _4)
to_dense(Tensor self) -> Tensor :: _0.to_dense()
to_dense(Tensor self, dtype? dtype) -> Tensor :: _0.to_dense(_1)
to_sparse(Tensor self) -> Tensor :: _0.to_sparse()
to_sparse(Tensor self, int sparse_dim) -> Tensor :: _0.to_sparse(_1)
to_sparse_coo(Tensor self) -> Tensor :: _0.to_sparse_coo()
to_sparse_csr(Tensor self, int? dense_dim=None) -> Tensor :: _0.to_sparse_csr(_1)
to_sparse_csc(Tensor self, int? dense_dim=None) -> Tensor :: _0.to_sparse_csc(_1)
to_sparse_bsr(Tensor self, int[] blocksize, int? dense_dim=None) -> Tensor \
:: _0.to_sparse_bsr(_1, _2)
to_sparse_bsc(Tensor self, int[] blocksize, int? dense_dim=None) -> Tensor \
:: _0.to_sparse_bsc(_1, _2)
sparse_mask(Tensor self, Tensor mask) -> Tensor :: _0.sparse_mask(_1)
coalesce(Tensor self) -> Tensor :: _0.coalesce()
!_coalesced_(Tensor self, bool coalesced) -> Tensor :: _0._coalesced_(_1)
indices(Tensor self) -> Tensor :: _0.indices()
values(Tensor self) -> Tensor :: _0.values()
crow_indices(Tensor self) -> Tensor :: _0.crow_indices()
col_indices(Tensor self) -> Tensor :: _0.col_indices()
ccol_indices(Tensor self) -> Tensor :: _0.ccol_indices()
row_indices(Tensor self) -> Tensor :: _0.row_indices()
_indices(Tensor self) -> Tensor :: _0._indices()
_values(Tensor self) -> Tensor :: _0._values()
_nnz(Tensor self) -> int :: _0._nnz()
_sparse_mm(Tensor sparse, Tensor dense) -> Tensor :: rt_sparse_mm(_0, _1, 'sum')
_sparse_mm(Tensor sparse, Tensor dense, str reduce) -> Tensor :: rt_sparse_mm(_0, _1, _2)
dequantize(Tensor self) -> Tensor :: _0.dequantize()
int_repr(Tensor self) -> Tensor :: _0.int_repr()
q_scale(Tensor self) -> float :: _0.q_scale()
q_zero_point(Tensor self) -> int :: _0.q_zero_point()
q_per_channel_axis(Tensor self) -> int :: _0.q_per_channel_axis()
q_per_channel_scales(Tensor self) -> Tensor :: _0.q_per_channel_scales()
q_per_channel_zero_points(Tensor self) -> Tensor :: _0.q_per_channel_zero_points()
backward(Tensor self, Tensor? gradient=None) -> None :: _0.backward(_1)
backward(Tensor[] tensors, Tensor?[]? grad_tensors=None, bool? retain_graph=None, \
bool create_graph=False) -> None :: rt_backward(_0, _1, _2, _3)
grad(Tensor[] outputs, Tensor[] inputs, Tensor?[]? grad_outputs=None, \
bool? retain_graph=None, bool create_graph=False, bool allow_unused=False) -> Tensor?[] \
:: rt_grad(_0, _1, _2, _3, _4, _5)
pin_memory(Tensor self) -> Tensor :: _0.pin_memory()
"""

# Methods of sparse tensors alone, which the class of tensors does not name.
SPARSE_PARTS = frozenset({"_coalesced_", "_indices", "_nnz", "_values"})

_BOOLEANS = (
    "requires_grad retains_grad is_cuda is_cpu is_meta is_sparse is_sparse_csr is_quantized "
    "is_mkldnn is_leaf is_xpu is_mps is_nested is_ipu is_vulkan"
)

ATTRIBUTES: dict[str, Type] = {
    **dict.fromkeys(_BOOLEANS.split(), kinds.BOOL),
    **dict.fromkeys(("T", "mT", "H", "mH", "data", "real", "imag"), kinds.TENSOR),
    **dict.fromkeys(("ndim", "itemsize", "nbytes"), kinds.INT),
    "shape": ListType(kinds.INT),
    "dtype": kinds.DTYPE,
    "device": kinds.DEVICE,
    "layout": kinds.LAYOUT,
    "grad": optional_of(kinds.TENSOR),
    "name": optional_of(kinds.STR),
}

"""Attributes, operators and conversions of tensors: one table, evaluated in tangrad and torch."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch

import tangrad

EXPRESSIONS = """
x + y; x - y; x * y; x / y; x // y; x % y; x ** 2; x @ y.t(); -x; +x; abs(x); 2 + x; 2 - x
2 * x; 2 / x; 2 // y; 7 % y; 2 ** x; x < y; x <= y; x == y; x != y; x > y; x >= y; x < 1; 1 < x
i & j; i | j; i ^ j; ~i; i << 1; i >> 1; 5 & i; 5 | i; 5 ^ i; 1 << j; ~b; b & c; b | c; b ^ c
x + i; i + 1.5; i / j; i // j; i % j; i ** 2; b + b; b * 2; x.shape; x.size(); x.size(0)
x.size(-1); x.stride(); x.stride(1); x.ndim; x.dim(); x.numel(); x.nelement(); len(x); x.dtype
i.dtype; x.itemsize; x.element_size(); x.nbytes; x.is_leaf; x.requires_grad; x.grad; x.grad_fn
x._version; x.is_contiguous(); x.t().is_contiguous(); x.storage_offset(); x[1].storage_offset()
x.T; x.mT; z.H; z.real; z.imag; x.is_floating_point(); i.is_floating_point(); z.is_complex()
x.layout; x.is_sparse; float(s); int(s); bool(s); complex(s); s.item(); x.tolist(); s.tolist()
i.tolist(); format(s, '.2f'); f'{s:.1f}'; str(x); repr(i); list(x)[0]; [t.item() for t in i[0]]
x[0] in x; 3 in i; bool(x.sum() > 0); x.double(); x.float(); x.half(); x.int(); x.long()
x.bool(); i.float(); x.to(T.float64); x.type_as(i); x.type(T.int32); x.new_zeros(2)
x.new_ones(2, 2); x.new_full((2,), 3.); x.new_tensor([1, 2]); T.zeros_like(x); T.ones_like(i)
x.sum(); x.sum(0); x.mean(1, keepdim=True); x.max(); x.max(1); x.min(0).indices; x.argmax()
x.prod(); x.std(); x.var(0); x.any(); (x > 0).all(); x.cumsum(1); x.sort(1); x.topk(2)
x.flatten(); x.view(-1); x.reshape(3, 2); x.permute(1, 0); x.expand(4, 2, 3); x.repeat(2, 1)
T.cat([x, y]); T.stack([x, y], 1); x.split(1); x.chunk(3, 1); x.unbind(1); x.where(x > 0, y)
T.where(x > 0, x, 0.); x.clamp(0, 1); x.masked_fill(x > 0, 9.); x.gather(1, i.clamp(0, 2))
x.unsqueeze(0).squeeze(0); x.transpose(0, 1); x.movedim(0, 1); x.flip(0); x.roll(1, 1)
x.diagonal(); x.tril(); x.norm(); T.is_tensor(x); T.numel(x); T.result_type(x, i)
T.can_cast(T.float32, T.int32); x.equal(x); T.equal(x, y); s + 1; s * i; i * 2.5; b + 1
T.tensor(True) + 1; T.tensor(1) + T.tensor(1.5); T.arange(3); T.arange(1, 2, 0.25)
T.linspace(0, 1, 5); T.eye(2, 3); T.full((2,), 1); T.full((2,), 1.); T.zeros(2, dtype=T.bool)
T.tensor([[1, 2.5]]); T.tensor([]); x.data_ptr() == x.data_ptr(); x.is_same_size(y)
x.get_device()
""".replace("\n", "; ").split("; ")  # fmt: skip


def names(library: Any) -> dict[str, Any]:
    """Return the operands of the table in one of the libraries."""

    def tensor(values: Any) -> Any:
        return library.from_numpy(np.array(values))

    return {
        "T": library,
        "x": tensor(np.array([[1.5, -2.0, 0.25], [3.0, 0.5, -1.25]], np.float32)),
        "y": tensor(np.array([[2.0, 1.0, -0.5], [1.0, 4.0, 2.0]], np.float32)),
        "i": tensor(np.array([[1, 2, 3], [4, 5, 6]])),
        "j": tensor(np.array([[3, 1, 2], [1, 2, 3]])),
        "b": tensor([True, False, True]),
        "c": tensor([True, True, False]),
        "z": tensor(np.array([[1 + 2j, 3 - 1j]], np.complex64)),
        "s": tensor(np.float32(2.5)),
    }


def plain(value: Any) -> Any:
    """Turn a result into something that equals that of the other library."""
    if isinstance(value, (tangrad.Tensor, torch.Tensor)):
        values = np.asarray(value.resolve_conj().tolist())
        rounded = values if values.dtype == bool else np.round(values, 5)
        return str(value.dtype).rpartition(".")[2], tuple(value.shape), rounded.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, (tangrad.dtype, torch.dtype, tangrad.layout, torch.layout)):
        return str(value).rpartition(".")[2]
    return value


@pytest.mark.parametrize("expression", [e for e in EXPRESSIONS if e])
def test_expression_means_what_it_means_in_torch(expression: str) -> None:
    ours = plain(eval(expression, names(tangrad)))
    theirs = plain(eval(expression, names(torch)))
    assert ours == theirs


WRITES = (
    """
x += 1; x -= y; x *= 2; x /= y; x //= y; x %= y; x **= 2; i &= j; i |= j; i ^= j; i <<= 1
i >>= 1; b &= c; x += i; i += b
""".strip()
    .replace("\n", "; ")
    .split("; ")
)


@pytest.mark.parametrize("statement", WRITES)
def test_augmented_assignment_writes_the_same_tensor(statement: str) -> None:
    ours, theirs = names(tangrad), names(torch)
    target = statement[0]
    before = ours[target]
    exec(statement, ours)
    exec(statement, theirs)
    assert ours[target] is before
    assert plain(ours[target]) == plain(theirs[target])


WRONG = """
x + T.zeros(4); x @ x; x[5]; x[0, 0, 0, 0]; x.view(5); x.sum(3); x.item(); bool(x); len(s)
x.permute(0, 0); i << 1.5; x.expand(5, 3); T.cat([x, x.t()]); i / 'a'; x + 'a'; x.squeeze(7)
T.zeros(-1); x.reshape(-1, -1); i.requires_grad_(); x.to('nodevice')
x.index_select(0, T.tensor([7])); x.gather(5, i); T.tensor([[1, 2], [3]]); T.tensor('a')
T.eye(-1); iter(s); x.backward(); x.sum().backward(); int(x); float(x); x & y; x['a']; x[1.5]
x.norm('bad'); x.add_(T.zeros(4, 2, 3)); i.add_(1.5); x.t(1)
""".replace("\n", "; ").split("; ")  # fmt: skip


@pytest.mark.parametrize("expression", [e for e in WRONG if e])
def test_wrong_use_raises_the_type_that_torch_raises(expression: str) -> None:
    with pytest.raises(Exception) as theirs:
        eval(expression, names(torch))
    with pytest.raises(Exception) as ours:
        eval(expression, names(tangrad))
    assert issubclass(ours.type, theirs.type) or issubclass(theirs.type, ours.type), (
        f"{ours.value!r}, torch: {theirs.value!r}"
    )
    assert len(str(ours.value)) > 5


@pytest.mark.parametrize("kind", ["float64", "float32", "int64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "lt"])
def test_a_number_of_numpy_on_the_left_gives_a_tensor(name, kind):
    number = getattr(np, kind)(3)
    for dtype in ("float32", "int32"):
        ours, theirs = (
            getattr(operator, name)(number, t.arange(1, 4, dtype=getattr(t, dtype)))
            for t in (tangrad, torch)
        )
        assert isinstance(ours, tangrad.Tensor)
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        assert ours.tolist() == pytest.approx(theirs.tolist())


def test_a_number_of_numpy_on_the_left_is_recorded():
    x = tangrad.ones(2, requires_grad=True)
    (np.float64(3) * x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]

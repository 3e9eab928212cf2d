"""Operands may lie at any byte: what kernels make of them is what they make of aligned ones.

In C a misaligned load is undefined, though x86 executes it; `tox run -e sanitize` reports any.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tangrad
import tangrad.nn.functional as F
from tangrad_cpu import _kernels


def odd(tensor: Any) -> Any:
    """Return a tensor of the same values and strides whose first byte has an odd address."""
    packed = tensor.contiguous()
    data = packed.view(tangrad.uint8).numpy().tobytes() if packed.numel() else b""
    memory = np.zeros(len(data) + 65, np.uint8)
    offset = 1 - memory.ctypes.data % 2 + 2
    memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    flat = tangrad.frombuffer(
        memory, dtype=tensor.dtype, count=max(packed.numel(), 1), offset=offset
    )
    result = flat[: packed.numel()].view(packed.shape)
    assert result.data_ptr() % 2 == (result.numel() > 0)
    return result


def normal(*shape: int, dtype: Any = tangrad.float32, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).normal(size=shape)
    return tangrad.tensor(values, dtype=dtype)


def same(a: Any, b: Any) -> None:
    for x, y in zip(a, b, strict=True) if isinstance(a, tuple | list) else [(a, b)]:
        np.testing.assert_array_equal(x.float().numpy(), y.float().numpy())


FLOATS = ["float32", "float64", "float16", "bfloat16"]
# What they are given: a matrix (32, 48), a weight (16, 48), indices below 16, a mask (32, 48).
OPS: dict[str, Callable[..., Any]] = {
    "add": lambda x, w, i, m: x + x,
    "strided": lambda x, w, i, m: x[:, ::3].t() * x[:, 1::3].t(),
    "broadcast": lambda x, w, i, m: x * w[0] + w[:, :1][:1],
    "turned": lambda x, w, i, m: (x.view(48, 32).t().exp() + x).float(),
    "where": lambda x, w, i, m: tangrad.where(m, x, 0.5),
    "cast": lambda x, w, i, m: (x.double(), x.bfloat16(), x.to(tangrad.int32)),
    "sum": lambda x, w, i, m: (x.sum(), x.sum(0), x.sum(1), x[:, ::2].sum()),
    "extremes": lambda x, w, i, m: (*x.max(1), x.argmin(0), x.amax()),
    "var": lambda x, w, i, m: (x.var(), x.std(0)),
    "cumsum": lambda x, w, i, m: (x.cumsum(0), x.cumsum(1)),
    "softmax": lambda x, w, i, m: (x.softmax(1), x.softmax(0)),
    "matmul": lambda x, w, i, m: (x @ w.t(), x @ w[0], F.linear(x, w)),
    "sort": lambda x, w, i, m: (*x.sort(1), *x.topk(5)),
    "index": lambda x, w, i, m: (x[i], x.gather(1, i[:, None]), x.index_select(1, i)),
    "scatter": lambda x, w, i, m: (
        tangrad.zeros(32, 48, dtype=x.dtype).index_add(0, i, w),
        x.index_put((i,), w),
    ),
    "masked": lambda x, w, i, m: (x.masked_select(m), x.masked_fill(m, 2), x.nonzero()),
    "bincount": lambda x, w, i, m: (i.bincount(), i.bincount(w[:, 0].float())),
    "unique": lambda x, w, i, m: i.unique(return_counts=True),
    "norms": lambda x, w, i, m: (
        F.layer_norm(x, (48,), w[0], w[1]),
        F.batch_norm(x, None, None, w[0], w[1], training=True),
    ),
    "convolution": lambda x, w, i, m: F.conv2d(x.view(1, 2, 16, 48), w.view(8, 2, 8, 6)[:, :, :3]),
    "pooling": lambda x, w, i, m: F.max_pool2d(x.view(1, 1, 32, 48), 2),
    "embedding": lambda x, w, i, m: F.embedding(i, w),
    "loss": lambda x, w, i, m: F.nll_loss(x[:16], i),
    "attention": lambda x, w, i, m: F.scaled_dot_product_attention(x, w, w),
    "moved": lambda x, w, i, m: (
        tangrad.cat((x, w)),
        x.flip(1),
        x.roll(3),
        x.tril(),
        x.t().clone(),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OPS)
def test_results_are_those_of_aligned_operands(name: str, dtype: str) -> None:
    kind = getattr(tangrad, dtype)
    operands = (
        normal(32, 48, dtype=kind),
        normal(16, 48, dtype=kind, seed=1),
        tangrad.tensor(np.random.default_rng(2).permutation(16)),
        normal(32, 48, seed=3) > 0,
    )
    same(OPS[name](*map(odd, operands)), OPS[name](*operands))


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "int16", "int64"])
def test_other_dtypes(dtype: str) -> None:
    x = normal(20, 30).mul(50).to(getattr(tangrad, dtype))
    for op in (
        lambda x: x * x + 1,
        lambda x: x[:, ::3].t() * x[:, 1::3].t(),
        lambda x: x.sum(0),
        lambda x: x @ x.t(),
        lambda x: x.cumsum(1),
        lambda x: x.t().contiguous(),
    ):
        np.testing.assert_array_equal(op(odd(x)).numpy(), op(x).numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_written_lands_at_its_place(dtype: str) -> None:
    kind = getattr(tangrad, dtype)
    start = normal(16, 48, dtype=kind)
    index = tangrad.tensor(np.random.default_rng(2).permutation(16))
    steps: list[Callable[[Any], Any]] = [
        lambda x: x.mul_(3),
        lambda x: x[:, ::2].add_(x[:, 1::2]),
        lambda x: x[1:, ::3].add_(x[:-1, ::3]),
        lambda x: x.clamp_(min=-1),
        lambda x: x.index_put_((index,), x.clone()),
        lambda x: x.index_add_(0, index, x.clone()),
        lambda x: x[:, 3].fill_(7),
        lambda x: x.tril_(),
        lambda x: x[::2].masked_fill_(x[::2] > 2, 0.5),
        lambda x: x.copy_(x.flip(0)),
        lambda x: x.cumsum_(1),
        lambda x: x.uniform_(generator=tangrad.Generator().manual_seed(1)),
        lambda x: tangrad.sum(x.clone(), 1, out=x[:, 5]),
        lambda x: tangrad.softmax(x.clone(), 1, out=x),
        lambda x: tangrad.mm(x.clone(), x.t().clone(), out=x[:, :16]),
    ]
    there, here = odd(start), start.clone()
    for step in steps:
        step(there)
        step(here)
        same(there, here)


def test_writing_leaves_what_lies_between() -> None:
    x = odd(normal(16, 48))
    before = x.clone()
    x[:, ::2].cumsum_(1)
    tangrad.sum(before, 1, out=x[:, 2])
    same(x[:, 1::2], before[:, 1::2])
    same(x[:, ::2][:, 2:], before[:, ::2].cumsum(1)[:, 2:])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [tangrad.optim.SGD, tangrad.optim.AdamW])
def test_steps_of_optimizers(kind: Any, foreach: bool) -> None:
    results = []
    for place in (odd, tangrad.clone):
        parameters = [place(normal(30, seed=k)).requires_grad_() for k in range(3)]
        optimizer = kind(parameters, lr=0.1, foreach=foreach)
        for step in range(3):
            for k, parameter in enumerate(parameters):
                parameter.grad = place(normal(30, seed=10 * step + k))
            optimizer.step()
        results.append([parameter.detach() for parameter in parameters])
    same(*results)


def test_lists_are_written_in_place() -> None:
    lists = [[place(normal(9, seed=k)) for k in range(3)] for place in (odd, tangrad.clone)]
    for tensors in lists:
        tangrad._foreach_mul_(tensors, 3.0)
        tangrad._foreach_add_(tensors, tensors)
    same(*lists)


def test_memory_that_is_only_read_may_be_read_only(tmp_path: Any) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"x" + np.arange(30, dtype="float32").tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    array = np.frombuffer(mapped, np.float32, offset=1)
    with pytest.warns(UserWarning, match="writ"):
        gradient = tangrad.from_numpy(array)
    assert gradient.sum() == 435
    assert gradient.softmax(0).argmax() == 29
    target = odd(tangrad.zeros(30))
    tangrad._foreach_add_([target], [gradient])
    same(target, tangrad.arange(30.0))


def test_reductions_of_nothing() -> None:
    x = odd(tangrad.ones(4, 5))
    tangrad.sum(tangrad.zeros(5, 0), 1, out=x[1])
    assert x[1].tolist() == [0] * 5
    assert odd(tangrad.zeros(0, 3)).sum(0).tolist() == [0, 0, 0]
    assert odd(tangrad.zeros(0, 3)).cumsum(1).shape == (0, 3)


def test_missing_memory_is_told_and_changes_nothing() -> None:
    x = odd(normal(8, 9))
    before = x.clone()
    for failing in range(2):
        _kernels.fail_scratch_after(failing)
        try:
            with pytest.raises(MemoryError, match="not aligned"):
                x.cumsum_(1)
        finally:
            _kernels.fail_scratch_after(-1)
    same(x, before)

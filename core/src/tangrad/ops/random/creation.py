"""Define the tensors that are made of random numbers."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import _C
from tangrad.dispatch.batching import refuse_same
from tangrad.ops.creation.empty_full import require_strided
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import (
    Device,
    DType,
    Generator,
    MemoryFormat,
    Tensor,
    TensorLayout,
)
from tangrad.ops.random import sequential as random_sequential
from tangrad.ops.random.uniform_normal import BOUNDS, EXACT_BITS, require_floating
from tangrad.ops.refusal import refuse_values
from tangrad.ops.views.geometry import Ints, dtype_name
from tangrad.random import philox


def _finished(drawn: Any, requires_grad: bool, out: Any = None) -> Any:
    """Return drawn numbers; a tensor that was made for them is new, at version 0."""
    drawn = _C.requiring_grad(drawn) if requires_grad else drawn
    return _C.as_new(drawn) if out is None else drawn


@composite(
    c_implementation="rand",
    random=True,
    dtypes="floating",
    samples=lambda s: [s((2, 3)), s(())],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def rand(
    size: Ints,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Draw a tensor of numbers uniform on [0, 1)."""
    require_strided(layout)
    drawn = tangrad.empty(size, dtype=dtype, device=device, out=out)
    drawn = drawn.uniform_(generator=generator)
    return _finished(drawn, requires_grad, out)


@composite(
    c_implementation="randn",
    random=True,
    samples=lambda s: [s((2, 3)), s(())],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def randn(
    size: Ints,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Draw a tensor of standard normal numbers."""
    require_strided(layout)
    drawn = tangrad.empty(size, dtype=dtype, device=device, out=out)
    drawn = drawn.normal_(generator=generator)
    return _finished(drawn, requires_grad, out)


@composite(
    c_implementation="randint_between",
    random=True,
    function=False,
    samples=lambda s: [s(0, 5, (2, 3)), s(-3, 3, (4,))],
    oracle="randint",
    errors=lambda s: [(s(2, 2, (1,)), RuntimeError, "less than")],
)
def randint_between(
    low: int,
    high: int,
    size: Ints,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Draw a tensor of integers uniform on [low, high)."""
    dtype = tangrad.int64 if dtype is None and out is None else dtype
    require_strided(layout)
    drawn = tangrad.empty(size, dtype=dtype, device=device, out=out)
    drawn = drawn.random_(low, high, generator=generator)
    return _finished(drawn, requires_grad, out)


@composite(
    c_implementation="randint_below",
    random=True,
    function=False,
    samples=lambda s: [s(5, (2, 3)), s(1, (4,))],
    oracle="randint",
)
def randint_below(
    high: int,
    size: Ints,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Draw a tensor of integers uniform on [0, high)."""
    given = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return randint_between(0, high, size, generator=generator, out=out, **given)


randint = overload("randint", "randint_between", "randint_below")

_permutation_of = op(
    "_permutation_of(Tensor! self, *, generator? generator=None) -> Tensor",
    random=True,
    sequential=random_sequential.permutation,
    words=lambda self: philox.words_for("randperm", self.shape[0]),
    reference=lambda np, self, seed, offset: philox.randperm(seed, offset, self.shape[0]).astype(
        self.dtype
    ),
    vjp="none: integer output",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [s(s.integers(0, 5, 5))],
    doc="Overwrite a vector by a random permutation of its positions.",
)


def _check_permutation(n: int, dtype: Any) -> None:
    name = dtype_name(dtype)
    most = 2 ** EXACT_BITS[name] if name in EXACT_BITS else BOUNDS.get(name, (0, n))[1]
    most += 1
    if n > most:
        raise RuntimeError(f"n cannot be greater than {most} for {dtype}, got {n}: overflow")


@composite(
    random=True,
    samples=lambda s: [s(5), s(0), s(1)],
    errors=lambda s: [(s(-1), RuntimeError, "n must be non-negative")],
)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Draw a permutation of the integers from 0 to n - 1."""
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    if out is not None or (dtype is not None and dtype is not tangrad.int64):
        _check_permutation(n, dtype if out is None else out.dtype)
    elif dtype is None:
        dtype = tangrad.int64
    require_strided(layout)
    empty = tangrad.empty((n,), dtype=dtype, device=device, out=out)
    drawn = _permutation_of(empty, generator=generator)
    return _finished(drawn, requires_grad, out)


@composite(
    random=True,
    dtypes="floating",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor())],
)
def rand_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw numbers uniform on [0, 1) in the shape, dtype and device of a tensor."""
    require_strided(layout)
    drawn = tangrad.empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    drawn = drawn.uniform_(generator=generator)
    return _finished(drawn, requires_grad)


@composite(
    random=True,
    dtypes="floating",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor())],
)
def randn_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw standard normal numbers in the shape, dtype and device of a tensor."""
    require_strided(layout)
    drawn = tangrad.empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    drawn = drawn.normal_(generator=generator)
    return _finished(drawn, requires_grad)


@composite(
    random=True,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 5), s(s.tensor(4), -2, 3), s(s.tensor(4), high=3)],
    errors=lambda s: [(s(s.tensor(2)), TypeError, "'high'")],
)
def randint_like(
    input: Tensor,
    low: int | None = None,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw integers uniform on [low, high) in the shape, dtype and device of a tensor.

    One number alone is `high`, and `low` is 0.
    """
    if low is None and high is None:
        raise TypeError("randint_like() missing 1 required positional arguments: 'high'")
    low, high = (0, low) if high is None else (low or 0, high)
    require_strided(layout)
    drawn = tangrad.empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    drawn = drawn.random_(low, high, generator=generator)
    return _finished(drawn, requires_grad)


@composite(
    out=True,
    random=True,
    dtypes="floating",
    samples=lambda s: [
        s(0.0, 1.0, (2, 3)),
        s(s.tensor(3), 1.0),
        s(0.0, s.tensor(3, low=0)),
        s(s.tensor(3), s.tensor(2, 1, low=0)),
    ],
    errors=lambda s: [(s(0.0, -1.0, (2,)), RuntimeError, "std >= 0")],
)
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Ints | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Draw normally distributed numbers.

    Args:
        mean: a number with `size`, or a tensor of means.
        std: a number, or a tensor of standard deviations.
        size: shape of the result when both are numbers.
    """
    tensors = [x for x in (mean, std) if hasattr(x, "shape")]
    if not tensors:
        if size is None:
            raise TypeError("normal() with two numbers needs a size")
        require_strided(layout)
        drawn = tangrad.empty(size, dtype=dtype, device=device)
        drawn = drawn.normal_(mean, std, generator=generator)
        return _finished(drawn, requires_grad)
    refuse_same("normal", *tensors)
    shape = tangrad.broadcast_shapes(*(x.shape for x in tensors))
    if hasattr(std, "shape"):
        refuse_values(std < 0, "normal expects all elements of std >= 0.0")
    if not hasattr(std, "shape") and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if any(x.requires_grad or hasattr(_C.level_of(x), "tangent") for x in tensors):
        # Recorded, with derivatives of zero: drawing does not pass them.
        noise = (tensors[0] + tensors[-1]).normal_(generator=generator)
        mean, std = (x.detach() if hasattr(x, "shape") else x for x in (mean, std))
    else:
        noise = tangrad.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
        noise = noise.normal_(generator=generator)
    return noise * std + mean


def _check_weights(weights: Any) -> None:
    refuse_values(
        (weights < 0) | ~weights.isfinite(),
        "probability tensor contains either `inf`, `nan` or element < 0",
    )
    refuse_values(
        weights.sum(-1) == 0, "invalid multinomial distribution (sum of probabilities <= 0)"
    )


@composite(
    strict_out_dtype=True,
    out=True,
    random=True,
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(4, low=0.5, high=1), 2),
        s(s.tensor(2, 3, low=0.5, high=1), 5, True),
    ],
    errors=lambda s: [
        (s(s.tensor(3, low=0.5, high=1), 4), RuntimeError, "without replacement"),
        (s(s.tensor(3, low=0.5, high=1), 0), RuntimeError, "n_sample <= 0|num_samples"),
    ],
)
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Draw indices of the last dimension with probabilities proportional to its elements.

    Without replacement the indices of the greatest p / e, e exponentially distributed, are
    taken (Efraimidis, Spirakis: "Weighted random sampling with a reservoir", 2006).
    """
    if input.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got shape {list(input.shape)}")
    require_floating("multinomial", input)
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got num_samples={num_samples}")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement, got "
            f"{num_samples} > {input.shape[-1]}"
        )
    refuse_same("multinomial", input)
    weights = input.detach()
    _check_weights(weights)
    engine = random_sequential.engine_of(generator, weights.device)
    if engine is not None and num_samples == 1:
        replacement = False  # PyTorch takes one index the faster way
    if not replacement:
        race = weights / tangrad.empty_like(weights).exponential_(generator=generator)
        if num_samples == 1:
            return race.argmax(-1, keepdim=True)
        return race.topk(num_samples, -1)[1]
    if engine is not None:
        return random_sequential.multinomial_places(weights, num_samples, engine)
    edges = (weights / weights.sum(-1, keepdim=True)).cumsum(-1)
    shape = (*tuple(input.shape)[:-1], num_samples)
    points = tangrad.empty(shape, dtype=edges.dtype, device=edges.device)
    places = tangrad.searchsorted(edges, points.uniform_(generator=generator), right=True)
    return places.clamp(max=input.shape[-1] - 1)

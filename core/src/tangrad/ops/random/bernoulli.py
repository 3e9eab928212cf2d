"""Define the ops that keep or drop elements at random: Bernoulli numbers and dropout."""

from __future__ import annotations

from functools import partial
from typing import Any

import tangrad
from tangrad import _C
from tangrad.dispatch.batching import refuse_same
from tangrad.ops.definition.define import at_all_sizes, composite, op, overload, pointwise
from tangrad.ops.definition.signature import Generator, Tensor, WrittenTensor
from tangrad.ops.random import sequential as random_sequential
from tangrad.ops.random.uniform_normal import (
    refuse_overlap,
    require_floating,
    width_of,
    words_of,
)
from tangrad.ops.views.geometry import numel_of
from tangrad.random import philox


def _bernoulli_reference(np: Any, self: Any, seed: int, offset: int) -> Any:
    if self.size and not ((self >= 0) & (self <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true for every probability")
    chosen = philox.bernoulli(seed, offset, self.reshape(-1), int(self.size), width_of(self))
    return chosen.reshape(self.shape).astype(self.dtype)


bernoulli_tensor = op(
    "bernoulli_tensor(Tensor self, *, generator? generator=None) -> Tensor",
    strict_out=True,
    any_out_dtype=True,
    dtypes="floating",
    check=lambda self: require_floating("bernoulli", self),
    shape=lambda self: self.shape,
    random=True,
    sequential=random_sequential.bernoulli_tensor,
    words=words_of("bernoulli"),
    reference=_bernoulli_reference,
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3, low=0, high=1)), s(s.tensor(low=0, high=1))],
    oracle="bernoulli",
    doc="Draw 1 with the probability that each element states, else 0.",
)


def _check_number(self: Any, p: float) -> None:
    refuse_overlap("bernoulli_", self)
    _check_probability("bernoulli_", p)


def _check_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"{name} expects p to be in [0, 1], but got p={p}")


bernoulli_number_ = op(
    "bernoulli_number_(Tensor! self, float p=0.5, *, generator? generator=None) -> Tensor",
    check=_check_number,
    random=True,
    sequential=random_sequential.bernoulli,
    words=lambda self: philox.words_for("bernoulli float32", numel_of(self.shape)),
    reference=lambda np, self, p, seed, offset: (
        philox.bernoulli(seed, offset, p, int(self.size)).reshape(self.shape).astype(self.dtype)
    ),
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    method=False,
    oracle=lambda torch, x, *p: x.bernoulli_(*p),
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(4), 0.25), s(s.tensor(3), 1.0)],
    errors=lambda s: [(s(s.tensor(2), 1.5), RuntimeError, "p to be in|p_in")],
    doc="Overwrite a tensor by 1 with probability p, else 0.",
)


@composite(
    random=True,
    function=False,
    method=False,
    oracle=lambda torch, x, p: x.bernoulli_(p),
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3, low=0, high=1, dtype="float64")),
        s(s.tensor(2, 3), s.tensor(3, low=0, high=1, dtype="float32")),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(3, low=0, high=1, dtype="float32")), RuntimeError, "must match"),
        (s(s.tensor(2), s.tensor(2, low=2, high=3, dtype="float32")), RuntimeError, "p_in"),
    ],
)
def bernoulli_elements_(
    self: WrittenTensor, p: Tensor, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite a tensor by 1 with the probabilities of another, which is broadcast, else 0."""
    return self.copy_(tangrad.bernoulli(p.expand(self.shape), generator=generator))


bernoulli_ = overload("bernoulli_", "bernoulli_number_", "bernoulli_elements_", function=False)


@composite(
    strict_out=True,
    random=True,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 0.5)],
    oracle="bernoulli",
)
def bernoulli_p(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Draw 1 with probability p, else 0, in the shape and dtype of a tensor."""
    refuse_same("bernoulli", self)
    dense = tangrad.contiguous_format  # numbers are drawn in the order of memory
    made = self.clone if self.requires_grad else partial(tangrad.empty_like, self)
    return made(memory_format=dense).bernoulli_(p, generator=generator)


bernoulli = overload("bernoulli", "bernoulli_tensor", "bernoulli_p")

dropout_mask_scale = pointwise(
    "dropout_mask_scale(Tensor self, float p, int seed, int offset) -> Tensor",
    "where(philox_uniform(seed, offset) >= p, self * (1 / (1 - p)), self * 0)",
    batch=None,
    dtypes="floating complex",
    partials={"self": "where(philox_uniform(seed, offset) >= p, (1 / (1 - p)), 0)"},
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 0.5, 7, 0), s(s.tensor(4), 0.25, 7, 3)],
    doc="Zero the elements whose random number is below p; scale the others by 1 / (1 - p).",
)


def _dropout_reference(np: Any, self: Any, p: float, seed: int, offset: int) -> Any:
    kept = philox.uniform(seed, offset, int(self.size)).reshape(self.shape) >= np.float32(p)
    return np.where(kept, self * self.dtype.type(1 / (1 - p)), self * 0).astype(self.dtype)


def _mask_again(x: Any, p: float, seed: int, offset: int) -> Any:
    """Scale and zero as a call did; an op's integer has a sign, of a seed with the same 64 bits."""
    seed = seed - 2**64 if type(seed) is int and seed >= 2**63 else seed
    return dropout_mask_scale(x, p, seed, offset)


native_dropout = op(
    "native_dropout(Tensor self, float p, *, generator? generator=None) -> Tensor",
    dtypes="floating complex",
    check=lambda self: require_floating("dropout", self),
    shape=lambda self: self.shape,
    random=True,
    words=lambda self: numel_of(self.shape),
    reference=_dropout_reference,
    decompose=lambda self, p, seed, offset: _mask_again(self, p, seed, offset),
    vjp={"self": lambda g, p, seed, offset: _mask_again(g, p, seed, offset)},
    jvp=lambda self_t, p, seed, offset: _mask_again(self_t, p, seed, offset),
    batch="dims",
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 0.5), s(s.tensor(4), 0.25)],
    oracle="nn.functional.dropout",
    doc="Apply dropout_mask_scale with numbers of the generator.",
)


def _dropped(input: Any, p: float) -> Any:
    stack = _C.get_intercept()
    engine = random_sequential.engine_of(None, input.device)
    if engine is None and (stack is None or not stack.levels):
        if not input.is_contiguous() and 0 not in input.stride():  # as empty_like lays it out
            order = sorted(range(input.ndim), key=input.stride, reverse=True)
            dropped = native_dropout(input.permute(order), p)
            return dropped.permute([order.index(d) for d in range(len(order))])
        return native_dropout(input, p)
    # Samples of a vmap may draw differently, and a sequential engine cannot draw again: there is
    # no seed that backward could save.
    kept = tangrad.empty_like(input).bernoulli_(1 - p)
    return input * (kept.div_(1 - p) if engine is not None else kept * (1 / (1 - p)))


@composite(
    random=True,
    dtypes="floating complex",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), 0.5, True),
        s(s.tensor(2, 3), 0.5, False),
        s(s.tensor(4), 0.0),
        s(s.tensor(4), 1.0),
    ],
    oracle="nn.functional.dropout",
    errors=lambda s: [
        (s(s.tensor(2), 1.5), ValueError, "dropout probability has to be between 0 and 1")
    ],
)
@at_all_sizes
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability p and scale the others by 1 / (1 - p), in training.

    Srivastava et al.: "Dropout: a simple way to prevent neural networks from overfitting", 2014.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or input.numel() == 0:
        return input
    result = input * 0 if p == 1 else _dropped(input, p)
    return input.copy_(result) if inplace else result
